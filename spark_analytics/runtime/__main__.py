"""``python -m spark_analytics.runtime``: fetch what Spark needs now, so that the first start need not."""

from __future__ import annotations

import sys

from lake.errors import UserError
from spark_analytics.runtime.jars import ensure_jars
from spark_analytics.runtime.java import ensure_java


def main() -> int:
    """Fill the cache; exit code 2 with one line where that is not possible."""
    try:
        ensure_jars()
        ensure_java()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
