"""Who bears the token, and who does not."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from lake.secret import Secret, bears


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


def test_a_secret_itself_is_refused_and_not_said() -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Secret).validate_python("hunter2")
    (error,) = caught.value.errors(include_input=False)
    assert "a secret is never in the settings" in error["msg"] and "hunter2" not in error["msg"]
