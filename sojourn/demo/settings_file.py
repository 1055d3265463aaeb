"""The ``sojourn.toml`` of the demo: what the parts are told, and an example for a first file of one's own."""

from __future__ import annotations

import json

from sojourn.demo import scenario
from sojourn.demo.broker import Broker
from sojourn.demo.cast import Ports
from sojourn.demo.layout import Layout

_TEMPLATE = """\
# Written by `sojourn demo`; each run writes it anew.

[lake]
root = {lake}

[definitions]
window_seconds = {window}
target_seconds = {target}

[[collect.brokers]]
name = {broker}
kind = "nats"
url = {url}
streams = [
  {{ name = {stream}, tenant = {tenant} }},
  {{ name = {dead_letters}, tenant = {tenant}, dead_letter_for = {stream} }},
]

[analyze]
quick_start = true # start soon rather than run at full speed: a demo is over before that would pay

[alert]
port = {alert_port}

[[alert.receivers]]
name = "demo"
url = {webhook}
secret_file = {secret}
allow_private = true # the receiver runs on this machine

[[alert.control.policies]]
name = {policy}
kind = "aimd"
mode = {mode} # the default only decides and writes down what it would do
floor = 5.0
cooldown_seconds = 12.0 # longer than the window: judge a limit by what came after it
lease_seconds = 30.0
early = true
target_seconds = 0.75 # a quarter of what the queue has to keep: act before it is missed
drain_seconds = 10.0 # the demo is short: leave room for the backlog to be gone soon,
max_step = 0.9 # and get there in one step

[dashboard]
port = {dashboard_port}
refresh_seconds = 1.0
"""

#: Short, because the demo is: rates settle within seconds of a change.
WINDOW_SECONDS = 10
#: The policy that the built-in rule on noisy tenants names.
POLICY = "throttle-noisy"


def settings_text(layout: Layout, broker: Broker, ports: Ports, *, mode: str = "auto") -> str:
    """The settings of one run: where its servers listen is chosen anew each time. ``mode`` is the policy's."""
    values: dict[str, object] = {
        "lake": str(layout.lake),
        "window": WINDOW_SECONDS,
        "target": scenario.TARGET_SECONDS,
        "broker": scenario.BROKER,
        "url": broker.url,
        "stream": scenario.STREAM,
        "dead_letters": scenario.DEAD_LETTERS,
        "tenant": f"header:{scenario.TENANT_HEADER}",
        "alert_port": ports.alert,
        "webhook": f"http://127.0.0.1:{ports.receiver}/webhook",
        "secret": str(layout.secret),
        "policy": POLICY,
        "mode": mode,
        "dashboard_port": ports.dashboard,
    }
    return _TEMPLATE.format(**{name: json.dumps(value) for name, value in values.items()})
