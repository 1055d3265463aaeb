"""SASL as Kafka speaks it: PLAIN, and SCRAM (RFC 5802), which never sends the password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from collections.abc import Generator

from brokers.kafka.wire.codec import END, Reader, Request, blob

#: SaslAuthenticate, whose versions 0 to 2 are spoken.
AUTHENTICATE = 36


class Refused(Exception):
    """The broker's half of SCRAM is wrong: it does not know the password either."""


def talk(mechanism: str, user: str, password: str, nonce: str | None = None) -> Generator[bytes, bytes, None]:
    """What to send, one message after the other; send in the broker's answer to each. Ends when both are content."""
    if mechanism == "PLAIN":
        yield f"\0{user}\0{password}".encode()
        return
    algorithm = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    ours = nonce or secrets.token_urlsafe(24)
    first = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={ours}"
    server_first = (yield f"n,,{first}".encode()).decode("utf-8", "replace")
    told = _fields(server_first)
    theirs, rounds = told.get("r", ""), told.get("i", "")
    if not theirs.startswith(ours) or not rounds.isdigit() or not 4096 <= int(rounds) <= 1_000_000:
        raise Refused("its SCRAM challenge is not valid")
    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), base64.b64decode(told.get("s", "")), int(rounds))
    without_proof = f"c=biws,r={theirs}"
    signed = f"{first},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", algorithm)
    signature = hmac.digest(hashlib.new(algorithm, client_key).digest(), signed, algorithm)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    answer = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", algorithm), signed, algorithm)
    if not hmac.compare_digest(
        _fields(answer.decode("utf-8", "replace")).get("v", ""), base64.b64encode(expected).decode()
    ):
        raise Refused("it cannot prove that it knows the password")


def authenticate_request(message: bytes, version: int) -> Request:
    """One step of the conversation; 2 is the first version with compact lengths."""
    body = blob(message) + END if version >= 2 else struct.pack(">i", len(message)) + message
    return Request(AUTHENTICATE, version, body)


def read_authenticate(answer: Reader, version: int) -> tuple[int, str, bytes, int]:
    """Error, its reason, the broker's message, and for how many milliseconds we are let in (0: for ever)."""
    if version >= 2:
        return answer.short(), answer.text(), answer.blob(), answer.long()
    error, length = answer.short(), answer.short()
    reason = answer.take(max(0, length)).decode("utf-8", "replace")
    said = answer.take(max(0, answer.integer()))
    return error, reason, said, answer.long() if version >= 1 else 0


def _fields(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)
