"""Kafka: where it is, and connections that speak its protocol."""
