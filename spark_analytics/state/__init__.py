"""Finished state: what partials, marks and samples come to, folded once and committed to gold for everybody to read."""
