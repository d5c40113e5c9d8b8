"""builddoctor on a system that is seen through a lens: ``magnified.py SCALE REQUEST [RULES]``, all JSON.

For replays at a scale (``Scale``): every MiB and every second that really is counts as as many as it
stands for, so that the supervisor sees the recorded build at its full size, with production's own thresholds. Gates,
processes, cgroups, kills and the supervisor are real. Real figures of the supervisor and the gates themselves are
magnified as well: at a fifth, a gate of 6 MiB counts as 30.
"""

from __future__ import annotations

import re
import sys
import time

import msgspec

from builddoctor.cli.run import run_supervised
from builddoctor.core.request import RunRequest
from builddoctor.runtime.sampler import Rules
from builddoctor.system.root import SystemRoot, page_size

NO_LIMIT = 2**62
_BYTES = re.compile(r"/memory\.(?:memsw\.)?(?:(?:limit|usage)_in_bytes|max|high|current)\Z")
_NUMBER = re.compile(r"(?<=[ \t])\d+(?= kB)")
_NOT_BYTES = ("pg", "workingset", "total_pg", "total_workingset", "nr_", "thp")


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of each MiB and each second."""

    memory: float
    time: float


class MagnifiedRoot(SystemRoot):
    """This system, larger and faster."""

    def __init__(self, scale: Scale) -> None:
        super().__init__()
        self._memory = 1 / scale.memory
        self._time = 1 / scale.time

    def text(self, absolute: str) -> str | None:
        text = super().text(absolute)
        if text is None:
            return None
        if absolute.endswith(("/meminfo", "/smaps_rollup")):
            return _NUMBER.sub(lambda found: self._more(found[0]), text)
        if _BYTES.search(absolute):
            return self._more(text.strip())
        if absolute.endswith("/memory.stat"):
            return "".join(f"{self._stat(line)}\n" for line in text.splitlines())
        if absolute.startswith("/proc/") and absolute.endswith("/stat"):
            head, name, rest = text.rpartition(")")
            fields = rest.split(" ")
            fields[12:14] = [str(round(int(field) * self._time)) for field in fields[12:14]]
            return head + name + " ".join(fields)
        if absolute.startswith("/proc/") and absolute.endswith("/schedstat"):
            return " ".join(str(round(int(field) * self._time)) for field in text.split())
        return text

    def page_bytes(self) -> int:
        return round(page_size() * self._memory)

    def high_water_mib(self, kib: float) -> float:
        return super().high_water_mib(kib) * self._memory

    def _more(self, number: str) -> str:
        count = int(number) if number.isdigit() else None
        return number if count is None or count > NO_LIMIT else str(round(count * self._memory))

    def _stat(self, line: str) -> str:
        key, _, value = line.partition(" ")
        return line if key.startswith(_NOT_BYTES) else f"{key} {self._more(value)}"


def main(scale_text: str, request: str, rules_text: str = "{}") -> int:
    scale = msgspec.json.decode(scale_text, type=Scale)
    rules = msgspec.json.decode(rules_text, type=Rules)
    return run_supervised(
        msgspec.json.decode(request, type=RunRequest),
        root=MagnifiedRoot(scale),
        rules=msgspec.structs.replace(rules, pace=1 / scale.time),
        clock=lambda: time.monotonic() / scale.time,
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
