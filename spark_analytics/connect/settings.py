"""Spark's settings that clients of Spark Connect may see and change: named one by one, values checked.

pyspark's client asks for some by itself, to bring rows along and to turn answers into pandas. All others stay unknown
to clients, whatever they hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from pyspark.sql.connect.proto import base_pb2

from lake.errors import UserError

_ZONE = re.compile(r"[A-Za-z0-9_+:/-]{1,64}", re.ASCII)


def _truth(value: str) -> bool:
    return value in ("true", "false")


def _whole(most: int) -> Callable[[str], bool]:
    return lambda value: value.isascii() and value.isdigit() and len(value) < 10 and 1 <= int(value) <= most


#: Setting that a client may change for its own session → whether it may have that value.
CHANGEABLE: Mapping[str, Callable[[str], bool]] = MappingProxyType(
    {
        "spark.sql.session.timeZone": lambda value: _ZONE.fullmatch(value) is not None,
        "spark.sql.timestampType": lambda value: value in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
        "spark.sql.shuffle.partitions": _whole(1000),
        "spark.sql.ansi.enabled": _truth,
        "spark.sql.execution.arrow.pyspark.enabled": _truth,
        "spark.sql.execution.arrow.pyspark.fallback.enabled": _truth,
        "spark.sql.execution.arrow.pyspark.selfDestruct.enabled": _truth,
        "spark.sql.execution.arrow.maxRecordsPerBatch": _whole(1_000_000),
        "spark.sql.execution.pandas.structHandlingMode": lambda value: value in ("legacy", "row", "dict"),
        "spark.sql.repl.eagerEval.enabled": _truth,
        "spark.sql.repl.eagerEval.maxNumRows": _whole(1000),
        "spark.sql.repl.eagerEval.truncate": _whole(1000),
    }
)
#: Settings that a client may read.
READABLE = frozenset(
    {
        *CHANGEABLE,
        "spark.app.name",
        "spark.connect.session.planCompression.defaultAlgorithm",
        "spark.connect.session.planCompression.threshold",
        "spark.python.sql.dataFrameDebugging.enabled",
        "spark.sql.connect.serverStacktrace.enabled",
        "spark.sql.execution.arrow.useLargeVarTypes",
        "spark.sql.execution.pandas.convertToArrowArraySafely",
        "spark.sql.execution.pandas.inferPandasDictAsMap",
        "spark.sql.execution.pyspark.binaryAsBytes",
        "spark.sql.execution.pythonUDF.arrow.enabled",
        "spark.sql.execution.pythonUDTF.arrow.enabled",
        "spark.sql.pyspark.inferNestedDictAsStruct.enabled",
        "spark.sql.pyspark.jvmStacktrace.enabled",
        "spark.sql.pyspark.legacy.inferArrayTypeFromFirstElement.enabled",
        "spark.sql.pyspark.legacy.inferMapTypeFromFirstPair.enabled",
        "spark.sql.session.localRelationBatchOfChunksSizeBytes",
        "spark.sql.session.localRelationCacheThreshold",
        "spark.sql.session.localRelationChunkSizeBytes",
        "spark.sql.session.localRelationChunkSizeRows",
        "spark.sql.session.localRelationSizeLimit",
        "spark.sql.stackTracesInDataFrameContext",
    }
)
#: What ``SparkSession.builder.appName`` sends along: of no use here, and no reason to refuse a notebook.
_IGNORED = frozenset({"spark.app.name"})


def check_settings(operation: base_pb2.ConfigRequest.Operation) -> None:
    """Raises UserError unless ``operation`` reads or changes what it may; takes out of it what is ignored."""
    kind = operation.WhichOneof("op_type")
    if kind == "set":
        kept = [pair for pair in operation.set.pairs if pair.key not in _IGNORED]
        for pair in kept:
            _check_change(pair.key, pair.value)
        del operation.set.pairs[:]
        operation.set.pairs.extend(kept)
    elif kind == "unset":
        for key in operation.unset.keys:
            _check_change(key, None)
    elif kind == "get_with_default":
        _check_reads(pair.key for pair in operation.get_with_default.pairs)
    elif kind in ("get", "get_option", "is_modifiable"):
        _check_reads(getattr(operation, kind).keys)
    elif kind != "get_all":  # whose answer is cut to what may be read
        raise UserError("what is asked of the settings is not allowed here", "read or set one by its name")


def readable_answer(request: base_pb2.ConfigRequest, answer: bytes) -> bytes:
    """The server's ``answer`` to ``request`` without the settings that a client may not read."""
    if request.operation.WhichOneof("op_type") != "get_all":
        return answer
    response = base_pb2.ConfigResponse.FromString(answer)
    prefix = request.operation.get_all.prefix  # which the server takes off the keys
    kept = [pair for pair in response.pairs if prefix + pair.key in READABLE]
    del response.pairs[:]
    response.pairs.extend(kept)
    return bytes(response.SerializeToString())


def _check_reads(keys: Iterable[str]) -> None:
    for key in keys:
        if key not in READABLE:
            raise UserError(f"the setting {key[:200]} is not for clients to read", "docs/sql.md lists those that are")


def _check_change(key: str, value: str | None) -> None:
    if key not in CHANGEABLE:
        raise UserError(f"changing {key[:200]} is not allowed here", "docs/sql.md lists the settings of a session")
    if value is not None and not CHANGEABLE[key](value):
        raise UserError(f"{key} cannot be {value[:80]!r} here", "docs/sql.md lists the settings of a session")
