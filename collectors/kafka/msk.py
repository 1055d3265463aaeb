"""Tokens of AWS MSK's IAM access control: a presigned request, as SASL's OAUTHBEARER carries it.

What it holds is AWS's (aws-msk-iam-sasl-signer): a GET of ``kafka-cluster:Connect``, signed by Signature Version 4 in
its query for a quarter of an hour, in base64 for URLs without padding.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from brokers.errors import CredentialsRefused
from brokers.kafka.settings import Aws

_SECONDS = 900


def tokens(aws: Aws, name: str) -> Callable[[str], tuple[str, float]]:
    """librdkafka's ``oauth_cb``: a new token and when it expires, in seconds since 1970. CredentialsRefused where there
    are no credentials for broker ``name``."""
    try:
        credentials = Session(profile=aws.profile).get_credentials()
    except (BotoCoreError, ClientError) as error:
        raise _refused(name, type(error).__name__) from None
    if credentials is None:
        raise _refused(name, "none were found")

    def token(_: str) -> tuple[str, float]:
        url = f"https://kafka.{aws.region}.amazonaws.com/?Action=kafka-cluster%3AConnect"
        request = AWSRequest("GET", url)
        signer = SigV4QueryAuth(credentials.get_frozen_credentials(), "kafka-cluster", aws.region, expires=_SECONDS)
        signer.add_auth(request)
        signed = f"{request.url}&User-Agent=sojourn"
        return urlsafe_b64encode(signed.encode()).decode().rstrip("="), time.time() + _SECONDS

    return token


def _refused(name: str, why: str) -> CredentialsRefused:
    return CredentialsRefused(
        f"the AWS credentials of broker {name!r} cannot be had: {why}", "set aws.profile, or what the AWS tools need"
    )
