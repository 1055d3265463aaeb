"""Whether the functions of both engines were judged: ``python -m spark_analytics.functions``.

Prints, for each engine, the functions of its catalogue about which ``lake/sql/functions.toml`` says nothing, and the
names there that the engine does not have. To judge a function is to read what it does: allowed are those that read
their arguments and nothing else, and that have no effect.
"""

from __future__ import annotations

import re

import duckdb
from pyspark.sql import SparkSession

from lake.sql.functions import judgement
from spark_analytics.runtime.session import build_session

_NAME = re.compile(r"[a-z_]\w*", re.ASCII)
#: Sojourn's own, and what Spark's DataFrames call without that the catalogue lists it.
_BESIDE_SPARK = frozenset(("histogram_merge", "histogram_quantile", "product", "timestampadd", "timestampdiff"))
_BESIDE_DUCKDB = frozenset(("bucket_value", "histogram_merge", "histogram_quantile", "timestamp_micros"))


def spark_catalogue(session: SparkSession) -> set[str]:
    """The names of all functions, table functions and operators that Spark knows."""
    names = {str(row[0]) for row in session.sql("SHOW SYSTEM FUNCTIONS").collect()}
    return {name.lower().removeprefix("system.builtin.") for name in names}


def duckdb_catalogue() -> set[str]:
    """The names of all functions, macros and pragmas that DuckDB knows; its operators are not called by name."""
    with duckdb.connect(config={"enable_external_access": "false"}) as connection:
        names = connection.execute("SELECT DISTINCT function_name FROM duckdb_functions()").fetchall()
    return {name for (given,) in names if _NAME.fullmatch(name := given.lower())}


def unjudged(engine: str, catalogue: set[str]) -> list[str]:
    """The functions of ``catalogue`` about which nobody decided."""
    known = judgement(engine)
    return sorted(name for name in catalogue if not known.judged(name))


def gone(engine: str, catalogue: set[str]) -> list[str]:
    """The functions that are allowed and that ``engine`` does not have."""
    beside = _BESIDE_SPARK if engine == "spark" else _BESIDE_DUCKDB
    return sorted(judgement(engine).allowed - catalogue - beside)


def main() -> None:
    """Print what there is to judge."""
    session = build_session("functions", quick_start=True)
    for engine, catalogue in (("spark", spark_catalogue(session)), ("duckdb", duckdb_catalogue())):
        print(f"{engine}: {len(catalogue)} functions")
        for what, names in (("to judge", unjudged(engine, catalogue)), ("not there", gone(engine, catalogue))):
            print(f"  {what}: {', '.join(names) or 'none'}")


if __name__ == "__main__":
    main()
