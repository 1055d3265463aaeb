"""The whole system on one machine, around a real broker: what ``sojourn demo`` runs."""
