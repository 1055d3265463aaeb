"""The ``[alert.route]`` section: who hears of what, how it is gathered, and when it is not told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from alerts.durations import Duration
from alerts.routing.inhibit import Inhibition
from alerts.routing.matchers import MatcherText, parse
from alerts.routing.route import Route
from alerts.routing.times import TimeInterval


class NamedTimes(BaseModel):
    """Times with a name, for routes to refer to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, description="how routes call them")
    intervals: tuple[TimeInterval, ...] = Field(min_length=1, description="an instant in any of them is in these times")


class InhibitSettings(BaseModel):
    """While an alert fires that meets ``source``, those that meet ``target`` are not told."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    source: tuple[MatcherText, ...] = Field(min_length=1, description='matchers, alertname="BrokerDown" say')
    target: tuple[MatcherText, ...] = Field(min_length=1, description='matchers, queue!="" say')
    equal: tuple[str, ...] = Field(default=(), description="labels that both must have with the same value")

    @property
    def rule(self) -> Inhibition:
        """As the stage takes it."""
        return Inhibition.of(self.source, self.target, self.equal)


class SubrouteSettings(BaseModel):
    """Alerts that go their own way; what is not set here is as in the route that it stands in."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    matchers: tuple[MatcherText, ...] = Field(min_length=1, description='all must hold: severity="critical" say')
    receivers: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="who is told of what meets none of its own `routes`"
    )
    further: bool = Field(default=False, description="later routes are tried, too: Alertmanager's `continue`")
    group_by: tuple[str, ...] | None = Field(default=None, description="see [alert.route]")
    group_wait: Duration | None = Field(default=None, description="see [alert.route]")
    group_interval: Duration | None = Field(default=None, description="see [alert.route]")
    repeat_interval: Duration | None = Field(default=None, description="see [alert.route]")
    mute_times: tuple[str, ...] = Field(default=(), description="names of times in which nobody is told")
    active_times: tuple[str, ...] = Field(default=(), description="names of times outside of which nobody is told")
    routes: tuple[SubrouteSettings, ...] = Field(default=(), description="ways within this one, tried in this order")


class RouteSettings(BaseModel):
    """How alerts are gathered into notifications, in Alertmanager's words."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    receivers: tuple[str, ...] | None = Field(
        default=None, description="who is told of what meets none of `routes`; default: every receiver"
    )
    group_by: tuple[str, ...] = Field(
        default=("alertname", "broker", "queue"), description="alerts that share these labels share a notification"
    )
    group_wait: Duration = Field(default=timedelta(0), description="how long a new group waits for more alerts")
    group_interval: Duration = Field(
        default=timedelta(seconds=1), description="least time between two notifications of one group"
    )
    repeat_interval: Duration = Field(default=timedelta(hours=4), description="when to repeat what still fires")
    remind_interval: Duration = Field(
        default=timedelta(hours=4), description="when to remind of what was acknowledged and still fires"
    )
    mute_times: tuple[str, ...] = Field(default=(), description="names of times in which nobody is told")
    active_times: tuple[str, ...] = Field(default=(), description="names of times outside of which nobody is told")
    routes: tuple[SubrouteSettings, ...] = Field(default=(), description="ways of their own, tried in this order")
    times: tuple[NamedTimes, ...] = Field(default=(), description="what mute_times and active_times refer to")
    inhibit: tuple[InhibitSettings, ...] = Field(default=(), description="which alerts make which others superfluous")
    watchdog: str | None = Field(
        default=None, description="name of the receiver of the watchdog: a dead man's switch outside"
    )
    watchdog_interval: Duration = Field(default=timedelta(minutes=1), description="how often the watchdog is told")

    @field_validator("remind_interval")
    @classmethod
    def _is_some_time(cls, interval: timedelta) -> timedelta:
        if interval < timedelta(seconds=1):
            raise ValueError("remind_interval is at least 1s")
        return interval

    @model_validator(mode="after")
    def _names_are_known(self) -> Self:
        known = [times.name for times in self.times]
        if len(set(known)) < len(known):
            raise ValueError("two of route.times have the same name")
        for name in (name for way in _all(self) for name in (*way.mute_times, *way.active_times)):
            if name not in known:
                raise ValueError(f"no route.times is called {name!r}")
        return self

    @property
    def named_receivers(self) -> frozenset[str]:
        """The receivers that any way leads to by name."""
        return frozenset(name for way in _all(self) for name in way.receivers or ())


def _all(way: RouteSettings | SubrouteSettings) -> Iterator[RouteSettings | SubrouteSettings]:
    yield way
    for one in way.routes:
        yield from _all(one)


@lru_cache(maxsize=16)
def routes_of(settings: RouteSettings) -> tuple[Route, ...]:
    """All ways of ``settings``, each before those within it; the last is the one that all others stand in."""
    times = {named.name: named.intervals for named in settings.times}

    def spans(names: tuple[str, ...]) -> tuple[tuple[str, tuple[TimeInterval, ...]], ...]:
        return tuple((name, times[name]) for name in names)

    root = Route(
        "{}",
        (),
        None if settings.receivers is None else frozenset(settings.receivers),
        settings.group_by,
        settings.group_wait,
        settings.group_interval,
        settings.repeat_interval,
        spans(settings.mute_times),
        spans(settings.active_times),
    )

    def within(outer: Route, ways: tuple[SubrouteSettings, ...]) -> tuple[Route, ...]:
        children = []
        for way in ways:
            matchers = tuple(parse(text) for text in way.matchers)
            route = Route(
                outer.key + "/{" + ",".join(map(str, matchers)) + "}",
                matchers,
                outer.receivers if way.receivers is None else frozenset(way.receivers),
                outer.group_by if way.group_by is None else way.group_by,
                outer.group_wait if way.group_wait is None else way.group_wait,
                outer.group_interval if way.group_interval is None else way.group_interval,
                outer.repeat_interval if way.repeat_interval is None else way.repeat_interval,
                spans(way.mute_times) or outer.mute_times,
                spans(way.active_times) or outer.active_times,
                way.further,
            )
            children.append(replace(route, children=within(route, way.routes)))
        return tuple(children)

    root = replace(root, children=within(root, settings.routes))
    return (*(one for child in root.children for one in child.all), root)
