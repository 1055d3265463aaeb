"""What may be wrong on this machine, examined one thing at a time: each finding says how to fix it."""

from __future__ import annotations

import email.utils
import os
import shutil
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from lake.errors import SojournError, UserError
from lake.visible import visible
from sojourn.cli.options import part
from sojourn.settings import SECTIONS, Settings

LEAST_FREE_BYTES = 1 << 30
COMFORTABLE_FREE_BYTES = 10 << 30
CONNECT_SECONDS = 3.0
#: Ages are differences of two clocks: beyond this much they mislead.
MOST_CLOCK_OFFSET = 1.0


class Grade(Enum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing examined: what was found, and how to fix it where that is needed."""

    subject: str
    grade: Grade
    found: str
    fix: str = ""

    @property
    def fails(self) -> bool:
        """Whether something will not work."""
        return self.grade is Grade.FAIL


def examine(settings: Settings, root: Path, told: Callable[[str], None] = lambda _: None) -> list[Finding]:
    """All findings, in the order in which a message meets the parts; ``told`` hears what is being looked at. Changes
    nothing but a file that it removes."""
    findings: list[Finding] = []
    for subject, look in (
        ("settings", lambda: _settings(settings)),
        ("lake", lambda: _lake(root)),
        ("disk", lambda: _disk(root)),
        ("brokers", lambda: _brokers(settings)),
        ("names", lambda: _names(settings, root)),
        ("Java", _java),
        ("Spark's jars", _jars),
        ("confinement", _confinement),
        ("ports", lambda: _ports(settings)),
        ("clock", lambda: _clock(settings)),
    ):
        told(subject)
        findings += _guarded(subject, look)
    return findings


def shown(findings: list[Finding]) -> None:
    """Print the findings as a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    style = {Grade.OK: "green", Grade.WARN: "yellow", Grade.FAIL: "bold red"}
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "what", "found", "how to fix it"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = f"[{style[finding.grade]}]{finding.grade.value}[/]"
        table.add_row(mark, *(Text(visible(said)) for said in (finding.subject, finding.found, finding.fix)))
    Console().print(table)


def _guarded(subject: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of one examination; what it stumbles over is a finding too."""
    try:
        yield from look()
    except UserError as error:
        yield Finding(subject, Grade.FAIL, error.what, error.fix)
    except SojournError as error:
        yield Finding(subject, Grade.FAIL, str(error))


def _settings(settings: Settings) -> Iterator[Finding]:
    models = {
        "lake": "sojourn.settings:LakeSettings",
        "definitions": "lake.definitions:Definitions",
        "collect": "collectors.settings:CollectSettings",
        "analyze": "spark_analytics.settings:AnalyzeSettings",
        "alert": "alerts.settings:AlertSettings",
        "dashboard": "dashboard.settings:DashboardSettings",
    }
    for name in SECTIONS:
        module, _, model = models[name].partition(":")
        settings.section(name, getattr(part(module), model))
    if settings.has("alert") or settings.has("collect"):
        yield Finding("settings", Grade.OK, f"all sections of {settings.origin} are valid")
    else:
        fix = "`sojourn init` writes one; name it with -c"
        yield Finding("settings", Grade.WARN, "no settings file", fix)


def _lake(root: Path) -> Iterator[Finding]:
    if not root.exists():
        parent = next(path for path in root.parents if path.exists())
        if os.access(parent, os.W_OK):
            yield Finding("lake", Grade.OK, f"{root} is not there yet and can be made")
        else:
            yield Finding("lake", Grade.FAIL, f"{root} cannot be made", "choose another with --lake")
        return
    try:
        with tempfile.NamedTemporaryFile(dir=root, prefix=".doctor-"):
            pass
    except OSError as error:
        fix = "give this user the right to write there, or choose another with --lake"
        yield Finding("lake", Grade.FAIL, f"{root} is not writable: {error.strerror}", fix)
        return
    from lake.store import Lake
    from lake.tables import TABLES

    lake = Lake(root)
    there = [name for name in TABLES if lake.exists(name)]
    for name in there:
        try:
            lake.version(name)
        except SojournError as error:
            yield Finding(f"table {name}", Grade.FAIL, str(error), f"restore {lake.path(name)} from a backup")
    yield Finding("lake", Grade.OK, f"{root} is writable and holds {len(there)} of {len(TABLES)} tables")


def _disk(root: Path) -> Iterator[Finding]:
    there = root if root.exists() else next(path for path in root.parents if path.exists())
    free = shutil.disk_usage(there).free
    found = f"{free / (1 << 30):.1f} GiB free"
    if free < LEAST_FREE_BYTES:
        yield Finding("disk", Grade.FAIL, found, "free some, or choose another --lake")
    elif free < COMFORTABLE_FREE_BYTES:
        yield Finding("disk", Grade.WARN, found, "a busy queue writes gigabytes a day")
    else:
        yield Finding("disk", Grade.OK, found)


def _brokers(settings: Settings) -> Iterator[Finding]:
    section: Any = settings.section("collect", part("collectors.settings").CollectSettings)
    if not section.brokers:
        fix = "list one under [[collect.brokers]]; `sojourn init` finds those of this machine"
        yield Finding("brokers", Grade.WARN, "none is configured", fix)
    for broker in section.brokers:
        subject, reached = f"broker {broker.name}", not broker.addresses()
        for host, port in broker.addresses():
            address = f"{host}:{port}"
            try:
                with socket.create_connection((host, port), CONNECT_SECONDS):
                    yield Finding(subject, Grade.OK, f"{address} accepts connections")
                    reached = True
            except OSError as error:
                yield Finding(subject, Grade.FAIL, f"{address} cannot be reached: {error}", "start it, or fix its url")
        if reached and broker.sample:
            yield from _guarded(subject, partial(_known, section, broker))


def _known(section: Any, broker: Any) -> Iterator[Finding]:
    """What samples of this broker will tell, and what not, by reading it once."""
    reading = part("sojourn.knowledge")
    for trouble, said in reading.told(reading.knowledge(reading.read_once(section, broker))):
        fix = f"docs/brokers says what a {broker.kind} broker needs" if trouble else ""
        yield Finding(f"broker {broker.name}", Grade.WARN if trouble else Grade.OK, said, fix)


def _names(settings: Settings, root: Path) -> Iterator[Finding]:
    """Whether applications and samplers speak of the same queues."""
    from lake.store import Lake

    lake = Lake(root)
    if not lake.exists("message_events"):
        return
    section: Any = settings.section("collect", part("collectors.settings").CollectSettings)
    unjoined = part("collectors.unjoined")
    names = unjoined.read_names(lake, datetime.now(UTC))
    found = list(unjoined.mismatches(names, [broker.name for broker in section.brokers if broker.sample]))
    for one in found:
        yield Finding(one.subject, Grade.WARN, one.found, one.fix)
    if names.reported and not found:
        yield Finding("names", Grade.OK, f"events and samples meet in {len(names.reported)} queues")


def _java() -> Iterator[Finding]:
    java = part("spark_analytics.runtime.java").ensure_java()
    yield Finding("Java", Grade.OK, f"version {java.version}, from {java.found_in}")


def _jars() -> Iterator[Finding]:
    cache = part("spark_analytics.runtime.cache").cache_root(os.environ) / "jars"
    coordinates = part("spark_analytics.runtime.coordinates")
    jars = part("spark_analytics.runtime.jars")
    declared = coordinates.read_coordinates(coordinates.coordinates_file(os.environ)).jars
    missing = [jar.file_name for jar in declared if not jars.is_intact(cache / jar.file_name, jar)]
    if missing:
        found = f"{len(missing)} of {len(declared)} are not in {cache} yet"
        yield Finding("Spark's jars", Grade.WARN, found, "`make jars` fetches them, as the first start will")
    else:
        yield Finding("Spark's jars", Grade.OK, f"all {len(declared)} in {cache}")


def _confinement() -> Iterator[Finding]:
    """What keeps others' SQL in its place, should it pass the checks before it."""
    confinement = part("spark_analytics.runtime.confinement")
    version = part("spark_analytics.runtime.confined").landlock_version()
    grade = Grade.OK if version else Grade.WARN
    yield Finding("others' SQL", grade, confinement.described(version), "" if version else confinement.FIX)


def _ports(settings: Settings) -> Iterator[Finding]:
    alert: Any = settings.section("alert", part("alerts.settings").AlertSettings)
    dashboard: Any = settings.section("dashboard", part("dashboard.settings").DashboardSettings)
    for subject, host, port in (
        ("alert port", alert.host, alert.port),
        ("dashboard port", dashboard.host, dashboard.port),
    ):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                fix = "fine if Sojourn itself runs; else choose another port"
                yield Finding(subject, Grade.WARN, f"{host}:{port}: {error.strerror}", fix)
            else:
                yield Finding(subject, Grade.OK, f"{host}:{port} is free")


def _clock(settings: Settings) -> Iterator[Finding]:
    """Compare clocks with whatever answers HTTP among the alert receivers: clocks that can be asked without keys."""
    alert: Any = settings.section("alert", part("alerts.settings").AlertSettings)
    if not alert.receivers:
        yield Finding("clock", Grade.WARN, "nobody to compare with", "keep this machine on NTP")
    for receiver in alert.receivers:
        sent = time.time()
        try:
            request = urllib.request.Request(receiver.url, method="HEAD")
            with urllib.request.urlopen(request, timeout=CONNECT_SECONDS) as response:
                date = response.headers.get("Date")
        except urllib.error.HTTPError as error:
            date = error.headers.get("Date")
        except (OSError, ValueError):
            date = None
        if date is None:
            yield Finding("clock", Grade.WARN, f"{receiver.name} tells no time", "keep this machine on NTP")
            continue
        offset = (sent + time.time()) / 2 - email.utils.parsedate_to_datetime(date).timestamp() - 0.5
        if abs(offset) > MOST_CLOCK_OFFSET:
            found = f"{offset:+.1f} s from {receiver.name}'s"
            yield Finding("clock", Grade.WARN, found, "set both by NTP: ages are differences of clocks")
        else:
            yield Finding("clock", Grade.OK, f"within {MOST_CLOCK_OFFSET:g} s of {receiver.name}'s")
