"""The alert process's listener: who may ask what, decided by headers alone."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from alerts.api import access_controlled, application, url_of
from alerts.engine import Snapshot
from alerts.settings import AlertSettings
from alerts.store import ApiState
from alerts.v2.app import Api
from lake.clock import Clock
from lake.errors import UserError
from lake.web.server import WebServer, listen, served

PATHS = ("/api/v2/alerts", "/api/v2/silences", "/v1/limits", "/-/healthy", "/nowhere")


@contextmanager
def serving(token: str | None = None, control_token: str | None = None, **settings: Any) -> Iterator[str]:
    control = Starlette(routes=[Route("/v1/limits", lambda _: PlainTextResponse("{}"))])
    chosen = AlertSettings.model_validate(settings)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, closing(ApiState(Path(folder) / "alerts.sqlite")) as api_state:
        api = Api(Snapshot, api_state, chosen, clock)
        app = application(Snapshot, api.app, control, clock)
        front = access_controlled(app, chosen, token, control_token or token)
        listener = listen("127.0.0.1", 0)
        with served(WebServer(front, listener, front.limits)):
            yield url_of(listener)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "localhost.evil.example"}, 421),
        ({"Host": "169.254.169.254"}, 421),
        ({"Host": "[::1"}, 400),
        ({"Host": "[evil]"}, 400),
        ({"Host": "a b"}, 400),
        ({"Host": ""}, 400),
        ({"Host": "localhost:99999"}, 400),
        ({"Origin": "http://[evil"}, 400),
        ({"Origin": "00"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_no_path_is_read_by_a_web_page_or_under_another_name(headers: dict[str, str], status: int) -> None:
    with serving() as url, httpx.Client(base_url=url) as http:
        assert [http.get(path, headers=headers).status_code for path in PATHS] == [status] * len(PATHS)


@pytest.mark.parametrize(
    "name", ["localhost", "127.0.0.1", "[::1]:9095", "alerts.internal", "Alerts.Internal.:443", "sojourn-alert:9095"]
)
def test_who_asks_by_a_name_of_ours_is_answered(name: str) -> None:
    with (
        serving(hosts=["alerts.internal"], external_url="http://sojourn-alert:9095/x") as url,
        httpx.Client(base_url=url, headers={"Host": name}) as http,
    ):
        assert [http.get(path).status_code for path in PATHS] == [200, 200, 200, 200, 404]


def test_the_limits_may_have_a_token_of_their_own_and_health_has_none() -> None:
    with serving("one", "two") as url, httpx.Client(base_url=url) as http:
        for token, wanted in (
            (None, [401, 401, 401, 200, 401]),
            ("one", [200, 200, 401, 200, 404]),
            ("two", [401, 401, 200, 200, 401]),
        ):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            assert [http.get(path, headers=headers).status_code for path in PATHS] == wanted


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /api/v2/alerts HTTP/1.1\r\n\r\n",
        b"GET /api/v2/alerts HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET /api/v2/alerts HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n",
        b"GET /api/v2/alerts HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\xff\r\n\r\n",
        b"GET /api/v2/alerts?active=%ff HTTP/1.0\r\nHost: localhost:\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: [\r\n\r\n",
    ],
)
def test_what_is_malformed_is_a_bad_request_and_no_traceback(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with serving() as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=30) as made:
            made.sendall(sent)
            assert made.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.0 400")
        assert httpx.get(f"{url}/api/v2/alerts").json() == []
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "alerts.example", ""])
def test_other_machines_are_served_only_with_a_token(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="needs token_env"):
        AlertSettings(host=host)
    settings = AlertSettings(host=host, token_env="ALERT_TOKEN")
    with pytest.raises(UserError, match="without a token"):
        access_controlled(Starlette(), settings, None, None)
    monkeypatch.setenv("ALERT_TOKEN", "a token")
    access_controlled(Starlette(), settings, settings.token(), None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_this_machine_needs_no_token(host: str) -> None:
    access_controlled(Starlette(), AlertSettings(host=host), None, None)


@pytest.mark.parametrize("url", ["sojourn", "ftp://sojourn", "http://[", "http://a b/", "http://user@sojourn/"])
def test_an_external_url_that_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="external_url"):
        AlertSettings(external_url=url)
