"""A certificate for servers on the loopback, made by openssl where it is wanted and trusted by nobody else."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.support.servers import program


class Certificate(NamedTuple):
    """PEM files; the certificate is its own authority."""

    certificate: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        """What a server in Python takes."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def self_signed(folder: Path) -> Certificate:
    """A certificate of 127.0.0.1 and localhost, valid for a day, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(folder / "server.pem", folder / "server.key")
    command = [str(program("openssl")), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    command += [
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:localhost",
    ]
    command += ["-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return made
