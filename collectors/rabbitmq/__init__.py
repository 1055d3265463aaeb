"""A RabbitMQ node or cluster, read through its management API."""
