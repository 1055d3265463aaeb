"""``sojourn alerts list``: what fires, for whoever has a terminal alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from lake.reader import Reader
from tests.alerts.test_v2 import firing_as, serving
from tests.dashboard.scene import write_story
from tests.sojourn.test_cli import is_one_clear_line, sojourn


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("alerts")
    write_story(root, end=datetime.now(UTC), queue="or\x1b[31mders")
    return root


@contextmanager
def answering(status: int) -> Iterator[str]:
    """Something that answers as an alert process whose ``/-/ready`` has ``status``."""

    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Ready)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_what_fires_is_shown_with_what_it_is_about_and_the_fingerprint_that_others_ask_for(lake: Path) -> None:
    with answering(200) as url:
        run = sojourn("alerts", "list", "--lake", str(lake), "--url", url, cwd=lake)
        everything = sojourn("alerts", "list", "--all", "--json", "--lake", str(lake), "--url", url, cwd=lake)
    assert (run.returncode, run.stderr) == (0, "")
    first, about, *_ = run.stdout.splitlines()
    assert first.startswith("▲ critical  Tenant acme-7 holds the shared queue")
    assert " firing since " in about and "queue or\\x1b[31mders" in about and "tenant acme-7" in about
    told = [json.loads(line) for line in everything.stdout.splitlines()]
    assert told[0]["fingerprint"] in about and told[0]["labels"]["tenant"] == "acme-7"
    assert datetime.fromisoformat(told[0]["since"]) < datetime.now(UTC)
    assert len(run.stdout.splitlines()) == 2 * sum(one["state"] != "resolved" for one in told)


def test_that_nothing_fires_is_said_of_rules_that_somebody_evaluates(tmp_path: Path) -> None:
    with answering(200) as url:
        well = sojourn("alerts", "list", "--lake", str(tmp_path), "--url", url, cwd=tmp_path)
    with answering(503) as url:
        late = sojourn("alerts", "list", "--lake", str(tmp_path), "--url", url, cwd=tmp_path)
    dead = sojourn("alerts", "list", "--lake", str(tmp_path), "--url", "http://127.0.0.1:9", cwd=tmp_path)
    assert (well.returncode, well.stdout, well.stderr) == (0, "nothing fires, nothing is pending\n", "")
    assert (late.returncode, late.stdout) == (dead.returncode, dead.stdout) == (1, "")
    assert "has evaluated no rule" in late.stderr and "no alert process answers" in dead.stderr
    is_one_clear_line(sojourn("alerts", "list", "--lake", "nowhere", cwd=tmp_path), "there is no lake at")


def test_what_an_alert_says_is_what_is_the_case_now_where_the_alert_process_tells(lake: Path, tmp_path: Path) -> None:
    states = Reader(lake).query("SELECT * FROM alert_states WHERE rule <> 'Watchdog'")
    (fired,) = states.to_pylist()
    with serving(tmp_path / "alerts.sqlite", firing_as(fired, "Tenant acme-7 holds all of it", 0.97)) as http:
        (state := lake / "state" / "run").mkdir(parents=True, exist_ok=True)
        url = str(http.base_url)
        first, about, *_ = sojourn("alerts", "list", "--lake", str(lake), "--url", url, cwd=lake).stdout.splitlines()
        (state / "alerts.json").write_text(json.dumps({"url": url}))
        seen = sojourn("top", "--once", "--lake", str(lake), cwd=lake, env={"COLUMNS": "160"}).stdout
    assert first == "▲ critical  Tenant acme-7 holds all of it" and fired["fingerprint"] in about
    assert "ago): Tenant acme-7 holds all of it" in seen
    then = sojourn("top", "--once", "--lake", str(lake), cwd=lake, env={"COLUMNS": "160"}).stdout
    assert "Tenant acme-7 holds the shared queue" in then, "nobody tells what it says now"
