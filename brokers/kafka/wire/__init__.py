"""Kafka's primitive types, and the requests that every connection begins with."""
