"""builddoctor with other thresholds than production's, which take minutes: ``short_rules.py RULES REQUEST [zero]``.

RULES and REQUEST are JSON (``scheduler.rules.Rules``, ``core.request.RunRequest``). With ``zero``, the kernel reports
every resident size as nothing (RHEL-97601); all else is as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from builddoctor.cli.run import run_supervised
from builddoctor.core.request import RunRequest
from builddoctor.runtime.sampler import Rules
from builddoctor.system.root import SystemRoot

STATM_OF_ZEROES = Path(__file__).with_name("statm_of_zeroes")


class ZeroRoot(SystemRoot):
    """This system, with the fault."""

    def at(self, absolute: str) -> Path:
        return STATM_OF_ZEROES if absolute.endswith("/statm") else super().at(absolute)


def main(rules: str, request: str, *rest: str) -> int:
    return run_supervised(
        msgspec.json.decode(request, type=RunRequest),
        root=ZeroRoot() if rest else SystemRoot(),
        rules=msgspec.json.decode(rules, type=Rules),
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
