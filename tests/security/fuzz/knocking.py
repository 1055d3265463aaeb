"""The fuzzer's second half: requests at real servers, over connections that are kept, cut and dropped."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from contextlib import suppress
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any

import grpc

from lake.store import Lake
from tests.security.fuzz.figures import Findings, megabytes, teller
from tests.security.fuzz.requests import TOKEN, Sent, legitimate, request
from tests.security.fuzz.servers import PARTS, Servers, serving
from tests.support.waiting import wait_until

#: Connections that work at the same time.
THREADS = 48
#: One in so many requests is a legitimate one, which must be kept.
LEGITIMATE_EVERY = 200
#: The receiver remembers what it has seen; beyond this much more after thousands of requests, memory is not bounded.
MOST_GROWTH_MB = 400
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
#: What gRPC says where our own code has failed.
_BROKEN = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS)
_SECONDS = 60.0


class Knocker:
    """One thread with its connections."""

    def __init__(self, servers: Servers, channel: grpc.Channel) -> None:
        self.statuses: Counter[str] = Counter()
        self.faults: list[str] = []
        self.kept: list[int] = []
        self._ports = {"receiver": servers.http, "api": servers.api, "dashboard": servers.dashboard}
        self._open: dict[str, socket.socket] = {}
        self._export = channel.unary_unary(EXPORT)

    def send(self, sent: Sent) -> None:
        """Send one request and judge the answer."""
        status = self._call(sent) if sent.endpoint == "grpc" else self._http(sent)
        self.statuses[status] += 1
        if status.isdigit() and status >= "500" and status != "503":
            self.faults.append(f"{sent.endpoint} answers {status} to {sent.data[:1500]!r}")
        if sent.forbidden and (status[:1] == "2" or status == "101"):
            self.faults.append(f"{sent.endpoint} answers {status} to who has no right: {sent.data[:1500]!r}")

    def probe(self, number: int) -> None:
        """Send a request that must be kept; a busy server may be asked again."""
        for _ in range(20):
            if self._http(Sent("receiver", legitimate(number))) == "200":
                self.kept.append(number)
                return
            threading.Event().wait(0.2)
        self.faults.append(f"the legitimate request {number} was never taken")

    def close(self) -> None:
        """Let go of the connections."""
        for one in self._open.values():
            one.close()

    def _http(self, sent: Sent) -> str:
        for fresh in (False, True):
            connection = None if fresh or not sent.whole else self._open.pop(sent.endpoint, None)
            if connection is None and not fresh and sent.whole and sent.reuse:
                continue
            try:
                connection = connection or socket.create_connection(("127.0.0.1", self._ports[sent.endpoint]), _SECONDS)
                status, going = self._exchange(connection, sent)
            except TimeoutError:
                return "timeout" if not sent.whole or not sent.reuse else self._hangs(sent)
            except (OSError, HTTPException) as error:
                if fresh or not sent.whole:
                    return type(error).__name__
                continue
            if going:
                self._open[sent.endpoint] = connection
            else:
                connection.close()
            return status
        return "closed"

    def _hangs(self, sent: Sent) -> str:
        self.faults.append(f"{sent.endpoint} gives no answer to {sent.data[:1500]!r}")
        return "timeout"

    def _exchange(self, connection: socket.socket, sent: Sent) -> tuple[str, bool]:
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before it had come
            connection.sendall(sent.data)
        if not sent.whole or not sent.reuse:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        response = HTTPResponse(connection, method=sent.method)
        response.begin()
        response.read()
        return str(response.status), sent.whole and sent.reuse and not response.will_close

    def _call(self, sent: Sent) -> str:
        token = "wrong" if sent.forbidden else TOKEN
        try:
            self._export(sent.data, metadata=[("authorization", f"Bearer {token}")], timeout=_SECONDS)
        except grpc.RpcError as error:
            code: Any = error.code()  # type: ignore[attr-defined]
            if code in _BROKEN:
                self.faults.append(f"gRPC answers {code.name} ({error.details()}) to {sent.data!r}")  # type: ignore[attr-defined]
            return str(code.name)
        return "200"


def knock(findings: Findings, total: int, seed: int, folder: Path) -> None:
    """Send ``total`` requests at servers of their own; look for what they did."""
    with serving(folder) as servers:
        before = megabytes(*servers.processes.values())
        with grpc.insecure_channel(f"127.0.0.1:{servers.grpc}") as channel:
            knockers = [Knocker(servers, channel) for _ in range(THREADS)]
            _work(knockers, total, seed, servers)
        after = megabytes(*servers.processes.values()) if not servers.fallen() else 0.0
        for name in servers.fallen():
            findings.fault(f"{name} has ended: {_last_words(folder)}")
        kept = sorted(number for one in knockers for number in one.kept)
        if not servers.fallen():
            _look(findings, servers, kept)
    crashes = len(servers_ended := [f for f in findings.faults if "has ended" in f])
    faults = [fault for one in knockers for fault in one.faults]
    for fault in faults:
        findings.fault(fault)
    findings.count("requests_sent", total, "requests")
    statuses = sum((one.statuses for one in knockers), Counter())
    for name, count in sorted(statuses.items()):
        findings.count(f"requests_answered_{name.lower()}", count, "requests")
    findings.count("requests_legitimate_kept", len(kept), "requests")
    findings.count("requests_effects", len(faults), "requests")
    findings.count("requests_crashes", crashes, "processes")
    findings.count("requests_rss_before_mb", before, "MB")
    findings.count("requests_rss_after_mb", after, "MB")
    if not servers_ended and after - before > MOST_GROWTH_MB:
        findings.fault(f"the servers grew from {before:.0f} to {after:.0f} MB")


def _work(knockers: list[Knocker], total: int, seed: int, servers: Servers) -> None:
    done, lock, tell = 0, threading.Lock(), teller("requests", total)
    over = threading.Event()

    def work(place: int, knocker: Knocker) -> None:
        nonlocal done
        for number in range(place, total, len(knockers)):
            if over.is_set():
                break
            try:
                knocker.send(request(seed, number))
                if number % LEGITIMATE_EVERY == 0:
                    knocker.probe(number)
            except Exception as error:
                knocker.faults.append(f"request {number}: {type(error).__name__}: {error}")
            with lock:
                done += 1
                tell(done)
                if done % 500 == 0 and servers.fallen():
                    over.set()
        knocker.close()

    threads = [threading.Thread(target=work, args=(place, one), daemon=True) for place, one in enumerate(knockers)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def _look(findings: Findings, servers: Servers, kept: list[int]) -> None:
    """What must be in the lake is there once, what is there can be read, and nobody acted."""

    def probes() -> list[str]:
        rows = Lake(servers.lake).read("message_events", columns=["queue", "event_id", "tenant"]).to_pylist()
        return sorted(str(row["event_id"]) for row in rows if row["queue"] == "probes")

    wanted = sorted(f"probe-{number}" for number in kept)
    try:
        wait_until(lambda: probes() == wanted, "the legitimate requests in the lake", seconds=60)
    except AssertionError:
        findings.fault(f"of {len(wanted)} legitimate requests {len(probes())} are in the lake")
    for table in ("event_summaries", "rejected_records", "actions"):
        Lake(servers.lake).read(table).to_pylist()


def _last_words(folder: Path) -> str:
    return " | ".join((folder / f"{part}.log").read_text(errors="replace")[-1500:] for part in PARTS)
