"""Broker → records: samplers and taps that write what brokers tell to the lake's bronze tables, exactly once."""
