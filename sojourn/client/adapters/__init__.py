"""Clients of brokers that record by themselves: each wraps the application's own client, and changes nothing else.

One module a library, named after it; each imports that library at most when it is used.
"""
