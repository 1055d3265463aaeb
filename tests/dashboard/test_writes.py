"""The one way from pages to what lasts: roles are checked on the server, and all is journalled."""

from __future__ import annotations

import ast
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import operations, people, saved, writes
from dashboard.people import Person, Role
from lake.errors import SojournError, UserError
from tests.alerts.test_v2 import serving
from tests.dashboard.test_pages import opened

ADA, EVE = Person("ada@example.org", Role.OPERATOR), Person("eve@example.org", Role.VIEWER)
DASHBOARD = Path(writes.__file__).parent
#: What changes anything outside the process, and where alone it may be called.
WRITING = {
    "save": {"saved", "pages/sql"},
    "forget": {"saved", "pages/sql"},
    "ask": {"operations", "asking", "pages/sql", "entry/app"},
    "write": {"writes", "pages/confirm", "pages/sql"},
    "write_text": set(),
    "write_bytes": set(),
    "unlink": set(),
    "urlopen": set(),
    "mkdir": set(),
    "touch": set(),
}


@pytest.fixture
def who(monkeypatch: pytest.MonkeyPatch) -> Callable[[Person | None], None]:
    return lambda person: monkeypatch.setattr(writes, "present", lambda: person)


def outcomes(root: Path) -> list[tuple[str, str, str]]:
    return [(change.who, change.what, change.outcome) for change in reversed(writes.changes(root, 100))]


@pytest.fixture
def own(story: Path, tmp_path: Path) -> Path:
    """A lake that no other test sees."""
    return shutil.copytree(story, tmp_path / "lake")


@pytest.mark.parametrize("person", [EVE, None])
def test_who_may_not_write_does_not_and_that_is_journalled(
    tmp_path: Path, who: Callable[[Person | None], None], person: Person | None
) -> None:
    who(person)
    done: list[str] = []
    with pytest.raises(UserError, match="viewers read"):
        writes.write(tmp_path, "approve", "a-1", done.append)
    assert done == []
    assert outcomes(tmp_path) == [("nobody known" if person is None else person.name, "approve", "refused")]


def test_what_an_operator_does_is_done_under_their_name_and_journalled_before_and_after(
    tmp_path: Path, who: Callable[[Person | None], None]
) -> None:
    who(ADA)
    done: list[object] = []
    writes.write(tmp_path, "approve", "a-1", lambda name: done.append((name, outcomes(tmp_path))))
    assert done == [("ada@example.org", [("ada@example.org", "approve", "asked")])]
    assert outcomes(tmp_path)[1:] == [("ada@example.org", "approve", "done")]
    assert (tmp_path / writes.FOLDER / writes.JOURNAL).stat().st_mode & 0o777 == 0o600


def test_what_fails_is_journalled_with_its_reason(tmp_path: Path, who: Callable[[Person | None], None]) -> None:
    who(ADA)

    def fail(_: str) -> None:
        raise SojournError("no alert process answers\nnow")

    with pytest.raises(SojournError):
        writes.write(tmp_path, "pause", "policies", fail)
    assert (writes.changes(tmp_path, 1)[0].outcome, writes.changes(tmp_path, 1)[0].why.count("\n")) == ("failed", 0)


def test_nothing_is_done_that_cannot_be_journalled(tmp_path: Path, who: Callable[[Person | None], None]) -> None:
    who(ADA)
    (tmp_path / "state").write_text("a file where a folder should be")
    done: list[str] = []
    with pytest.raises(UserError, match="cannot be journalled"):
        writes.write(tmp_path, "approve", "a-1", done.append)
    assert done == []


def test_the_journal_stays_small_and_skips_what_is_no_line_of_it(
    tmp_path: Path, who: Callable[[Person | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    who(ADA)
    monkeypatch.setattr(writes, "MOST_BYTES", 2000)
    for number in range(40):
        writes.write(tmp_path, "approve", f"a-{number}", lambda _: None)
    files = sorted((tmp_path / writes.FOLDER).iterdir())
    assert [one.name for one in files] == ["journal.1.jsonl", "journal.jsonl"]
    assert all(one.stat().st_size < 3000 for one in files)
    with files[1].open("a") as file:
        file.write('{"half": \n[]\n')
    assert writes.changes(tmp_path, 1)[0].about == "a-39"


def test_nothing_on_a_page_writes_but_through_the_one_place() -> None:
    for path in DASHBOARD.rglob("*.py"):
        module = path.relative_to(DASHBOARD).with_suffix("").as_posix()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                assert called not in WRITING or module in WRITING[called], f"{module} calls {called}"


def test_a_viewer_sees_the_buttons_of_actions_but_cannot_press_them(
    own: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(own)
    assert people.present() == Person(people.HERE, Role.OPERATOR)
    asked: list[str] = []
    monkeypatch.setattr("dashboard.operations._ask", lambda root, path, body=None: asked.append(path))
    app = opened("actions")
    button = next(one for one in app.button if (one.key or "").startswith("do pause policies"))
    button.click().run()
    assert asked == ["/v1/pause?by=somebody%20at%20this%20machine"]
    monkeypatch.setattr(writes, "present", lambda: EVE)
    button = next(one for one in opened("actions").button if (one.key or "").startswith("do pause policies"))
    button.click().run()
    assert len(asked) == 1
    assert [change.outcome for change in writes.changes(own, 1)] == ["refused"]


def test_a_click_that_comes_twice_is_done_once(
    own: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(own)
    asked: list[str] = []
    monkeypatch.setattr("dashboard.operations._ask", lambda root, path, body=None: asked.append(path))

    def press(app: AppTest) -> AppTest:
        return next(one for one in app.button if (one.key or "").startswith("do pause policies")).click()

    app = opened("actions")
    press(app)
    clicked = app._tree.get_widget_states()
    app.run()
    assert len(asked) == 1
    app._run(clicked)  # as a browser's renewal brings it again that was under way meanwhile
    assert len(asked) == 1
    press(app).run()
    assert len(asked) == 2, "somebody has clicked again"


def test_an_operator_silences_an_alert_and_nothing_else_under_their_name(
    tmp_path: Path, who: Callable[[Person | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    who(ADA)
    labels = {"alertname": "NoisyTenant", "queue": "or'ders.*", "tenant": 'a"cme'}
    now = datetime.now(UTC)
    with serving(tmp_path / "alerts.sqlite") as http:
        monkeypatch.setenv("SOJOURN_DASHBOARD_API", json.dumps({"url": str(http.base_url)}))
        doing = operations.silence(tmp_path, labels, now, timedelta(hours=1))
        writes.write(tmp_path, "silence", "75f0", doing)
        (made,) = http.get("/api/v2/silences").json()
    assert (made["createdBy"], made["comment"], made["status"]["state"]) == (ADA.name, "on the dashboard", "active")
    assert {one["name"]: one["value"] for one in made["matchers"]} == labels
    assert all(one["isEqual"] and not one["isRegex"] for one in made["matchers"])
    assert outcomes(tmp_path) == [(ADA.name, "silence", "asked"), (ADA.name, "silence", "done")]


def test_a_viewer_can_neither_acknowledge_nor_silence(
    own: Path, show: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    show(own)
    asked: list[str] = []
    monkeypatch.setattr("dashboard.operations._ask", lambda root, path, body=None: asked.append(path))
    for what in ("acknowledge", "silence"):
        next(one for one in opened("alerts").button if (one.key or "").startswith(f"do {what}")).click().run()
    assert asked == ["/api/v2/acknowledgements", "/api/v2/silences"]
    monkeypatch.setattr(writes, "present", lambda: EVE)
    for what in ("acknowledge", "silence"):
        next(one for one in opened("alerts").button if (one.key or "").startswith(f"do {what}")).click().run()
    assert len(asked) == 2
    assert [(change.what, change.outcome) for change in writes.changes(own, 1)] == [("silence", "refused")]


def test_a_viewer_keeps_no_statement(own: Path, who: Callable[[Person | None], None]) -> None:
    who(EVE)
    with pytest.raises(UserError):
        writes.write(own, "keep a statement", "mine", lambda _: saved.save(own, "mine", "SELECT 1"))
    assert saved.load(own) == {}
