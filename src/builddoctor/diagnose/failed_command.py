"""What the command of a failed step says about it, as a log shows it: source, architectures, options. Pure.

Covers: command lines of nvcc, gcc and clang as ninja, make and setuptools print them, cut off or not.
Does *not* cover: command lines that builddoctor sees itself (``intercept.command_lines``).
"""

from __future__ import annotations

import re

from builddoctor.diagnose.log_facts import LogFacts
from builddoctor.diagnose.remedy_facts import RemedyFacts

_SOURCE = re.compile(r"(?:^|[\s=\"'])((?:[\w@%+,.~/-]){1,400}\.(?:cu|cpp|cc|cxx|c\+\+|c|hip))(?=$|[\s\"':,(\]])")
_OBJECT = re.compile(r"(?<![\w@%+,.~/-])((?:[\w@%+,.~/-]){1,400}\.(?:cu|cpp|cc|cxx|c))\.(?:o|obj)\b")
_ARCH = re.compile(r"\b(?:sm|compute)_(\d{2,3}[af]?)\b")
_STD = re.compile(r"-std[= ]((?:c|gnu)\+\+\w{2})\b")
_DEBUG = re.compile(r"(?:^| )(?:-g|-G|-lineinfo|--device-debug|--generate-line-info)(?= |$)")
_ARM = re.compile(r"\b(?:aarch64|sbsa-linux|arm64)\b")
MOST_LOOKED = 16_000


def source_of(*texts: str) -> str:
    """The source that a command or an output names last; empty without one."""
    for text in texts:
        found = _SOURCE.findall(text[:MOST_LOOKED]) or _OBJECT.findall(text[:MOST_LOOKED])
        if found:
            return str(found[-1])
    return ""


def remedy_facts(facts: LogFacts, *, tool: str = "", text: str = "") -> RemedyFacts:
    """What is known of the build for finding a way out. ``text``: the line that says what died."""
    command = facts.command
    failed = facts.failed[0].text if facts.failed else ""
    grown = next((growth for growth in facts.growth if growth.tool == tool), None)
    archs = tuple(sorted({f"sm_{number}" for number in _ARCH.findall(command[:MOST_LOOKED])}))
    std = _STD.search(command[:MOST_LOOKED])
    return RemedyFacts(
        tool=tool,
        source=source_of(command, failed, text),
        archs=archs,
        threads=facts.threads,
        jobs=facts.jobs.value if facts.jobs is not None else None,
        nvcc=facts.nvcc,
        gcc=facts.gcc,
        std=std[1].replace("gnu", "c") if std else "",
        debug=_DEBUG.search(command[:MOST_LOOKED]) is not None if command else None,
        host_arch="aarch64" if _ARM.search(command[:MOST_LOOKED]) else "",
        peak_mib=grown.last_mib if grown is not None else None,
    )
