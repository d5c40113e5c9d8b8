"""The ladder: what to do about a verdict, cheapest and least intrusive first, as it is written for this build. Pure.

Covers: which remedies of ``remedies.toml`` can help here, in their order, with figures, the project's own settings, the
place where the limit is set, and commands to paste.
Does *not* cover: what is known of a build (``diagnose.remedy_facts``), or applying any of it (``--auto-remedy``).

A remedy that cannot help is never named: no memory for what grows without end, no fewer threads where there is one.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib import resources

import msgspec

from builddoctor.core.units import shell_word
from builddoctor.core.verdict import Fix, Verdict
from builddoctor.diagnose.case_words import case_values
from builddoctor.diagnose.flag_effects import (
    FRONT_END,
    NO_LINE_INFO,
    fewer_archs_text,
    nearest_effect,
    one_at_a_time_text,
    temporary_text,
)
from builddoctor.diagnose.remedy_facts import (
    GpuOomKind,
    Need,
    ProjectSettings,
    RemedyFacts,
    arch_value,
    lacks,
    settings_of,
)

_BLANK = re.compile(r"@(\w+)@")


class Remedy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way out, as ``remedies.toml`` has it. ``@name@`` in its texts stands for what is known of the build."""

    name: str
    ranks: dict[Verdict, int]
    """verdict to its place in that verdict's ladder, the lowest first"""
    text: str
    tools: tuple[str, ...] = ()
    """programs that it helps, where it was one of them that died; empty for any"""
    needs: tuple[Need, ...] = ()
    """conditions that all have to hold"""
    gpu_kinds: tuple[GpuOomKind, ...] = ()
    """of a GPU's memory: which kinds it helps; empty for any"""
    gpu_libraries: tuple[str, ...] = ()
    """libraries whose messages it helps; empty for any"""
    environment: str = ""
    """settings in front of the build's own command, as a shell reads them"""
    options: str = ""
    """options of ``builddoctor run`` in front of it"""
    wrapped: bool = False
    """the build's own command is enough, if builddoctor runs it"""
    after: str = ""
    """arguments behind it"""
    before: str = ""
    """a program, with its options, that starts it"""
    line: str = ""
    """a command of its own, in place of the build's"""
    changes_binary: bool = False
    effect: str = ""
    """in figures, where they were measured, and where"""
    beside_text: bool = False
    """of a supervised build, it is named where a known line of the log has ways out of its own, too"""
    source: str
    """a document, an issue, or what was measured"""

    def fits(self, verdict: Verdict, facts: RemedyFacts) -> bool:
        """Nothing that is known rules it out."""
        return (
            verdict in self.ranks
            and (not self.tools or not facts.tool or facts.tool in self.tools)
            and (not self.gpu_kinds or facts.gpu_kind is None or facts.gpu_kind in self.gpu_kinds)
            and (not self.gpu_libraries or not facts.gpu_library or facts.gpu_library in self.gpu_libraries)
            and not any(lacks(need, facts) for need in self.needs)
        )


class LimitSetter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One that sets memory limits, and how to ask it for more. ``@gib@`` stands for the number of GiB to ask for."""

    name: str
    marks: str
    """a pattern: in the name of the file, variable or flag that sets the limit"""
    text: str
    command: str = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    remedy: tuple[Remedy, ...]
    limit: tuple[LimitSetter, ...]
    """the more particular ones first"""


@lru_cache(maxsize=1)
def _file() -> _File:
    return msgspec.toml.decode(resources.files(__package__).joinpath("remedies.toml").read_bytes(), type=_File)


def load_remedies() -> tuple[Remedy, ...]:
    """All remedies, in the file's order."""
    return _file().remedy


def ladder(verdict: Verdict | None, facts: RemedyFacts | None = None, *, own: Sequence[Fix] = ()) -> list[Fix]:
    """What can help, cheapest first; what leaves the binary as it is before what changes it, where both cost the same.

    Empty without a verdict. What is not known in ``facts`` rules nothing out that is likely to help. ``own``: what a
    known line of the log advises; it takes the place of all but the remedies that go beside it.
    """
    if verdict is None:
        return []
    known = facts or RemedyFacts()
    if verdict is Verdict.TMPFS:
        known = msgspec.structs.replace(known, tmp_in_memory=True)
    fitting = [each for each in load_remedies() if each.fits(verdict, known)]
    if own:
        fitting = [each for each in fitting if each.beside_text and known.supervised]
    fitting.sort(key=lambda remedy: (remedy.ranks[verdict], remedy.changes_binary))
    filled = values(known)
    return _once([*own, *(_fix(remedy, known, filled) for remedy in fitting)])


def _once(fixes: Iterable[Fix]) -> list[Fix]:
    """Each text and each command once."""
    told: list[Fix] = []
    for fix in fixes:
        said = {each.text for each in told} | {each.command for each in told if each.command}
        if fix.text not in said and (not fix.command or fix.command not in said):
            told.append(fix)
    return told


def _fix(remedy: Remedy, facts: RemedyFacts, filled: dict[str, str]) -> Fix:
    return Fix(
        text=_fill(remedy.text, filled),
        command=_command(remedy, facts, filled),
        changes_binary=remedy.changes_binary,
        effect=_fill(remedy.effect, filled),
    )


def _command(remedy: Remedy, facts: RemedyFacts, filled: dict[str, str]) -> str:
    """To be pasted; empty where there is none, or where what it needs is not known."""
    if remedy.line:
        whole = all(filled.get(name) for name in _BLANK.findall(remedy.line))
        return _fill(remedy.line, filled) if whole else ""
    parts = (remedy.environment, remedy.options, remedy.after, remedy.before)
    environment, options, after, before = (_fill(part, filled) for part in parts)
    if not (remedy.wrapped or environment or options or after or before):
        return ""
    supervised = facts.supervised or remedy.wrapped or bool(options)
    return again(facts, supervised=supervised, environment=environment, options=options, after=after, before=before)


def _fill(text: str, filled: dict[str, str]) -> str:
    return _BLANK.sub(lambda found: filled.get(found[1], ""), text)


# -- the build's command -----------------------------------------------------------------------------------------


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


# -- what is filled in -------------------------------------------------------------------------------------------

HEADROOM = 1.25
"""What was killed had not reached its peak: what is advised is this much above what it held."""

KEPT_SHARE = 0.05
"""of a limit that builddoctor keeps free of compilers at least, where its reserve is not known"""

LOWER_SHARE = 0.8
"""of the limit, for a build that shares it with others"""

LEAST_MIB = 64.0
"""no less is ever advised"""

GGC = ("--param=ggc-min-expand=10", "--param=ggc-min-heapsize=32768")

_MIB_A_GIB = 1024.0
_TAKES_JOBS = frozenset(("ninja", "make", "gmake"))


def values(facts: RemedyFacts) -> dict[str, str]:
    """What every ``@name@`` stands for; empty where it is not known."""
    settings = settings_of(facts.project)
    more_gib = _more_gib(facts)
    setter = limit_setter(facts)
    left = _archs_left(facts)
    return {
        **case_values(facts.case, facts.captured),
        "more": f"{more_gib} GiB or more" if more_gib else "more memory",
        "limit_setting": setter.text.replace("@gib@", str(more_gib or "…")),
        "limit_command": setter.command.replace("@gib@", str(more_gib)) if more_gib else "",
        "lower": lower(facts.limit_mib) if facts.limit_mib else "",
        "jobs_text": "one file" if _jobs(facts) == 1 else f"{_jobs(facts)} files",
        "jobs_setting": _jobs_setting(facts, settings),
        "jobs_after": f"-j{_jobs(facts)}" if _front(facts) in _TAKES_JOBS else "",
        "ggc_setting": _ggc_setting(facts),
        "of_archs": f" (it builds for {', '.join(facts.archs)})" if facts.archs else "",
        **_arch_words("archs", left, facts, settings),
        **_arch_words("first_arch", list(facts.archs[:1]), facts, settings),
        "disk": shell_word(facts.disk_folder.rstrip("/")) if facts.disk_folder else "/var/tmp",  # noqa: S108 - on disk
        "tmpdir": shell_word(facts.tmpdir) if facts.tmpdir else '"${TMPDIR:-/tmp}"',
        "folder": shell_word(facts.cwd) if facts.cwd else ".",
        "than_nvcc": f" than {facts.nvcc}" if facts.nvcc else "",
        "than_gcc": f" than gcc {facts.case.gcc}" if facts.case.gcc else "",
        "off": settings.off,
        "off_text": settings.off_text,
        "debug_off": settings.debug_off,
        "debug_off_note": f"; {settings.debug_off} does that here" if settings.debug_off else "",
        "threads_note": f"; {settings.threads}=1 does the same, and builds everything again"
        if settings.threads
        else "",
        "process_limit": facts.process_limit,
        "process_limit_flag": facts.process_limit_flag,
        "reproduce": facts.reproduce,
        "less_ptxas_effect": _flag_effect("-Xptxas -O1", "ptxas", facts),
        "no_line_info_effect": _flag_effect(NO_LINE_INFO, facts.tool or "ptxas", facts),
        "front_end_effect": _flag_effect(FRONT_END, "cicc", facts),
        "temporary_effect": temporary_text(facts.project),
        "one_at_a_time_effect": one_at_a_time_text(facts.project),
        "fewer_archs_effect": fewer_archs_text(facts.project),
    }


def _flag_effect(flag: str, tool: str, facts: RemedyFacts) -> str:
    """Of the nearest case that was measured; empty where the flag was tried with no such program."""
    peak_mib = facts.peak_mib if facts.tool == tool else None
    found = nearest_effect(flag, tool=tool, project=facts.project, peak_mib=peak_mib)
    return found.text() if found is not None else ""


def limit_setter(facts: RemedyFacts) -> LimitSetter:
    """The one that set the limit that was in force."""
    setters = _file().limit
    by_source = next((each for each in setters if facts.limited_by and re.search(each.marks, facts.limited_by)), None)
    if by_source is None or by_source.name in ("cgroup", "systemd"):
        # Inside a container its cgroup has no name that tells; a batch system's has none anywhere.
        around = facts.scheduler or facts.container
        by_source = next((each for each in setters if each.name == around), by_source)
    return by_source or _UNKNOWN_SETTER


_UNKNOWN_SETTER = LimitSetter(
    name="", marks="", text="what set the limit is not known: `builddoctor doctor` shows all that are in force"
)


def lower(limit_mib: float) -> str:
    """The limit for a build that shares this one with others, as ``--memory`` takes it."""
    return f"{max(LEAST_MIB, LOWER_SHARE * limit_mib) / _MIB_A_GIB:.1f}GiB"


def _more_gib(facts: RemedyFacts) -> int | None:
    """The limit to ask for: room for what was seen, and the reserve; None when nothing is known."""
    held_mib = max(facts.peak_mib or 0.0, facts.limit_mib or 0.0)
    if held_mib <= 0:
        return None
    wanted_mib = HEADROOM * held_mib
    return math.ceil((wanted_mib + max(facts.reserve_mib, KEPT_SHARE * wanted_mib)) / _MIB_A_GIB)


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
    if not facts.source and facts.cuda is not False:
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
