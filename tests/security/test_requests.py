"""The same hostile requests at every HTTP endpoint: none has an effect, breaks a server or keeps others out."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import quote

import pytest

from tests.security.endpoints import ENDPOINTS, SECONDS, Endpoint, Endpoints
from tests.security.names import HALVES, NAMES
from tests.security.requests import ESCAPED, HEADERS, broken, forged, head, mutated, request

#: Requests at once, so that what is answered after a commit does not wait for each commit alone.
AT_ONCE = 16
#: A client that sends a path of more is told that the header is too long.
LONGEST = 3_000

#: Requests of which more would have to come; their time is tested with the front endpoint.
HALVES_OF_REQUESTS = {
    *("nothing", "half a method", "half a header line", "no end of headers", "half a body", "half a chunk"),
    "a chunk without end",
}
#: What is no mistake in what has no body.
UNDERSTOOD = {"a folded header", "a bare line feed", "an upgrade", "a connect"}

every_endpoint = pytest.mark.parametrize("name", ENDPOINTS)


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """All of them."""
    with ExitStack() as stack:
        yield Endpoints(tmp_path_factory.mktemp("endpoints"), stack)


@pytest.fixture
def endpoint(endpoints: Endpoints, name: str, caplog: pytest.LogCaptureFixture) -> Iterator[Endpoint]:
    """One of them; after the test it serves others, and no traceback was written."""
    with caplog.at_level(logging.WARNING):
        yield endpoints[name]
        assert endpoints[name].serves()
    assert "Traceback" not in caplog.text


def statuses(endpoint: Endpoint, sent: list[tuple[str, bytes]]) -> dict[str, int]:
    """The status of each answer by name; 0 where the connection was closed without one."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(lambda one: (one[0], endpoint.status(one[1])), sent))


@every_endpoint
def test_the_proper_request_is_answered(endpoint: Endpoint) -> None:
    assert endpoint.status(endpoint.sent()) in endpoint.expected


@every_endpoint
def test_what_a_web_page_or_a_name_of_others_brings_is_refused_and_changes_nothing(endpoint: Endpoint) -> None:
    before = endpoint.state()
    told = statuses(endpoint, forged(endpoint.sent, typed=endpoint.body is not None))
    assert {name: status for name, status in told.items() if not 400 <= status < 500} == {}
    assert endpoint.state() == before


@every_endpoint
def test_broken_requests_are_bad_or_cut_off(endpoint: Endpoint) -> None:
    sent = [(name, data) for name, data in broken(endpoint.path) if name not in HALVES_OF_REQUESTS]
    told = {name: status for name, status in statuses(endpoint, sent).items() if status and not 400 <= status < 500}
    assert set(told) <= UNDERSTOOD and all(status < 300 for status in told.values())


@every_endpoint
def test_strange_headers_are_refused_or_mean_nothing(endpoint: Endpoint) -> None:
    told = statuses(endpoint, [(name, endpoint.sent(more=lines)) for name, lines in HEADERS])
    assert {name: status for name, status in told.items() if status >= 500} == {}


@every_endpoint
def test_names_and_numbers_in_paths_and_queries_are_answered(endpoint: Endpoint) -> None:
    hostile = [quote(one, safe="", errors="surrogatepass")[:LONGEST] for one in (*NAMES.values(), *HALVES)]
    paths = [query.replace("{}", one) for query in endpoint.queries for one in (*hostile, *ESCAPED)]
    told = statuses(endpoint, [(path, head(path, method="GET", kind=None)) for path in paths])
    assert {path: status for path, status in told.items() if not 200 <= status < 500} == {}


@pytest.mark.parametrize("name", [name for name, one in ENDPOINTS.items() if one.body is not None])
def test_hostile_values_anywhere_in_a_body_are_answered(endpoint: Endpoint) -> None:
    sent = [(name, request(body, path=endpoint.path, method=endpoint.method)) for name, body in mutated(endpoint.body)]
    told = statuses(endpoint, sent)
    assert {name: status for name, status in told.items() if not 200 <= status < 500} == {}
    assert 400 in told.values()


@pytest.mark.parametrize("name", ["POST /v1/events", "POST /api/v2/alerts", "GET /metrics", "GET /_stcore/stream"])
def test_half_bodies_half_heads_and_idle_connections_keep_nobody_out(endpoint: Endpoint) -> None:
    whole = head(endpoint.path, length=900_000) + b" " * 800_000
    with ExitStack() as stack:
        for number in range(400):
            sent = (b"", b"POST /", whole if number < 60 else b"")[number % 3]
            made = stack.enter_context(socket.create_connection(("127.0.0.1", endpoint.port), SECONDS))
            try:
                made.sendall(sent)
            except ConnectionError:
                continue  # it has made room, or refused the body, already
        assert endpoint.serves() and endpoint.status(endpoint.sent()) in endpoint.expected


def test_every_path_that_takes_a_body_is_among_the_endpoints() -> None:
    assert {one.path for one in ENDPOINTS.values() if one.body is not None} == {
        *("/v1/events", "/v1/traces", "/api/v2/alerts", "/api/v2/silences", "/api/v2/acknowledgements")
    }
    assert all(json.dumps(one.body) for one in ENDPOINTS.values())
