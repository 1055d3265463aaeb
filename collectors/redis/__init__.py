"""A Redis server and the queues that libraries keep there."""
