"""Pure steps from records to gold: DataFrame → DataFrame in Spark, then Arrow → Arrow for the layout of rows."""

from spark_analytics.transforms.gather import EVENT_COLUMNS, gather
from spark_analytics.transforms.layout import marks, partials
from spark_analytics.transforms.normalise import normalise
from spark_analytics.transforms.summaries import summary_partials

__all__ = ["EVENT_COLUMNS", "gather", "marks", "normalise", "partials", "summary_partials"]
