"""NATS: where it is, and talking to it."""
