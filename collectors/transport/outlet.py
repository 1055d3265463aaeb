"""The way of one source into Kafka: transactions that hold its records and, with them, how far it has come.

Positions stand in a compacted topic, ``<prefix>.positions``: unlike a consumer group's offsets they do not expire when
a source has been silent for a week. Key ``[table, application]``, value the version reached.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from collectors.transport.cluster import Cluster
from lake.errors import UserError
from lake.store import UnwritableRows

# What goes wrong is raised; librdkafka's own lines about it help nobody.
_unheard = logging.getLogger(f"{__name__}.librdkafka")
_unheard.addHandler(logging.NullHandler())
_unheard.propagate = False

#: A transaction that is not ended within this time is aborted by Kafka: it then holds no reader back.
TRANSACTION_SECONDS = 60
_LOOK_SECONDS = 0.2
_MOST_BYTES = 16 << 20
#: What Kafka says of a record, whatever state it is in; all else is Kafka's own trouble, or passes.
_OF_RECORDS = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_RECORD, KafkaError.INVALID_TIMESTAMP})
_OWNER = ""  # stands for a table: who writes for the source
#: ``source@generation#part``: the source names itself before the last of each.
_APP_ID = re.compile(r"(.+?)(@[^@#]*)?(#[^@#]*)?", re.DOTALL)

Position = tuple[str, str]


class Outlet:
    """Writes for one source. Whoever opens an outlet of the same source later, anywhere, puts this one out of work.

    After any failure the producer is given up: the next use makes another, which first lets Kafka end, one way or the
    other, what the earlier one had begun, and then reads what was reached. So no batch is lost or doubled. Where that
    takes longer than the timeout, the next use goes on with it.
    """

    def __init__(self, source: str, prefix: str, cluster: Cluster, config: Mapping[str, Any], timeout: float) -> None:
        self._source = source
        self._cluster = cluster
        self._positions = f"{prefix}.positions"
        self._timeout = timeout
        self._config = dict(config) | {
            "transactional.id": f"{prefix}.{source}",
            "transaction.timeout.ms": TRANSACTION_SECONDS * 1000,
            "compression.type": "zstd",
            "linger.ms": 5,
            # Of one record before it is packed: a summary may hold 100,000 cells. Brokers judge what is packed.
            "message.max.bytes": _MOST_BYTES + 4096,
            "partitioner": "murmur2_random",  # Java's: other programs find the same partition for a key
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 128 << 10,
        }
        self._producer: Producer | None = None
        self._alone_since: float | None = None  # whoever wrote before our producer is done, or cut off
        self._ready = False  # and that we write for the source is told
        self._reached: dict[Position, int] = {}
        self._claim: str | None = None
        self._refused: KafkaError | None = None  # a record, since the transaction began

    def reached(self, table: str, app_id: str) -> int | None:
        """The version that ``app_id`` last wrote to ``table``."""
        self._open()
        return self._reached.get((table, app_id))

    def send(self, topic: str, records: Iterable[tuple[bytes, bytes]], table: str, reached: Mapping[str, int]) -> None:
        """Write ``records`` and what was ``reached`` (application → version): all of it, or – KafkaException – none.

        UnwritableRows where a record is one that Kafka takes of nobody; nothing was written then. A KafkaException may
        also come after all was written: look at :meth:`reached` before sending again.
        """
        held = list(records)  # what cannot be encoded must not cost the producer
        if any(len(key) + len(value) > _MOST_BYTES for key, value in held):
            raise UnwritableRows(f"a record of {topic} is longer than {_MOST_BYTES >> 20} MiB")
        self._open()
        self._refused = None
        try:
            self._writer.begin_transaction()
            for key, value in held:
                self._produce(topic, key, value)
            for app_id, version in reached.items():
                self._produce(self._positions, _key(table, app_id), str(version).encode())
            self._writer.commit_transaction(self._timeout)
        except KafkaException as error:
            self._give_up()
            if self._refused is not None:
                raise UnwritableRows(f"{topic} takes a record not at all: {self._refused.str()}") from error
            raise
        except BaseException:
            self._give_up()
            raise
        self._reached |= {(table, app_id): version for app_id, version in reached.items()}

    def _open(self) -> None:
        if self._ready:
            return
        if self._claim is not None:
            self._still_ours(*self._read())  # before we cut off whoever took our place
        self._be_alone()
        found = self._settled()
        claim = self._claim or uuid.uuid4().hex
        try:
            self._writer.begin_transaction()
            self._produce(self._positions, _key(_OWNER, self._source), claim.encode())
            self._writer.commit_transaction(self._timeout)
        except BaseException:
            self._give_up()
            raise
        self._ready, self._claim = True, claim
        self._reached = {key: int(value) for key, value in found.items() if key[0] != _OWNER}

    def _be_alone(self) -> None:
        """Let Kafka end what was written before us under our name, and refuse what comes after us under that of then.

        A Kafka that has just started takes its time. One producer waits for it, over several calls: a new one for
        each would begin anew, and where the timeout is short, never arrive.
        """
        if self._alone_since is not None:
            return
        if self._producer is None:
            self._producer = Producer(self._config, logger=_unheard)
        try:
            self._writer.init_transactions(self._timeout)
        except KafkaException as error:
            if not error.args[0].retriable():
                self._give_up()
            raise
        self._alone_since = time.monotonic()

    def _settled(self) -> dict[Position, str]:
        """All positions, when it is decided which of ours count."""
        deadline = time.monotonic() + self._timeout
        while True:
            decided, undecided = self._read()
            if self._claim is not None:
                self._still_ours(decided, undecided)
            if not undecided:
                return decided
            if time.monotonic() > deadline:
                raise self._still_open()
            time.sleep(_LOOK_SECONDS)

    def _still_ours(self, decided: Mapping[Position, str], undecided: Mapping[Position, str]) -> None:
        """Being cut off may also mean that a transaction of ours took too long; then we go on."""
        owner = (_OWNER, self._source)
        if undecided.get(owner, self._claim) != self._claim:  # another process is about to
            raise self._still_open()
        if owner not in undecided and decided.get(owner) != self._claim:
            self._give_up()  # where it still waits to be alone, it would cut them off
            raise UserError(
                f"another process writes to Kafka as {self._source!r}", "stop it, or give this broker another name"
            )

    def _read(self) -> tuple[dict[Position, str], dict[Position, str]]:
        """The positions that are decided, and those of our source that are not.

        What lies behind the start of an open transaction, of whatever source, is not decided. Waiting for all of them
        would let each source wait for each other one's – and for its own: what a crash of Kafka left open ends only
        when the source's next producer comes.
        """
        stable = self._cluster.ends(self._positions, [0], committed=True)
        decided = self._values({}, stable, committed=True)
        ends = self._cluster.ends(self._positions, [0])
        behind = self._values(stable, ends, committed=False)
        return decided, {key: value for key, value in behind.items() if self._is_ours(key)}

    def _values(self, start: Mapping[int, int], ends: Mapping[int, int], *, committed: bool) -> dict[Position, str]:
        found: dict[Position, str] = {}
        for record in self._cluster.records(self._positions, start, ends, committed=committed):
            table, app_id = json.loads(record.key())
            found[table, app_id] = (record.value() or b"0").decode()
        return found

    def _is_ours(self, position: Position) -> bool:
        table, app_id = position
        return self._source == (app_id if table == _OWNER else source_of(app_id))

    def _produce(self, topic: str, key: bytes, value: bytes) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                self._writer.produce(topic, value, key, on_delivery=self._delivered)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, "no record leaves")) from None
                self._writer.poll(0.05)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None and error.code() in _OF_RECORDS:
            self._refused = error

    def _still_open(self) -> KafkaException:
        text = f"a transaction that concerns {self._positions} is still open"
        if self._alone_since is not None and time.monotonic() - self._alone_since > 2 * TRANSACTION_SECONDS:
            text += ", and for longer than any may be: see docs/transport.md, When a transaction never ends"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, text))

    @property
    def _writer(self) -> Producer:
        # Not held by any frame: an exception that somebody keeps would keep the producer, which works on unseen –
        # and cuts off its successor where it was still waiting to be alone.
        assert self._producer is not None
        return self._producer

    def _give_up(self) -> None:
        self._alone_since, self._ready = None, False
        if self._producer is not None:
            self._producer.purge()
            self._producer = None


def source_of(app_id: str) -> str:
    """The source that ``app_id`` belongs to: without its ``@generation`` and ``#part``."""
    found = _APP_ID.fullmatch(app_id)
    assert found is not None
    return found.group(1)


def _key(table: str, app_id: str) -> bytes:
    return json.dumps([table, app_id]).encode()
