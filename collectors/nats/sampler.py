"""The sampler: what the broker says of its own queues, one row for each queue and subscriber."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from collectors.nats.attach import INNER, StreamFacts, consumer_infos, first_look, subscriptions
from collectors.nats.client import NO_STREAM, ApiError, Client
from collectors.nats.parse import microseconds
from collectors.nats.settings import NatsBroker, StreamSettings
from collectors.samples import Sample

#: What JetStream does not tell of any queue, and why.
_UNTOLD = {
    "delayed": "JetStream counts delayed messages as in flight",
    "polls_total": "JetStream does not count polls",
    "empty_polls_total": "JetStream does not count polls",
    "acked_total": "JetStream does not count acknowledgements",
    "prefetch": "each client chooses its own",
    "consumer_utilisation_ratio": "JetStream does not measure it",
    "publish_latency_seconds": "not probed: a probe would add to the user's stream",
    "retention_margin": "not derived from a stream's limits",
    "state": "JetStream has no states",
    "status": "not judged",
}
_OF_A_CONSUMER = ("delivered_total", "redelivered_total", "in_flight_limit", "visibility_timeout_seconds")
_STREAMS_AT_ONCE = 64


class NatsSource:
    """Reads one broker's streams, or all of them."""

    def __init__(self, broker: NatsBroker) -> None:
        self._broker = broker
        self._client = Client(broker, "sampler")

    async def open(self) -> None:
        """Connect, and see that there is a JetStream."""
        await self._client.open()
        await self._client.api("INFO")

    async def read(self) -> list[Sample]:
        """Every queue once."""
        names = [stream.name for stream in self._broker.streams] or await self._all()
        settings = {stream.name: stream for stream in self._broker.streams}
        found: list[Sample] = []
        for start in range(0, len(names), _STREAMS_AT_ONCE):
            some = names[start : start + _STREAMS_AT_ONCE]
            chosen = [settings.get(name) or StreamSettings(name=name) for name in some]
            for samples in await asyncio.gather(*(self._stream(stream) for stream in chosen)):
                found += samples
        return found

    async def close(self) -> None:
        """Disconnect."""
        await self._client.close()

    async def _all(self) -> list[str]:
        names: list[str] = []
        while True:
            page = await self._client.api("STREAM.NAMES", {"offset": len(names)})
            names += page.get("streams") or []
            if not page.get("streams") or len(names) >= page["total"]:
                return [name for name in names if name != self._broker.tap.stream and not name.startswith(INNER)]

    async def _stream(self, settings: StreamSettings) -> list[Sample]:
        try:
            answer = await self._client.api(f"STREAM.INFO.{settings.name}")
            consumers = await consumer_infos(self._client, settings.name) if answer["state"]["consumer_count"] else {}
        except ApiError as error:
            if error.code == NO_STREAM:
                return []  # not made yet, or deleted: nothing is known of it
            raise
        heads = {}
        for name, info in consumers.items():
            if info["num_pending"] or info["num_ack_pending"]:
                heads[name] = await self._stored_at(settings.name, info["ack_floor"]["stream_seq"] + 1)
        return samples(settings, answer, consumers, heads)

    async def _stored_at(self, stream: str, sequence: int) -> int | None:
        found = await first_look(self._client, stream, sequence, sequence, 1)
        return found[0].stored_at if found else None


def samples(
    settings: StreamSettings,
    stream: Mapping[str, Any],
    consumers: Mapping[str, dict[str, Any]],
    heads: Mapping[str, int | None],
) -> list[Sample]:
    """Samples from the server's answers; ``heads``: when a consumer's oldest message was stored."""
    state, sampled_at = stream["state"], microseconds(stream["ts"])
    common: dict[str, Any] = {
        "sampled_at": sampled_at,
        "queue": settings.queue_name,
        "published_total": state["last_seq"],
        "dead_letter_for": settings.dead_letter_for,
        "staleness_seconds": 0.0,
    }
    facts = StreamFacts(stream["config"], stream["created"], state["first_seq"], state["last_seq"])
    subscribed = subscriptions(facts, consumers)
    if not subscribed:
        age: float | None = (sampled_at - microseconds(state["first_ts"])) / 1e6 if state["messages"] else 0.0
        missing = _UNTOLD | dict.fromkeys(_OF_A_CONSUMER, "the stream has no durable consumer")
        whole = {"depth": state["messages"], "in_flight": 0, "consumers": 0, "oldest_age_seconds": age}
        return [Sample(**common, **whole, unavailable=missing)]
    rows = []
    for name, subscription in subscribed.items():
        info = consumers[name]
        config, missing = info["config"], dict(_UNTOLD)
        outstanding = info["num_pending"] + info["num_ack_pending"]
        head = heads.get(name)
        age = None if outstanding else 0.0
        if outstanding and head is not None:
            age = max(0.0, (microseconds(info["ts"]) - head) / 1e6)
        elif outstanding:
            missing["oldest_age_seconds"] = "the message behind the acknowledgement floor is gone"
        limit = config.get("max_ack_pending", 0)
        if limit <= 0:
            missing["in_flight_limit"] = "the consumer has no limit"
        push = "deliver_subject" in config
        if not push:
            missing["consumers"] = "JetStream does not count the clients that pull"
        rows.append(
            Sample(
                **common
                | {
                    "subscriber": subscription.subscriber,
                    "sampled_at": microseconds(info["ts"]),
                    "depth": info["num_pending"],
                    "in_flight": info["num_ack_pending"],
                    "oldest_age_seconds": age,
                    "consumers": int(info.get("push_bound", False)) if push else None,
                    "delivered_total": info["delivered"]["consumer_seq"],
                    "redelivered_total": info["num_redelivered"],
                    "in_flight_limit": limit if limit > 0 else None,
                    "visibility_timeout_seconds": config["ack_wait"] / 1e9 if config.get("ack_wait") else None,
                    "unavailable": missing,
                }
            )
        )
    return rows
