"""NATS credentials (``.creds``): a user's JWT, and the seed of the key that signs the server's challenge.

The client library asks for two more packages to sign. One signature a connection needs none: it is made here, by the
method's own description. It takes milliseconds, and its time tells nothing to anybody who cannot watch this process.

Sources: RFC 8032, "Ed25519"; NATS, "NKeys" (base 32 of two prefix bytes, 32 bytes of seed, CRC-16).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import NamedTuple

from lake.errors import UserError

_PARTS = re.compile(r"-{3,}BEGIN ([A-Z ]+)-{3,}\s*(\S+)\s*-{3,}END \1-{3,}")
_JWT, _SEED = "NATS USER JWT", "USER NKEY SEED"

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P

_Point = tuple[int, int, int, int]  # extended coordinates x, y, z, t
_Y = 4 * pow(5, _P - 2, _P) % _P
_X = 15112221349535400772501151409588531511454012693041857206046113283949847762202
_BASE: _Point = (_X, _Y, 1, _X * _Y % _P)


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
    return _encoded(_times(_scalar(hashlib.sha512(seed).digest()), _BASE))


def sign(seed: bytes, message: bytes) -> bytes:
    """The 64 bytes of the Ed25519 signature of ``message``."""
    digest = hashlib.sha512(seed).digest()
    scalar = _scalar(digest)
    nonce = int.from_bytes(hashlib.sha512(digest[32:] + message).digest(), "little") % _ORDER
    point = _encoded(_times(nonce, _BASE))
    challenge = hashlib.sha512(point + _encoded(_times(scalar, _BASE)) + message).digest()
    proof = (nonce + int.from_bytes(challenge, "little") % _ORDER * scalar) % _ORDER
    return point + proof.to_bytes(32, "little")


def _scalar(digest: bytes) -> int:
    number = int.from_bytes(digest[:32], "little")
    return number & ((1 << 254) - 8) | (1 << 254)


def _add(one: _Point, other: _Point) -> _Point:
    a = (one[1] - one[0]) * (other[1] - other[0]) % _P
    b = (one[1] + one[0]) * (other[1] + other[0]) % _P
    c = 2 * one[3] * other[3] * _D % _P
    d = 2 * one[2] * other[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _times(number: int, point: _Point) -> _Point:
    total: _Point = (0, 1, 1, 0)
    while number:
        if number & 1:
            total = _add(total, point)
        point = _add(point, point)
        number >>= 1
    return total


def _encoded(point: _Point) -> bytes:
    inverse = pow(point[2], _P - 2, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")
