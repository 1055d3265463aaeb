"""The bearer token as a header, checked where it is given: a library that refuses it later shows it in its error."""

from __future__ import annotations


def authorization(token: str | None) -> dict[str, str]:
    """The header that shows ``token``, without the white space around it (a file ends with a newline).

    ValueError, which does not show it, where it holds what no header takes.
    """
    token = (token or "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ValueError("the token holds characters that no HTTP header takes")
    return {"Authorization": f"Bearer {token}"} if token else {}
