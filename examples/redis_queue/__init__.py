"""A queue in Redis, small and correct, as an application would embed it: what Sojourn's Redis sampler observes."""
