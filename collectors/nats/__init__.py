"""NATS JetStream: samples of its streams, and a tap that follows every message without the application's help."""
