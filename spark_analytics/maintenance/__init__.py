"""Keeping the lake small for months: coarser history, fewer files, shorter logs; and never a changed answer."""

from spark_analytics.maintenance.levels import roll_up
from spark_analytics.maintenance.retention import Retention

__all__ = ["Retention", "roll_up"]
