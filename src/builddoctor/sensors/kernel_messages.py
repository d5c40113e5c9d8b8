"""The kernel's own words since builddoctor started, where they may be read: who was killed for memory, who crashed.

Covers: /dev/kmsg, read without waiting, from its end at the start on; lines about programs of the build alone: others
live on the machine too. Kernel doc: ABI/testing/dev-kmsg. Most systems forbid it to users (``kernel.dmesg_restrict``),
and then nothing is said, which is not the same as nothing having happened.
Does *not* cover: what the lines mean (``diagnose.kernel_log``).
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection

from builddoctor.sensors.root import SystemRoot

MOST_READ = 4000
"""records at one look: some ten milliseconds"""

MOST_KEPT = 12
MOST_CHARACTERS = 400

_RECORD_BYTES = 8192
_ABOUT = (
    re.compile(r"oom-kill:.*\btask=(?P<name>.{1,15}?),pid=(?P<pid>\d+)"),
    re.compile(r"Kill(?:ed)? process (?P<pid>\d+)(?: \(|, )(?P<name>[^),]{1,15})"),
    re.compile(r"(?:\A|: )(?P<name>\S[^\[\]:]{0,14})\[(?P<pid>\d+)\]:? (?:segfault at|general protection|trap )"),
)
_GROUP = re.compile(r"task_memcg=(?P<group>[^,]+)")


class KernelMessages:
    """Opened once; each ``read`` gives what came since the last."""

    def __init__(self, root: SystemRoot) -> None:
        self._fd: int | None = None
        try:
            if not _is_the_log(os.stat(root.at("/dev/kmsg"))):
                return
            self._fd = os.open(root.at("/dev/kmsg"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self.close()

    @property
    def readable(self) -> bool:
        return self._fd is not None

    def read(self, *, names: Collection[str], pids: Collection[int], group: str = "") -> tuple[str, ...]:
        """Lines about programs of these names or numbers, or in the cgroup whose path ends so; the last dozen."""
        kept: list[str] = []
        for line in self._new():
            if "ill" not in line and "[" not in line:
                continue
            for pattern in _ABOUT:
                found = pattern.search(line)
                if found is None:
                    continue
                where = _GROUP.search(line)
                ours = where is not None and len(group) > 1 and where["group"].endswith(group)
                if ours or found["name"] in names or int(found["pid"]) in pids:
                    kept.append(line[:MOST_CHARACTERS])
                break
        return tuple(kept[-MOST_KEPT:])

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _new(self) -> list[str]:
        lines: list[str] = []
        if self._fd is None:
            return lines
        for _ in range(MOST_READ):
            try:
                data = os.read(self._fd, _RECORD_BYTES)
            except OSError as error:
                if error.errno == errno.EPIPE:
                    # Records were overwritten before we came: the next read goes on with the oldest there is.
                    continue
                return lines
            if not data:
                return lines
            lines += [_text(line) for line in data.decode(errors="replace").splitlines()]
        try:
            os.lseek(self._fd, 0, os.SEEK_END)
        except OSError:
            self.close()
        return lines


def _is_the_log(seen: os.stat_result) -> bool:
    """Character device 1:11, or a plain file. Some containers have a link to /dev/console there, which types back."""
    return stat.S_ISREG(seen.st_mode) or (stat.S_ISCHR(seen.st_mode) and seen.st_rdev == os.makedev(1, 11))


def _text(line: str) -> str:
    """``6,1234,5678,-;text``: behind the semicolon. Lines of a dictionary begin with a blank, and are none of ours."""
    head, semicolon, text = line.partition(";")
    return text if semicolon and head[:1].isdigit() else line
