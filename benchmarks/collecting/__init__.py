"""The parts of `make bench-collectors`, one module each: ``measure(scale)`` starts its server and yields figures."""
