"""``spark-submit deploy/spark/analyze.py -c sojourn.toml --lake DIR``: `sojourn analyze` as a Spark application.

Needs Sojourn in the driver's Python and in the workers', and Delta's jars:
``--jars "$(python -m spark_analytics.runtime --print-jars)"``. docs/scale.md has the whole command.
"""

from __future__ import annotations

import sys

from sojourn.cli.main import main

if __name__ == "__main__":
    main(["analyze", *sys.argv[1:]])
