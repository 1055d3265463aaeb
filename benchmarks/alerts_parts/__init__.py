"""The parts of the benchmark of alerts."""
