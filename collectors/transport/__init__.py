"""Where bronze records go: the lake's own tables, or Kafka topics that the analytics reads."""
