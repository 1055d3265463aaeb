"""What access control decides from headers alone, and how it shares out connections and bytes."""

from __future__ import annotations

import pytest

from lake.errors import UserError
from lake.web.address import authority, origin, peer_of
from lake.web.budget import Budget
from lake.web.connections import Connection, Connections
from lake.web.policy import JSON, Entrance, Limits, Policy, Refusal, check_content_type


def status(policy: Policy, path: str = "/", scheme: str = "http", **headers: str | bytes) -> int:
    """What a request with ``headers`` is answered by headers alone; 200 where it may come."""
    raw = {"host": "127.0.0.1:4318", **headers}
    sent = [
        (name.replace("_", "-").encode(), value if isinstance(value, bytes) else value.encode("latin-1"))
        for name, value in raw.items()
        if value is not None
    ]
    try:
        policy.check(path, scheme, sent)
    except Refusal as refusal:
        return refusal.status
    return 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1:4318", 200),
        ("127.8.8.8", 200),
        ("LocalHost:1", 200),
        ("localhost.", 200),
        ("[::1]:4318", 200),
        ("evil.example", 421),
        ("127.0.0.1.evil.example:4318", 421),
        ("localhost.evil.example", 421),
        ("192.0.2.7", 421),
        ("0.0.0.0", 421),
        ("", 400),
        ("localhost:99999", 400),
        ("localhost:", 400),
        ("localhost:4318:1", 400),
        ("[::1", 400),
        ("[::g]", 400),
        ("[127.0.0.1]", 400),
        ("a b", 400),
        ("localhost/..", 400),
        ("user@localhost", 400),
        ("-", 400),
        ("..", 400),
        ("locälhost", 400),
        ("x" * 300, 400),
        (None, 400),
    ],
)
def test_a_request_for_another_name_is_misdirected_and_a_malformed_host_is_bad(host: str | None, expected: int) -> None:
    assert status(Policy(), host=host) == expected  # type: ignore[arg-type]


def test_a_listener_that_others_reach_answers_to_its_names_and_to_addresses() -> None:
    policy = Policy(host="0.0.0.0", token="t", names=("Sojourn.example",))
    for host, expected in (("sojourn.EXAMPLE:4318", 200), ("192.0.2.7:4318", 200), ("evil.example", 421)):
        assert status(policy, host=host, authorization="Bearer t") == expected


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("http://127.0.0.1:4318", 200),
        ("https://pages.example", 200),
        ("https://pages.example:443", 200),
        ("http://pages.example", 403),
        ("http://127.0.0.1:8501", 403),
        ("https://127.0.0.1:4318", 403),
        ("http://localhost:4318", 403),
        ("null", 403),
        ("http://[::1", 400),
        ("http://127.0.0.1:99999", 400),
        ("file://", 400),
        ("http://a@127.0.0.1:4318", 400),
        ("ä", 400),
        ("", 400),
    ],
)
def test_web_pages_of_other_origins_are_refused(page: str, expected: int) -> None:
    assert status(Policy(origins=("https://pages.example",)), origin=page) == expected


def test_what_a_browser_tells_of_another_site_is_refused_where_it_sends_no_origin() -> None:
    for site, expected in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200), ("x", 403)):
        assert status(Policy(), sec_fetch_site=site) == expected
    policy = Policy(origins=("https://pages.example",))
    assert status(policy, origin="https://pages.example", sec_fetch_site="cross-site") == 200


def test_a_token_is_asked_for_but_where_the_entrance_is_open() -> None:
    policy = Policy(token="s3cret", entrances={"/-/healthy": Entrance(open=True), "/v1/": Entrance(token="other")})
    for path, given, expected in (
        ("/", "Bearer s3cret", 200),
        ("/", "Bearer s3cre", 401),
        ("/", "bearer s3cret", 401),
        ("/", b"Bearer s3cret\xff", 401),
        ("/", None, 401),
        ("/-/healthy", None, 200),
        ("/-/healthy/more", None, 401),
        ("/v1/limits", "Bearer other", 200),
        ("/v1/limits", "Bearer s3cret", 401),
    ):
        assert status(policy, path, authorization=given) == expected  # type: ignore[arg-type]
    twice = [(b"host", b"localhost"), (b"authorization", b"Bearer s3cret"), (b"authorization", b"Bearer x")]
    with pytest.raises(Refusal):
        policy.check("/", "http", twice)


def test_a_listener_that_others_reach_needs_a_token_for_all_that_is_not_open() -> None:
    for host in ("0.0.0.0", "::", "", "192.0.2.7", "sojourn.example"):
        with pytest.raises(UserError, match=r"\[alert\] listens on .* without a token"):
            Policy(host=host).guarded("[alert]")
        assert Policy(host=host, token="t").guarded("[alert]").token == "t"
        with pytest.raises(UserError):
            Policy(host=host, entrances={"/v1/": Entrance(token="t")}).guarded("[alert]")
    for host in ("127.0.0.1", "::1", "localhost"):
        Policy(host=host).guarded("[alert]")
    for wrong in ({"names": ("a:1",)}, {"origins": ("pages.example",)}):
        with pytest.raises(UserError):
            Policy(**wrong).guarded("[alert]")  # type: ignore[arg-type]


def test_a_body_has_a_type_that_the_entrance_takes_and_none_that_any_web_page_may_send() -> None:
    takes, none = Entrance(frozenset({JSON})), Entrance()
    check_content_type(takes, JSON, has_body=True)
    check_content_type(none, "", has_body=False)
    for entrance, kind, has_body, expected in (
        (takes, "", True, 415),
        (takes, "text/plain", True, 415),
        (none, JSON, True, 413),
        (none, "application/x-www-form-urlencoded", False, 415),
    ):
        with pytest.raises(Refusal) as raised:
            check_content_type(entrance, kind, has_body)
        assert raised.value.status == expected


def test_addresses_are_parsed_or_none() -> None:
    assert authority("[0:0::1]:80") == ("::1", 80) and authority("Name.") == ("name", None)
    assert origin("HTTPS://Name") == ("https", "name", 443) and origin("ftp://name") is None
    assert peer_of("2001:db8::1:2:3:4") == peer_of("2001:db8::5") == "2001:db8::"
    assert peer_of("::ffff:192.0.2.7") == "192.0.2.7" and peer_of("fe80::1%eth0") == "fe80::"


def test_half_bodies_that_nobody_goes_on_with_make_room_for_those_that_come() -> None:
    evicted: list[str] = []
    budget = Budget(100)
    first, second, third = (budget.holding(lambda name=name: evicted.append(name)) for name in "abc")
    assert first.charge(40) and second.charge(40) and first.charge(10)
    assert third.charge(30) and evicted == ["b"] and budget.held == 80
    assert not second.charge(1)
    third.whole()
    assert not first.charge(60) and evicted == ["b"]  # what has come wholly stays, and itself it does not drive out
    first.release(), second.release(), third.release()
    assert budget.held == 0 and budget.highest == 90


def entered(places: Connections, peer: str, closed: list[Connection], count: int = 1) -> list[Connection | None]:
    """``count`` connections of ``peer``; one that is dropped is put in ``closed``."""
    made = []
    for _ in range(count):
        place = places.enter(peer)
        if place is not None:
            place.drop = lambda place=place: closed.append(place)
        made.append(place)
    return made


def test_a_connection_that_says_nothing_makes_room_for_the_next_and_one_at_work_does_not() -> None:
    limits = Limits(connections=10, unknown_peer_connections=3, reserved_connections=4)
    clock = [0.0]
    places = Connections(limits, lambda: clock[0])
    closed: list[Connection] = []
    first, *_ = entered(places, "a", closed, 3)
    entered(places, "a", closed)
    assert closed == [first] and len(places) == 3
    for one in entered(places, "b", closed, 3):
        assert one is not None
        one.works()
    assert entered(places, "b", closed) == [None]
    entered(places, "c", closed, 3)  # six places for unknown peers: those that wait go, whoever they are
    assert len(places) == 6
    known = entered(places, "k", closed)[0]
    assert known is not None
    known.proven()
    assert None not in entered(places, "k", closed, 20) and len(places) == 10
    assert known not in closed  # of its own address, those that sent nothing proper go first
    clock[0] = 4_000.0
    assert not places.is_known("k")


def test_the_known_peers_have_places_that_unknown_ones_cannot_take() -> None:
    limits = Limits(connections=10, unknown_peer_connections=3, reserved_connections=4)
    places = Connections(limits, lambda: 0.0)
    for peer in "abcdefgh":
        for one in entered(places, peer, [], 3):
            if one is not None:
                one.works()
    assert len(places) == 6
    places.know("k")
    assert None not in entered(places, "k", [], 4) and len(places) == 10
