"""A Kafka cluster: its groups and topics."""
