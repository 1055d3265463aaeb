"""What the Java process that runs others' SQL is given: hardly any environment, the lake to read, a folder to write in.

The gates before it (:mod:`lake.select`, :mod:`spark_analytics.connect`) let questions through alone. What passes them
by a mistake of theirs meets the kernel: no file is written but in a temporary folder, none read but the lake, Java,
Spark and what a C library needs, and no connection is made (:mod:`spark_analytics.runtime.confined`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lake.errors import UserError
from spark_analytics.runtime import confined
from spark_analytics.runtime.cache import cache_root
from spark_analytics.runtime.java import unwrapped

#: What Java and Spark look for; none of it is secret.
_KEPT = ("JAVA_HOME", "SPARK_HOME", "SPARK_LOCAL_IP", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "MALLOC_ARENA_MAX")
#: Programs, libraries, and what libraries ask of the machine: the time zone, users' names, processors and memory.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/localtime"),
    *("/etc/timezone", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/host.conf"),
    *("/etc/ssl", "/etc/pki", "/etc/crypto-policies", "/etc/alternatives", "/etc/os-release"),
    *("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/filesystems", "/proc/mounts"),
    *("/sys/fs/cgroup", "/sys/devices/system", "/sys/kernel/mm", "/dev/random", "/dev/urandom", "/dev/zero"),
)
_WRITTEN = ("/dev/null",)
#: What a C library asks for a host's address.
_NAMES = ("/etc/resolv.conf", "/run/systemd/resolve", "/etc/gai.conf")
#: The version from which Landlock knows of connections, too.
_NETWORK_VERSION = 4

FIX = "run it on Linux 5.13 or newer with landlock among the kernel's `lsm=`, or as a user who may only read the lake"


def bare_environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment of the Java process, whose temporary files go to ``folder``."""
    kept = {name: environ[name] for name in _KEPT if name in environ}
    return kept | {"PATH": "/usr/bin:/bin", "HOME": str(folder), "SPARK_LOCAL_DIRS": str(folder)}


def confined_command(command: Sequence[str], lake: Path, folder: Path, port: int | None = None) -> list[str]:
    """``command``, a Java's, so that it reads ``lake`` and writes to ``folder`` alone.

    ``port``: that of an object store in which the lake's tables are, the only one to which it may connect.
    """
    reading = [*_readable(command, lake), *(() if port is None else _NAMES)]
    rules = {"reading": reading, "writing": [str(folder), *_WRITTEN], "ports": [] if port is None else [port]}
    return [sys.executable, "-I", "-S", str(Path(confined.__file__)), json.dumps(rules), *command]


def must_be_confined(version: int, *, root: bool, unconfined: bool) -> bool:
    """Whether to confine, on a kernel with Landlock's ``version``. UserError for a root who did not say otherwise."""
    if unconfined:
        return False
    if version == 0 and root:
        raise UserError("as root, others' SQL runs confined alone, which this kernel cannot do", f"{FIX}; --unconfined")
    return version > 0


def described(version: int) -> str:
    """What is kept from the Java process of ``sojourn sql`` and ``sojourn connect``."""
    if version == 0:
        return "not confined: this kernel has no Landlock"
    network = "no connections" if version >= _NETWORK_VERSION else "but any connection"
    return f"confined by Landlock {version}: reads the lake, writes to a temporary folder, {network}"


def _readable(command: Sequence[str], lake: Path) -> list[str]:
    java = unwrapped(Path(command[0])).resolve()
    class_path = command[command.index("-cp") + 1] if "-cp" in command else ""
    cache = cache_root()
    paths = {lake, Path(command[0]), java.parents[1], cache / "java", cache / "log4j2.properties"}
    paths |= {Path(entry.removesuffix("*")) for entry in class_path.split(os.pathsep) if entry}
    paths |= set(Path("/etc").glob("java*"))
    return [*_SYSTEM, *sorted({str(path.resolve()) for path in paths})]
