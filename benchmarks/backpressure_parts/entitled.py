"""Standing entitlements alone, as ``standing`` measures them."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.backpressure_parts.load import STREAM
from benchmarks.backpressure_parts.standing import measured
from benchmarks.figures import Figure

CONTROL = f"""\
[[alert.control.entitlements]]
broker = "nats"
queue = "{STREAM}"

[[alert.control.depth]]
kind = "nats"
name = "nats"
url = "{{url}}"
"""


def measure(scale: float) -> Iterator[Figure]:
    """Producers obey what each tenant is entitled to, and the broker is asked how many wait; nobody is limited."""
    yield from measured("entitled", CONTROL, scale)
