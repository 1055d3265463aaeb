from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from dashboard.run import LAKE_VARIABLE, SETTINGS_VARIABLE, address, claim_port, command, environment
from dashboard.settings import DashboardSettings
from lake.errors import UserError

LAKE = Path("/somewhere/lake")


def test_the_server_is_closed_to_others_unless_told_otherwise() -> None:
    argv = command(DashboardSettings(), LAKE)
    assert argv[:4] == [sys.executable, "-m", "streamlit", "run"]
    assert "--server.address=127.0.0.1" in argv
    assert "--browser.gatherUsageStats=false" in argv
    assert "--client.showErrorDetails=none" in argv
    assert "--server.allowedHosts=localhost" in argv
    assert "--server.allowedHosts=*" not in argv


def test_a_port_must_be_chosen_before_the_server_starts() -> None:
    with pytest.raises(UserError, match="port"):
        command(DashboardSettings(port=0), LAKE)
    assert claim_port(DashboardSettings(port=0)).port > 0


def test_a_port_that_is_taken_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UserError, match="cannot listen on") as caught:
            claim_port(DashboardSettings(port=taken.getsockname()[1]))
    assert "port = 0" in caught.value.mend


def test_an_open_server_obeys_the_names_it_was_given() -> None:
    assert DashboardSettings(host="0.0.0.0").hosts == ("*",)
    named = DashboardSettings(host="0.0.0.0", allowed_hosts=("queues.example",)).hosts
    assert "queues.example" in named and "*" not in named


def test_the_environment_carries_the_lake_the_settings_and_the_theme() -> None:
    environ = environment(DashboardSettings(refresh_seconds=1), LAKE, {"PYTHONPATH": "/theirs", "HOME": "/home"})
    assert environ[LAKE_VARIABLE] == "/somewhere/lake"
    assert DashboardSettings.model_validate_json(environ[SETTINGS_VARIABLE]).refresh_seconds == 1
    assert environ["STREAMLIT_THEME_DARK_TEXT_COLOR"].startswith("#")
    assert environ["PYTHONPATH"].split(os.pathsep)[-1] == "/theirs"
    assert environ["HOME"] == "/home"


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(ValidationError):
        DashboardSettings.model_validate({"prot": 1})


def test_the_address_is_one_that_a_browser_here_can_open() -> None:
    assert address(DashboardSettings(host="0.0.0.0", port=81)) == "http://127.0.0.1:81"
    assert address(DashboardSettings(host="::1", port=81)) == "http://[::1]:81"
