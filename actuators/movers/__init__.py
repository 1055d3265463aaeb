"""Movers carry messages from one queue to another of a broker: aside and back, and from dead letters to their queue."""
