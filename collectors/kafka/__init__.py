"""A Kafka cluster: what its consumer groups have before them, in messages and in time, and how they fare."""
