"""What an answer of an AWS service is: what was asked for, or a refusal of a kind that we know how to take. Pure.

The codes are those of the Amazon SQS API Reference (errors of each action, Common Error Types) and CloudWatch's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Answer(NamedTuple):
    """What came back, whatever it says."""

    status: int
    body: bytes


#: gone: the queue is no more; credentials: we are not known; denied: we are, and may not; clock: ours is off;
#: throttled: too many requests; busy: the service is in trouble; malformed: not what the protocol allows.
Kind = Literal["gone", "credentials", "denied", "clock", "throttled", "busy", "malformed"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is nothing in an answer: its kind, and a reason for people."""

    kind: Kind
    reason: str


_CODES: dict[Kind, tuple[str, ...]] = {
    "gone": ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
    "credentials": (
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ),
    "denied": ("AccessDenied", "AccessDeniedException", "KmsAccessDenied", "NotAuthorized"),
    "clock": ("RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed"),
    "throttled": (
        "KmsThrottled",
        "LimitExceededException",
        "OverLimit",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
}
_KINDS: dict[str, Kind] = {code: kind for kind, codes in _CODES.items() for code in codes}


def content(answer: Answer) -> dict[str, Any] | Refusal:
    """What ``answer`` holds, or why it holds nothing."""
    try:
        held = json.loads(answer.body) if answer.body else {}
    except ValueError:
        held = None
    if answer.status == 200:
        return held if isinstance(held, dict) else Refusal("malformed", "the answer is not of the JSON protocol")
    return _refusal(answer.status, held if isinstance(held, dict) else {})


def _refusal(status: int, error: dict[str, Any]) -> Refusal:
    code = str(error.get("__type") or error.get("code") or "").rsplit("#", 1)[-1].split(":", 1)[0]
    reason = code or f"HTTP status {status}"
    kind = _KINDS.get(code)
    if kind is None:
        by_status: dict[int, Kind] = {401: "denied", 403: "denied", 429: "throttled"}
        kind = by_status.get(status, "busy" if status >= 500 else "malformed")
    if kind == "credentials" and "Signature expired" in str(error.get("message") or error.get("Message")):
        kind = "clock"  # refused with the signature's own code, and told apart in words alone
    return Refusal(kind, reason)
