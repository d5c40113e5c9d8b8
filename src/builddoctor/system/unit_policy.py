"""The systemd unit that a kernel kill would end as a whole: ``OOMPolicy=stop``, systemd's own default.

Covers: the service or scope that our cgroup (v2) lies in, and its setting, from unit files, drop-ins and the manager's
default; units that systemd-run, a terminal or a batch system made (``transient``). The kernel kills one process;
systemd sees the unit's counter rise, and sends SIGTERM to all that is in it: the build, too. Sessions of logind, and
user managers, go on; so does one with ``Delegate=yes`` whose files have no policy, whatever the manager's default is.
systemd.service(5), systemd.scope(5), systemd-system.conf(5).
Does *not* cover: ``OOMPolicy=kill``, which is ``memory.oom.group`` (``system.cgroup``); v1, whose counters systemd does
not watch; containers, which see no unit of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from builddoctor.system.cgroup import CgroupPlace
from builddoctor.system.root import SystemRoot

RUNNING = "/run/systemd/system"
"""There where systemd is the first process: sd_booted(3)."""

_SYSTEM = ("/run/systemd/transient", "/etc/systemd/system", RUNNING, "/usr/local/lib/systemd/system")
_USER = ("/etc/systemd/user", "/run/systemd/user", "/usr/local/lib/systemd/user")
_SHIPPED = ("/usr/lib/systemd/{}", "/lib/systemd/{}")
_SETTING, _DEFAULT, _DELEGATE = "OOMPolicy", "DefaultOOMPolicy", "Delegate"
_NO = ("", "0", "f", "false", "n", "no", "off")
"""Anything else delegates: a word for yes, or names of controllers."""


def unit_that_stops(root: SystemRoot, place: CgroupPlace | None) -> str:
    """``run-u0.service``; empty where there is none, where its files cannot be found, and where it goes on."""
    if place is None or place.version != 2 or not root.exists(RUNNING):
        return ""
    names = [directory.rpartition("/")[2] for directory in place.directories]
    found = next((at for at, name in enumerate(names) if name.endswith((".service", ".scope"))), None)
    if found is None:
        return ""
    unit = names[found]
    users = next((name for name in names[found + 1 :] if name.startswith("user@") and name.endswith(".service")), "")
    folders, manager = _folders(users.removeprefix("user@").removesuffix(".service"))
    files = tuple(_files(root, unit, folders))
    if not files:
        return ""
    policy = _last(root, files, _SETTING)
    if not policy and _last(root, files, _DELEGATE).lower() not in _NO:
        return ""
    policy = policy or _last(root, _of_manager(root, manager), _DEFAULT) or "stop"
    return unit if policy == "stop" else ""


def _folders(user: str) -> tuple[tuple[str, ...], str]:
    """Where the unit's manager looks, what goes first first; and the manager's name in file names."""
    if not user:
        return (*_SYSTEM, *(each.format("system") for each in _SHIPPED)), "system"
    return (f"/run/user/{user}/systemd/transient", *_USER, *(each.format("user") for each in _SHIPPED)), "user"


def _files(root: SystemRoot, unit: str, folders: Iterable[str]) -> Iterable[str]:
    """The unit's file, and what is dropped in: for the unit, its template, all of its kind. Nothing without a file."""
    stem, _, kind = unit.rpartition(".")
    template = f"{stem.partition('@')[0]}@.{kind}" if "@" in stem else unit
    own = next((f"{at}/{name}" for at in folders for name in (unit, template) if root.exists(f"{at}/{name}")), None)
    if own is None:
        return
    yield own
    for name in dict.fromkeys((kind, template, unit)):
        for at in reversed(tuple(folders)):
            yield from (f"{at}/{name}.d/{each}" for each in sorted(root.names(f"{at}/{name}.d")))


def _of_manager(root: SystemRoot, manager: str) -> Iterable[str]:
    for at in ("/usr/lib/systemd", "/etc/systemd", "/run/systemd"):
        yield f"{at}/{manager}.conf"
        yield from (f"{at}/{manager}.conf.d/{each}" for each in sorted(root.names(f"{at}/{manager}.conf.d")))


def _last(root: SystemRoot, files: Iterable[str], setting: str) -> str:
    """What the last of all lines says; one that is empty takes back those before it."""
    value = ""
    for file in files:
        for line in (root.text(os.path.normpath(file)) or "").splitlines():
            key, equals, text = line.partition("=")
            if equals and key.strip() == setting:
                value = text.strip()
    return value
