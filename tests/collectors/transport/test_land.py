"""Parsed records land once, whoever read them and however often; how the analytics connect, and what they wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake.errors import UserError
from lake.store import Lake, conform
from lake.tables import MESSAGE_EVENTS
from spark_analytics.faults import explained, passing
from spark_analytics.landing.land import Landing
from spark_analytics.landing.settings import TransportSettings
from tests.collectors.rows import event_rows

_ROW = pa.struct(list(MESSAGE_EVENTS.schema))


def parsed(*records: tuple[int, int, str | None]) -> pa.Table:
    """Partition, offset and tenant of each record; a tenant "?" makes it one that is no row."""
    return pa.table(
        {
            "partition": pa.array([one[0] for one in records], pa.int32()),
            "offset": pa.array([one[1] for one in records], pa.int64()),
            "timestamp": pa.array([0] * len(records), pa.timestamp("us", tz="UTC")),
            "reason": pa.array(["no row" if one[2] == "?" else None for one in records], pa.string()),
            "raw": pa.array(["?" if one[2] == "?" else None for one in records], pa.string()),
            "row": pa.array([_row(tenant) for _, _, tenant in records], _ROW),
        }
    )


def _row(tenant: str | None) -> dict[str, Any] | None:
    if tenant == "?":
        return None
    (row,) = conform(event_rows("q", [tenant]), MESSAGE_EVENTS.schema).to_pylist()
    return dict(row)


def landed(lake: Lake) -> list[str]:
    return sorted(lake.read("message_events").column("tenant").to_pylist())


def test_records_that_are_read_again_in_other_batches_land_once(lake: Lake) -> None:
    def landing() -> Landing:
        return Landing(Lake(lake.root), "message_events", "s.message_events", "id", 10)

    assert landing().write(parsed((0, 0, "a"), (0, 2, "b"), (1, 5, "c"))) == (3, 0)
    assert landing().write(parsed((0, 2, "b"), (0, 3, "d"), (1, 4, "early"), (2, 0, "e"))) == (2, 0)
    assert landing().write(parsed((0, 3, "d"), (2, 0, "e"))) == (0, 0)
    assert landed(lake) == ["a", "b", "c", "d", "e"]


def test_records_that_are_no_rows_are_kept_once_even_where_a_crash_came_between(lake: Lake) -> None:
    class Crashing(Lake):
        def append(self, name: str, rows: pa.Table, **numbered: Any) -> bool:
            if name == "message_events":
                raise RuntimeError("killed")
            return super().append(name, rows, **numbered)

    batch = parsed((0, 0, "?"), (0, 1, "a"), (0, 2, "?"))
    with pytest.raises(RuntimeError):
        Landing(Crashing(lake.root), "message_events", "s.message_events", "id", 10).write(batch)
    assert Landing(lake, "message_events", "s.message_events", "id", 10).write(batch) == (1, 0)
    rejected = lake.read("rejected_records").to_pylist()
    assert [(row["raw"], row["count"], row["source"]) for row in rejected] == [("?", 1, "kafka:s.message_events")] * 2
    assert landed(lake) == ["a"]


def test_a_topic_that_was_made_anew_lands_from_its_first_record(lake: Lake) -> None:
    Landing(lake, "message_events", "t", "old", 10).write(parsed((0, 0, "a"), (0, 1, "b")))
    Landing(lake, "message_events", "t", "new", 10).write(parsed((0, 0, "c")))
    assert landed(lake) == ["a", "b", "c"]


def test_javas_client_gets_credentials_and_certificates_by_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", 'quo"te\\d')
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"the {name}")
    tls = {name: str(tmp_path / name) for name in ("ca", "certificate", "key")}
    chosen = TransportSettings.model_validate(
        {
            "kind": "kafka",
            "user": "me",
            "password": {"env": "KAFKA_PASSWORD"},
            "mechanism": "SCRAM-SHA-512",
            "tls": {"enabled": True, **tls},
        }
    )
    config = chosen.client()
    assert config["security.protocol"] == "SASL_SSL"
    assert config["sasl.mechanism"] == "SCRAM-SHA-512"
    assert config["sasl.jaas.config"].endswith('ScramLoginModule required username="me" password="quo\\"te\\\\d";')
    assert config["ssl.truststore.certificates"] == "the ca"
    assert config["ssl.keystore.certificate.chain"] == "the certificate"
    assert config["ssl.keystore.key"] == "the key"
    assert "quo" not in repr(chosen)
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(UserError, match="KAFKA_PASSWORD"):
        chosen.client()


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ("ExecutionException: org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node", True),
        ("py4j: java.util.concurrent.TimeoutException", True),
        ("org.apache.kafka.common.errors.DisconnectException: Cancelled listOffsets request", True),
        ("org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed", False),
        ("[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Some data may have been lost", False),
    ],
)
def test_only_a_kafka_that_is_away_is_waited_for(text: str, waits: bool) -> None:
    assert passing(RuntimeError(text)) is waits
    assert isinstance(explained(RuntimeError(text)), UserError) is not waits


def test_what_failed_in_a_workers_python_is_told_by_its_last_line() -> None:
    text = (
        "\n  An exception was thrown from the Python worker:\n"
        "Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in <module>\n    import lake\n'
        "ModuleNotFoundError: No module named 'lake'\n\n\tat org.apache.spark.api.python.Runner(Runner.scala:1)\n"
    )
    told = "Spark failed: on a worker: ModuleNotFoundError: No module named 'lake'"
    assert str(explained(RuntimeError(text))) == told
