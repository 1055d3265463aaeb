"""Parts of the benchmark of the dashboard."""
