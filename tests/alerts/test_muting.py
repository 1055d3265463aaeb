"""What is held back is told to nobody, and what was told firing is told resolved all the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from alerts.models import AlertInstance
from alerts.notify.plan import Decision, Notice, Reason, plan
from alerts.routing.acknowledge import Acknowledgement
from alerts.routing.muting import Muting
from alerts.routing.settings import RouteSettings
from alerts.routing.silence import Silence
from alerts.settings import ReceiverSettings
from tests.alerts.test_plan import NOW, RECEIVER, ROUTE, Log, alert

A, B = alert("a"), alert("b")
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SILENCED = Muting((Silence("s", (), NOW, NOW + HOUR, "ops", "deploy", NOW),))
INHIBITED = Muting(inhibited_by=("f",))


class Pager:
    """A receiver that takes whatever it is sent."""

    def __init__(self, route: RouteSettings = ROUTE, receivers: Sequence[ReceiverSettings] = (RECEIVER,)) -> None:
        self.route, self.receivers = route, receivers
        self.log: Log = {}

    def hears(
        self, after: timedelta, *firing: AlertInstance, over: Sequence[AlertInstance] = (), **muting: Muting
    ) -> Decision:
        """The one decision ``after`` the start; ``muting`` by tenant."""
        now = NOW + after
        notices = [*(Notice(one) for one in firing), *(Notice(one, now) for one in over)]
        held = {one.fingerprint: muting[one.labels["tenant"]] for one in firing if one.labels["tenant"] in muting}
        (decision,) = plan(notices, self.log, self.receivers, self.route, now, muting=held)
        if decision.entry is not None:
            self.log[decision.receiver, decision.group_key] = decision.entry
        return decision


def tenants(notices: Sequence[Notice]) -> list[str]:
    return [notice.alert.labels["tenant"] for notice in notices]


def test_a_silenced_alert_is_told_when_the_silence_is_over() -> None:
    pager = Pager()
    held = pager.hears(0 * MINUTE, A, a=SILENCED)
    assert (held.send, held.reason, held.muted) == (
        False,
        Reason.SILENCED,
        {A.fingerprint: "silenced by ops (deploy), s"},
    )
    told = pager.hears(MINUTE, A)
    assert (told.send, told.reason) == (True, Reason.FIRST)


def test_an_inhibited_alert_does_not_keep_others_of_its_group_silent() -> None:
    told = Pager().hears(0 * MINUTE, A, B, a=INHIBITED)
    assert (told.send, tenants(told.firing), list(told.muted)) == (True, ["b"], [A.fingerprint])
    assert Pager().hears(0 * MINUTE, A, a=INHIBITED).reason is Reason.INHIBITED


def test_what_was_told_firing_is_told_resolved_while_a_silence_lasts() -> None:
    pager = Pager()
    pager.hears(0 * MINUTE, A)
    assert pager.hears(2 * HOUR, A, a=SILENCED).send is False, "it is not repeated"
    over = pager.hears(3 * HOUR, over=[A])
    assert (over.send, over.reason, tenants(over.resolved)) == (True, Reason.RESOLVED, ["a"])


def test_news_of_a_group_do_not_say_that_its_silenced_alert_is_over() -> None:
    pager = Pager()
    pager.hears(0 * MINUTE, A, B)
    partly = pager.hears(MINUTE, A, over=[B], a=SILENCED)
    assert (partly.reason, tenants(partly.firing), tenants(partly.resolved)) == (Reason.SOME_RESOLVED, ["a"], ["b"])
    over = pager.hears(2 * MINUTE, over=[A])
    assert (over.reason, tenants(over.resolved)) == (Reason.RESOLVED, ["a"])


def test_what_was_never_told_is_not_told_resolved_when_its_silence_ends() -> None:
    pager = Pager()
    pager.hears(0 * MINUTE, A, a=SILENCED)
    assert pager.hears(MINUTE, over=[A]).send is False


def test_an_acknowledged_alert_is_not_repeated_and_who_forgets_it_is_reminded() -> None:
    pager = Pager(RouteSettings.model_validate({"repeat_interval": "1h", "remind_interval": "3h"}))
    pager.hears(0 * MINUTE, A)
    mine = Muting(acknowledged=Acknowledgement(A.fingerprint, "ann", "on it", NOW + MINUTE))
    held = pager.hears(2 * HOUR, A, a=mine)
    assert (held.send, held.reason, held.due_at) == (False, Reason.ACKNOWLEDGED, NOW + MINUTE + 3 * HOUR)
    assert held.muted[A.fingerprint] == "acknowledged by ann (on it)"
    assert not pager.hears(3 * HOUR, A, a=mine).send
    assert pager.hears(3 * HOUR + MINUTE, A, a=mine).reason is Reason.REMINDER
    assert not pager.hears(5 * HOUR, A, a=mine).send
    assert pager.hears(6 * HOUR + MINUTE, A, a=mine).reason is Reason.REMINDER
    assert pager.hears(7 * HOUR, over=[A]).reason is Reason.RESOLVED


def test_another_alert_of_an_acknowledged_group_is_news() -> None:
    pager = Pager()
    pager.hears(0 * MINUTE, A)
    mine = Muting(acknowledged=Acknowledgement(A.fingerprint, "ann", "", NOW))
    told = pager.hears(MINUTE, A, B, a=mine)
    assert (told.reason, tenants(told.firing)) == (Reason.NEW_ALERTS, ["a", "b"])


def times(**more: Any) -> RouteSettings:
    noon = {"times": [{"start": "12:00", "end": "13:00"}]}
    return RouteSettings.model_validate({"times": [{"name": "noon", "intervals": [noon]}], **more})


def test_a_mute_time_holds_back_firing_and_no_resolve() -> None:
    pager = Pager(times(mute_times=["noon"]))
    held = pager.hears(0 * MINUTE, A)
    assert (held.reason, held.due_at, held.muted) == (
        Reason.MUTE_TIME,
        NOW + MINUTE,
        {A.fingerprint: "within the mute times noon"},
    )
    assert pager.hears(HOUR, A).send
    assert pager.hears(24 * HOUR, over=[A]).send


def test_outside_its_active_times_a_route_is_silent() -> None:
    pager = Pager(times(active_times=["noon"]))
    assert pager.hears(HOUR, A).muted == {A.fingerprint: "outside the active times noon"}
    assert pager.hears(24 * HOUR, A).send


def test_no_mute_time_silences_the_watchdog() -> None:
    outside = RECEIVER.model_copy(update={"name": "outside"})
    pager = Pager(times(mute_times=["noon"], watchdog="outside"), [outside])
    assert pager.hears(0 * MINUTE, alert(name="Watchdog")).send


def test_mute_times_follow_the_wall_clock_that_was_set() -> None:
    (decision,) = plan([Notice(A)], {}, [RECEIVER], times(mute_times=["noon"]), NOW, ahead=2 * HOUR)
    assert decision.send


def test_two_routes_to_one_receiver_are_two_groups() -> None:
    way = {"matchers": ["queue=orders"], "receivers": ["pager"], "further": True}
    route = RouteSettings.model_validate({"routes": [way, {**way, "matchers": ["tenant=a"]}]})
    decisions = plan([Notice(A)], {}, [RECEIVER], route, NOW)
    assert [d.group_key.partition(":")[0] for d in decisions] == ['{}/{queue="orders"}', '{}/{tenant="a"}']


def test_what_was_told_firing_by_a_route_that_is_gone_is_told_resolved_all_the_same() -> None:
    pager = Pager()
    pager.hears(0 * MINUTE, A)
    (old,) = pager.log
    other = RECEIVER.model_copy(update={"name": "other"})
    for changed in (
        RouteSettings(group_by=("alertname",), repeat_interval=HOUR),
        RouteSettings(receivers=("other",), repeat_interval=HOUR),
    ):
        log = dict(pager.log)
        for after in (MINUTE, 2 * HOUR):
            decisions = plan([Notice(A)], log, [RECEIVER, other], changed, NOW + after)
            (left,) = [d for d in decisions if (d.receiver, d.group_key) == old]
            assert (left.send, left.entry) == (False, None), "what still fires is told by its new route"
        over = NOW + 3 * HOUR
        decisions = plan([Notice(A, over)], log, [RECEIVER, other], changed, over)
        (left,) = [d for d in decisions if (d.receiver, d.group_key) == old]
        assert (left.send, left.reason, tenants(left.resolved)) == (True, Reason.RESOLVED, ["a"])
