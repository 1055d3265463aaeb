"""Links in notifications: urls with the labels of an alert filled in. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import quote

_LABEL = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}")
_URL = re.compile(r"https?://[^\s{}/?#]+([/?#][^\s]*)?")
LONGEST_LINK = 2_000


def check(template: str) -> str:
    """``template``; ValueError if it is no url, or a label could choose the host that it leads to."""
    if _URL.fullmatch(template) is None:
        raise ValueError(f"{template[:80]!r} is no link: https://host/path?queue={{queue}}, no label in its host")
    left = _LABEL.sub("", template)
    if "{" in left or "}" in left:
        raise ValueError(f"{template[:80]!r}: a label is written {{queue}}")
    return template


def links(templates: Mapping[str, str], labels: Mapping[str, str]) -> dict[str, str]:
    """Each of ``templates`` of which ``labels`` has all labels, filled in with their percent-encoded values."""
    found = {}
    for name, template in templates.items():
        if all(label in labels for label in _LABEL.findall(template)):
            url = _LABEL.sub(lambda match: quote(labels[match[1]], safe=""), template)
            if len(url) <= LONGEST_LINK:
                found[name] = url
    return found
