"""The header tap of a Kafka cluster: records of the listed topics, and what groups committed, as messages' lives."""
