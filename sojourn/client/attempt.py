"""``Attempt``: one attempt to process one message, timed, kept alive, and ended when its time is over."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sojourn.client.heartbeat import Beat, beats
from sojourn.client.record import Record

if TYPE_CHECKING:
    from sojourn.client.recorder import Recorder

log = logging.getLogger(__name__)

#: How often a heartbeat is due within one visibility timeout.
BEATS_PER_TIMEOUT = 3


class DeadlineExceeded(Exception):
    """The visibility deadline passed without a successful heartbeat: another consumer may have the message now."""


class Attempt:
    """One attempt: records ``received`` at entry, and at exit ``completed``, or ``failed`` with the exception's type.

    ``visibility_timeout`` is how long, in seconds, the broker keeps the message for this consumer, counted from
    ``since`` (``time.monotonic()`` when it was received; default: entry). ``heartbeat`` asks the broker for as long
    again; it is called each third of the timeout while the attempt runs, from a thread shared by all attempts (with
    ``async with``, a coroutine function: as a task). It fails by raising or by returning False. Once the deadline has
    passed without one that succeeded, it is not called again, and :meth:`check` raises :class:`DeadlineExceeded`.
    """

    def __init__(
        self,
        recorder: Recorder,
        queue: str,
        message_id: str,
        details: dict[str, Any],
        visibility_timeout: float | None = None,
        heartbeat: Callable[[], object] | None = None,
        since: float | None = None,
    ) -> None:
        if visibility_timeout is not None and not visibility_timeout > 0:
            raise ValueError(f"visibility_timeout {visibility_timeout} must be above 0")
        if heartbeat is not None and visibility_timeout is None:
            raise ValueError("a heartbeat needs the visibility_timeout that it renews")
        self._recorder, self._queue, self._message_id, self._details = recorder, queue, message_id, details
        self._timeout, self._heartbeat, self._since = visibility_timeout, heartbeat, since
        self._started = self._deadline = 0.0
        self._ending: tuple[str, str | None] | None = None
        self._beat: Beat | None = None
        self._task: asyncio.Task[None] | None = None
        #: Heartbeats that succeeded, and that failed.
        self.heartbeats = self.heartbeat_failures = 0

    def remaining(self) -> float:
        """Seconds until the visibility deadline; infinite where there is none, 0 when it has passed."""
        return float("inf") if self._timeout is None else max(0.0, self._deadline - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the visibility deadline has passed."""
        return self._timeout is not None and time.monotonic() >= self._deadline

    def check(self) -> None:
        """Raise :class:`DeadlineExceeded` once another consumer may have the message: call it between steps of work."""
        if self.expired:
            raise DeadlineExceeded(
                f"attempt at {self._message_id!r} of {self._queue!r} is past its visibility deadline"
            )

    def end(self, event_type: str, reason: str | None = None) -> None:
        """Say how the attempt ends where neither plain completion nor an exception tells it: ``failed`` to have it
        again, ``dead_lettered``, ``sidelined``, ``expired``, ``delayed``. It is recorded at exit."""
        if event_type not in ("completed", "failed", "dead_lettered", "sidelined", "expired", "delayed"):
            raise ValueError(f"{event_type!r} is not the end of an attempt")
        self._ending = (event_type, reason)

    def __enter__(self) -> Attempt:
        self._begin()
        if self._heartbeat is not None:
            if inspect.iscoroutinefunction(self._heartbeat):
                raise TypeError("a heartbeat that is a coroutine function needs `async with`")
            self._beat = beats.start(self._beat_once, self._interval)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._beat is not None:
            beats.stop(self._beat)
        self._finish(kind)

    async def __aenter__(self) -> Attempt:
        if not inspect.iscoroutinefunction(self._heartbeat):
            return self.__enter__()
        self._begin()
        self._task = asyncio.create_task(self._beat_forever(self._heartbeat))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is None:
            return self.__exit__(kind, error, trace)
        self._task.cancel()
        self._finish(kind)

    @property
    def _interval(self) -> float:
        assert self._timeout is not None
        return self._timeout / BEATS_PER_TIMEOUT

    def _begin(self) -> None:
        self._started = time.monotonic()
        if self._timeout is not None:
            self._deadline = (self._since if self._since is not None else self._started) + self._timeout
        self._tell_begin()

    def _finish(self, kind: type[BaseException] | None) -> None:
        seconds = time.monotonic() - self._started
        if kind is not None:
            self._tell_end("failed", kind.__name__, seconds)
        else:
            self._tell_end(*(self._ending or ("completed", None)), seconds)

    def _tell_begin(self) -> None:
        self._recorder.received(self._queue, self._message_id, **self._details)

    def _tell_end(self, event_type: str, reason: str | None, seconds: float) -> None:
        took = seconds if event_type in ("completed", "failed") else None
        record: Record = getattr(self._recorder, event_type)
        record(self._queue, self._message_id, reason=reason, processing_seconds=took, **self._details)

    def _beat_once(self) -> bool:
        """One heartbeat from the shared thread; whether there shall be another."""
        asked = time.monotonic()
        if asked >= self._deadline:
            return False
        try:
            answer = self._heartbeat() if self._heartbeat is not None else False
            if inspect.iscoroutine(answer):
                answer.close()
                log.warning("a heartbeat that returns a coroutine is never awaited: give the coroutine function itself")
                answer = False
        except Exception:  # it is counted, and the deadline does the rest
            answer = False
        self._judge(answer, asked)
        return True

    async def _beat_forever(self, heartbeat: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(self._interval)
            asked = time.monotonic()
            if asked >= self._deadline:
                return
            try:
                answer = await asyncio.wait_for(heartbeat(), self._deadline - asked)
            except Exception:
                answer = False
            self._judge(answer, asked)

    def _judge(self, answer: object, asked: float) -> None:
        # The broker counted from some moment after ``asked``; and what came after the deadline came too late.
        if answer is False or time.monotonic() >= self._deadline:
            self.heartbeat_failures += 1
        else:
            self.heartbeats += 1
            assert self._timeout is not None
            self._deadline = asked + self._timeout
