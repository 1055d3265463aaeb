"""Free ports on the loopback."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """``count`` different ports that nobody listens on at this moment."""
    holders = [socket.socket() for _ in range(count)]
    try:
        for holder in holders:
            holder.bind(("127.0.0.1", 0))
        return [int(holder.getsockname()[1]) for holder in holders]
    finally:
        for holder in holders:
            holder.close()
