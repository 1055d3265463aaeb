"""Backpressure never runs in a circle: the declared topology is checked, and a circle is named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from alerts.control.flows import Place, cycle
from alerts.control.settings import ControlSettings, FlowSettings

places = st.sampled_from([("b", name) for name in "pqrstu"])


def reachable(flows: set[tuple[Place, Place]]) -> set[tuple[Place, Place]]:
    """All (from, to) that any number of flows lead along, by joining until nothing comes to it."""
    found = set(flows)
    while more := {(a, d) for a, b in found for c, d in found if b == c} - found:
        found |= more
    return found


@given(st.sets(st.tuples(places, places), max_size=14))
def test_a_circle_is_found_if_and_only_if_there_is_one(flows: set[tuple[Place, Place]]) -> None:
    found = cycle(flows)
    assert (found is not None) == any(a == b for a, b in reachable(flows))
    if found is not None:
        assert found[0] == found[-1] and set(pairwise(found)) <= flows
        assert len(set(found)) == len(found) - 1


def test_a_long_chain_is_no_circle_and_takes_no_recursion() -> None:
    chain = [(("b", f"{n:05}"), ("b", f"{n + 1:05}")) for n in range(1500)]
    assert cycle(chain) is None
    found = cycle([*chain, (("b", "01500"), ("b", "00000"))])
    assert found is not None and len(found) == 1502


def test_settings_with_a_circle_are_refused_and_the_circle_is_named() -> None:
    flows = (
        FlowSettings(broker="nats", queue="orders", to=("billing", "kafka/audit")),
        FlowSettings(broker="nats", queue="billing", to=("mail",)),
    )
    assert ControlSettings(flows=flows)
    back = FlowSettings(broker="kafka", queue="audit", to=("nats/orders",))
    with pytest.raises(ValidationError, match="kafka/audit → nats/orders → kafka/audit"):
        ControlSettings(flows=(*flows, back))
    with pytest.raises(ValidationError, match="nats/a → nats/a"):
        ControlSettings(flows=(FlowSettings(broker="nats", queue="a", to=("a",)),))
