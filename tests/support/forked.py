"""Files of tests run by several processes, which are forked when all tests have been collected.

Loading some 500 modules takes half a minute of processor time: it is paid once, however many processes run them. Each
takes the next group of files when it has done its last, and ends what the group's tests had started for longer.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import re
import select
import selectors
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

import pytest

#: A file that asks for the session's Spark: each process that has one starts a Java and warms it up.
_SPARK: Final = re.compile(r"\bspark: (?:SparkSession|object)\b")
#: How many processes have a Spark, however many there are.
_SPARKS: Final = 3
#: Folders whose files ask for the same server, which lasts as long as the process.
_SERVERS: Final = {
    "tests/collectors/kafka/": "Kafka",
    "tests/collectors/transport/": "Kafka",
    "tests/collectors/postgres/": "PostgreSQL",
    "tests/collectors/rabbitmq/": "RabbitMQ",
    "tests/collectors/sqs/": "SQS",
}
#: How often a worker that ended is looked for while a process that it left behind holds its end of the pipe.
_LOOK_SECONDS: Final = 2.0
_NUMBER_BYTES: Final = 2


def groups_of(items: list[pytest.Item], workers: int) -> list[list[pytest.Item]]:
    """``items`` by what one process runs: a file, or the files that share what is expensive to start.

    Groups and what is in them stand in the order of ``items``. Spark's files are spread over all ``workers`` but one.
    """
    groups: dict[str, list[pytest.Item]] = {}
    scopes: dict[str, str] = {}
    sparks, most = count(), max(1, min(_SPARKS, workers - 1))
    for item in items:
        file = item.nodeid.split("::", 1)[0]
        if file not in scopes:
            server = next((one for folder, one in _SERVERS.items() if file.startswith(folder)), None)
            if server is None and _SPARK.search(item.path.read_text(encoding="utf-8")):
                server = f"Spark {next(sparks) % most}"
            scopes[file] = server or file
        groups.setdefault(scopes[file], []).append(item)
    return list(groups.values())


class Forked:
    """Runs a session's tests in ``jobs`` processes, and tells here what they report."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """In the place of pytest's own loop, where there is something to share out."""
        failed = session.testsfailed and not session.config.option.continue_on_collection_errors
        groups = groups_of(session.items, self._jobs)
        if failed or session.config.option.collectonly or len(groups) < 2:
            return None
        if threads := [one.name for one in threading.enumerate() if one is not threading.main_thread()]:
            raise session.Failed(
                f"loading the tests has begun {', '.join(threads)}, which no forked process would have"
            )
        factory: Any = session.config._tmp_path_factory  # type: ignore[attr-defined]
        factory.getbasetemp()  # one for all
        gc.collect()
        gc.freeze()  # what was loaded stays: nobody need look through it again
        queue, end = os.pipe()  # of the numbers of groups: whoever is free reads one
        os.write(end, b"".join(number.to_bytes(_NUMBER_BYTES) for number in range(len(groups))))
        os.close(end)
        numbers = count()
        workers = {_Worker(session, groups, queue, next(numbers)) for _ in range(min(self._jobs, len(groups)))}
        selector = selectors.DefaultSelector()
        try:
            for worker in workers:
                selector.register(worker.pipe, selectors.EVENT_READ, worker)
            while workers:
                ready = {key.data for key, _ in selector.select(_LOOK_SECONDS)}
                for worker in [one for one in workers if one in ready or one.has_ended()]:
                    if worker.listen():
                        continue
                    selector.unregister(worker.pipe)
                    workers.discard(worker)
                    if left := worker.bury():
                        another = _Worker(session, groups, queue, next(numbers), left)
                        workers.add(another)
                        selector.register(another.pipe, selectors.EVENT_READ, another)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
            if os.read(queue, _NUMBER_BYTES):
                raise session.Failed("no process is left to run the other tests")
        finally:
            for worker in workers:
                worker.end()
            selector.close()
            os.close(queue)
        return True


class _Worker:
    """One forked process, as the one that forked it sees it."""

    def __init__(
        self,
        session: pytest.Session,
        groups: list[list[pytest.Item]],
        queue: int,
        number: int,
        first: list[pytest.Item] | None = None,
    ) -> None:
        self._session, self._groups = session, groups
        self._left = {item.nodeid: item for item in first or ()}
        self._current: pytest.Item | None = None
        self._heard = bytearray()
        self._status: int | None = None
        self._over = False
        self.pipe, mine = os.pipe()
        sys.stdout.flush()  # what waits there would be told by both
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self.pipe)
            _work(session, groups, queue, number, list(self._left.values()), mine)
        os.close(mine)
        os.set_blocking(self.pipe, False)

    def listen(self) -> bool:
        """Tell what came from it; False when nothing more will."""
        with suppress(BlockingIOError):
            while not self._over and (some := os.read(self.pipe, 1 << 16)):
                self._heard += some
                *lines, rest = self._heard.split(b"\n")
                self._heard = bytearray(rest)
                for line in lines:
                    self._tell(*json.loads(line))
            self._over = True  # its end of the pipe is closed
        return not self._over and self._status is None

    def _tell(self, what: str, value: Any) -> None:
        hook = self._session.config.hook
        if what == "took":
            self._left |= {item.nodeid: item for item in self._groups[value]}
        elif what == "begins":
            self._current = self._left.pop(value)
        elif what == "report":
            report = hook.pytest_report_from_serializable(config=self._session.config, data=value)
            if isinstance(report.longrepr, list):  # of what was skipped: JSON has no tuples
                report.longrepr = tuple(report.longrepr)
            hook.pytest_runtest_logreport(report=report)
        elif what == "warning":
            kind, text, filename, line, *where = value
            recorded = warnings.WarningMessage(Warning(text), type(kind, (Warning,), {}), filename, line)
            told = dict(zip(("when", "nodeid", "location"), where, strict=True))
            hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": recorded, **told})
        else:
            self._current = None
            self._over = True

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        if self._status is None and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._status = 1
        return self._status is not None

    def bury(self) -> list[pytest.Item]:
        """What others have to run, where it ended before it was over: by the test that it was at, which failed."""
        os.close(self.pipe)
        if self._status is None:
            os.waitpid(self._pid, 0)
            self._status = 0
        if self._current is None and self._left:
            self._current = self._left.pop(next(iter(self._left)))
        if self._current is not None:
            report = pytest.TestReport(
                self._current.nodeid, self._current.location, {}, "failed", "the process that ran it ended", "call"
            )
            self._session.config.hook.pytest_runtest_logreport(report=report)
        return list(self._left.values())

    def end(self) -> None:
        """Have it end what it started, and wait for that."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGINT)
        while not self.has_ended():
            select.select([self.pipe], [], [], 0.1)
            with suppress(BlockingIOError):
                os.read(self.pipe, 1 << 16)  # else it waits for us to read
        os.close(self.pipe)


# -- in the forked process --------------------------------------------------------------------------------------------


def _work(
    session: pytest.Session,
    groups: list[list[pytest.Item]],
    queue: int,
    number: int,
    first: list[pytest.Item],
    pipe: int,
) -> None:
    """Run ``first`` and then whatever is in the ``queue``; never returns."""
    code = 1
    try:
        _stand_alone(session.config, number)
        teller = _Teller(session.config, pipe)
        items = chain(first, _taken(groups, queue, teller))
        item = next(items, None)
        while item is not None:
            following = next(items, None)  # what both need stays
            teller.tell("begins", item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            item = following
        teller.tell("over", None)
        code = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    except BaseException:
        traceback.print_exc()
    finally:
        atexit._run_exitfuncs()
        os._exit(code)


def _taken(groups: list[list[pytest.Item]], queue: int, teller: _Teller) -> Iterator[pytest.Item]:
    while taken := os.read(queue, _NUMBER_BYTES):
        number = int.from_bytes(taken)
        teller.tell("took", number)
        yield from groups[number]


def _stand_alone(config: pytest.Config, number: int) -> None:
    """What a process must not share with those that were forked from the same."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.stop_global_capturing()  # whose files would be one, and each would read the others' output
    capture.start_global_capturing()
    capture.suspend_global_capture()
    terminal: Any = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None:
        terminal._tw._file = open(os.devnull, "w")  # noqa: SIM115
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    folder: Path = factory.getbasetemp() / f"worker-{number}"
    folder.mkdir(mode=0o700)
    factory._basetemp = folder
    processor: Any = config.pluginmanager.get_plugin("processor")
    if processor is not None:
        processor.begin()


class _Teller:
    """Hands on what is reported here."""

    def __init__(self, config: pytest.Config, pipe: int) -> None:
        self._config, self._pipe = config, pipe
        self._begun = False
        config.pluginmanager.register(self)  # which tells of all earlier warnings again
        self._begun = True

    def tell(self, what: str, value: object) -> None:
        """One line of JSON, however long."""
        line = json.dumps((what, value), default=str).encode() + b"\n"
        while line:
            line = line[os.write(self._pipe, line) :]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of each test three: of its beginning, itself, its end."""
        self.tell("report", self._config.hook.pytest_report_to_serializable(config=self._config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        """Its text, and where it arose."""
        if self._begun:
            at = warning_message
            where = (at.filename, at.lineno, when, nodeid, location)
            self.tell("warning", (at.category.__name__, str(at.message), *where))
