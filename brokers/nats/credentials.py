"""NATS credentials (``.creds``): a user's JWT, and the seed of the key that signs the server's challenge.

The format is that of NATS, "NKeys": base 32 of two prefix bytes, the 32 bytes of an Ed25519 seed, and a CRC-16.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

from nacl.signing import SigningKey

from lake.errors import UserError

_PARTS = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s*(\S+)\s*-{3,}END \1-{3,}")
_USER = 20 << 3
_JWT, _SEED = "NATS USER JWT", "USER NKEY SEED"


class Credentials(NamedTuple):
    """A user's JWT and the 32 bytes of its key's seed."""

    jwt: str
    seed: bytes


def read(text: str, what: str) -> Credentials:
    """What a ``.creds`` file holds; UserError, which names ``what`` and never the content, if it is none."""
    parts = dict(_PARTS.findall(text))
    try:
        return Credentials(parts[_JWT], _seed(parts[_SEED]))
    except (KeyError, ValueError, binascii.Error):
        raise UserError(
            f"{what} are no NATS credentials", f"give a .creds file: a {_JWT} and a {_SEED}, as nsc writes them"
        ) from None


class Nkey(NamedTuple):
    """A user's key: as the server names it, and the 32 bytes of its seed."""

    public: str
    seed: bytes


def nkey(text: str, what: str) -> Nkey:
    """The key whose seed ``text`` is; UserError, which names ``what`` and never the content, if it is none."""
    try:
        seed = _seed(text.strip())
    except (ValueError, binascii.Error):
        raise UserError(f"{what} is no seed of a user's nkey", "give what nsc or nk wrote: it begins with SU") from None
    raw = bytes([_USER]) + public_key(seed)
    return Nkey(base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("="), seed)


def _seed(text: str) -> bytes:
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    if (
        len(raw) != 36
        or raw[0] & 0xF8 != 18 << 3
        or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little")
    ):
        raise ValueError("no seed")
    return raw[2:34]


def public_key(seed: bytes) -> bytes:
    """The 32 bytes of the public key."""
    return bytes(SigningKey(seed).verify_key)


def sign(seed: bytes, message: bytes) -> bytes:
    """The 64 bytes of the Ed25519 signature of ``message``."""
    return bytes(SigningKey(seed).sign(message).signature)
