"""Metrics to decisions: alert rules, their state, webhooks, and the policies that act on what fires."""
