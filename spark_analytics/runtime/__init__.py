"""What Spark needs before its first query: its jars, a Java runtime, and a session set up for small, quick batches."""
