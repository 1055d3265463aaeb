"""What a tap asks of the broker: a stream to keep the tap in, republishing, and sampled acknowledgements.

Everything else in a stream's or consumer's configuration is sent back as it came, whatever its server version calls it.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from brokers.nats.client import NO_CONSUMER, NO_MESSAGE, NO_STREAM, ApiError, Client
from collectors.nats.parse import (
    ADVISORY,
    CREATED,
    MAX_DELIVERIES,
    METRIC_ACK,
    NAKED,
    TERMINATED,
    headers_of,
    microseconds,
)
from collectors.nats.settings import TapSettings
from collectors.nats.tracker import Subscription
from lake.errors import UserError

log = logging.getLogger(__name__)

_SUBJECTS_OVERLAP = 10065
_LOOKS_AT_ONCE = 32
#: Streams of which JetStream itself is the application.
INNER = ("KV_", "OBJ_")


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What the server says of one stream."""

    config: dict[str, Any]
    created: str
    first: int
    last: int

    @property
    def shared(self) -> bool:
        """Whether each message goes to one consumer only (work-queue retention)."""
        return self.config.get("retention") == "workqueue"


def subscriptions(
    facts: StreamFacts, consumers: Mapping[str, dict[str, Any]], *, named: bool = False
) -> dict[str, Subscription]:
    """How Sojourn names the consumers; the only one of a work queue has no name, unless it had one before."""
    tracked = {
        name: info["config"]
        for name, info in consumers.items()
        if info["config"].get("durable_name") and info["config"].get("ack_policy") != "none"
    }
    alone = facts.shared and len(tracked) == 1 and not named
    return {name: Subscription(None if alone else name, _filters(config)) for name, config in tracked.items()}


def _filters(config: Mapping[str, Any]) -> tuple[str, ...]:
    several = tuple(config.get("filter_subjects") or ())
    return several or tuple(filter(None, [config.get("filter_subject")]))


async def stream_facts(client: Client, name: str) -> StreamFacts | None:
    """What the server says of stream ``name``; None if there is no such stream."""
    try:
        answer = await client.api(f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.code == NO_STREAM:
            return None
        raise
    state = answer["state"]
    return StreamFacts(answer["config"], answer["created"], state["first_seq"], state["last_seq"])


async def consumer_infos(client: Client, stream: str) -> dict[str, dict[str, Any]]:
    """Every consumer of ``stream`` with all that the server says of it."""
    found: dict[str, dict[str, Any]] = {}
    while True:
        page = await client.api(f"CONSUMER.LIST.{stream}", {"offset": len(found)})
        for info in page.get("consumers") or []:
            found[info["name"]] = info
        if not page.get("consumers") or len(found) >= page["total"]:
            return found


async def consumer_info(client: Client, stream: str, consumer: str) -> dict[str, Any] | None:
    """What the server says of one consumer; None if it is gone."""
    try:
        return await client.api(f"CONSUMER.INFO.{stream}.{consumer}")
    except ApiError as error:
        if error.code in (NO_CONSUMER, NO_STREAM):
            return None
        raise


def republished_to(facts: StreamFacts | None, stream: str, tap: TapSettings) -> str:
    """The subjects on which a stream's arrivals are told: where it republishes already, else where we would have it."""
    republish = (facts.config.get("republish") if facts else None) or {}
    dest = republish.get("dest")
    if not dest:
        return f"{tap.subject_prefix}.{stream}.>"
    return ".".join("*" if token.startswith(("$", "{{")) else token for token in dest.split("."))


async def ensure_tap(client: Client, tap: TapSettings, streams: Mapping[str, StreamFacts | None]) -> StreamFacts:
    """Make the tap's stream, or let it keep what these streams need; what it keeps already stays."""
    subjects: set[str] = set()
    for name, facts in streams.items():
        subjects |= {republished_to(facts, name, tap), f"{METRIC_ACK}{name}.*"}
        subjects |= {f"{ADVISORY}{kind}.{name}.*" for kind in (NAKED, TERMINATED, MAX_DELIVERIES, CREATED)}
    there = await stream_facts(client, tap.stream)
    wanted = {"max_bytes": tap.max_bytes, "max_age": int(tap.max_age_seconds * 1e9), "discard": "old", "no_ack": True}
    try:
        if there is None:
            config = {"name": tap.stream, "storage": "file", "retention": "limits", **wanted}
            # Republished messages keep their publisher's message id: the shortest window drops the fewest of them.
            config["duplicate_window"] = 100_000_000
            await client.api(f"STREAM.CREATE.{tap.stream}", {**config, "subjects": sorted(subjects)})
        elif not subjects <= set(there.config.get("subjects") or ()) or any(
            there.config.get(key) != value for key, value in wanted.items()
        ):
            subjects |= set(there.config.get("subjects") or ())
            config = {**there.config, **wanted, "subjects": sorted(subjects)}
            await client.api(f"STREAM.UPDATE.{tap.stream}", config)
    except ApiError as error:
        if error.code == _SUBJECTS_OVERLAP:
            raise UserError(
                f"another stream of the broker keeps what the tap {tap.stream!r} needs: {error.description}",
                "give the other stream other subjects, or set tap.enabled = false",
            ) from None
        raise UserError(f"the tap {tap.stream!r} cannot be made: {error.description}", "allow this user to") from None
    facts = await stream_facts(client, tap.stream)
    assert facts is not None
    return facts


async def ensure_republish(client: Client, facts: StreamFacts, tap: TapSettings) -> None:
    """Let the stream tell its arrivals; a stream that republishes already is left as it is."""
    name = facts.config["name"]
    there = facts.config.get("republish") or {}
    if there.get("dest"):
        if there.get("src") not in (None, "", ">", *facts.config.get("subjects", ())):
            log.warning("stream %s republishes only %s: other messages are not seen", name, there["src"])
        return
    republish = {"src": ">", "dest": f"{tap.subject_prefix}.{name}.>", "headers_only": True}
    try:
        await client.api(f"STREAM.UPDATE.{name}", {**facts.config, "republish": republish})
    except ApiError as error:
        raise UserError(
            f"stream {name!r} cannot be told to republish: {error.description}", "take it out of streams, or allow it"
        ) from None


async def ensure_sampling(client: Client, stream: str, info: Mapping[str, Any]) -> None:
    """Let every acknowledgement of a consumer be told."""
    config = info["config"]
    if str(config.get("sample_freq", "")).rstrip("%") == "100":
        return
    body = {"stream_name": stream, "config": {**config, "sample_freq": "100%"}, "action": "update"}
    try:
        await client.api(f"CONSUMER.CREATE.{stream}.{info['name']}", body)
    except ApiError as error:
        if error.code != NO_CONSUMER:
            log.warning("consumer %s of %s cannot be sampled: %s", info["name"], stream, error.description)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A message that was in the stream before it was watched."""

    sequence: int
    stored_at: int
    subject: str
    headers: Mapping[str, str]


async def first_look(client: Client, stream: str, first: int, last: int, limit: int) -> list[Waiting]:
    """The messages that stand in the stream from ``first`` to ``last``, the oldest ``limit`` of them."""
    found: list[Waiting] = []
    sequence = first
    while sequence <= last and len(found) < limit:
        block = range(sequence, min(last + 1, sequence + _LOOKS_AT_ONCE))
        for message in await asyncio.gather(*(_get(client, stream, number) for number in block)):
            if message is not None:
                found.append(message)
        sequence = block.stop
        if found and found[-1].sequence < block.start:  # a wide hole: jump to the next message there is
            following = await _get(client, stream, sequence, following=True)
            sequence = following.sequence if following else last + 1
    return found[:limit]


async def _get(client: Client, stream: str, sequence: int, *, following: bool = False) -> Waiting | None:
    body: dict[str, Any] = {"seq": sequence}
    if following:
        body["next_by_subj"] = ">"
    try:
        answer = await client.api(f"STREAM.MSG.GET.{stream}", body)
    except ApiError as error:
        if error.code == NO_MESSAGE:
            return None
        raise
    message = answer["message"]
    headers = headers_of(base64.b64decode(message.get("hdrs") or ""))
    return Waiting(message["seq"], microseconds(message["time"]), message["subject"], headers)
