"""AWS Signature Version 4 of a POST to the root of a service: the "Create a signed AWS API request" guide of the AWS
Identity and Access Management documentation.

botocore's signer gives the same signature (a test compares them) and takes 0.13 ms of the 0.33 ms that one queue costs
us; this one, which need not handle every request there may be, takes a tenth of that.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from typing import Any


class Signer:
    """Signs for one service at one ``host`` (with its port, unless it is the scheme's own)."""

    def __init__(self, host: str, service: str, region: str) -> None:
        self._host = host
        self._service = service
        self._region = region
        self._key: tuple[tuple[str, str], bytes] = (("", ""), b"")

    def headers(self, credentials: Any, target: str, body: bytes, now: datetime) -> dict[str, str]:
        """All headers of one request; ``now`` is in UTC, ``credentials`` are botocore's frozen ones."""
        moment = now.strftime("%Y%m%dT%H%M%SZ")
        day = moment[:8]
        signed = {"content-type": "application/x-amz-json-1.0", "host": self._host, "x-amz-date": moment}
        if credentials.token:
            signed["x-amz-security-token"] = credentials.token
        signed["x-amz-target"] = target
        names = ";".join(signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        request = f"POST\n/\n\n{lines}\n{names}\n{hashlib.sha256(body).hexdigest()}"
        scope = f"{day}/{self._region}/{self._service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(credentials.secret_key, day), text.encode(), "sha256").hex()
        by = f"Credential={credentials.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return signed | {"authorization": f"AWS4-HMAC-SHA256 {by}"}

    def _signing_key(self, secret: str, day: str) -> bytes:
        made_of, key = self._key
        if made_of != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, self._service, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = (secret, day), key
        return key
