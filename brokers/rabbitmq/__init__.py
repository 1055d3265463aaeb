"""RabbitMQ: where it is, and its management API."""
