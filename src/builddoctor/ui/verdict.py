"""A verdict as a person reads it: what died, why, what to do, cheapest first, and the evidence. Pure.

Covers: the parts that the page of a trace and ``explain`` share, and the page of ``explain``.
Does *not* cover: how a verdict is arrived at (``diagnose``), or a trace's own page (``ui.trace_page``).

Texts come from logs and traces of unknown origin: nothing in them reaches the terminal as a control sequence. Colour
carries nothing that the words do not.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from pathlib import Path

import msgspec
from rich.text import Text

from builddoctor.core.units import escaped, one_line
from builddoctor.core.verdict import Diagnosis, Fix, Verdict
from builddoctor.ui.layout import LEAST_CELLS, keep_start, labelled, plural, wrapped

LONGEST_EVIDENCE = 600

IN_WORDS: dict[Verdict, str] = {
    Verdict.PARALLEL: "too many at once",
    Verdict.TOO_BIG: "one compiler that does not fit",
    Verdict.RUNAWAY: "a compiler that grows without end",
    Verdict.RLIMIT: "a limit of the process itself",
    Verdict.CGROUP_PARENT: "a memory limit that others share",
    Verdict.NUMA_POLICY: "some memory nodes were full, others not",
    Verdict.TMPFS: "files that live in memory",
    Verdict.DISK_FULL: "no space left",
    Verdict.EXTERNAL_KILL: "killed from outside",
    Verdict.OOMD: "killed by a daemon that guards memory",
    Verdict.SCHEDULER_KILL: "killed by the scheduler",
    Verdict.NOT_REDOABLE: "killed for memory, and it cannot be run again",
    Verdict.TOOLCHAIN: "the toolchain",
    Verdict.PYTHON_ENV: "Python's packages",
    Verdict.NETWORK: "a download",
    Verdict.SOURCE: "the source, or what it needs",
    Verdict.PLATFORM: "a system that is not supported",
    Verdict.NOT_A_BUILD: "a program that ran, no build",
    Verdict.GPU_OOM: "the GPU's memory, not the host's",
    Verdict.UNKNOWN: "the cause is not known",
}


AFTER_ALL = (
    "if it failed all the same, the reason stands in what this file lacks: keep all that the build prints "
    "(`2>&1 | tee build.log` behind its command), or run it under `builddoctor run`"
)


def explain_page(name: str, verdict: Diagnosis, *, lines: int, width: int) -> list[Text]:
    """What was made of a text. ``name``: the file; ``width``: cells of a line, only what is to be pasted is longer."""
    if verdict.verdict is None:
        where = f" in {plural(lines, 'line')}" if lines else ""
        head = f"· {name}: nothing to explain{where}"
        return [
            Text(keep_start(head, width), style="bold"),
            *labelled("why", verdict.why, width),
            *labelled("last", verdict.root, width),
            *labelled("next", AFTER_ALL if verdict.root else "", width),
        ]
    sure = f"{verdict.verdict}, {verdict.confidence} confidence"
    return [
        *wrapped_title(f"✗ {verdict.why}", width),
        *labelled("next", verdict.fixes[0].text if verdict.fixes else "", width),
        *labelled("said", verdict.root, width),
        *labelled("died", verdict.died, width, "bold red"),
        *labelled("cause", f"{IN_WORDS[verdict.verdict]} ({sure}), by {name}", width),
        *fix_lines(verdict, width),
        *evidence_lines(verdict, width),
    ]


_AT = re.compile(r"(?:^|[ :])(?P<file>(?!/)[\w./+-]{1,200}\.\w{1,5})[:(](?P<line>\d{1,7})\b")


def github_annotation(verdict: Diagnosis) -> str:
    """A workflow command of GitHub Actions: an error at the file and line that the root line names, with what to do.

    Empty without a verdict. Source: docs.github.com, workflow commands, "Setting an error message".
    """
    if verdict.verdict is None:
        return ""
    place = _AT.search(verdict.root)
    where = "" if place is None else f"file={_property(place['file'])},line={place['line']},"
    lines = [verdict.root, *(f"- {fix.text}{f': {fix.command}' if fix.command else ''}" for fix in verdict.fixes)]
    message = "\n".join(line for line in (one_line(each) for each in lines) if line)
    return f"::error {where}title={_property(verdict.why)}::{_data(message)}"


class _Lines(msgspec.Struct, frozen=True, kw_only=True):
    begin: int


class _Location(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    lines: _Lines


class _Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Source: docs.gitlab.com, Code Quality, "Import code quality results from a CI/CD job"."""

    description: str
    check_name: str
    fingerprint: str
    location: _Location
    severity: str = "blocker"


def gitlab_report(verdict: Diagnosis, folder: Path) -> str:
    """A report for GitLab's merge requests: the verdict, at the file and line that the root line names.

    Where that is none of ``folder``, the checkout, it stands at the CI file. Without a verdict the report is empty.
    """
    if verdict.verdict is None:
        return "[]"
    place = _AT.search(verdict.root.replace(f"{folder}/", ""))
    # Compilers start in folders below, and GitLab wants no `./`.
    file = re.sub(r"^(?:\.\.?/)+", "", place["file"]) if place is not None else ""
    if place is None or not (folder / file).is_file():
        at = _Location(path=".gitlab-ci.yml", lines=_Lines(begin=1))
    else:
        at = _Location(path=file, lines=_Lines(begin=int(place["line"])))
    first = f"First: {verdict.fixes[0].text}" if verdict.fixes else ""
    finding = _Finding(
        description=escaped(" ".join(one_line(each) for each in (verdict.why, verdict.root, first) if each)),
        check_name=f"builddoctor-{verdict.verdict.value}",
        fingerprint=hashlib.sha256(f"{verdict.verdict.value}\0{at.path}\0{verdict.root}".encode()).hexdigest(),
        location=at,
    )
    return msgspec.json.encode([finding]).decode()


def _data(text: str) -> str:
    return escaped(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _data(one_line(text)).replace(":", "%3A").replace(",", "%2C")


def wrapped_title(text: str, width: int) -> list[Text]:
    """A headline of a failure."""
    lines = textwrap.wrap(one_line(text), max(LEAST_CELLS, width), subsequent_indent="  ", break_on_hyphens=False)
    return [Text(line, style="bold red") for line in lines]


def heading(words: str) -> list[Text]:
    """A blank line and a heading."""
    return [Text(), Text(words, style="bold")]


def fix_lines(verdict: Diagnosis, width: int) -> list[Text]:
    """The ways out, numbered."""
    if not verdict.fixes:
        return []
    lines = heading("what to do, cheapest first")
    for number, fix in enumerate(verdict.fixes, 1):
        lines += _fix(number, fix, width, builds=verdict.verdict != Verdict.GPU_OOM)
    return lines


def _fix(number: int, fix: Fix, width: int, *, builds: bool) -> list[Text]:
    mark = "changes the binary" if fix.changes_binary else "changes nothing in the binary"
    notes = [note for note in (mark if builds else "", fix.effect) if note]
    indent = " " * (len(str(number)) + 4)
    lines = wrapped(f"  {number}. ", indent, f"{fix.text} ({'; '.join(notes)})" if notes else fix.text, width)
    if fix.command:
        # Never wrapped: it has to survive copy and paste.
        lines.append(Text(f"{indent}{escaped(fix.command)}", style="cyan"))
    return lines


def evidence_lines(verdict: Diagnosis, width: int) -> list[Text]:
    """What the verdict goes by; nothing where there is none."""
    if verdict.verdict is None or not verdict.evidence:
        return []
    lines = heading(f"evidence for {one_line(verdict.verdict)} ({verdict.confidence} confidence)")
    for text in verdict.evidence:
        lines += wrapped("  - ", "    ", keep_start(text, LONGEST_EVIDENCE), width)
    return lines
