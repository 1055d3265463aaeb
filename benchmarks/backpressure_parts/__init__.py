"""The parts of `make bench-backpressure`."""
