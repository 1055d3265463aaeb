"""What is raised when a whole broker is in trouble: away, or not for us."""

from __future__ import annotations

from brokers.errors import ConnectionLost, CredentialsRefused
from brokers.sqs.settings import SqsAccount


def lost(account: SqsAccount, why: str) -> ConnectionLost:
    """Nobody answers as SQS does."""
    return ConnectionLost(f"broker {account.name!r} at {account.url} cannot be reached: {why}")


def refused(account: SqsAccount, kind: str, reason: str, permission: str = "") -> CredentialsRefused:
    """SQS answers, but not to us: by ``kind`` of refusal what the user can do; ``permission`` is the one that lacks."""
    what = f"broker {account.name!r} at {account.url} refuses the credentials: {reason}"
    if kind == "clock":
        return CredentialsRefused(what, "set this machine's clock right: signatures hold for minutes")
    if kind == "denied":
        return CredentialsRefused(what, f"allow {permission} on these queues")
    return CredentialsRefused(what, "check access key, secret, session token and region in [[collect.brokers]]")
