"""The public views: every metric's formula, once, in SQL that Spark and the JVM-free reader both run."""

from lake.views.catalogue import VIEWS, render
from lake.views.depend import below, columns_below, columns_read
from lake.views.model import Column, View

__all__ = ["VIEWS", "Column", "View", "below", "columns_below", "columns_read", "render"]
