"""Access control that every HTTP listener stands behind: who may ask, for how long, and how much memory it may cost."""
