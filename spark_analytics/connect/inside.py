"""Spark's own Connect server, which trusts whoever has its token with everything: nobody but the gate has it.

The token is handed over by py4j when everything else is set up, and taken back once the server has made its copy. So
it never stands in a command line, an environment, a file, an event log or a session's settings, which clients read.
"""

from __future__ import annotations

import secrets
from typing import Any

from pyspark.sql import SparkSession

_TOKEN = "spark.connect.authenticate.token"
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",  # any that is free
    "spark.connect.grpc.port.maxRetries": "0",
}


def serve_inside(session: SparkSession) -> tuple[int, str]:
    """Start the server in the Java process of ``session``; the port at which it listens, and its token."""
    java: Any = session.sparkContext._jvm
    context = session.sparkContext._jsc.sc()
    service = getattr(getattr(java.org.apache.spark.sql.connect.service, "SparkConnectService$"), "MODULE$")
    token = secrets.token_urlsafe(32)
    settings = context.conf()  # the context's own, not a copy
    for key, value in (_SETTINGS | {_TOKEN: token}).items():
        settings.set(key, value)
    try:
        service.start(context)
    finally:
        settings.remove(_TOKEN)
    return int(service.localPort()), token
