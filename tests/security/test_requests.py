"""The same hostile requests at every HTTP door: none has an effect, breaks a server or keeps others out."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from tests.security.doors import DOORS, SECONDS, Door, Doors
from tests.security.names import HALVES, NAMES
from tests.security.requests import ESCAPED, HEADERS, broken, forged, head, mutated, request

#: Requests at once, so that what is answered after a commit does not wait for each commit alone.
AT_ONCE = 16
#: A client that sends a path of more is told that the header is too long.
LONGEST = 3_000

#: Requests of which more would have to come; their time is tested with the front door.
HALVES_OF_REQUESTS = {
    *("nothing", "half a method", "half a header line", "no end of headers", "half a body", "half a chunk"),
    "a chunk without end",
}
#: What is no mistake in what has no body.
UNDERSTOOD = {"a folded header", "a bare line feed", "an upgrade", "a connect"}

every_door = pytest.mark.parametrize("name", DOORS)


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    """All of them."""
    with ExitStack() as stack:
        yield Doors(tmp_path_factory.mktemp("doors"), stack)


@pytest.fixture
def door(doors: Doors, name: str, caplog: pytest.LogCaptureFixture) -> Iterator[Door]:
    """One of them; after the test it serves others, and no traceback was written."""
    with caplog.at_level(logging.WARNING):
        yield doors[name]
        assert doors[name].serves()
    assert "Traceback" not in caplog.text


def statuses(door: Door, sent: list[tuple[str, bytes]]) -> dict[str, int]:
    """The status of each answer by name; 0 where the connection was closed without one."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(lambda one: (one[0], door.status(one[1])), sent))


@every_door
def test_the_proper_request_is_answered(door: Door) -> None:
    assert door.status(door.sent()) in door.expected


@every_door
def test_what_a_web_page_or_a_name_of_others_brings_is_refused_and_changes_nothing(door: Door) -> None:
    before = door.state()
    told = statuses(door, forged(door.sent, typed=door.body is not None))
    assert {name: status for name, status in told.items() if not 400 <= status < 500} == {}
    assert door.state() == before


@every_door
def test_broken_requests_are_bad_or_cut_off(door: Door) -> None:
    sent = [(name, data) for name, data in broken(door.path) if name not in HALVES_OF_REQUESTS]
    told = {name: status for name, status in statuses(door, sent).items() if status and not 400 <= status < 500}
    assert set(told) <= UNDERSTOOD and all(status < 300 for status in told.values())


@every_door
def test_strange_headers_are_refused_or_mean_nothing(door: Door) -> None:
    told = statuses(door, [(name, door.sent(more=lines)) for name, lines in HEADERS])
    assert {name: status for name, status in told.items() if status >= 500} == {}


@every_door
def test_names_and_numbers_in_paths_and_queries_are_answered(door: Door) -> None:
    hostile = [quote(one, safe="", errors="surrogatepass")[:LONGEST] for one in (*NAMES.values(), *HALVES)]
    paths = [query.replace("{}", one) for query in door.queries for one in (*hostile, *ESCAPED)]
    told = statuses(door, [(path, head(path, method="GET", kind=None)) for path in paths])
    assert {path: status for path, status in told.items() if not 200 <= status < 500} == {}


@pytest.mark.parametrize("name", [name for name, one in DOORS.items() if one.body is not None])
def test_hostile_values_anywhere_in_a_body_are_answered(door: Door) -> None:
    sent = [(name, request(body, path=door.path, method=door.method)) for name, body in mutated(door.body)]
    told = statuses(door, sent)
    assert {name: status for name, status in told.items() if not 200 <= status < 500} == {}
    assert 400 in told.values()


@pytest.mark.parametrize("name", ["POST /v1/events", "POST /api/v2/alerts", "GET /metrics", "GET /_stcore/stream"])
def test_half_bodies_half_heads_and_idle_connections_keep_nobody_out(door: Door) -> None:
    whole = head(door.path, length=900_000) + b" " * 800_000
    with ExitStack() as stack:
        for number in range(400):
            sent = (b"", b"POST /", whole if number < 60 else b"")[number % 3]
            made = stack.enter_context(socket.create_connection(("127.0.0.1", door.port), SECONDS))
            try:
                made.sendall(sent)
            except ConnectionError:
                continue  # it has made room, or refused the body, already
        assert door.serves() and door.status(door.sent()) in door.expected


def test_every_path_that_takes_a_body_is_among_the_doors() -> None:
    assert {one.path for one in DOORS.values() if one.body is not None} == {
        *("/v1/events", "/v1/traces", "/api/v2/alerts", "/api/v2/silences", "/api/v2/acknowledgements")
    }
    assert all(json.dumps(one.body) for one in DOORS.values())
