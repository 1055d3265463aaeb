"""Mute times: hours, days and months in which a route tells nothing, as Alertmanager's time intervals have them.

Source of the semantics: prometheus/alertmanager ``timeinterval/timeinterval.go``.
"""

from __future__ import annotations

import calendar
import re
from datetime import datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = tuple(name.lower() for name in calendar.month_name)[1:]
_CLOCK = re.compile(r"(?:([01][0-9]|2[0-3]):([0-5][0-9])|(24):(00))")
_MINUTE = timedelta(minutes=1)


class ClockRange(BaseModel):
    """From ``start`` (included) to ``end`` (not included), on one day."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    start: str = Field(default="00:00", description="HH:MM")
    end: str = Field(default="24:00", description="HH:MM, at most 24:00")

    @model_validator(mode="after")
    def _runs_forward(self) -> Self:
        if _minutes(self.start) >= _minutes(self.end):
            raise ValueError("start is before end; a night is two ranges")
        return self

    def contains(self, at: datetime) -> bool:
        """Whether the local time ``at`` is in it."""
        return _minutes(self.start) <= at.hour * 60 + at.minute < _minutes(self.end)


class TimeInterval(BaseModel):
    """Instants that are in one of each of the given lists; a list that is empty asks nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    times: tuple[ClockRange, ...] = Field(default=(), description='of the day: {start = "09:00", end = "17:00"}')
    weekdays: tuple[str, ...] = Field(default=(), description="saturday, or monday:friday")
    days_of_month: tuple[str, ...] = Field(default=(), description="1, 1:5, or -3:-1 for the last three")
    months: tuple[str, ...] = Field(default=(), description="may, 5, or may:august")
    years: tuple[str, ...] = Field(default=(), description="2027, or 2026:2028")
    location: str = Field(default="UTC", description="the time zone of all of these, Europe/Berlin say")

    @field_validator("location")
    @classmethod
    def _is_somewhere(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (OSError, ValueError) as error:  # ZoneInfoNotFoundError is a KeyError, which is neither
            raise ValueError(f"{name!r} is not a time zone") from error
        except KeyError as error:
            raise ValueError(f"{name!r} is not a time zone of this machine") from error
        return name

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        _ranges(self.weekdays, _WEEKDAYS, 0, 6)
        for first, last in _ranges(self.days_of_month, (), -31, 31):
            if 0 in (first, last):
                raise ValueError("days of a month count from 1, or from -1 backwards")
        _ranges(self.months, _MONTHS, 1, 12)
        _ranges(self.years, (), 1970, 9999)
        return self

    def contains(self, at: datetime) -> bool:
        """Whether the instant ``at`` is in it."""
        local = at.astimezone(ZoneInfo(self.location))
        days = calendar.monthrange(local.year, local.month)[1]
        return (
            (not self.times or any(span.contains(local) for span in self.times))
            and _within(local.weekday(), _ranges(self.weekdays, _WEEKDAYS, 0, 6))
            and _within(local.month, _ranges(self.months, _MONTHS, 1, 12))
            and _within(local.year, _ranges(self.years, (), 1970, 9999))
            and _within(
                local.day,
                [
                    (first if first > 0 else days + first + 1, last if last > 0 else days + last + 1)
                    for first, last in _ranges(self.days_of_month, (), -31, 31)
                ],
            )
        )


def next_minute(at: datetime) -> datetime:
    """When an instant can next be in another interval: they begin and end with minutes."""
    return at.replace(second=0, microsecond=0) + _MINUTE


def _minutes(text: str) -> int:
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time of the day: write 09:00")
    return int(match[1] or match[3]) * 60 + int(match[2] or match[4])


def _within(value: int, ranges: list[tuple[int, int]]) -> bool:
    return not ranges or any(first <= value <= last for first, last in ranges)


def _ranges(texts: tuple[str, ...], names: tuple[str, ...], least: int, most: int) -> list[tuple[int, int]]:
    found = []
    for text in texts:
        first, colon, last = text.lower().partition(":")
        ends = _number(first, names, least), _number(last if colon else first, names, least)
        if not least <= ends[0] <= most or not least <= ends[1] <= most:
            raise ValueError(f"{text!r} is not between {least} and {most}")
        if ends[0] > ends[1] and (ends[0] < 0) == (ends[1] < 0):
            raise ValueError(f"{text!r} ends before it begins")
        found.append(ends)
    return found


def _number(text: str, names: tuple[str, ...], base: int) -> int:
    text = text.strip()
    if text in names:
        return names.index(text) + base
    if re.fullmatch(r"-?[0-9]{1,4}", text) and names is not _WEEKDAYS:
        return int(text)
    raise ValueError(f"{text!r} cannot be read" + (f": one of {', '.join(names)}" if names else ""))
