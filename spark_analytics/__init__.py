"""From records to metrics: pure DataFrame transforms, the streaming job that runs them, and Spark SQL."""
