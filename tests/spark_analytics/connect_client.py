"""A client of Spark Connect by its protocol alone, where pyspark's own would do more than is asked."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import pyarrow as pa
from google.protobuf.message import Message
from pyspark.sql.connect.proto import base_pb2

_CALLS = {
    "ExecutePlanRequest": "ExecutePlan",
    "AnalyzePlanRequest": "AnalyzePlan",
    "ConfigRequest": "Config",
    "AddArtifactsRequest": "AddArtifacts",
}


class Client:
    """One session with the server at ``port`` of this machine."""

    def __init__(self, port: int, token: str | None = None) -> None:
        self._session = str(uuid.uuid4())
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._execute = self._channel.unary_stream(
            "/spark.connect.SparkConnectService/ExecutePlan",
            request_serializer=base_pb2.ExecutePlanRequest.SerializeToString,
            response_deserializer=base_pb2.ExecutePlanResponse.FromString,
        )

    def sql(self, query: str) -> list[dict[str, Any]]:
        """The rows of ``query``; grpc.RpcError for what the server refuses."""
        request = base_pb2.ExecutePlanRequest(session_id=self._session)
        request.user_context.user_id = "test"
        request.plan.root.sql.query = query
        rows: list[dict[str, Any]] = []
        for response in self._execute(request, metadata=self._metadata, timeout=100):
            if response.HasField("arrow_batch"):
                rows += pa.ipc.open_stream(response.arrow_batch.data).read_all().to_pylist()
        return rows

    def send(self, request: Message) -> None:
        """``request`` as it is, to the call that it is for; grpc.RpcError for what the server refuses."""
        path = f"/spark.connect.SparkConnectService/{_CALLS[type(request).__name__]}"
        ask = self._channel.stream_stream(path)
        for _ in ask(iter([request.SerializeToString()]), metadata=self._metadata, timeout=100):
            pass

    def close(self) -> None:
        self._channel.close()
