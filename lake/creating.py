"""Putting a file into an object store where there is none yet, by one request that the store refuses otherwise.

This is the client that deltalake has within it, `object_store`, by itself: deltalake puts nothing but commits of its
own, for each of which it lists and reads the log again.

Source: RFC 9110, 13.1.2 (`If-None-Match: *`); names of options: object_store, `AmazonS3ConfigKey`, `ClientConfigKey`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lake.address import DEFAULTS

#: Of S3's options those that are the client's to know, by its names; and those of HTTP.
_KEYS = (
    *("access_key_id", "secret_access_key", "session_token", "token", "region", "default_region"),
    *("endpoint_url", "endpoint", "virtual_hosted_style_request", "skip_signature", "unsigned_payload"),
    *("conditional_put", "imdsv1_fallback", "metadata_endpoint", "request_payer"),
)
_HTTP = ("allow_http", "allow_invalid_certificates", "proxy_url", "timeout", "connect_timeout")
#: Of deltalake's own retries: here nothing is repeated.
_RETRIES = ("max_retries", "retry_timeout")


class Creator:
    """Puts files below ``url``, and reads them whole. Safe to share between threads."""

    def __init__(self, url: str, config: Mapping[str, str], http: Mapping[str, str]) -> None:
        from obstore.store import S3Store

        def store(tries: int) -> S3Store:
            return S3Store.from_url(
                url,
                config=dict(config),  # type: ignore[arg-type]  # read by their names
                client_options=dict(http),  # type: ignore[arg-type]
                retry_config={"max_retries": tries},
            )

        self._store = store(0)
        self._reading = store(int(DEFAULTS["max_retries"]))

    def put(self, key: str, text: str) -> bool:
        """Put a file at ``key``; False where there is one. OSError where nobody can say whether it was put."""
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            self._store.put(key, text.encode(), mode="create")
        except AlreadyExistsError:
            return False
        except BaseError as error:
            raise OSError(str(error)) from error
        return True

    def get(self, key: str) -> bytes:
        """The file at ``key``, by one request, where Arrow makes three. OSError, FileNotFoundError."""
        from obstore.exceptions import BaseError, NotFoundError

        try:
            return bytes(self._reading.get(key).bytes())
        except NotFoundError as error:
            raise FileNotFoundError(str(error)) from error
        except BaseError as error:
            raise OSError(str(error)) from error

    def remove(self, keys: Sequence[str]) -> None:
        """Remove files, whether they are there or not, by one request. OSError."""
        from obstore.exceptions import BaseError

        try:
            self._store.delete(list(keys))
        except BaseError as error:
            raise OSError(str(error)) from error


def creator_of(url: str, options: Mapping[str, str]) -> Creator | None:
    """What puts files below ``url``, which is reached by ``options``; None where that is another's than S3's protocol,
    or an option asks for what is not known here: deltalake then commits by itself."""
    if not url.startswith("s3:") or options.get("aws_conditional_put") != DEFAULTS["aws_conditional_put"]:
        return None
    told = {name.removeprefix("aws_"): value for name, value in options.items() if name not in _RETRIES}
    if any(name not in (*_KEYS, *_HTTP) for name in told):
        return None
    config = {name: value for name, value in told.items() if name in _KEYS}
    return Creator(url, config, {name: told[name] for name in _HTTP if name in told})
