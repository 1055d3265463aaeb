"""Child processes that are started in order, watched, restarted, and never left behind."""
