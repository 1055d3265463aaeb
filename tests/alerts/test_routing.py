"""The stages between an alert and a receiver, each by a table of cases: Alertmanager's semantics, our own reasons."""

from __future__ import annotations

import itertools
import random
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from alerts.routing.acknowledge import Acknowledgement
from alerts.routing.inhibit import SHIPPED, Inhibition, inhibited
from alerts.routing.matchers import Matcher, parse
from alerts.routing.muting import muting, next_change
from alerts.routing.route import taken
from alerts.routing.settings import RouteSettings, routes_of
from alerts.routing.silence import Silence, SilenceState, changed, check, expired
from alerts.routing.times import TimeInterval
from alerts.settings import AlertSettings
from alerts.v2.shown import configuration
from tests.support.debian import debian_program

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)  # a Thursday
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ('queue="orders"', {"queue": "orders"}, True),
        ("queue=orders", {"queue": "orders"}, True),
        (" queue = orders ", {"queue": "orders"}, True),
        ('queue="orders"', {}, False),
        ('queue!="orders"', {}, True),
        ('queue=""', {}, True),
        ('queue=~"ord.*"', {"queue": "orders"}, True),
        ('queue=~"ord"', {"queue": "orders"}, False),  # the whole of it
        ('queue=~"a|orders"', {"queue": "orders"}, True),
        ('queue=~"a|b"', {"queue": "axb"}, False),
        ('queue!~"ord.*"', {"queue": "mails"}, True),
        ('queue=~".+"', {}, False),
        ('note="a\\"b\\n"', {"note": 'a"b\n'}, True),
        ("a=b=c", {"a": "b=c"}, True),
        ('queue=~"é+"', {"queue": "éé"}, True),
    ],
)
def test_a_matcher_reads_as_alertmanagers(text: str, labels: dict[str, str], matches: bool) -> None:
    matcher = parse(text)
    assert matcher.matches(labels) is matches
    assert parse(str(matcher)) == matcher


@pytest.mark.parametrize(
    "text",
    ["", "queue", "=a", "1a=b", 'a="b', 'a=b"', 'a="b" c', 'a=~"("', 'a=~"x{1000}{1000}"', "a=" + "b" * 3000, "ä=b"],
)
def test_what_is_no_matcher_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"matcher|label|expression|quote"):
        parse(text)


def test_no_regular_expression_takes_longer_than_its_text() -> None:
    started = time.process_time()
    assert not parse('a=~"(x+x+)+y"').matches({"a": "x" * 20_000})
    assert time.process_time() - started < 30, "it would take years"


def silence(**more: Any) -> Silence:
    given = {
        "id": "s",
        "matchers": (Matcher("queue", "orders"),),
        "starts_at": NOW,
        "ends_at": NOW + HOUR,
        "created_by": "ops",
        "comment": "deploy",
        "updated_at": NOW,
    }
    return Silence(**given | more)


@pytest.mark.parametrize(
    ("after", "state"),
    [(-MINUTE, SilenceState.PENDING), (0 * HOUR, SilenceState.ACTIVE), (HOUR, SilenceState.EXPIRED)],
)
def test_a_silence_begins_and_ends(after: timedelta, state: SilenceState) -> None:
    assert silence().state(NOW + after) is state
    assert silence().mutes({"queue": "orders"}, NOW + after) is (state is SilenceState.ACTIVE)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"matchers": ()}, "at least one matcher"),
        ({"matchers": (Matcher("a", ""),)}, "empty string"),
        ({"matchers": (Matcher("a", ".*", is_regex=True),)}, "empty string"),
        ({"matchers": (Matcher("a", "b", is_equal=False),)}, "empty string"),
        ({"ends_at": NOW}, "ends after"),
        ({"starts_at": NOW - 2 * HOUR, "ends_at": NOW - HOUR}, "past"),
        ({"matchers": (Matcher("a", "b"),) * 51}, "at most 50"),
    ],
)
def test_a_silence_that_nobody_can_mean_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check(silence(**wrong), NOW)


def test_changing_the_end_of_a_silence_keeps_its_id_and_changing_whom_it_silences_does_not() -> None:
    known = silence()
    (longer,) = changed(silence(ends_at=NOW + 2 * HOUR), known, NOW + MINUTE)
    assert (longer.id, longer.ends_at) == ("s", NOW + 2 * HOUR)
    old, new = changed(silence(matchers=(Matcher("queue", "mails"),)), known, NOW + MINUTE)
    assert (old.id, old.ends_at, new.id != "s", new.starts_at) == ("s", NOW + MINUTE, True, NOW + MINUTE)
    (again,) = changed(silence(ends_at=NOW + 9 * HOUR), expired(known, NOW), NOW + MINUTE)
    assert again.id != "s", "what is over stays over"
    (fresh,) = changed(silence(id="", starts_at=NOW - HOUR), None, NOW)
    assert fresh.starts_at == NOW, "nothing is silenced after the fact"


def test_a_silence_that_never_began_ends_before_it_does() -> None:
    later = expired(silence(starts_at=NOW + HOUR, ends_at=NOW + 2 * HOUR), NOW)
    assert (later.starts_at, later.ends_at, later.state(NOW)) == (NOW, NOW, SilenceState.EXPIRED)
    assert expired(later, NOW + HOUR) is later


STALE = {"alertname": "StaleData", "broker": "nats"}
STALLED = {"alertname": "QueueStalled", "broker": "nats", "queue": "orders"}


@pytest.mark.parametrize(
    ("firing", "rules", "expected"),
    [
        ({"s": STALE, "q": STALLED}, SHIPPED, {"q": ("s",)}),
        ({"s": STALE, "q": {**STALLED, "broker": "kafka"}}, SHIPPED, {}),
        ({"q": STALLED}, SHIPPED, {}),
        ({"s": STALE, "o": {"alertname": "NotificationsFailing", "receiver": "pager"}}, SHIPPED, {}),
        # An alert that is source and target inhibits neither itself nor others that are both.
        ({"a": {"x": "1"}, "b": {"x": "1"}}, [Inhibition.of(["x=1"], ["x=1"], [])], {}),
        ({"a": {"x": "1"}, "b": {"x": "1", "y": "2"}}, [Inhibition.of(["x=1"], ["y=2"], [])], {"b": ("a",)}),
        ({"a": {"x": "1", "y": "2"}, "b": {"x": "1", "y": "2"}}, [Inhibition.of(["x=1"], ["y=2"], [])], {}),
        (
            {"a": {"x": "1"}, "b": {"x": "1", "y": "2"}, "c": {"y": "2"}},
            [Inhibition.of(["x=1"], ["y=2"], [])],
            {"c": ("a", "b"), "b": ("a",)},
        ),
        # Labels that both lack are equal.
        ({"a": {"x": "1"}, "b": {"y": "2"}}, [Inhibition.of(["x=1"], ["y=2"], ["z"])], {"b": ("a",)}),
        ({"a": {"x": "1", "z": "1"}, "b": {"y": "2"}}, [Inhibition.of(["x=1"], ["y=2"], ["z"])], {}),
    ],
)
def test_inhibition(firing: Any, rules: Any, expected: dict[str, tuple[str, ...]]) -> None:
    assert inhibited(firing, rules) == expected


def test_all_that_holds_an_alert_back_is_told() -> None:
    acknowledged = Acknowledgement("q", "ann", "on it", NOW)
    held = muting({"s": STALE, "q": STALLED}, [silence()], SHIPPED, {"q": acknowledged, "gone": acknowledged}, NOW)
    assert held.keys() == {"q"}
    assert held["q"].why == "silenced by ops (deploy), s; inhibited by s; acknowledged by ann (on it)"
    assert muting({"q": STALLED}, [silence()], (), {}, NOW + HOUR) == {}
    assert next_change([silence()], NOW) == NOW + HOUR


@pytest.mark.parametrize(
    ("interval", "at", "inside"),
    [
        ({}, "2026-01-01T12:00", True),
        ({"times": [{"start": "09:00", "end": "12:00"}]}, "2026-01-01T11:59", True),
        ({"times": [{"start": "09:00", "end": "12:00"}]}, "2026-01-01T12:00", False),
        ({"times": [{"start": "22:00"}]}, "2026-01-01T23:59", True),
        ({"weekdays": ["monday:friday"]}, "2026-01-01T12:00", True),
        ({"weekdays": ["saturday", "sunday"]}, "2026-01-03T12:00", True),
        ({"weekdays": ["saturday", "sunday"]}, "2026-01-01T12:00", False),
        ({"days_of_month": ["1:5"]}, "2026-01-05T00:00", True),
        ({"days_of_month": ["-1"]}, "2026-02-28T00:00", True),
        ({"days_of_month": ["-3:-1"]}, "2026-02-25T00:00", False),
        ({"months": ["december:december", "1"]}, "2026-01-05T00:00", True),
        ({"months": ["may:august"]}, "2026-01-05T00:00", False),
        ({"years": ["2025:2027"]}, "2026-01-05T00:00", True),
        ({"years": ["2027"]}, "2026-01-05T00:00", False),
        # 23:30 UTC on Thursday is 00:30 on Friday in Berlin.
        ({"weekdays": ["friday"], "location": "Europe/Berlin"}, "2026-01-01T23:30", True),
        ({"weekdays": ["friday"], "times": [{"start": "01:00", "end": "02:00"}]}, "2026-01-01T23:30", False),
    ],
)
def test_time_intervals(interval: dict[str, Any], at: str, inside: bool) -> None:
    assert TimeInterval.model_validate(interval).contains(datetime.fromisoformat(f"{at}+00:00")) is inside


@pytest.mark.parametrize(
    "wrong",
    [
        {"times": [{"start": "9:00"}]},
        {"times": [{"start": "12:00", "end": "11:00"}]},
        {"times": [{"end": "24:01"}]},
        {"weekdays": ["caturday"]},
        {"weekdays": ["friday:monday"]},
        {"weekdays": ["1"]},
        {"days_of_month": ["0"]},
        {"days_of_month": ["32"]},
        {"months": ["13"]},
        {"years": ["x"]},
        {"location": "Mars/Olympus"},
        {"location": "../etc/passwd"},
    ],
)
def test_a_time_that_is_none_is_refused_with_the_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TimeInterval.model_validate(wrong)


def test_the_first_route_that_an_alert_meets_takes_it_unless_it_says_further() -> None:
    settings = RouteSettings.model_validate(
        {
            "receivers": ["mail"],
            "routes": [
                {"matchers": ['severity="critical"'], "receivers": ["pager"], "further": True, "group_wait": "5s"},
                {"matchers": ['severity=~"critical|warning"'], "receivers": ["chat"]},
                {"matchers": ["queue=orders"], "receivers": ["team"]},
            ],
        }
    )
    routes = routes_of(settings)

    def receivers(**labels: str) -> list[list[str]]:
        return [sorted(route.receivers or ()) for route in taken(routes, labels)]

    assert receivers(severity="critical") == [["pager"], ["chat"]]
    assert receivers(severity="warning", queue="orders") == [["chat"]]
    assert receivers(queue="orders") == [["team"]]
    assert receivers() == [["mail"]]
    assert (routes[0].key, routes[0].group_wait) == ('{}/{severity="critical"}', timedelta(seconds=5))
    assert routes[0].group_key({"a": "b"}) == '{}/{severity="critical"}:{a="b"}'


@pytest.mark.parametrize(
    "wrong",
    [
        {"mute_times": ["nights"]},
        {"routes": [{"matchers": [], "receivers": ["a"]}]},
        {"routes": [{"matchers": ["a~b"], "receivers": ["a"]}]},
        {"routes": [{"matchers": ["a=b"], "receivers": []}]},
        {"inhibit": [{"source": ['a=~"("'], "target": ["b=c"]}]},
        {"remind_interval": "0s"},
        {"times": [{"name": "a", "intervals": [{}]}] * 2},
    ],
)
def test_a_route_that_leads_nowhere_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        RouteSettings.model_validate(wrong)


TREE = [
    {
        "matchers": ['severity="critical"'],
        "receivers": ["pager"],
        "group_wait": "5s",
        "group_by": ["queue"],
        "mute_times": ["nights"],
        "routes": [
            {"matchers": ['queue=~"pay.*"'], "receivers": ["payments"], "further": True, "repeat_interval": "1h"},
            {"matchers": ["tenant=acme"], "routes": [{"matchers": ["queue=pay"], "receivers": ["desk"]}]},
        ],
    },
    {"matchers": ["queue=mails"], "receivers": ["chat"]},
]
NIGHTS = [{"name": "nights", "intervals": [{"times": [{"start": "22:00", "end": "24:00"}]}]}]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({"severity": "warning"}, ["root"]),
        ({"severity": "critical"}, ["pager"]),
        ({"severity": "critical", "queue": "payouts"}, ["payments"]),
        ({"severity": "critical", "queue": "payouts", "tenant": "acme"}, ["payments", "pager"]),
        ({"severity": "critical", "queue": "pay", "tenant": "acme"}, ["payments", "desk"]),
        ({"severity": "critical", "queue": "mails"}, ["pager"]),
        ({"queue": "mails"}, ["chat"]),
    ],
)
def test_routes_stand_in_routes_and_have_from_them_what_they_do_not_say(
    labels: dict[str, str], expected: list[str]
) -> None:
    settings = RouteSettings.model_validate({"receivers": ["root"], "routes": TREE, "times": NIGHTS})
    assert settings.named_receivers == {"root", "pager", "payments", "desk", "chat"}
    found = taken(routes_of(settings), labels)
    assert [name for route in found for name in route.receivers or ()] == expected
    for route in found:
        if "severity" in route.key:
            assert (route.group_wait, route.group_by) == (timedelta(seconds=5), ("queue",))
            assert [name for name, _ in route.mute_times] == ["nights"]
    keys = [route.key for route in routes_of(settings)]
    assert keys[3] == '{}/{severity="critical"}/{tenant="acme"}/{queue="pay"}'
    assert len({*keys}) == len(keys)


def test_a_time_or_a_receiver_that_a_route_within_a_route_misspells_is_refused() -> None:
    inner = {"matchers": ["a=b"], "routes": [{"matchers": ["c=d"], "mute_times": ["nihgts"]}]}
    with pytest.raises(ValidationError, match="nihgts"):
        RouteSettings.model_validate({"routes": [inner], "times": NIGHTS})
    inner = {"matchers": ["a=b"], "routes": [{"matchers": ["c=d"], "receivers": ["pagr"]}]}
    receivers = [{"name": "pager", "url": "https://example.org/"}]
    with pytest.raises(ValidationError, match="did you mean 'pager'"):
        AlertSettings.model_validate({"receivers": receivers, "route": {"routes": [inner]}})


def test_trees_of_routes_lead_where_alertmanagers_do(tmp_path: Path) -> None:
    """By amtool over what our API says of the settings: the same receivers for the same labels."""
    amtool, chance = debian_program("prometheus-alertmanager", "amtool"), random.Random(13)
    names = ["a", "b", "c", "d"]

    def tree(depth: int) -> list[dict[str, Any]]:
        return [
            {
                "matchers": [f"{chance.choice('xyz')}{chance.choice(['=', '!='])}{chance.randint(0, 1)}"],
                **({"receivers": [chance.choice(names)]} if chance.random() < 0.7 else {}),
                "further": chance.random() < 0.4,
                "routes": tree(depth - 1) if depth else [],
            }
            for _ in range(chance.randint(0, 3))
        ]

    receivers = [{"name": name, "url": "https://example.org/"} for name in names]
    for _ in range(4):
        route = {"receivers": ["a"], "routes": tree(2)}
        settings = AlertSettings.model_validate({"receivers": receivers, "route": route})
        config = tmp_path / "alertmanager.yml"
        config.write_text(configuration(settings))
        for x, y, z in itertools.product("01", repeat=3):
            labels = {"x": x, "y": y, "z": z}
            command = [str(amtool), "config", "routes", "test", f"--config.file={config}"]
            ran = subprocess.run(
                [*command, *(f"{name}={value}" for name, value in labels.items())], capture_output=True, text=True
            )
            assert ran.returncode == 0, ran.stderr
            ours = [name for way in taken(routes_of(settings.route), labels) for name in way.receivers or ()]
            assert ran.stdout.strip().split(",") == ours, (route, labels)
