"""What the limits API has said so far, and the buckets that follow from it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from sojourn.client.bucket import Bucket, Tally
from sojourn.client.groups import Patterns, is_pattern
from sojourn.client.wire import Scope, Update, WireLimit

#: Tenants of a congested queue that have no entitlement of their own and are told apart; more of them share one bucket.
MOST_STRANGERS = 10_000
#: What a tenant may send at once when its queue becomes congested: who floods it has had more than a burst before.
FIRST_TOKENS = 1.0
#: The tenant whose entitlement is everybody's who has none, and the bucket of strangers beyond the bound.
ANYBODY = "*"
#: Among so many tallies buckets are spread: two that are used at once seldom wait for each other.
TALLIES = 64


Terms = tuple[float, float]  # rate in messages/s, burst in messages


@dataclass(slots=True)
class Congested:
    """A queue of one broker that is congested until ``expires_at``, and the entitlements that bind there until then.

    ``of_group``: it is the limit of one group instead, which binds nobody else.
    """

    broker: str
    expires_at: float
    reason: str
    terms: Mapping[str, Terms]
    share: float
    tallies: Sequence[Tally]
    of_group: bool = False
    buckets: dict[str, Bucket] = field(default_factory=dict)
    groups: Patterns = field(init=False)

    def __post_init__(self) -> None:
        self.groups = Patterns(filter(is_pattern, self.terms))

    def bucket_of(self, tenant: str, now: float) -> Bucket | None:
        """The bucket that holds ``tenant`` to what it is entitled to; None where nobody said what that is.

        Tenants of a declared group (``acme-*``) have one together.
        """
        bucket = self.buckets.get(tenant)
        if bucket is not None:
            return bucket
        name, terms = self._terms_of(tenant)
        if terms is None:
            return None
        if name == ANYBODY:
            name = tenant if len(self.buckets) < MOST_STRANGERS else ANYBODY
        bucket = self.buckets.get(name)
        if bucket is None:
            bucket = Bucket(
                *terms, self.expires_at, now, self.reason, tokens=FIRST_TOKENS, tally=_of(self.tallies, name)
            )
            bucket = self.buckets.setdefault(name, bucket)
        return bucket

    def follow(self, before: Congested, now: float) -> None:
        """Take over the buckets of ``before``, with what they hold: no news gives a fresh burst."""
        for tenant, bucket in list(before.buckets.items()):
            name, terms = self._terms_of(tenant)
            if terms is not None and name in (tenant, ANYBODY):  # else it has come into a group
                bucket.renew(*terms, self.expires_at, now, self.reason)
                self.buckets[tenant] = bucket

    def _terms_of(self, tenant: str) -> tuple[str, Terms | None]:
        """Whose terms are ``tenant``'s – its own, its group's, anybody's – and what they are."""
        name = tenant
        if name not in self.terms:
            name = (self.groups.of(tenant) if self.groups else None) or ANYBODY
        terms = self.terms.get(name)
        return name, terms and (terms[0] * self.share, max(1.0, terms[1] * self.share))


class InForce:
    """Learns from answers. Belongs to one thread; what it gives away is used by all."""

    def __init__(self, broker: str | None, queues: Collection[str], share: float) -> None:
        self._broker, self._queues, self._share = broker, frozenset(queues), share
        #: What all its buckets have granted and refused.
        self.tallies = tuple(Tally() for _ in range(TALLIES))
        self._all = True
        self._forget()

    def learn(self, update: Update, said_at: float) -> None:
        """Take in what ``update`` says, whose leases count from ``said_at``."""
        if update.whole:
            self._forget()
        for scope in update.lifted:
            if self._limits.pop(scope, None) is not None:
                self._groups.pop(scope, None)
                del self._ends[scope]
                self._touched.add(scope[1:])
        for limit in update.limits:
            if self._wants(limit.broker, limit.queue):
                scope = limit[:3]
                self._limits[scope] = limit
                if is_pattern(limit.tenant):
                    self._groups[scope] = limit
                self._ends[scope] = said_at + limit.lease_seconds
                self._brokers.add(limit.broker)
                self._touched.add((limit.queue, limit.tenant))
        for broker, queue, tenant in update.unentitled:
            self._entitled.get((broker, queue), {}).pop(tenant, None)
        for entitled in update.entitled:
            place = (entitled.broker, entitled.queue)
            if self._wants(*place):
                self._entitled.setdefault(place, {})[entitled.tenant] = (entitled.rate, entitled.burst)
        for congested in update.congested:
            place = (congested.broker, congested.queue)
            self._congested.pop(place, None)
            if self._wants(*place) and congested.lease_seconds > 0:
                self._congested[place] = (said_at + congested.lease_seconds, congested.reason)

    def in_force(
        self, before: dict[tuple[str, str], Bucket], congested: dict[str, tuple[Congested, ...]], now: float
    ) -> tuple[dict[tuple[str, str], Bucket], dict[str, tuple[Congested, ...]]]:
        """The buckets of limits by (queue, tenant), and the congested queues, as they follow ``before``.

        A bucket in use is kept, so that no news of it gives a fresh burst.
        """
        buckets = {} if self._all else dict(before)
        share, brokers, limits, ends = self._share, list(self._brokers), self._limits, self._ends
        for key in self._touched:
            if is_pattern(key[1]):
                continue
            limit, expires_at = None, now
            for broker in brokers:
                scope = (broker, *key)
                one = limits.get(scope)
                if one is not None and ends[scope] > now and (limit is None or one.rate < limit.rate):
                    limit, expires_at = one, ends[scope]
            if limit is None:
                buckets.pop(key, None)
                continue
            burst = limit.burst * share
            bucket = before.get(key)
            if bucket is None:
                tally = _of(self.tallies, key)
                bucket = Bucket(
                    limit.rate * share, burst if burst > 1 else 1.0, expires_at, now, limit.reason, tally=tally
                )
            else:
                bucket.renew(limit.rate * share, burst if burst > 1 else 1.0, expires_at, now, limit.reason)
            buckets[key] = bucket
        self._touched.clear()
        self._all = False
        return buckets, self._congestion(congested, now)

    def _congestion(self, before: dict[str, tuple[Congested, ...]], now: float) -> dict[str, tuple[Congested, ...]]:
        known = {
            (one.broker, queue, *(one.terms if one.of_group else ())): one
            for queue, those in before.items()
            for one in those
        }
        found: dict[str, list[Congested]] = {}
        for (broker, queue, group), limit in self._groups.items():
            if (expires_at := self._ends[broker, queue, group]) > now:
                one = Congested(
                    broker,
                    expires_at,
                    limit.reason,
                    {group: (limit.rate, limit.burst)},
                    self._share,
                    self.tallies,
                    of_group=True,
                )
                if (broker, queue, group) in known:
                    one.follow(known[broker, queue, group], now)
                found.setdefault(queue, []).append(one)
        for those in found.values():
            those.sort(key=lambda one: (-len(next(iter(one.terms))), next(iter(one.terms.values()))))
        for (broker, queue), (expires_at, reason) in self._congested.items():
            terms = dict(self._entitled.get((broker, queue), {}))
            one = Congested(broker, expires_at, reason, terms, self._share, self.tallies)
            if (broker, queue) in known:
                one.follow(known[broker, queue], now)
            found.setdefault(queue, []).append(one)
        return {queue: tuple(those) for queue, those in found.items()}

    def _wants(self, broker: str, queue: str) -> bool:
        return self._broker in (None, broker) and (not self._queues or queue in self._queues)

    def _forget(self) -> None:
        #: Limits and when they end: apart, for pairs would be a hundred thousand objects more for the collector.
        self._limits: dict[Scope, WireLimit] = {}
        self._groups: dict[Scope, WireLimit] = {}  # those of them that are of groups
        self._ends: dict[Scope, float] = {}
        self._entitled: dict[tuple[str, str], dict[str, Terms]] = {}
        self._congested: dict[tuple[str, str], tuple[float, str]] = {}
        self._brokers: set[str] = set()
        self._touched: set[tuple[str, str]] = set()
        self._all = True


def _of(tallies: Sequence[Tally], key: Hashable) -> Tally:
    return tallies[hash(key) % len(tallies)]
