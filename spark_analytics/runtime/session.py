"""The Spark session: set up for small, frequent batches on one machine, quiet, and bound to the loopback."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from lake.errors import SojournError, first_line
from spark_analytics.runtime.jars import ensure_jars
from spark_analytics.runtime.java import ensure_java
from spark_analytics.runtime.launch import Launch, command_of
from spark_analytics.runtime.options import cores_of, is_submitted, prepare_environment, session_settings
from spark_analytics.runtime.submitted import join_submitted


def build_session(
    app_name: str,
    *,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    quick_start: bool = False,
    jars: Sequence[Path] = (),
    ahead: Launch | None = None,
) -> SparkSession:
    """The process's Spark session with Delta, made on first use and the same ever after.

    ``conf`` overrides any setting of ours, such as ``spark.driver.memory``. ``quick_start`` halves the processor time
    of starting and of first queries, and slows long ones: for a single query, a demonstration, a test. ``jars`` are
    added to those that every session needs. ``ahead`` is a Java process that was begun before. Raises UserError where
    jars or Java are missing, SojournError where Spark does not start.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if is_submitted():
        return join_submitted(app_name, conf or {})
    java = ensure_java()
    settings = session_settings(master, java, [*ensure_jars(), *jars], quick_start=quick_start) | dict(conf or {})
    prepare_environment(java, master)
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    try:
        if ahead is None and cores_of(master) is not None and not has_java():
            command = command_of(settings)
            ahead = None if command is None else Launch(command, os.environ)
        if ahead is not None:
            _join(ahead)
        return builder.getOrCreate()
    except Exception as error:
        raise SojournError(
            f"Spark does not start on {java.executable} (Java {java.version}): {first_line(error)}"
        ) from error


def abandon() -> None:
    """Kill the Java process, with whatever it is at, and forget the session; the next one is a new one."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def has_java() -> bool:
    """Whether this process has its Java: another would only be started in vain."""
    return getattr(SparkContext, "_gateway", None) is not None


def _join(ahead: Launch) -> None:
    """Make pyspark use the Java process that is there instead of starting one."""
    port, secret = ahead.address()
    told = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ |= told
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in told:  # processes that we start must not find our Java
            os.environ.pop(name, None)
    gateway.proc = ahead.process
    SparkContext._ensure_initialized(gateway=gateway)
