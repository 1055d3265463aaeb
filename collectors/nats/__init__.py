"""NATS JetStream: samples of its streams, and a tap that follows every message without the application's help.

What the tap asks of the broker, and nothing else: a stream of its own (bounded in bytes and age), `republish` on the
watched streams (headers only; one that republishes already is left as it is), and `sample_freq` 100 % on their durable
consumers. The application is not touched.

What it cannot know: messages that ended before a stream was first watched; attempts beyond the first whose worker died
silently, until a later attempt ends; when exactly an attempt began that is long or was refused (an upper bound is
recorded, and `reason` says so); messages deleted singly, by a limit for each subject or by their own time to live;
consumers that acknowledge nothing, or all up to a message at once (their ends are told by the floor, seconds later).
"""
