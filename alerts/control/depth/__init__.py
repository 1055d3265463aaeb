"""Glances: how many messages wait, asked of the broker beside the pipeline of metrics."""
