"""A RabbitMQ node or cluster, read through its management API or its Prometheus metrics; queues are never peeked into.

What it cannot know stands in docs/brokers/rabbitmq.md, and as a reason beside every null.
"""
