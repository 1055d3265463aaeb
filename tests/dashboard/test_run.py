from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from dashboard import rule_files, serve
from dashboard.run import (
    HEALTH_PATH,
    LAKE_VARIABLE,
    RULES_VARIABLE,
    SETTINGS_VARIABLE,
    address,
    claim_port,
    command,
    environment,
    exposure,
)
from dashboard.settings import LOOPBACK_HOSTS, DashboardSettings
from dashboard.theme import options
from lake.errors import UserError
from lake.web.policy import Refusal
from sojourn.cli.main import app
from sojourn.cli.parts import leading_on
from sojourn.settings import load
from tests.support.deep import examples
from tests.support.waiting import PATIENCE

LAKE = Path("/somewhere/lake")


def test_the_server_is_closed_to_others_unless_told_otherwise() -> None:
    assert command(DashboardSettings()) == [sys.executable, "-m", "dashboard.serve"]
    told = serve.options(DashboardSettings())
    assert (told["server.address"], told["browser.gatherUsageStats"]) == ("127.0.0.1", False)
    assert (told["client.showErrorDetails"], told["server.allowedHosts"]) == ("none", list(LOOPBACK_HOSTS))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "queues.example", "origin": "https://queues.example"}, 200),  # a proxy speaks TLS before it
        ({"host": "127.0.0.1:8501", "origin": "https://queues.example"}, 200),  # and says another Host
        ({"host": "queues.example:8443", "origin": "https://queues.example:8443"}, 200),
        ({"host": "queues.example", "origin": "https://evil.example"}, 403),
        ({"host": "127.0.0.1:8501", "origin": "http://127.0.0.1:3000"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "192.0.2.7:8501"}, 200),  # by which a cluster looks whether it is well
        ({"host": "localhost", "sec-fetch-site": "cross-site"}, 403),
        ({"host": "localhost", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),  # in a frame
        (
            {
                "host": "localhost",
                "sec-fetch-site": "cross-site",
                "sec-fetch-mode": "navigate",
                "sec-fetch-dest": "document",
            },
            200,
        ),
    ],
)
def test_which_pages_and_names_may_ask_an_open_dashboard(headers: dict[str, str], status: int) -> None:
    policy = serve.policy(DashboardSettings(host="0.0.0.0", allowed_hosts=("queues.example",)))
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    if status == 200:
        policy.check("/", "http", raw)
    else:
        with pytest.raises(Refusal) as refused:
            policy.check("/", "http", raw)
        assert refused.value.status == status


def test_a_port_must_be_chosen_before_the_server_starts() -> None:
    with pytest.raises(UserError, match="port"):
        command(DashboardSettings(port=0))
    assert claim_port(DashboardSettings(port=0)).port > 0


def test_a_port_that_is_taken_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="cannot listen on") as caught:
            claim_port(DashboardSettings(port=taken.getsockname()[1]))
    assert "port = 0" in caught.value.fix


def test_an_open_server_obeys_the_names_it_was_given() -> None:
    named = DashboardSettings(host="0.0.0.0", allowed_hosts=("queues.example",)).hosts
    assert "queues.example" in named and "*" not in named


def test_a_server_that_listens_to_all_needs_names_and_says_that_it_has_no_login() -> None:
    with pytest.raises(UserError, match="needs the names") as caught:
        exposure(DashboardSettings(host="0.0.0.0"))
    assert "--allowed-host" in caught.value.fix
    assert "no login" in exposure(DashboardSettings(host="0.0.0.0", allowed_hosts=("queues.example",)))
    assert "no login" in exposure(DashboardSettings(host="192.0.2.7"))
    assert exposure(DashboardSettings()) == exposure(DashboardSettings(host="::1")) == ""


def test_heading_weights_are_ones_that_streamlit_takes() -> None:
    weights = options()["theme.headingFontWeights"]
    assert isinstance(weights, list) and all(weight % 50 == 0 and 100 <= weight <= 900 for weight in weights)


def test_the_command_takes_host_and_port_and_refuses_to_be_open_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[DashboardSettings] = []
    known: list[list[Path]] = []

    def execute(file: str, argv: list[str], env: dict[str, str]) -> None:
        started.append(DashboardSettings.model_validate_json(env[SETTINGS_VARIABLE]))
        known.append([Path(file) for file in json.loads(env[RULES_VARIABLE])])

    monkeypatch.setattr(os, "execvpe", execute)
    lake = ["--lake", str(tmp_path)]
    CliRunner().invoke(app, ["dashboard", "--host", "127.0.0.1", "--port", "0", *lake])
    assert started[0].host == "127.0.0.1" and started[0].port != 0
    assert rule_files.of("DeadLetters", known[0]).entry is not None, "the built-in rules, as an alert process has them"
    refused = CliRunner().invoke(app, ["dashboard", "--host", "0.0.0.0", "--port", "0", *lake])
    assert refused.exit_code != 0 and len(started) == 1
    named = ["--host", "0.0.0.0", "--port", "0", "--allowed-host", "queues.example"]
    opened = CliRunner().invoke(app, ["dashboard", *named, *lake])
    assert "no login" in opened.stderr and started[1].allowed_hosts == ("queues.example",)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT][: examples(1, 2)])
def test_it_says_where_it_is_once_it_answers_there_and_nothing_else_and_ends_in_order(
    tmp_path: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "sojourn.cli.main", "dashboard", "--port", "0", "--lake", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            said = process.stdout.readline()
            found = re.fullmatch(r"Dashboard at (http://127\.0\.0\.1:\d+), Ctrl-C to stop\n", said)
            assert found is not None, said
            assert httpx.get(found[1] + HEALTH_PATH, timeout=PATIENCE * 10).text == "ok"
            process.send_signal(number)
            assert (process.stdout.read(), process.wait(timeout=PATIENCE * 20)) == ("", 0)
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("told", "page"),
    [
        ("", "http://127.0.0.1:8501"),
        ("[dashboard]\nport = 8599", "http://127.0.0.1:8599"),
        ("[dashboard]\nport = 0", None),
        ('[alert]\nexternal_url = "http://sojourn.example:9095"', None),
        ('[alert]\ndashboard_url = "https://sojourn.example"', "https://sojourn.example"),
        ('[dashboard]\nallowed_hosts = ["sojourn.example"]', None),
        (
            (
                '[alert]\nexternal_url = "https://api.example"\n[dashboard.oidc]\nclient_id = "s"\n'
                'metadata_url = "https://id.example/"\nclient_secret = { env = "S" }\n'
                'redirect_uri = "https://sojourn.example/oauth2callback"'
            ),
            "https://sojourn.example",
        ),
    ],
)
def test_alerts_lead_to_the_dashboard_where_the_settings_say_how_it_is_reached(
    tmp_path: Path, told: str, page: str | None
) -> None:
    config = tmp_path / "sojourn.toml"
    config.write_text(told)
    assert leading_on(load(config)).dashboard_url == page


def test_the_environment_carries_the_lake_and_the_settings() -> None:
    environ = environment(DashboardSettings(refresh_seconds=1), LAKE, {"PYTHONPATH": "/theirs", "HOME": "/home"})
    assert environ[LAKE_VARIABLE] == "/somewhere/lake"
    assert DashboardSettings.model_validate_json(environ[SETTINGS_VARIABLE]).refresh_seconds == 1
    assert environ["PYTHONPATH"].split(os.pathsep)[-1] == "/theirs"
    assert environ["HOME"] == "/home"


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError):
        DashboardSettings.model_validate({"prot": 1})


def test_the_address_is_one_that_a_browser_here_can_open() -> None:
    assert address(DashboardSettings(host="0.0.0.0", port=81)) == "http://127.0.0.1:81"
    assert address(DashboardSettings(host="::1", port=81)) == "http://[::1]:81"
