"""Where credentials come from, what happens without them, and TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from botocore.credentials import Credentials
from pydantic import ValidationError

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.sqs.client import Channel, Unanswered, sqs
from brokers.sqs.credentials import find
from collectors.settings import CollectSettings
from collectors.sqs.settings import SqsBroker
from lake.errors import UserError
from tests.collectors.sqs.support import broker, read_once
from tests.support.certificates import make_certificates
from tests.support.elasticmq import ElasticMq
from tests.support.facts import proves
from tests.support.faulty import FaultyHttp, Reply, Request


def bare(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A machine on which the AWS tools find nothing."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "config"))


@proves("sqs", "auth", "keys, as the AWS tools find them")
def test_they_are_found_as_the_aws_tools_find_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find(SqsBroker())().access_key == "AKIATEST"
    bare(monkeypatch, tmp_path)
    (tmp_path / "credentials").write_text("[reader]\naws_access_key_id = AKIAREAD\naws_secret_access_key = hidden\n")
    assert find(SqsBroker(profile="reader"))().access_key == "AKIAREAD"


_ASSUMED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>session</SessionToken>
<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


@proves("sqs", "auth", "role_arn, of a stand-in")
def test_a_role_is_assumed_with_what_was_found_and_a_refusal_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, list[str]]] = []

    def answer(request: Request) -> Reply:
        asked.append(parse_qs(request.body.decode()))
        if asked[-1].get("ExternalId") == ["right"]:
            return Reply(200, _ASSUMED.encode(), {"Content-Type": "text/xml"})
        told = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>"
        return Reply(403, told.encode(), {"Content-Type": "text/xml"})

    role = "arn:aws:iam::123456789012:role/reader"
    with FaultyHttp(rule=answer) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        current = find(SqsBroker(role_arn=role, external_id="right"))
        assert current().access_key == current().access_key == "ASIAROLE"
        refused = find(SqsBroker(role_arn=role, external_id="wrong"))
        with pytest.raises(
            CredentialsRefused, match=rf"the role {role} of broker 'sqs' cannot be had \(AccessDenied\)"
        ):
            refused()
    assert [one["RoleArn"] for one in asked] == [[role], [role]]


def test_without_any_the_user_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bare(monkeypatch, tmp_path)
    with pytest.raises(CredentialsRefused, match="there are no AWS credentials for broker 'sqs'"):
        find(SqsBroker())
    with pytest.raises(CredentialsRefused, match="ProfileNotFound"):
        find(SqsBroker(profile="absent"))


def test_a_reference_to_nothing_names_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    given = SqsBroker.model_validate({"access_key_id": {"env": "NOT_SET"}, "secret_access_key": {"env": "NOT_SET"}})
    with pytest.raises(UserError, match="NOT_SET"):
        find(given)


@pytest.mark.parametrize("value", ["key\nwith: header", "schlüssel"])
def test_a_credential_that_no_header_may_hold_is_refused_unseen(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ODD", value)
    given = SqsBroker.model_validate({"access_key_id": {"env": "ODD"}, "secret_access_key": {"env": "ODD"}})
    with pytest.raises(CredentialsRefused, match="characters that no credential has") as raised:
        find(given)
    assert value not in str(raised.value)


def test_a_credential_that_was_found_and_fits_no_header_is_not_quoted() -> None:
    odd = Credentials("AKIATEST", "hidden", "two\r\nlines").get_frozen_credentials()
    with pytest.raises(Unanswered) as raised:
        Channel(sqs(broker("http://127.0.0.1:9")), lambda: odd).ask("ListQueues", {})
    assert str(raised.value) == "the request cannot be made"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"access_key_id": {"env": "A"}}, "belong together"),
        ({"session_token": {"env": "A"}}, "needs its access_key_id"),
        ({"access_key_id": {"env": "A"}, "secret_access_key": {"env": "A"}, "profile": "p"}, "either profile"),
        ({"endpoint": "ftp://host"}, "https://host"),
        ({"endpoint": "http://user:password@host"}, "credentials"),
        ({"endpoint": "http://host/path"}, "no path"),
        ({"endpoint": "http://host", "tls": {"enabled": True}}, "https endpoint"),
        ({"cloudwatch": {"endpoint": "host"}}, "https://host"),
        ({"cloudwatch": {"metrics": ["temperature"]}}, "age"),
        ({"region": "eu west"}, "pattern"),
        ({"access_key": "AKIA"}, "Extra inputs"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        SqsBroker.model_validate(given)


def test_amazons_own_addresses_are_https() -> None:
    here, there = SqsBroker(region="eu-west-1"), SqsBroker(region="cn-north-1")
    assert here.url == "https://sqs.eu-west-1.amazonaws.com"
    assert there.cloudwatch_url == "https://monitoring.cn-north-1.amazonaws.com.cn"
    assert here.addresses() == [("sqs.eu-west-1.amazonaws.com", 443)]
    assert SqsBroker(endpoint="http://127.0.0.1:9324/").addresses() == [("127.0.0.1", 9324)]
    assert SqsBroker(endpoint="https://queues:443").url == "https://queues"


def test_the_section_takes_it_by_its_kind() -> None:
    settings = CollectSettings.model_validate({"brokers": [{"kind": "sqs", "region": "eu-west-1"}]})
    assert isinstance(settings.brokers[0], SqsBroker)


@pytest.fixture
def secure(elasticmq: ElasticMq, tmp_path: Path) -> Iterator[tuple[FaultyHttp, Path]]:
    """ElasticMQ behind TLS, and the authority to trust."""
    made = make_certificates(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(made.certificate, made.key)
    elasticmq.make("tls-orders")
    with FaultyHttp(elasticmq.url, tls=server) as proxy:
        yield proxy, made.ca


@proves("sqs", "auth", "TLS")
async def test_tls_trusts_the_authority_that_is_given_and_no_other(secure: tuple[FaultyHttp, Path]) -> None:
    server, ca = secure
    assert set(await read_once(broker(server.url, "tls-", tls={"enabled": True, "ca": ca}))) == {"tls-orders"}
    with pytest.raises(ConnectionLost, match="certificate verify failed"):
        await read_once(broker(server.url, "tls-"))


async def test_the_environments_proxy_is_used_for_tls(
    secure: tuple[FaultyHttp, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ca = secure
    heads: list[bytes] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        inner, outer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(pump(reader, outer), pump(inner, writer), return_exceptions=True)

    tunnels = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    monkeypatch.setenv("HTTPS_PROXY", f"http://us%40er:pass@127.0.0.1:{tunnels.sockets[0].getsockname()[1]}")
    assert set(await read_once(broker(server.url, "tls-", tls={"enabled": True, "ca": ca}))) == {"tls-orders"}
    tunnels.close()
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} ".encode())
    assert b"Proxy-Authorization: Basic dXNAZXI6cGFzcw==" in heads[0]  # us@er:pass
    assert b"AKIATEST" not in b"".join(heads)
