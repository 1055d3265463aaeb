"""A program: an HTTP receiver that answers 200 to whatever is POSTed, and counts; GET tells how many, and the last.

It prints its port, and runs until it is killed. With ``dead`` it takes connections and never answers.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time


class Counting:
    """What has arrived: how many bodies, and when (unix seconds) the first and the last."""

    def __init__(self, dead: bool) -> None:
        self.dead, self.count, self.first, self.last = dead, 0, 0.0, 0.0
        self.arrivals: dict[str, float] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
                )
                body = await reader.readexactly(length)
                if head.startswith(b"POST"):
                    if self.dead:
                        await asyncio.sleep(3600)
                    self._note(body)
                    answer = b""
                else:
                    told = {"count": self.count, "first": self.first, "last": self.last, "queues": self.arrivals}
                    answer = json.dumps(told).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(answer), answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _note(self, body: bytes) -> None:
        now = time.time()
        self.count, self.first, self.last = self.count + 1, self.first or now, now
        for alert in json.loads(body).get("alerts", []):
            if alert["status"] == "firing":
                self.arrivals.setdefault(alert["labels"].get("queue", ""), now)


async def main(dead: bool) -> None:
    """Listen, for ever."""
    server = await asyncio.start_server(Counting(dead).serve, "127.0.0.1", 0, limit=1 << 24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main("dead" in sys.argv[1:]))
