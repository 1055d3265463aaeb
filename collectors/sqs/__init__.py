"""Amazon SQS, or a server that speaks its protocol: samples of every queue, and what CloudWatch adds to them.

SQS has no call that reads many queues: each costs one GetQueueAttributes a cycle, so these are made at once, over kept
connections. Nothing is asked of the queues' messages: receiving one to look at it would put it in flight.

What it cannot know: who consumes; how often a queue was polled (CloudWatch tells the empty receives alone); anything of
single messages, which only the application or its OpenTelemetry instrumentation can tell.
"""
