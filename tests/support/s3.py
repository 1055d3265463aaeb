"""A real server of the S3 protocol (moto) on the loopback, and a network before it that can be cut."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Self

from lake.address import Address
from tests.support.ports import free_ports
from tests.support.process import HttpProcess
from tests.support.servers import require_server
from tests.support.waiting import wait_until

BUCKET = "lakes"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "thing"}


class Request(NamedTuple):
    """One request: when it was over (unix time), its seconds at the server, and what it was."""

    at: float
    seconds: float
    method: str
    status: str
    client: str
    path: str


class S3Server(HttpProcess):
    """One server with an empty bucket. What it stores is gone when it is killed. ``noting``: it tells its requests."""

    def __init__(self, folder: Path, *, noting: bool = False) -> None:
        super().__init__(folder)
        (self.port,) = free_ports(1)
        self._notes = folder / "requests" if noting else None

    def start(self) -> None:
        """Start the server and make the bucket."""
        if find_spec("moto") is None:
            require_server("there is no moto")
        assert self._process is None, "it runs already"
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "tests.support.s3_server",
            str(self.port),
            *([str(self._notes)] if self._notes else []),
        ]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=Path(__file__).parents[2]
            )
        wait_until(self._ready, "the S3 server to be ready", seconds=60)

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"moto ended:\n{self.log}"
        headers = {"Authorization": "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request"}
        try:
            request = urllib.request.Request(f"{self.url}/{BUCKET}", method="PUT", headers=headers)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            return error.code == 409  # it is there
        except OSError:
            return False

    def requests(self) -> list[Request]:
        """What was asked so far, if it is noting, in the order of the answers."""
        assert self._notes is not None, "it does not note"
        lines = self._notes.read_text(encoding="utf-8").splitlines() if self._notes.exists() else []
        told = (line.split("\t") for line in lines)
        return [Request(float(at), float(took), *rest) for at, took, *rest in told]

    def address(self, name: str, url: str = "") -> Address:
        """The address of a lake ``name``; ``url``: of a proxy before the server. Credentials are the environment's."""
        return Address(path=f"s3://{BUCKET}/{name}", storage_options={"aws_endpoint_url": url or self.url})

    def home(self, folder: Path, name: str, url: str = "") -> Path:
        """``folder``, made the home of lake ``name``."""
        self.address(name, url).keep(folder)
        return folder


class Network:
    """A way to the server at ``port`` that can be cut: connections end at once, whatever is on them.

    ``chance``: of each piece of data, in either direction, that its connection ends before it arrives.
    """

    def __init__(self, port: int, *, chance: float = 0.0, seed: int = 0) -> None:
        self.chance = chance
        self.cuts = 0
        self._random = random.Random(seed)
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._closing = False

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if self._random.random() < self.chance:
                    self.cuts += 1
                    break
                sink.sendall(piece)
        for one in (source, sink):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
