"""Every HTTP listener of ours as a stranger meets it: real servers, and one proper request of each path."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import alerts.control
from alerts.api import access_controlled, application, url_of
from alerts.control.settings import ControlSettings
from alerts.engine import Snapshot
from alerts.settings import AlertSettings
from alerts.store import ApiState, connect
from alerts.v2.app import Api
from collectors.selfmetrics import SelfMetrics
from dashboard.run import HEALTH_PATH, address, claim_port, command, environment
from dashboard.settings import DashboardSettings
from lake.clock import Clock
from lake.store import Lake
from lake.web.server import WebServer, listen, served
from tests.collectors.receive.support import receiving
from tests.security.requests import ALERT, SILENCE, UPGRADE, events, head, request
from tests.support.waiting import PATIENCE, wait_until

SECONDS = 20.0 * PATIENCE
EVENT = {
    "event_type": "enqueued",
    "broker": "nats",
    "queue": "q",
    "tenant": "t",
    "message_id": "m",
    "event_id": "e",
    "attempt": 1,
    "occurred_at": 1_780_000_000_000_000,
}


@dataclass(frozen=True)
class Endpoint:
    """One path of a listener. ``body`` is a proper one, None where it takes none; ``queries`` have ``{}`` where a name
    of somebody's may stand; ``state`` is what strangers must not change."""

    path: str
    method: str = "GET"
    body: Any = None
    queries: tuple[str, ...] = ()
    more: tuple[bytes, ...] = ()
    expected: tuple[int, ...] = (200,)
    port: int = 0
    state: Callable[[], object] = field(default=lambda: None)
    #: An easy question that shows that the listener still serves others.
    well: str = ""

    def sent(self, **changes: Any) -> bytes:
        """The proper request, but for ``host``, ``kind`` and ``more``."""
        more = self.more + changes.pop("more", ())
        if self.method == "GET":
            return head(self.path, method="GET", more=more, **{"kind": None, **changes})
        body = b"" if self.body is None else json.dumps(self.body).encode()
        kind = {} if self.body is not None else {"kind": None}
        return request(body, path=self.path, method=self.method, more=more, **{**kind, **changes})

    def status(self, sent: bytes) -> int:
        """The status of the answer to ``sent``; 0 where the connection is closed without one."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS) as made:
            try:
                made.sendall(sent)
                answer = made.recv(65_536)
            except ConnectionError:
                return 0
        return int(answer[9:12]) if answer else 0

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def serves(self) -> bool:
        """Whether the listener answers a proper request; the receiver has nothing to read."""
        return httpx.get(f"{self.url}{self.well}", timeout=SECONDS).status_code in (200, 404)


def _post(path: str, body: Any, *queries: str, expected: tuple[int, ...] = (200,)) -> Endpoint:
    return Endpoint(path, "POST", body, queries, expected=expected)


RECEIVER = (_post("/v1/events", events(events=[EVENT])), _post("/v1/traces", {"resourceSpans": []}))
_SHOWN = ("filter={}", "receiver={}", "active={}", "silenced={}", "filter=queue%3D%22{}%22", "filter=queue%3D~%22{}%22")
ALERTS = (
    Endpoint("/api/v2/alerts", queries=tuple(f"/api/v2/alerts?{one}" for one in _SHOWN)),
    Endpoint("/api/v2/alerts/groups", queries=tuple(f"/api/v2/alerts/groups?{one}" for one in _SHOWN)),
    Endpoint("/api/v2/silences", queries=("/api/v2/silences?filter={}", "/api/v2/silence/{}", "/api/v2/{}")),
    _post("/api/v2/alerts", [ALERT]),
    _post("/api/v2/silences", SILENCE),
    _post("/api/v2/acknowledgements", {"fingerprint": "0" * 16, "createdBy": "a", "comment": "c"}, expected=(404,)),
    Endpoint(
        "/v1/limits", queries=tuple(f"/v1/limits?{one}={{}}" for one in ("wait", "broker", "queue", "since", "{}"))
    ),
    Endpoint("/v1/actions", queries=("/v1/actions?limit={}", "/v1/{}", "/v1/actions/{}/revoke")),
    _post("/v1/pause", None),
    _post("/v1/resume", None),
)
METRICS = (Endpoint("/metrics", queries=("/metrics?name[]={}", "/{}")),)
DASHBOARD = (Endpoint("/_stcore/stream", queries=("/{}", "/?queue={}", "/media/{}"), more=UPGRADE, expected=(101,)),)
ENDPOINTS = {f"{one.method} {one.path}": one for one in (*RECEIVER, *ALERTS, *METRICS, *DASHBOARD)}


class Endpoints:
    """By name; a server is started when its first endpoint is asked for, and all are ended with ``stack``."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._open: dict[str, Endpoint] = {}

    def __getitem__(self, name: str) -> Endpoint:
        if name not in self._open:
            endpoints, serve = next(one for one in _SERVERS if ENDPOINTS[name] in one[0])
            port, well, state = self._stack.enter_context(serve(self._folder))
            self._open |= {f"{one.method} {one.path}": _opened(one, port, well, state) for one in endpoints}
        return self._open[name]


def _opened(one: Endpoint, port: int, well: str, state: Callable[[], object]) -> Endpoint:
    return Endpoint(one.path, one.method, one.body, one.queries, one.more, one.expected, port, state, well)


Served = tuple[int, str, Callable[[], object]]


@contextmanager
def _receiver(folder: Path) -> Iterator[Served]:
    with receiving(folder / "received") as one:
        yield one.http_port, "/v1/nothing", lambda: len(one.rows())


@contextmanager
def _alerts(folder: Path) -> Iterator[Served]:
    settings, clock, lake = AlertSettings(), Clock(), Lake(folder / "lake")
    lake.create()
    connect(lake.state_path("alerts.sqlite")).close()
    with closing(ApiState(lake.state_path("alerts.sqlite"))) as api_state:
        state = lake.state_path("control", "_").parent
        control = alerts.control.build(ControlSettings(), lake.root, state, token=None, clock=clock)
        try:
            api = Api(Snapshot, api_state, settings, clock)
            front = access_controlled(application(Snapshot, api.app, control.app, clock), settings, None, None)
            listener = listen("127.0.0.1", 0)

            def told() -> object:
                return control.controller.paused, len(api_state.given.silences), len(api_state.given.received)

            with served(WebServer(front, listener, front.limits)):
                yield int(url_of(listener).rpartition(":")[2]), "/-/healthy", told
                control.wake()
        finally:
            control.close()


@contextmanager
def _metrics(_: Path) -> Iterator[Served]:
    yield SelfMetrics().serve("127.0.0.1", 0), "/metrics", lambda: None


@contextmanager
def _dashboard(folder: Path) -> Iterator[Served]:
    root = folder / "shown"
    Lake(root).create()
    settings = claim_port(DashboardSettings(port=0))
    with (folder / "dashboard.log").open("wb") as log:
        process = subprocess.Popen(command(settings), env=environment(settings, root), cwd=root, stdout=log, stderr=log)
    try:
        wait_until(lambda: _is_well(address(settings)) or process.poll() is not None, "the dashboard", seconds=60)
        yield settings.port, HEALTH_PATH, process.poll
    finally:
        process.terminate()
        process.wait()
    assert b"Traceback" not in (folder / "dashboard.log").read_bytes()


def _is_well(url: str) -> bool:
    try:
        return httpx.get(url + HEALTH_PATH, timeout=2).status_code == 200
    except httpx.TransportError:
        return False


_SERVERS: tuple[tuple[tuple[Endpoint, ...], Callable[[Path], AbstractContextManager[Served]]], ...] = (
    (RECEIVER, _receiver),
    (ALERTS, _alerts),
    (METRICS, _metrics),
    (DASHBOARD, _dashboard),
)
