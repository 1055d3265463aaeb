"""Concurrency limiters of ours and of others before the same servers, under the same open-loop load."""
