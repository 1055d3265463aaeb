"""Figures of the analytics, each part with a `measure(scale)`."""
