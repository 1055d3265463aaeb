"""Accepting connections: one loop for every listener, which makes room where a listener or the process is full."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable

from lake.web.address import peer_of
from lake.web.connections import Connection, Connections

#: How long accepting rests where the process has no more file descriptors.
_REST_SECONDS = 0.05


async def accept(
    listener: socket.socket,
    connections: Connections,
    begin: Callable[[socket.socket, Connection], None],
    refuse: Callable[[socket.socket], None],
) -> None:
    """Give each connection that has a place to ``begin``, the others to ``refuse``; without an end."""
    loop = asyncio.get_running_loop()
    listener.setblocking(False)
    while True:
        try:
            accepted, address = await loop.sock_accept(listener)
        except OSError:  # no file descriptor is left, or the peer has gone again
            connections.make_room()
            await asyncio.sleep(_REST_SECONDS)
            continue
        place = connections.enter(peer_of(str(address[0])))
        if place is None:
            refuse(accepted)
        else:
            begin(accepted, place)
        await asyncio.sleep(0)  # those that are connected have their turn, too


def affordable(connections: int, files: int = 1) -> int:
    """``connections`` of ``files`` descriptors each, or as many as leave the process half of its file descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == resource.RLIM_INFINITY else max(1, min(connections, soft // (2 * files)))


def use_all_files() -> None:
    """Let this process have as many file descriptors as the system allows: each connection is one, or some.

    Nothing here uses select(2), for whose sake the limit is lower at first.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
