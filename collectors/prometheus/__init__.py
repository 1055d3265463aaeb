"""Brokers that tell their queues' numbers to Prometheus: Pulsar, ActiveMQ Artemis, Pub/Sub, Service Bus."""
