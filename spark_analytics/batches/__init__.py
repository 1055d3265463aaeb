"""A micro-batch of the stream: which files it is made of, how they are read, and which engine computes it."""
