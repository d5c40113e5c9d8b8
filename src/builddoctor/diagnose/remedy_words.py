"""Remedies in the words of one build: figures, who sets the limit, the project's own settings, commands to paste. Pure.

Covers: the values of ``@name@`` in ``remedies.toml``, and the build's command with a remedy in it.
Does *not* cover: which remedies there are, or which can help (``diagnose.remedies``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

from builddoctor.diagnose.project_settings import ProjectSettings, arch_value, settings_of
from builddoctor.diagnose.remedy_facts import RemedyFacts
from builddoctor.diagnose.who_limits import who_limits
from builddoctor.units import shell_word

ROOM = 1.25
"""What was killed had not reached its peak: what is advised is this much above what it held."""

KEPT_SHARE = 0.05
"""of a limit that builddoctor keeps free of compilers at least, where its reserve is not known"""

LOWER_SHARE = 0.8
"""of the limit, for a build that shares it with others"""

GGC = ("--param=ggc-min-expand=10", "--param=ggc-min-heapsize=32768")

_MIB_A_GIB = 1024.0
_TAKES_JOBS = frozenset(("ninja", "make", "gmake"))


def values(facts: RemedyFacts) -> dict[str, str]:
    """What every ``@name@`` stands for; empty where it is not known."""
    settings = settings_of(facts.project)
    more_gib = _more_gib(facts)
    who = who_limits(facts)
    left = _archs_left(facts)
    return {
        "more": f"{more_gib} GiB or more" if more_gib else "more memory",
        "limit_setting": who.text.replace("@gib@", str(more_gib or "…")),
        "limit_command": who.command.replace("@gib@", str(more_gib)) if more_gib else "",
        "lower": f"{_gib(LOWER_SHARE * facts.limit_mib)}GiB" if facts.limit_mib else "",
        "jobs_text": "one file" if _jobs(facts) == 1 else f"{_jobs(facts)} files",
        "jobs_setting": _jobs_setting(facts, settings),
        "jobs_after": f"-j{_jobs(facts)}" if _front(facts) in _TAKES_JOBS else "",
        "ggc_setting": _ggc_setting(facts),
        "of_archs": f" (it builds for {', '.join(facts.archs)})" if facts.archs else "",
        **_arch_words("archs", left, facts, settings),
        **_arch_words("first_arch", list(facts.archs[:1]), facts, settings),
        "disk": shell_word(facts.disk_folder.rstrip("/")) if facts.disk_folder else "/var/tmp",  # noqa: S108
        "tmpdir": shell_word(facts.tmpdir) if facts.tmpdir else '"${TMPDIR:-/tmp}"',
        "folder": shell_word(facts.cwd) if facts.cwd else ".",
        "than_nvcc": f" than {facts.nvcc}" if facts.nvcc else "",
        "than_gcc": f" than gcc {facts.gcc}" if facts.gcc else "",
        "off": settings.off,
        "off_text": settings.off_text,
        "debug_off": settings.debug_off,
        "debug_off_note": f"; {settings.debug_off} does that here" if settings.debug_off else "",
        "threads_note": f"; {settings.threads}=1 does the same, and builds everything again"
        if settings.threads
        else "",
    }


def again(
    facts: RemedyFacts,
    *,
    supervised: bool,
    environment: str = "",
    options: str = "",
    after: str = "",
    before: str = "",
) -> str:
    """The same build once more, with something added, to be pasted.

    Where the build's command is not known, only what is to be set before it, or ``COMMAND`` in its place.
    """
    if not facts.command and environment and not (options or after or before):
        return f"export {environment}"
    command = " ".join(shell_word(word) for word in facts.command) if facts.command else "COMMAND"
    kept = _without_repeats(facts.options, options) if facts.supervised else []
    wrapped = ["builddoctor", "run", *kept, *([options] if options else []), "--"] if supervised else []
    words = [environment, before, *wrapped, command, after]
    line = " ".join(word for word in words if word)
    return f"cd {shell_word(facts.cwd)} && {line}" if facts.cwd and facts.command else line


def _without_repeats(given: Sequence[str], added: str) -> list[str]:
    """The options of the last time, less those that are given anew."""
    kept: list[str] = []
    words = iter(given)
    for word in words:
        value = [] if "=" in word else [next(words, "")]
        if word.partition("=")[0] not in added.split():
            kept += [shell_word(each) for each in (word, *value)]
    return kept


def _more_gib(facts: RemedyFacts) -> int | None:
    """The limit to ask for: room for what was seen, and the reserve; None when nothing is known."""
    held_mib = max(facts.peak_mib or 0.0, facts.limit_mib or 0.0)
    if held_mib <= 0:
        return None
    wanted_mib = ROOM * held_mib
    return math.ceil((wanted_mib + max(facts.reserve_mib, KEPT_SHARE * wanted_mib)) / _MIB_A_GIB)


def _gib(size_mib: float) -> str:
    return f"{max(64.0, size_mib) / _MIB_A_GIB:.1f}"


def _jobs(facts: RemedyFacts) -> int:
    """How many at once: as many of that size as fit, else half of what it were, else one."""
    if facts.peak_mib and facts.limit_mib and not facts.supervised:
        fitting = int(facts.limit_mib * (1 - KEPT_SHARE) / facts.peak_mib)
        return max(1, min(fitting, (facts.jobs or fitting + 1) - 1))
    return max(1, (facts.jobs or 1) // 2)


def _front(facts: RemedyFacts) -> str:
    return os.path.basename(facts.command[0]) if facts.command else ""


def _jobs_setting(facts: RemedyFacts, settings: ProjectSettings) -> str:
    """Settings that say so to this project; to one that is not known, what torch's and CMake's builds read."""
    if _front(facts) in _TAKES_JOBS:
        return ""
    names = [settings.jobs] if settings.jobs else ["MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"]
    return " ".join(f"{name}={_jobs(facts)}" for name in names)


def _ggc_setting(facts: RemedyFacts) -> str:
    """For the compiler that nvcc calls, or for the build's own, by what it compiled; both where that is not known."""
    nvcc = f'NVCC_APPEND_FLAGS="$NVCC_APPEND_FLAGS -Xcompiler {",".join(GGC)}"'
    host = " ".join(f'{name}="${name} {" ".join(GGC)}"' for name in ("CFLAGS", "CXXFLAGS"))
    if not facts.source:
        return f"{nvcc} {host}"
    return nvcc if facts.source.endswith(".cu") else host


def _arch_words(name: str, archs: Sequence[str], facts: RemedyFacts, settings: ProjectSettings) -> dict[str, str]:
    """builddoctor's option for these architectures, which sets every project's variable; without it the project's."""
    value = arch_value(settings, archs) if settings.archs and not facts.supervised else ""
    return {
        f"{name}_setting": f"{settings.archs}={shell_word(value)}" if value else "",
        f"{name}_option": f"--arch {shell_word(','.join(archs))}" if archs and not value else "",
    }


def _archs_left(facts: RemedyFacts) -> list[str]:
    """What stays where the one that died is left out."""
    left = [arch for arch in facts.archs if arch != facts.arch]
    return left if facts.arch and len(left) < len(facts.archs) else []
