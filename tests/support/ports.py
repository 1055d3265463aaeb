"""Free ports on the loopback."""

from __future__ import annotations

import random
import socket

#: Below the ports that systems give to outgoing connections, of which any could take one before its server starts.
_RANGE = range(12_000, 32_000)


def free_ports(count: int) -> list[int]:
    """``count`` different ports that nobody listens on at this moment, nor will unless asked to."""
    holders: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            port = random.SystemRandom().choice(_RANGE)
            holder = socket.socket()
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:
                holder.close()
                continue
            holders.append(holder)
            ports.append(port)
        return ports
    finally:
        for holder in holders:
            holder.close()
