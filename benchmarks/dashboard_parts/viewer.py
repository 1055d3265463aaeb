"""Viewers without a browser: what a page's script does at the wire, so that twenty of them cost no twenty browsers.

``python -m benchmarks.dashboard_parts.viewer URL VIEWERS SECONDS`` prints how long each renewal took in that time,
from its request to the last word of the answer; with ``--renewals N`` each viewer asks N times without a rest instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from dataclasses import dataclass, field

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect

_PATH = "/_stcore/stream"


@dataclass
class Viewer:
    """One open page; ``took`` has the seconds of each renewal, ``size`` the bytes that came."""

    connection: ClientConnection
    page: str = ""
    fragment: str = ""
    every: float = 0.0
    known: dict[str, None] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    size: int = 0

    async def look(self, until: float, renewals: int) -> None:
        """Open the page, then renew it as often as it says until ``until``, or ``renewals`` times without a rest."""
        await self._ask(BackMsg())
        while len(self.took) < renewals if renewals else time.monotonic() < until:
            begun = time.monotonic()
            asked = BackMsg()
            asked.rerun_script.fragment_id = self.fragment
            asked.rerun_script.is_auto_rerun = True
            await self._ask(asked)
            self.took.append(time.monotonic() - begun)
            if not renewals:
                await asyncio.sleep(max(0.0, begun + self.every - time.monotonic()))

    async def _ask(self, message: BackMsg) -> None:
        message.rerun_script.query_string = ""
        message.rerun_script.page_script_hash = self.page
        message.rerun_script.cached_message_hashes.extend(self.known)
        await self.connection.send(message.SerializeToString())
        while True:
            raw = await self.connection.recv(decode=False)
            self.size += len(raw)
            told = ForwardMsg.FromString(raw)
            kind = told.WhichOneof("type")
            if told.metadata.cacheable and told.hash:
                self.known[told.hash] = None
            if kind == "navigation":
                self.page = told.navigation.page_script_hash
            elif kind == "auto_rerun":
                self.fragment, self.every = told.auto_rerun.fragment_id, told.auto_rerun.interval
            elif kind == "script_finished":
                return


async def _all(url: str, viewers: int, seconds: float, renewals: int) -> list[Viewer]:
    address = url.replace("http", "ws", 1) + _PATH
    connections = [await connect(address, subprotocols=["streamlit"], max_size=None) for _ in range(viewers)]  # type: ignore[list-item]
    people = [Viewer(one) for one in connections]
    until = time.monotonic() + seconds
    await asyncio.gather(*(one.look(until, renewals) for one in people))
    for one in connections:
        await one.close()
    return people


def main() -> None:
    """Look, and print what was seen as one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("viewers", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--renewals", type=int, default=0)
    asked = parser.parse_args()
    people = asyncio.run(_all(asked.url, asked.viewers, asked.seconds, asked.renewals))
    took = [one for person in people for one in person.took]
    print(json.dumps({"took": took, "bytes": sum(person.size for person in people)}))


if __name__ == "__main__":
    main()
