"""Redis: where it is, and its wire format."""
