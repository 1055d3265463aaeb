"""What the demo's producers and consumers share: they are plain applications, strangers to Sojourn's parts."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import nats
from nats.aio.client import Client

from lake.files import write_atomically


async def connect(url: str, name: str) -> Client:
    """A connection that outlives a restart of the broker."""
    return await nats.connect(url, name=name, max_reconnect_attempts=-1, reconnect_time_wait=0.25, error_cb=_silent)


async def _silent(error: Exception) -> None:
    """A broken connection is opened again by itself; what was not acknowledged is sent again."""


def stop_event() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def wait(stop: asyncio.Event, seconds: float) -> bool:
    """Wait up to ``seconds``; whether it is time to stop."""
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return False
    return True


def tell(path: Path, counts: dict[str, int]) -> None:
    """Leave counts where the demo's screen reads them."""
    write_atomically(path, json.dumps(counts))
