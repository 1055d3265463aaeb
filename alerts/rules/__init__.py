"""Rule files: their shape, how they are read and checked, and the rules that ship with Sojourn."""
