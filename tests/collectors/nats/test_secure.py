"""Encryption and credentials against real servers: who may be read, who is refused, and what is never said."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.nats import credentials
from brokers.nats.client import Client
from collectors.nats.sampler import NatsSource
from collectors.nats.settings import NatsBroker
from lake.errors import UserError
from tests.support.certificates import Certificates, make_certificates
from tests.support.facts import proves
from tests.support.nats import NatsServer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[NatsServer]:
    """A server that speaks TLS alone, and knows one user."""
    tls = ["--tls", "--tlscert", str(certificates.certificate), "--tlskey", str(certificates.key)]
    with NatsServer(tmp_path_factory.mktemp("secure"), *tls, "--user", "app", "--pass", "right") as server:
        yield server


def broker(url: str, **options: Any) -> NatsBroker:
    return NatsBroker.model_validate({"url": url, **options})


async def read(chosen: NatsBroker) -> list[Any]:
    source = NatsSource(chosen)
    try:
        await source.open()
        return await source.read()
    finally:
        await source.close()


@proves("nats", "auth", "user and password", "TLS")
async def test_a_server_with_a_certificate_of_its_own_authority_is_read(
    secure: NatsServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQ_PASSWORD", "right")
    who = {"user": "app", "password": {"env": "MQ_PASSWORD"}}
    assert await read(broker(secure.url, tls={"enabled": True, "ca": str(certificates.ca)}, **who)) == []


async def test_a_certificate_of_an_unknown_authority_is_refused(secure: NatsServer) -> None:
    with pytest.raises(ConnectionLost, match="certificate verify failed"):
        await Client(broker(secure.url, tls={"enabled": True}), "test").open()


async def test_wrong_credentials_are_refused_behind_encryption_too(
    secure: NatsServer, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQ_PASSWORD", "wr0ng")
    who = {"user": "app", "password": {"env": "MQ_PASSWORD"}}
    with pytest.raises(CredentialsRefused, match="refuses the credentials") as raised:
        await Client(broker(secure.url, tls={"enabled": True, "ca": str(certificates.ca)}, **who), "test").open()
    assert "wr0ng" not in str(raised.value)


async def test_a_server_that_would_not_encrypt_hears_no_password(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQ_PASSWORD", "right")
    with NatsServer(tmp_path, "--user", "app", "--pass", "right", "-DV") as server:
        who = {"user": "app", "password": {"env": "MQ_PASSWORD"}}
        with pytest.raises(ConnectionLost, match="does not ask for TLS"):
            await Client(broker(server.url, tls={"enabled": True, "ca": str(certificates.ca)}, **who), "test").open()
        assert "CONNECT {" not in server.log


# --- credentials: an operator's server, as decentralised accounts have it

_OPERATOR, _ACCOUNT, _USER, _SEED = 14 << 3, 0, 20 << 3, 18 << 3


def key(kind: int, seed: bytes) -> str:
    """A public key as NATS writes it."""
    return _checked(bytes([kind]) + credentials.public_key(seed))


def written_seed(kind: int, seed: bytes) -> str:
    return _checked(bytes([_SEED | kind >> 5, (kind & 31) << 3]) + seed)


def _checked(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def token(by: tuple[int, bytes], subject: str, name: str, claims: dict[str, Any]) -> str:
    """A JWT as ``nsc`` makes them."""

    def part(body: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")

    whole = {"jti": name, "iat": 1_700_000_000, "iss": key(*by), "name": name, "sub": subject, "nats": claims}
    text = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(whole)}"
    return f"{text}.{base64.urlsafe_b64encode(credentials.sign(by[1], text.encode())).decode().rstrip('=')}"


def creds(jwt: str, seed: bytes) -> str:
    """A ``.creds`` file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\nIMPORTANT: keep it secret\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{written_seed(_USER, seed)}\n------END USER NKEY SEED------\n"
    )


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NatsServer, Any]]:
    """A server of an operator, and a function that makes the credentials of one user of its only account."""
    folder = tmp_path_factory.mktemp("operator")
    operator, account, system = ((kind, os.urandom(32)) for kind in (_OPERATOR, _ACCOUNT, _ACCOUNT))
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    stored = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}
    typed = {"type": "account", "version": 2}
    whole = {"limits": {**limits, **stored, "wildcards": True}, **typed}
    plain = {"limits": {**limits, "wildcards": True}, **typed}
    lines = [
        f"operator: {token(operator, key(*operator), 'op', {'type': 'operator', 'version': 2})}",
        f"system_account: {key(*system)}",
        "resolver: MEMORY",
        "resolver_preload: {",
        f"  {key(*account)}: {token(operator, key(*account), 'apps', whole)}",
        f"  {key(*system)}: {token(operator, key(*system), 'sys', plain)}",
        "}",
    ]
    (folder / "config").write_text("\n".join(lines))

    def user(permissions: dict[str, Any]) -> str:
        seed = os.urandom(32)
        claims = {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2, **permissions}
        return creds(token(account, key(_USER, seed), "collector", claims), seed)

    with NatsServer(folder / "nats", "-c", str(folder / "config")) as server:
        yield server, user


@proves("nats", "auth", "credentials files")
async def test_a_credentials_file_is_let_in(accounts: tuple[NatsServer, Any], tmp_path: Path) -> None:
    server, user = accounts
    (tmp_path / "collector.creds").write_text(user({"pub": {}, "sub": {}}))
    assert await read(broker(server.url, credentials={"file": str(tmp_path / "collector.creds")})) == []


async def test_credentials_of_somebody_else_are_refused(
    accounts: tuple[NatsServer, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, user = accounts
    theirs = user({"pub": {}, "sub": {}})
    ours = theirs.split("-----BEGIN USER")[0] + user({"pub": {}, "sub": {}}).split("\n\n")[-1]
    monkeypatch.setenv("MQ_CREDS", ours)
    with pytest.raises(CredentialsRefused) as raised:
        await Client(broker(server.url, credentials={"env": "MQ_CREDS"}), "test").open()
    assert "eyJ" not in str(raised.value)


async def test_a_permission_that_is_missing_is_named(
    accounts: tuple[NatsServer, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, user = accounts
    monkeypatch.setenv("MQ_CREDS", user({"pub": {"deny": ["$JS.API.STREAM.>"]}, "sub": {}}))
    monkeypatch.setattr("collectors.nats.exchange.SILENCE", 0.5)
    with pytest.raises(CredentialsRefused, match=r"STREAM.LIST.*[Pp]ermissions"):
        await read(broker(server.url, credentials={"env": "MQ_CREDS"}))


@pytest.mark.parametrize("text", ["", "SUAXX", "-----BEGIN NATS USER JWT-----\nx\n------END NATS USER JWT------"])
def test_what_is_no_credentials_file_is_one_clear_line_without_its_content(text: str) -> None:
    with pytest.raises(UserError, match=r"are no NATS credentials – give a \.creds file") as raised:
        credentials.read(text, "the credentials of broker 'mq'")
    assert not text or text not in str(raised.value)


@proves("nats", "auth", "nkeys")
async def test_a_users_nkey_is_let_in_and_anothers_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.urandom(32), os.urandom(32)
    (tmp_path / "config").write_text(f"authorization {{ users = [ {{ nkey: {key(_USER, ours)} }} ] }}")
    monkeypatch.setenv("MQ_NKEY", written_seed(_USER, ours))
    monkeypatch.setenv("MQ_OTHER", written_seed(_USER, theirs))
    with NatsServer(tmp_path / "nats", "-c", str(tmp_path / "config")) as server:
        assert await read(broker(server.url, nkey={"env": "MQ_NKEY"})) == []
        with pytest.raises(CredentialsRefused):
            await Client(broker(server.url, nkey={"env": "MQ_OTHER"}), "test").open()
    monkeypatch.setenv("MQ_NKEY", "SUAXX")
    with pytest.raises(UserError, match="is no seed") as raised:
        await Client(broker("nats://127.0.0.1:1", nkey={"env": "MQ_NKEY"}), "test").open()
    assert "SUAXX" not in str(raised.value)


def test_signatures_are_those_of_the_methods_own_examples() -> None:
    seed = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
    assert credentials.public_key(seed).hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    assert credentials.sign(seed, b"\x72").hex() == (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
