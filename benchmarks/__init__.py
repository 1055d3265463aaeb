"""Benchmarks: what it costs, beside a baseline of the same run."""
