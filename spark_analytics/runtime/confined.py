"""``python confined.py RULES COMMAND…``: run a command that sees and writes only the files that it was given.

Linux's Landlock (https://docs.kernel.org/userspace-api/landlock.html) lets any process take rights away from itself and
from all that it starts, for good. Between fork and exec is no place for that in a program with threads: this file is
run by itself, without our packages, restricts itself, and becomes the command.

Constants and structures are those of ``linux/landlock.h`` and ``linux/prctl.h``.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Iterable, Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_BENEATH, _PORT = 1, 2
_SET_NO_NEW_PRIVS, _DROP_FROM_BOUNDING_SET = 38, 24
#: What root needs of its rights to read a lake of other users: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH.
_KEPT_RIGHTS = (1, 2)
_RIGHTS = 64

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _DEVICE = 1 << 13, 1 << 14, 1 << 15
_BIND, _CONNECT = 1 << 0, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
_READ = _EXECUTE | _READ_FILE | _READ_DIR
#: Rights that a rule for a single file may speak of.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),  # from version 4
        ("scoped", ctypes.c_uint64),  # from version 6
    )


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


class _Port(ctypes.Structure):
    _fields_ = (("allowed_access", ctypes.c_uint64), ("port", ctypes.c_uint64))


def landlock_version() -> int:
    """The version of Landlock that this kernel offers; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))))


def restrict(reading: Iterable[str], writing: Iterable[str], ports: Iterable[int] = ()) -> None:
    """Take from this process all files but those below ``reading`` and ``writing``, and all it can take of the network.

    Paths that are not there are passed over. Of TCP, listening at a port that the system chooses is left, and no
    connection of one's own but to ``ports`` (from version 4 on; there are no rules for UDP). Raises OSError where the
    kernel refuses.
    """
    version = landlock_version()
    everything = _handled(version)
    ruleset = _Ruleset(
        everything,
        _BIND | _CONNECT if version >= 4 else 0,
        _ABSTRACT_SOCKETS | _SIGNALS if version >= 6 else 0,
    )
    size = 8 if version < 4 else 16 if version < 6 else 24
    handle = _call(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    for path in reading:
        _allow(handle, path, _READ & everything)
    for path in writing:
        _allow(handle, path, everything & ~_EXECUTE)
    if version >= 4:
        free = _Port(_BIND, 0)
        _call(_ADD_RULE, handle, _PORT, ctypes.byref(free), ctypes.c_uint32(0))
        for port in ports:
            reached = _Port(_CONNECT, port)
            _call(_ADD_RULE, handle, _PORT, ctypes.byref(reached), ctypes.c_uint32(0))
    _give_up_rights()
    _call(_RESTRICT_SELF, handle, ctypes.c_uint32(0))
    os.close(handle)


def main(rules: str, command: Sequence[str]) -> None:
    """Restrict this process by ``rules`` (JSON: reading, writing, ports) and become ``command``."""
    paths = json.loads(rules)
    restrict(paths["reading"], paths["writing"], paths.get("ports", ()))
    os.execv(command[0], list(command))


def _handled(version: int) -> int:
    """All rights over files that ``version`` knows."""
    rights = (1 << 13) - 1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _DEVICE)):
        if version >= since:
            rights |= right
    return rights


def _allow(handle: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_FILES
        _call(_ADD_RULE, handle, _BENEATH, ctypes.byref(_Beneath(rights, place)), ctypes.c_uint32(0))
    finally:
        os.close(place)


def _give_up_rights() -> None:
    """No rights by setuid programs; of root's own, those to read (the others go where the kernel lets them)."""
    libc = _libc()
    for right in range(_RIGHTS):
        if right not in _KEPT_RIGHTS:
            libc.prctl(_DROP_FROM_BOUNDING_SET, ctypes.c_ulong(right), 0, 0, 0)
    if libc.prctl(_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")


def _call(number: int, *arguments: object) -> int:
    result = int(_libc().syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
