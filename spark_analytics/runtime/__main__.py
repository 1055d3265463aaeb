"""``python -m spark_analytics.runtime``: fetch and write what Spark needs now, so that no later start need write it.

``--s3``: those for a lake in an object store as well. ``--print-jars`` prints where they are, as
``spark-submit --jars`` takes them.
"""

from __future__ import annotations

import argparse
import sys

from lake.errors import UserError
from spark_analytics.runtime.jars import ensure_jars, ensure_s3_jars
from spark_analytics.runtime.launch import quick_command


def main() -> int:
    """Fill the cache; exit code 2 with one line where that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m spark_analytics.runtime", description=__doc__)
    parser.add_argument("--s3", action="store_true", help="with the jars by which a lake in an object store is read")
    parser.add_argument("--print-jars", action="store_true", help="print the jars' paths, separated by commas")
    chosen = parser.parse_args()
    try:
        jars = [*ensure_jars(), *(ensure_s3_jars() if chosen.s3 else ())]
        quick_command()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if chosen.print_jars:
        print(",".join(map(str, jars)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
