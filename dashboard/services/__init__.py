"""Rows in, view models out: pure functions that take data and ``now``, and know nothing of the screen."""
