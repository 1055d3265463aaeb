"""Our signatures are those that botocore's own signer makes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from brokers.sqs.signing import Signer

BODY = b'{"QueueUrl": "https://sqs.eu-west-1.amazonaws.com/1/orders"}'


@pytest.mark.parametrize("token", [None, "a/session+token=="])
@pytest.mark.parametrize("host", ["sqs.eu-west-1.amazonaws.com", "127.0.0.1:9324"])
@pytest.mark.parametrize("service", ["sqs", "monitoring"])
def test_a_signature_is_botocores(token: str | None, host: str, service: str) -> None:
    credentials = Credentials("AKIATEST", "a/secret+key", token).get_frozen_credentials()
    given = {"Content-Type": "application/x-amz-json-1.0", "X-Amz-Target": "AmazonSQS.ListQueues"}
    request = AWSRequest("POST", f"https://{host}/", given, BODY)
    SigV4Auth(credentials, service, "eu-west-1").add_auth(request)
    now = datetime.strptime(request.headers["X-Amz-Date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    signer = Signer(host, service, "eu-west-1")
    for _ in range(2):  # the second time with the key that was kept
        headers = signer.headers(credentials, "AmazonSQS.ListQueues", BODY, now)
        assert headers["authorization"] == request.headers["Authorization"]
    assert headers.get("x-amz-security-token") == token


def test_a_new_day_and_new_credentials_have_keys_of_their_own() -> None:
    signer = Signer("host", "sqs", "eu-west-1")
    day, next_day = datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC)
    one, two = (Credentials("AKIATEST", secret).get_frozen_credentials() for secret in ("one", "two"))
    made = {signer.headers(who, "x", b"", at)["authorization"] for who in (one, two, one) for at in (day, next_day)}
    fresh = {
        Signer("host", "sqs", "eu-west-1").headers(who, "x", b"", at)["authorization"]
        for who in (one, two)
        for at in (day, next_day)
    }
    assert made == fresh and len(made) == 4
