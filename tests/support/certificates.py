"""A certificate authority of a test's own, and a server's certificate for the loopback, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers import program


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: the authority's certificate, and one that it signed, with its key."""

    ca: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make them in ``folder``, for 127.0.0.1 and localhost, good for a day."""
    folder.mkdir(parents=True, exist_ok=True)
    openssl = str(program("openssl"))

    def run(*arguments: str) -> None:
        subprocess.run([openssl, *arguments], cwd=folder, check=True, capture_output=True)

    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    basic = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign"]
    run("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.pem", "-days", "1", "-subj", "/CN=Test CA", *basic)
    run("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n")
    signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1", "-extfile", "names"]
    run("x509", "-req", "-in", "server.csr", "-out", "server.pem", *signed)
    return Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
