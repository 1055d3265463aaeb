"""Records that applications send themselves: OpenTelemetry spans, and the events of our own client."""
