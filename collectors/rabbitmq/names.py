"""How queues of several virtual hosts are named in one list."""

from __future__ import annotations

from collections.abc import Collection

#: A queue where RabbitMQ knows it: (virtual host, name).
Key = tuple[str, str]

#: The beginning of the names of our own queues, which are not the user's and are not sampled.
OURS = "sojourn.probe"

_DEFAULT = "%2F"


def queue_name(key: Key, vhosts: Collection[str] = ()) -> str:
    """The plain name in the default virtual host "/", ``vhost/name`` in others, whose own slashes become %2F.

    A plain name that reads like one of another of ``vhosts`` is written in full, ``%2F/name``: no two queues share one.
    """
    vhost, name = key
    if vhost != "/":
        return f"{_escaped(vhost)}/{name}"
    head, slash, _ = name.partition("/")
    if slash and (head == _DEFAULT or any(head == _escaped(other) for other in vhosts if other != "/")):
        return f"{_DEFAULT}/{name}"
    return name


def _escaped(vhost: str) -> str:
    return vhost.replace("%", "%25").replace("/", _DEFAULT)
