"""Every page says whether rules are evaluated and receivers told: the alert process itself is asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from alerts.settings import AlertSettings
from dashboard import evaluation, operations
from dashboard.run import API_VARIABLE
from dashboard.services import pipeline
from dashboard.services.freshness import Evaluation, Heartbeats, freshness
from lake.errors import UserError
from tests.support.ports import free_ports

NOW = datetime(2026, 3, 1, 3, 7, 0, tzinfo=UTC)


@contextmanager
def answering(status: int) -> Iterator[str]:
    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/-/ready" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_alert_process_is_asked_whether_it_evaluates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(API_VARIABLE, raising=False)
    assert evaluation._asked(tmp_path) is Evaluation.UNTOLD
    run = tmp_path / "state" / "run"
    run.mkdir(parents=True)
    for status, expected in ((200, Evaluation.RUNS), (503, Evaluation.LATE)):
        with answering(status) as url:
            (run / "alerts.json").write_text(json.dumps({"url": url}))
            assert evaluation._asked(tmp_path) is expected
    assert evaluation._asked(tmp_path) is Evaluation.SILENT


def test_what_it_tells_of_its_own_container_gives_way_to_where_its_settings_say_that_it_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "state" / "run"
    run.mkdir(parents=True)
    (nobody,) = free_ports(1)
    (run / "alerts.json").write_text(json.dumps({"url": f"http://127.0.0.1:{nobody}"}))  # its loopback, not ours
    with answering(200) as url:
        settings = AlertSettings(host="0.0.0.0", token_env="T", external_url=url)
        monkeypatch.setenv(API_VARIABLE, json.dumps({"url": settings.reached_at}))
        assert evaluation._asked(tmp_path) is Evaluation.RUNS
        with pytest.raises(UserError, match=f"{url} refuses \\(501\\)"):  # it was asked: this one takes no POST
            operations.switch(tmp_path, "pause")("ada")
        (run / "alerts.json").unlink()
        assert evaluation._asked(tmp_path) is Evaluation.RUNS


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "http://127.0.0.1:9095"), ("0.0.0.0", "http://127.0.0.1:9095"), ("::", "http://[::1]:9095")],
)
def test_without_a_name_for_others_it_is_asked_on_this_machine(host: str, address: str) -> None:
    assert AlertSettings(host=host, token_env="T").reached_at == address


def test_rules_that_nobody_evaluates_are_a_weak_link() -> None:
    beats = Heartbeats(alerts=NOW - timedelta(minutes=2))
    good = pipeline.rules(beats, Evaluation.RUNS, NOW)
    assert good.good and good.state == "evaluated, an alert last changed 2 min ago"
    weak = pipeline.rules(beats, Evaluation.SILENT, NOW)
    assert weak.good is False and weak.note.startswith("No alert process answers")
    assert pipeline.rules(Heartbeats(), Evaluation.UNTOLD, NOW).good is None


def test_a_receiver_is_not_told_where_its_newest_delivery_of_the_day_failed() -> None:
    def tried(receiver: str, outcome: str, minutes: float) -> dict[str, object]:
        return {"receiver": receiver, "outcome": outcome, "at": NOW - timedelta(minutes=minutes)}

    rows = [tried("pager", "delivered", 5), tried("pager", "failed", 1), tried("chat", "retry", 9)]
    rows += [tried("chat", "delivered", 2), tried("old", "failed", 2000)]
    assert pipeline.untold(rows, NOW) == ["pager"]


def test_queues_whose_events_disagree_with_the_broker_are_not_to_be_trusted() -> None:
    fresh = freshness({"nats": NOW}, Heartbeats(), NOW, 30.0)
    good = "What the pages say can be trusted"
    assert pipeline.verdict([], fresh) == good
    assert pipeline.verdict([], fresh, [("orders", "28 %")]) == f"{good}, but for orders: see coverage"
    assert pipeline.verdict([], fresh, [("a", "2 %"), ("b", "3 %")]) == f"{good}, but for 2 queues: see coverage"
    most = [(str(number), "2 %") for number in range(pipeline.NAMED)]  # there may be more
    assert pipeline.verdict([], fresh, most) == f"{good}, but for many queues: see coverage"
