"""Sojourn's evidence for programs that speak the Model Context Protocol: read-only, over standard input and output."""
