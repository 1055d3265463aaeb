"""A client of Spark Connect by its protocol: pyspark's own needs packages that Sojourn does not.

Its messages are pyspark's, whose package looks for those others before it lets anyone in: hence the side door.
"""

from __future__ import annotations

import importlib
import sys
import types
import uuid
from importlib.util import find_spec
from typing import Any

import grpc
import pyarrow as pa


def _messages() -> Any:
    name = "pyspark.sql.connect"
    if name not in sys.modules:
        package = types.ModuleType(name)
        spec = find_spec("pyspark.sql")
        assert spec is not None and spec.submodule_search_locations
        package.__path__ = [f"{spec.submodule_search_locations[0]}/connect"]
        sys.modules[name] = package
        try:
            return importlib.import_module(f"{name}.proto.base_pb2")
        finally:
            del sys.modules[name]
    return importlib.import_module(f"{name}.proto.base_pb2")


class Client:
    """One session with the server at ``port`` of this machine."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self._messages = _messages()
        self._session = str(uuid.uuid4())
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._execute = self._channel.unary_stream(
            "/spark.connect.SparkConnectService/ExecutePlan",
            request_serializer=self._messages.ExecutePlanRequest.SerializeToString,
            response_deserializer=self._messages.ExecutePlanResponse.FromString,
        )

    def sql(self, query: str) -> list[dict[str, Any]]:
        """The rows of ``query``; grpc.RpcError for what the server refuses."""
        request = self._messages.ExecutePlanRequest(session_id=self._session)
        request.user_context.user_id = "test"
        request.plan.root.sql.query = query
        rows: list[dict[str, Any]] = []
        for response in self._execute(request, metadata=self._metadata, timeout=100):
            if response.HasField("arrow_batch"):
                rows += pa.ipc.open_stream(response.arrow_batch.data).read_all().to_pylist()
        return rows

    def close(self) -> None:
        self._channel.close()
