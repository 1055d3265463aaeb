"""From Kafka topics into the bronze tables, each record once: what comes first where Kafka is the transport."""
