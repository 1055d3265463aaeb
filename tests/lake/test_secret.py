"""Who bears the token, and who does not."""

from __future__ import annotations

import pytest

from lake.secret import bears


@pytest.mark.parametrize("token", ["s3cret", "schlüssel", "ключ"])
def test_the_token_is_borne_by_one_header_as_text_or_bytes(token: str) -> None:
    sent = f"Bearer {token}".encode()
    assert bears([sent], token)
    assert bears([sent.decode("latin-1")], token)  # as servers hand headers over


@pytest.mark.parametrize(
    "given",
    [
        [],
        [""],
        ["Bearer"],
        ["s3cret"],
        ["Bearer s3cret "],
        ["bearer s3cret"],
        ["Bearer wrong"],
        ["Bearer s3cret\ud800"],
        ["Bearer s3cret\u0437"],
        [b"Bearer s3cret\xff"],
        ["Bearer s3cret", "Bearer s3cret"],
        ["Bearer wrong", "Bearer s3cret"],
        ["Bearer s3cret", "Bearer wrong"],
    ],
)
def test_nothing_else_is_the_token_and_several_headers_are_none(given: list[str | bytes]) -> None:
    assert not bears(given, "s3cret")
