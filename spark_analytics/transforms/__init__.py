"""Pure steps from records to gold, Arrow → Arrow, wherever they run: in this process or in Spark's executors."""

from spark_analytics.transforms.events import EVENT_COLUMNS, KEY, Events
from spark_analytics.transforms.marks import marks
from spark_analytics.transforms.partials import partials

__all__ = ["EVENT_COLUMNS", "KEY", "Events", "marks", "partials"]
