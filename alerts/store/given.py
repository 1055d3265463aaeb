"""What people and other programs have told the alert process through its API, kept in the store."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from alerts.models import fingerprint
from alerts.routing.acknowledge import Acknowledgement
from alerts.routing.matchers import Matcher
from alerts.routing.silence import EXPIRED_KEPT, Silence, changed, expired
from alerts.store.database import Database, Store, connect, from_us, to_json, to_us, transaction
from alerts.store.schema import upsert
from lake.errors import SojournError

#: What may be kept at once; entries of the journal.
MOST_SILENCES, MOST_RECEIVED, JOURNAL_KEPT = 10_000, 10_000, 10_000
#: How long an alert of another program is remembered after its end, so that its sender may repeat it.
ENDED_KEPT = timedelta(minutes=15)


class TooMany(SojournError):
    """No more is kept than that."""


class Unknown(SojournError):
    """Nothing of that name is there."""


@dataclass(frozen=True, slots=True)
class ReceivedAlert:
    """An alert that another program sent. It fires until ``ends_at``; instants are of the engine's clock."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    generator_url: str
    starts_at: datetime
    ends_at: datetime
    updated_at: datetime

    def after(self, known: ReceivedAlert | None) -> ReceivedAlert:
        """This alert, sent after ``known``: what had not ended goes on since it began."""
        if known is None or known.ends_at <= self.starts_at:
            return self
        return replace(self, starts_at=min(self.starts_at, known.starts_at))


@dataclass(frozen=True, slots=True)
class Author:
    """Who says so: the name that was given, and where the request came from."""

    name: str
    peer: str


@dataclass(frozen=True, slots=True)
class Given:
    """All of it at one instant; a new object after each change."""

    silences: Mapping[str, Silence] = field(default_factory=dict)
    acknowledgements: Mapping[str, Acknowledgement] = field(default_factory=dict)
    received: Mapping[str, ReceivedAlert] = field(default_factory=dict)


class ApiState:
    """Takes what is given, writes it down, who gave it included, and shows it. Safe to share between threads."""

    def __init__(self, store: Store) -> None:
        self._db = connect(store, shared=True)
        self._lock = threading.Lock()
        self.given = given_in(self._db)

    def close(self) -> None:
        """Nothing more is taken."""
        with self._lock:
            self._db.close()

    def silence(self, wanted: Silence, author: Author, now: datetime, shown: datetime) -> str:
        """Put ``wanted`` in force; the id under which it is. ``shown`` is ``now`` as the wall clock has it.

        Unknown if it names a silence that is not there; ValueError for one that cannot be meant; TooMany.
        """
        with self._lock:
            silences = dict(self.given.silences)
            known = silences.get(wanted.id)
            if wanted.id and known is None:
                raise Unknown(f"there is no silence {wanted.id}")
            written = changed(wanted, known, now)
            gone = [id for id, one in silences.items() if one.ends_at <= now - EXPIRED_KEPT]
            if len(silences) - len(gone) + len(written) > MOST_SILENCES:
                raise TooMany(f"{MOST_SILENCES} silences are kept, and no more")
            with transaction(self._db):
                self._db.executemany("DELETE FROM silences WHERE id = ?", [[id] for id in gone])
                for one in written:
                    _write_silence(self._db, one)
                detail = ", ".join(map(str, written[-1].matchers)) + f"; {written[-1].comment}"
                _note(self._db, author, shown, "silence", written[-1].id, detail)
            silences = {id: one for id, one in silences.items() if id not in gone}
            self.given = replace(self.given, silences=silences | {one.id: one for one in written})
            return written[-1].id

    def expire(self, id: str, author: Author, now: datetime, shown: datetime) -> None:
        """End a silence; one that is over stays as it is. Unknown."""
        with self._lock:
            known = self.given.silences.get(id)
            if known is None:
                raise Unknown(f"there is no silence {id}")
            over = expired(known, now)
            if over is known:
                return
            with transaction(self._db):
                _write_silence(self._db, over)
                _note(self._db, author, shown, "expire", id, "")
            self.given = replace(self.given, silences={**self.given.silences, id: over})

    def acknowledge(self, one: Acknowledgement, peer: str, shown: datetime) -> None:
        """Somebody looks after an alert, from now on."""
        with self._lock:
            with transaction(self._db):
                self._db.execute(
                    upsert("acknowledgements"),
                    [one.fingerprint, one.by, one.comment, to_us(one.at)],
                )
                _note(self._db, Author(one.by, peer), shown, "acknowledge", one.fingerprint, one.comment)
            known = {**self.given.acknowledgements, one.fingerprint: one}
            self.given = replace(self.given, acknowledgements=known)

    def release(self, fingerprints: Collection[str], author: Author, shown: datetime) -> list[str]:
        """Nobody looks after these alerts any more; returns which somebody did."""
        with self._lock:
            known = self.given.acknowledgements
            over = [one for one in fingerprints if one in known]
            if not over:
                return []
            with transaction(self._db):
                for one in over:
                    self._db.execute("DELETE FROM acknowledgements WHERE fingerprint = ?", [one])
                    _note(self._db, author, shown, "release", one, "")
            left = {key: one for key, one in known.items() if key not in over}
            self.given = replace(self.given, acknowledgements=left)
            return over

    def receive(self, alerts: Iterable[ReceivedAlert], author: Author, now: datetime, shown: datetime) -> None:
        """Take alerts of another program, all of them or, where there would be TooMany, none."""
        with self._lock:
            known = self.given.received
            kept = {key: one for key, one in known.items() if one.ends_at > now - ENDED_KEPT}
            sent: dict[str, ReceivedAlert] = {}
            for alert in alerts:
                key = fingerprint(alert.labels)
                sent[key] = alert.after(sent.get(key) or kept.get(key))
            if len(kept | sent) > MOST_RECEIVED:
                raise TooMany(f"{MOST_RECEIVED} alerts of other programs are kept, and no more")
            with transaction(self._db):
                self._db.executemany("DELETE FROM received WHERE fingerprint = ?", [[k] for k in known.keys() - kept])
                self._db.executemany(
                    upsert("received"),
                    [
                        [
                            key,
                            to_json(one.labels),
                            to_json(one.annotations),
                            one.generator_url,
                            *map(to_us, (one.starts_at, one.ends_at, one.updated_at)),
                        ]
                        for key, one in sent.items()
                    ],
                )
                # Its sender repeats what fires: only what is new is worth a line.
                for key in sent.keys() - kept.keys():
                    _note(self._db, author, shown, "alert", key, to_json(sent[key].labels)[:1000])
            self.given = replace(self.given, received=kept | sent)


def given_in(db: Database) -> Given:
    """What the store holds now."""
    silences = {
        row[0]: Silence(row[0], _matchers(row[1]), from_us(row[2]), from_us(row[3]), row[4], row[5], from_us(row[6]))
        for row in db.execute("SELECT id, matchers, starts_at, ends_at, created_by, comment, updated_at FROM silences")
    }
    acknowledgements = {
        row[0]: Acknowledgement(row[0], row[1], row[2], from_us(row[3]))
        for row in db.execute("SELECT fingerprint, by, comment, at FROM acknowledgements")
    }
    received = {
        row[0]: ReceivedAlert(json.loads(row[1]), json.loads(row[2]), row[3], *map(from_us, row[4:7]))
        for row in db.execute(
            "SELECT fingerprint, labels, annotations, generator_url, starts_at, ends_at, updated_at FROM received"
        )
    }
    return Given(silences, acknowledgements, received)


def _write_silence(db: Database, one: Silence) -> None:
    matchers = [[m.name, m.value, m.is_regex, m.is_equal] for m in one.matchers]
    instants = map(to_us, (one.starts_at, one.ends_at))
    db.execute(
        upsert("silences"),
        [one.id, json.dumps(matchers), *instants, one.created_by, one.comment, to_us(one.updated_at)],
    )


def _matchers(text: str) -> tuple[Matcher, ...]:
    return tuple(Matcher(name, value, is_regex, is_equal) for name, value, is_regex, is_equal in json.loads(text))


def _note(db: Database, author: Author, shown: datetime, what: str, subject: str, detail: str) -> None:
    """A line of the journal, as part of the caller's transaction; it shows the wall clock's time."""
    db.execute(
        "INSERT INTO journal (at, who, peer, what, subject, detail) VALUES (?, ?, ?, ?, ?, ?)",
        [to_us(shown), author.name, author.peer, what, subject, detail],
    )
    db.execute("DELETE FROM journal WHERE id <= (SELECT MAX(id) FROM journal) - ?", [JOURNAL_KEPT])
