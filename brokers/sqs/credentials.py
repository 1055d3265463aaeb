"""Credentials: those that the settings refer to, else what the AWS tools would find on this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from botocore.credentials import AssumeRoleCredentialFetcher, Credentials, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.session import Session

from brokers.errors import CredentialsRefused
from brokers.sqs.settings import SqsAccount
from lake.secret import Secret

_MEND = "set access_key_id and secret_access_key, a profile, or what the AWS command line needs"


def find(account: SqsAccount) -> Callable[[], Any]:
    """A function that gives the credentials of this moment: those of a role are renewed before they expire.

    Both may ask the network and so block; CredentialsRefused where there are none. Neither logs nor raises a secret.
    """
    name = account.name
    if account.access_key_id is not None and account.secret_access_key is not None:
        token = account.session_token
        found = Credentials(
            _read(account.access_key_id, f"the access key id of broker {name!r}"),
            _read(account.secret_access_key, f"the secret access key of broker {name!r}"),
            _read(token, f"the session token of broker {name!r}") if token is not None else None,
        )
    else:
        found = _guarded(name, lambda: Session(profile=account.profile).get_credentials())
        if found is None:
            raise CredentialsRefused(f"there are no AWS credentials for broker {name!r}", _MEND)
    if account.role_arn is not None:
        role = _role(account, account.role_arn, found)
        return lambda: _guarded(name, role.get_frozen_credentials, f"the role {account.role_arn}")
    return lambda: _guarded(name, found.get_frozen_credentials)


def _role(account: SqsAccount, arn: str, found: Any) -> Any:
    """The credentials of a role, which STS gives to ``found`` for an hour at a time."""
    client = partial(Session(profile=account.profile).create_client, region_name=account.region)
    more = {"RoleSessionName": "sojourn"} | ({"ExternalId": account.external_id} if account.external_id else {})
    fetcher = AssumeRoleCredentialFetcher(client, found, arn, extra_args=more)
    return DeferredRefreshableCredentials(refresh_using=fetcher.fetch_credentials, method="assume-role")


def _read(secret: Secret, what: str) -> str:
    value = secret.read(what).strip()
    if not value.isascii() or not value.isprintable():
        raise CredentialsRefused(f"{what} holds characters that no credential has", "fix it")
    return value


def _guarded(name: str, work: Callable[[], Any], of: str = "the AWS credentials") -> Any:
    try:
        return work()
    except (BotoCoreError, ClientError) as error:
        # Its text may quote what a credential process printed; the service's own code quotes nobody.
        why = error.response["Error"]["Code"] if isinstance(error, ClientError) else type(error).__name__
        raise CredentialsRefused(f"{of} of broker {name!r} cannot be had ({why})", _MEND) from None
