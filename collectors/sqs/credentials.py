"""Credentials: those that the settings refer to, else what the AWS tools would find on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session

from collectors.base import CredentialsRefused
from collectors.sqs.settings import SqsBroker
from lake.secret import Secret

_MEND = "set access_key_id and secret_access_key, a profile, or what the AWS command line needs"


def find(broker: SqsBroker) -> Callable[[], Any]:
    """A function that gives the credentials of this moment: those of a role are renewed before they expire.

    Both may ask the network and so block; CredentialsRefused where there are none. Neither logs nor raises a secret.
    """
    name = broker.name
    if broker.access_key_id is not None and broker.secret_access_key is not None:
        token = broker.session_token
        fixed = Credentials(
            _read(broker.access_key_id, f"the access key id of broker {name!r}"),
            _read(broker.secret_access_key, f"the secret access key of broker {name!r}"),
            _read(token, f"the session token of broker {name!r}") if token is not None else None,
        ).get_frozen_credentials()
        return lambda: fixed
    found = _guarded(name, lambda: Session(profile=broker.profile).get_credentials())
    if found is None:
        raise CredentialsRefused(f"there are no AWS credentials for broker {name!r}", _MEND)
    return lambda: _guarded(name, found.get_frozen_credentials)


def _read(secret: Secret, what: str) -> str:
    value = secret.read(what).strip()
    if not value.isascii() or not value.isprintable():
        raise CredentialsRefused(f"{what} holds characters that no credential has", "mend it")
    return value


def _guarded(name: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except BotoCoreError as error:
        # Its text may quote what a credential process printed.
        what = f"the AWS credentials of broker {name!r} cannot be had ({type(error).__name__})"
        raise CredentialsRefused(what, _MEND) from None
