"""Further laws: what their sources publish, and what they keep for every input."""

from __future__ import annotations

import math
import random
from collections import Counter, deque
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.laws import client_throttle, concurrency, drain, permits
from lake import prefetch
from sojourn.client import codel, shuffle_sharding

# -- CoDel -----------------------------------------------------------------------------------------------------------


def drops(waits: list[tuple[float, float, int]]) -> list[float]:
    """When messages are dropped of (now, waited, left)."""
    terms, state, dropped = codel.Terms(), codel.State(), []
    for now, waited, left in waits:
        decision = codel.step(terms, state, waited, left, now)
        state = decision.state
        assert decision.reason
        if decision.drop:
            dropped.append(now)
    return dropped


def test_codel_waits_an_interval_and_then_drops_as_rfc_8289_says() -> None:
    dropped = drops([(n / 10_000, 0.02, 100) for n in range(10_000)])
    assert dropped[0] == pytest.approx(0.1, abs=2e-4)
    gaps = [later - earlier for earlier, later in pairwise(dropped)]
    # 100 ms ÷ √1, √2, √3, √4 …
    assert gaps[:6] == pytest.approx([0.1 / math.sqrt(n) for n in range(1, 7)], abs=3e-4)


def test_codel_leaves_a_burst_alone_that_drains_within_an_interval() -> None:
    assert drops([(n / 1000, 0.09 - n / 1000, 90 - n) for n in range(90)]) == []
    assert drops([(n / 1000, 10.0, 0) for n in range(1000)]) == [], "nor the last of a queue"
    assert drops([(n / 1000, 0.0049, 100) for n in range(1000)]) == [], "nor what waits below target"


def test_codel_resumes_its_rate_after_a_short_peace_and_begins_anew_after_a_long_one() -> None:
    def second_gap(peace: float) -> float:
        first = [(n / 1000, 0.02, 100) for n in range(2000)]
        calm = [(2 + n / 1000, 0.001, 100) for n in range(int(1000 * peace))]
        again = [(2 + peace + n / 1000, 0.02, 100) for n in range(1000)]
        late = [now for now in drops([*first, *calm, *again]) if now >= 2 + peace]
        return late[1] - late[0]

    assert second_gap(peace=5) == pytest.approx(0.1, abs=2e-3)
    assert second_gap(peace=0.2) < 0.03, "as often as before the peace"


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 10), st.integers(0, 100)), max_size=200))
def test_codel_never_drops_what_waited_below_target_nor_the_last(steps: list[tuple[float, float, int]]) -> None:
    state, now = codel.State(), 0.0
    for elapsed, waited, left in steps:
        now += elapsed
        decision = codel.step(codel.Terms(), state, waited, left, now)
        if decision.drop:
            assert waited >= 0.005 and left >= 1
        state = decision.state


def test_codel_holds_the_wait_where_more_arrives_than_is_worked_off_and_nobody_responds() -> None:
    """A thousand messages a second are worked off, 1,300 arrive: in order, all would wait 3.4 s and more after 15 s."""
    terms, state, waits = codel.Terms(target=0.02, interval=0.1), codel.State(), []
    queue: deque[float] = deque()
    served = 0.0
    for number in range(26_000):
        now = number / 1300
        queue.append(now)
        while queue and served <= now:
            enqueued = queue.popleft()
            decision = codel.step(terms, state, now - enqueued, len(queue), now)
            state = decision.state
            if not decision.drop:
                served = max(served, now - 0.01) + 0.001
                waits.append((now, now - enqueued))
    assert max(wait for now, wait in waits if now > 15) < 1
    assert len(waits) > 0.99 * 1000 * 20, "and no capacity is lost"


# -- client throttling -----------------------------------------------------------------------------------------------


def test_the_sre_books_formula() -> None:
    assert client_throttle.rejection(100, 100) == 0
    assert client_throttle.rejection(100, 50) == 0, "up to K requests for each that is accepted"
    assert client_throttle.rejection(99, 0) == pytest.approx(0.99)
    assert client_throttle.rejection(99, 33) == pytest.approx(0.33)
    assert client_throttle.rejection(1000, 100, k=1.1) == pytest.approx(0.889, abs=1e-3)


@pytest.mark.parametrize("k", [1.1, 2.0])
def test_a_backend_gets_about_k_requests_for_each_that_it_accepts(k: float) -> None:
    """It accepts 10 of the 100 a second that are wanted."""
    chance, state, sent, accepted = random.Random(1), client_throttle.State(), 0, 0
    tokens = 0.0
    for number in range(100 * 600):
        now = number / 100
        tokens = min(1.0, tokens + 0.1)
        goes, reason = client_throttle.decide(state, chance.random(), now, k)
        accepts = goes and tokens >= 1
        tokens -= accepts
        state = client_throttle.seen(state, accepts, now)
        assert reason
        if now > 240:
            sent, accepted = sent + goes, accepted + accepts
    assert sent / accepted == pytest.approx(k, rel=0.15)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(1, 10))
def test_a_healthy_backend_is_never_throttled_and_a_dead_one_still_asked(requests: int, accepts: int, k: float) -> None:
    p = client_throttle.rejection(requests, min(accepts, requests), k)
    assert 0 <= p < 1
    assert client_throttle.rejection(requests, requests, k) == 0
    with pytest.raises(ValueError, match="at least 1"):
        client_throttle.rejection(1, 1, 0.9)


def test_what_is_two_minutes_old_is_forgotten() -> None:
    state = client_throttle.State()
    for number in range(1000):
        state = client_throttle.seen(state, False, number / 100)
    assert not client_throttle.decide(state, 0.9, 60)[0]
    assert client_throttle.decide(state, 0.0, 131)[0]
    assert len(client_throttle.seen(state, True, 131).pieces) == 1


# -- shuffle sharding ------------------------------------------------------------------------------------------------


def test_amazons_table_of_overlaps() -> None:
    """A hundred workers, shards of five: which part of customers shares how many of them."""
    published = {0: 77, 1: 21, 2: 1.8, 3: 0.06, 4: 0.0006, 5: 0.0000013}
    for shared, percent in published.items():
        assert 100 * shuffle_sharding.overlap(100, 5, shared) == pytest.approx(percent, rel=0.08)
    assert 1 / shuffle_sharding.overlap(100, 5, 5) == math.comb(100, 5) == 75_287_520


def test_shards_overlap_as_often_as_chance_has_it() -> None:
    queues = [f"q{number}" for number in range(10)]
    shards = [frozenset(shuffle_sharding.shard(f"tenant-{number}", queues, 3)) for number in range(1000)]
    shared = Counter(len(one & other) for one, other in combinations(shards[:400], 2))
    total = sum(shared.values())
    for count in range(4):
        assert shared[count] / total == pytest.approx(shuffle_sharding.overlap(10, 3, count), rel=0.15)
    used = Counter(queue for shard in shards for queue in shard)
    assert min(used.values()) > 0.8 * 300 and max(used.values()) < 1.2 * 300


@given(st.text(max_size=20), st.integers(2, 30), st.data())
def test_a_shard_is_stable_and_a_queue_that_goes_costs_one_place_at_most(
    tenant: str, count: int, data: st.DataObject
) -> None:
    queues = [f"q{number}" for number in range(count)]
    size = data.draw(st.integers(1, count - 1))
    shard = shuffle_sharding.shard(tenant, queues, size)
    assert len(set(shard)) == size and shard == shuffle_sharding.shard(tenant, queues[::-1], size)
    gone = data.draw(st.sampled_from(queues))
    left = shuffle_sharding.shard(tenant, [queue for queue in queues if queue != gone], size)
    assert len(set(shard) - set(left)) == (gone in shard)
    assert shuffle_sharding.emptiest(shard, {shard[0]: 1.0}) in (shard[1:] or shard)


def test_shards_that_cannot_be_are_refused() -> None:
    for queues, size in ((["a"], 2), (["a"], 0), (["a", "a"], 1)):
        with pytest.raises(ValueError, match=r"shard|twice"):
            shuffle_sharding.shard("t", queues, size)


# -- prefetch --------------------------------------------------------------------------------------------------------


def test_rabbitmqs_published_prefetches() -> None:
    """RabbitMQ blog, May 2012: 50 ms each way, 4 ms of work; then a network half as slow as thought, or slower work."""
    assert prefetch.needed(0.100, 0.004) == 104 / 4 == 26
    assert prefetch.needed(0.200, 0.004) == 51
    assert prefetch.waiting(51, 0.100, 0.004) == 25
    assert prefetch.waiting(51, 0.100, 0.004) * 0.004 == pytest.approx(0.100)
    for count, buffered, seconds, part in ((26, 22, 0.880, 0.95), (51, 47, 1.880, 0.97)):
        assert prefetch.waiting(count, 0.100, 0.040) == buffered
        assert buffered * 0.040 == pytest.approx(seconds)
        assert seconds / (seconds + 0.050) == pytest.approx(part, abs=0.006)


@given(st.floats(0, 10), st.floats(1e-4, 10))
def test_what_is_needed_keeps_the_consumer_busy_and_nothing_waits(network: float, processing: float) -> None:
    count = prefetch.needed(network, processing)
    assert count * processing >= (network + processing) * (1 - 1e-6)
    assert prefetch.waiting(count, network, processing) <= 1
    assert prefetch.waiting(count + 5, network, processing) >= 4


def test_a_recommendation_has_bounds_a_dead_band_and_a_reason() -> None:
    assert prefetch.recommended(26, 0.1, 0.004).prefetch == 26
    assert prefetch.recommended(28, 0.1, 0.004).prefetch == 28, "near enough"
    assert prefetch.recommended(5, 0.1, 0.004).reason.endswith("the consumer waits for the network")
    assert "holds messages back" in prefetch.recommended(500, 0.1, 0.04).reason
    assert prefetch.recommended(1, 10, 0.001, most=300).prefetch == 300
    with pytest.raises(ValueError, match="processing"):
        prefetch.needed(0.1, 0)


# -- concurrency -----------------------------------------------------------------------------------------------------


def test_littles_published_numbers() -> None:
    assert concurrency.littles_law(100, 0.1) == 10
    assert concurrency.littles_law(100, 10) == 1000, "a dependency that slows from 100 ms to 10 s"


def settled(terms: concurrency.Terms, latency_of: object, windows: int = 3000) -> float:
    state = concurrency.State(20.0)
    for _ in range(windows):
        state, reason = concurrency.step(terms, state, latency_of(state.limit), state.limit)  # type: ignore[operator]
        assert reason and terms.floor <= state.limit <= terms.ceiling
    return state.limit


def overloaded(limit: float) -> float:
    """100/s can be worked off, in 20 ms each while no more than two are in work."""
    return max(0.02, limit / 100)


def test_the_gradient_alone_drifts_to_its_maximum_and_the_guard_holds_it() -> None:
    """Netflix concurrency-limits #134 (a modest overload) and #137 (every call takes the same time-out)."""
    loose, guarded = concurrency.Terms(1, 200), concurrency.Terms(1, 200, guard_seconds=0.1)
    assert settled(loose, overloaded) == pytest.approx(200)
    assert settled(guarded, overloaded) <= 11, "what 100/s take in 100 ms, and a step"
    assert settled(loose, lambda limit: 5.0) == pytest.approx(200)
    assert settled(guarded, lambda limit: 5.0) == 1


def test_gradient2s_published_update() -> None:
    state, _ = concurrency.step(concurrency.Terms(1, 1000), concurrency.State(100, 0.1, 600), 0.3, 100)
    long = 0.1 + (0.3 - 0.1) * 2 / 601
    assert state.limit == pytest.approx(0.8 * 100 + 0.2 * (100 * max(0.5, 1.5 * long / 0.3) + 4))
    held, reason = concurrency.step(concurrency.Terms(1, 1000), concurrency.State(100, 0.1, 600), 0.1, 49)
    assert held.limit == 100 and "less than half" in reason
    down, _ = concurrency.step(concurrency.Terms(1, 1000), concurrency.State(100, 1.0, 600), 0.1, 100)
    assert down.long < 0.96


@given(st.lists(st.tuples(st.floats(-1, 1e3), st.floats(0, 1e4)), max_size=60), st.floats(0.01, 10))
def test_the_limit_keeps_its_bounds_and_never_rises_beyond_the_guard(
    seen: list[tuple[float, float]], guard: float
) -> None:
    terms, state = concurrency.Terms(5, 50, guard), concurrency.State(20.0)
    for latency, in_flight in seen:
        before = state
        state, _ = concurrency.step(terms, state, latency, in_flight)
        assert 5 <= state.limit <= 50
        if latency > guard:
            assert state.limit <= before.limit and state.long == before.long


# -- draining --------------------------------------------------------------------------------------------------------


def test_amazons_published_backlogs() -> None:
    capacity = 50.0
    excess = (10 * capacity - capacity) * 30 * 60
    while_it_lasts, afterwards = 30 * 60, drain.drain_seconds(excess, capacity, 0)
    assert (while_it_lasts + afterwards) / 60 == 300, "ten times the capacity for 30 minutes: 300 minutes"
    assert drain.capacity_needed(3600 * capacity, capacity, 3600) == 2 * capacity, "an hour's outage"
    assert drain.drain_seconds(1, 5, 5) == math.inf and drain.drain_seconds(0, 1, 5) == 0


@given(st.floats(1, 1e6), st.floats(0, 1e4), st.floats(1, 1e5))
def test_what_is_needed_to_drain_drains_in_that_time(backlog: float, arrivals: float, within: float) -> None:
    needed = drain.capacity_needed(backlog, arrivals, within)
    assert drain.drain_seconds(backlog, needed, arrivals) == pytest.approx(within, rel=1e-3) or backlog / within < 1e-6


# -- permits ---------------------------------------------------------------------------------------------------------

events = st.lists(
    st.tuples(st.sampled_from(["grant", "arrive", "lose", "forge", "done", "recover"]), st.integers(0, 9)), max_size=120
)


@given(st.integers(1, 40), st.integers(1, 40), events)
def test_permits_are_conserved_whatever_is_lost_late_or_forged(
    buffer: int, batch: int, seen: list[tuple[str, int]]
) -> None:
    terms = permits.Terms(buffer, min(batch, buffer), timeout_seconds=5)
    state, now = permits.begun(terms), 0.0
    held: list[int] = []  # by the producer: ids, one for each permit
    for what, number in seen:
        now += 1
        if what == "grant":
            state, new, reason = permits.grant(terms, state, now)
            held += [new.id] * new.permits if new else []
            assert reason
        elif what == "arrive" and held:
            state, stays, _ = permits.received(state, held.pop(number % len(held)))
            assert stays or state.pending == 0
        elif what == "lose" and held:
            held.pop(number % len(held))
        elif what == "forge":
            before = state
            state, stays, _ = permits.received(state, state.next_id + number)
            assert not stays and state == before
        elif what == "done" and state.in_hand:
            state = permits.done(state)
        elif what == "recover":
            state, _ = permits.recovered(terms, state, now)
        assert state.pending + state.permits_in_flight + state.in_hand == buffer
        assert min(state.pending, state.permits_in_flight, state.in_hand) >= 0
    state, _ = permits.recovered(terms, state, now + 10)
    while state.in_hand:
        state = permits.done(state)
    assert state.pending == buffer, "no place is lost for ever"


@given(st.integers(1, 500), st.lists(st.tuples(st.floats(0, 50), st.floats(0, 800), st.floats(0, 20)), max_size=60))
def test_permits_that_are_counted_are_conserved_too(buffer: int, looks: list[tuple[float, float, float]]) -> None:
    terms, state, now = permits.Terms(buffer, timeout_seconds=5), permits.Counted(at=0.0), 0.0
    for used, in_hand, elapsed in looks:
        now += elapsed
        state, pending = permits.counted(terms, state, used, in_hand, now)
        total = pending + state.in_flight + in_hand
        assert total == pytest.approx(buffer) or (total >= buffer and pending == 0)
        assert pending >= 0 and all(count > 0 for count, _ in state.granted)
    state, _ = permits.counted(terms, state, 0.0, 0.0, now + 10)
    assert state.in_flight == pytest.approx(buffer), "no place is lost for ever"


def test_permits_go_out_in_batches_but_never_wait_for_one_that_cannot_fill() -> None:
    terms = permits.Terms(10, batch=4)
    state, first, _ = permits.grant(terms, permits.begun(terms), 0)
    assert first is not None and first.permits == 10
    for _ in range(3):
        state, _, _ = permits.received(state, first.id)
        state = permits.done(state)
    assert permits.grant(terms, state, 1)[1] is None, "three are no batch"
    state = permits.done(permits.received(state, first.id)[0])
    assert permits.grant(terms, state, 1)[1] == permits.Grant(2, 4, 1)
    small = permits.Terms(2, batch=2)
    alone = permits.done(permits.received(permits.grant(small, permits.begun(small), 0)[0], 1)[0])
    alone, void = permits.recovered(small, alone, 60)
    assert void == (1,) and permits.grant(small, alone, 60)[1] == permits.Grant(2, 2, 60)


def test_permits_that_cannot_be_are_refused() -> None:
    for changes in ({"buffer": 0}, {"buffer": 3, "batch": 4}, {"buffer": 3, "timeout_seconds": 0}):
        with pytest.raises(ValueError, match="batch"):
            permits.Terms(**changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="in hand"):
        permits.done(permits.begun(permits.Terms(3)))
