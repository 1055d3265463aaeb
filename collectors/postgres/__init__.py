"""Queues of jobs in PostgreSQL, as nine libraries keep them."""
