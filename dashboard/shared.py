"""What many viewers look at is drawn once for all of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def shared(most: int) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep what a pure function has made of its last ``most`` different arguments; nobody may change what it gives.

    Arguments may be lists and sets of what can be hashed.
    """

    def of(draw: Callable[P, T]) -> Callable[P, T]:
        kept = lru_cache(most)(draw)

        @wraps(draw)
        def drawn(*told: P.args, **more: P.kwargs) -> T:
            named = cast("dict[str, Any]", {name: _fixed(value) for name, value in more.items()})
            return kept(*map(_fixed, told), **named)

        return drawn

    return of


def _fixed(value: Any) -> Hashable:
    """``value`` as something that can be a key."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_fixed, value))
    return frozenset(value) if isinstance(value, (set, frozenset)) else cast("Hashable", value)


class Once:
    """What was made of one state of the lake, by name: the first who asks makes it, and all who ask meanwhile wait for
    that. Safe to share between threads; it keeps the ``most`` things that were asked for last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = Lock()
        self._made: OrderedDict[Hashable, Future[Any]] = OrderedDict()

    def of(self, name: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` gives, or gave. An error is raised to all who waited, and the next makes it anew."""
        while True:
            with self._lock:
                made = self._made.get(name)
                if mine := made is None:
                    made = self._made[name] = Future()
                self._made.move_to_end(name)
                while len(self._made) > self._most:
                    self._made.popitem(last=False)
            if mine:
                self._make(name, made, make)
            wait([made])
            if not made.cancelled():  # else who made it was stopped, which is no answer for others
                result: T = made.result()
                return result

    def _make(self, name: Hashable, made: Future[Any], make: Callable[[], Any]) -> None:
        try:
            made.set_result(make())
        except Exception as error:
            self._forget(name, made)
            made.set_exception(error)
        except BaseException:
            self._forget(name, made)
            made.cancel()
            made.set_running_or_notify_cancel()
            raise

    def _forget(self, name: Hashable, made: Future[Any]) -> None:
        with self._lock:
            if self._made.get(name) is made:
                del self._made[name]
