"""An incident as a scenario: what came is its trace, and there are as many servers as there were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from lab.incident import Incident
from lab.scenario import Scenario, Tenant, Variant
from lake.definitions import Definitions

#: More tenants than this are simulated as one, but for those who sent the most: the loop looks at each, each second.
MOST_TENANTS = 500
REST = "(all others)"


def traced(incident: Incident, definitions: Definitions, ways: Sequence[Variant]) -> Scenario:
    """``incident`` as a scenario whose tenants are all alike."""
    sent: dict[str, int] = defaultdict(int)
    for arrival in incident.arrivals:
        sent[arrival.tenant] += 1
    named = set(sorted(sent, key=lambda tenant: -sent[tenant])[:MOST_TENANTS])
    trace = tuple(
        arrival if arrival.tenant in named else replace(arrival, tenant=REST) for arrival in incident.arrivals
    )
    tenants = tuple(Tenant(name, ()) for name in sorted(named | ({REST} if len(named) < len(sent) else set())))
    first = incident.servers[0][1]
    changes = zip(incident.servers[1:], incident.servers, strict=False)
    return Scenario(
        title="/".join(filter(None, incident.place)),
        duration=3 * incident.seconds,
        tenants=tenants,
        variants=tuple(replace(way, servers=first) for way in ways),
        service="exponential",
        service_mean=sum(sum(one.work) for one in trace) / len(trace),
        target_seconds=definitions.target_seconds,
        window_seconds=definitions.window_seconds,
        scaling=tuple((at, count - before) for (at, count), (_, before) in changes),
        trace=trace,
        done_by=incident.seconds,
    )
