"""Servers that are Java programs: their jars, declared with checksums, fetched into Sojourn's cache like Spark's."""

from __future__ import annotations

import os
from pathlib import Path

from lake.errors import SojournError
from spark_analytics.runtime.cache import cache_root
from spark_analytics.runtime.coordinates import read_jars
from spark_analytics.runtime.jars import ensure_declared
from spark_analytics.runtime.java import ensure_java
from tests.support.servers import require_server

_HERE = Path(__file__).parent


def java_command(name: str) -> list[str]:
    """``java -cp …`` with the jars that ``tests/support/<name>.toml`` declares; without them the test ends."""
    try:
        java = ensure_java()
        jars = ensure_declared(read_jars(_HERE / f"{name}.toml"), cache_root(os.environ) / name)
    except SojournError as error:
        require_server(str(error))
    return [str(java.executable), "-cp", os.pathsep.join(map(str, jars))]
