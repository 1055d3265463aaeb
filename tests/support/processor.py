"""What files of tests cost in processor time, with all the processes that they start: where a run's time goes.

The clock tells little of that where several files run at once. A process that ends as an orphan is not counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import psutil
import pytest

_NAME = "processor"


def spent() -> float:
    """Seconds of processor time that this process, and all below it, have taken so far."""
    mine = os.times()
    total = mine.user + mine.system + mine.children_user + mine.children_system
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            total += sum(child.cpu_times()[:4])  # its own, and of its children that have ended
    return total


class Processor:
    """Counts file by file where tests run, and tells of it where their reports arrive."""

    def __init__(self) -> None:
        self._before = spent()
        self._by_file: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Behind the last test of a file, whose servers are gone."""
        yield
        if nextitem is None or nextitem.path != item.path:
            before, self._before = self._before, spent()
            item.user_properties.append((_NAME, round(self._before - before, 1)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up what workers, or this process, have counted."""
        if report.when == "teardown":
            self._by_file[report.nodeid.split("::", 1)[0]] += sum(
                float(str(seconds)) for name, seconds in report.user_properties if name == _NAME
            )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The files that took most, as many as ``--durations`` asks for."""
        most = terminalreporter.config.getoption("durations")
        if not most:
            return
        terminalreporter.section(f"processor time: {self._by_file.total():.0f} s in all")
        for file, seconds in self._by_file.most_common(most):
            terminalreporter.write_line(f"{seconds:8.1f}s {file}")
