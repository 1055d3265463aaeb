"""A real PostgreSQL on the loopback, ended by its own process id; it runs as nobody's root."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from tests.support.certificates import Certificates
from tests.support.debian import debian_program
from tests.support.ports import free_ports
from tests.support.process import ServerProcess
from tests.support.waiting import wait_until

#: Of the user ``sojourn``, who may do everything.
PASSWORD = "pässword of a test"


class PostgresServer(ServerProcess):
    """One ``postgres`` with an empty database; with ``certificates`` it speaks TLS, too."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        # Tests' own folders are closed to the user that it runs as where the tests run as root.
        super().__init__(Path(tempfile.mkdtemp(prefix="sojourn-postgresql-")))
        (self.port,) = free_ports(1)
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres" if _is_known("postgres") else "nobody")
            os.chown(self._folder, user.pw_uid, user.pw_gid)
            self._user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._tls: dict[str, str] = {}
        if certificates is not None:
            for name, file in (("ssl_cert_file", certificates.certificate), ("ssl_key_file", certificates.key)):
                self._tls[name] = str(self._own(self._folder / file.name, file.read_bytes()))
            self._tls["ssl"] = "on"

    def url(self, schema: str = "public", database: str | None = None) -> str:
        """Where clients connect; ``schema`` holds the tables, where no ``database`` of its own is asked for."""
        place = f"{database}" if database is not None else f"postgres?options=-csearch_path%3D{schema}"
        return f"postgresql://sojourn:{quote(PASSWORD)}@127.0.0.1:{self.port}/{place}"

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection of the tests' own; close it."""
        return psycopg.connect(self.url(), autocommit=True)

    def make_schema(self, name: str) -> str:
        """A new schema: the URL of a store with nothing in it."""
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        return self.url(name)

    def start(self) -> None:
        """Start it and wait until it answers."""
        data = self._folder / "data"
        if not data.exists():
            (self._folder / "password").write_text(PASSWORD)
            (self._folder / "password").chmod(0o644)
            command = [str(_program("initdb")), "-D", str(data), "-U", "sojourn", "--no-sync", "--auth=scram-sha-256"]
            command += [f"--pwfile={self._folder / 'password'}", "--encoding=UTF8", "--locale=C"]
            made = subprocess.run(command, capture_output=True, text=True, cwd="/", **self._user)
            assert made.returncode == 0, made.stderr
        settings = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "port": str(self.port)}
        settings |= {"fsync": "off", "shared_buffers": "16MB"} | self._tls
        command = [str(_program("postgres")), "-D", str(data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", **self._user
            )
        wait_until(self._ready, "PostgreSQL to be ready")

    def become_standby(self) -> None:
        """Start again as a standby, which keeps what it has: its primary is not there."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._end(crash=False)
        self._own(self._folder / "data" / "standby.signal", b"")
        self.start()

    def stop(self) -> None:
        """End the server, whoever is connected, and remove what it kept."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)  # at once: what a checkpoint would write is removed just now
        super().stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _own(self, path: Path, content: bytes) -> Path:
        """Write a file that the server, and nobody else, may read."""
        path.touch(0o600)
        path.write_bytes(content)
        if self._user:
            os.chown(path, self._user["user"], self._user["group"])
        return path

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"PostgreSQL ended:\n{self.log}"
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def _is_known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _program(name: str) -> Path:
    """Debian keeps them beside the PATH, by release."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return found[-1] if found else debian_program("postgresql", name)
