"""Ordinary applications, each by its vendor's client alone, which Sojourn observes from outside."""
