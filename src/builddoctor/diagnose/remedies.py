"""The ladder: what to do about a verdict, cheapest and least intrusive first, as it is written for this build. Pure.

Covers: which remedies of ``remedies.toml`` can help here, in their order, with the command or setting to paste.
Does *not* cover: what a remedy is (the file), what is known of a build (``diagnose.remedy_facts``), spelling commands
(``diagnose.remedy_words``), or applying any of them (``supervise.remedying``).

A remedy that cannot help is never named: no memory for what grows without end, no fewer threads where there is one.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

import msgspec

from builddoctor.diagnose.remedy_facts import RemedyFacts, known_from_verdict, lacks
from builddoctor.diagnose.remedy_words import again, values
from builddoctor.model.verdict import Fix, VerdictName

__all__ = ["Remedy", "RemedyFacts", "ladder", "load_remedies"]

_BLANK = re.compile(r"@(\w+)@")


class Remedy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way out, as ``remedies.toml`` has it. ``@name@`` in its texts stands for what is known of the build."""

    name: str
    ranks: dict[VerdictName, int]
    """verdict to its place in that verdict's ladder, the lowest first"""
    text: str
    tools: tuple[str, ...] = ()
    """programs that it helps, where it was one of them that died; empty for any"""
    needs: tuple[str, ...] = ()
    """conditions (``diagnose.remedy_facts``) that all have to hold"""
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
    source: str
    """who says so"""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    remedy: list[Remedy]


@lru_cache(maxsize=1)
def load_remedies() -> tuple[Remedy, ...]:
    """All remedies, in the file's order."""
    text = resources.files(__package__).joinpath("remedies.toml").read_bytes()
    return tuple(msgspec.toml.decode(text, type=_File).remedy)


def ladder(verdict: VerdictName | None, facts: RemedyFacts | None = None) -> list[Fix]:
    """What can help, cheapest first; what leaves the binary as it is before what changes it, where both cost the same.

    Empty without a verdict. What is not known in ``facts`` rules nothing out that is likely to help.
    """
    if verdict is None:
        return []
    known = known_from_verdict(verdict, facts or RemedyFacts())
    fitting = [
        remedy
        for remedy in load_remedies()
        if verdict in remedy.ranks
        and remedy.name not in known.remedied
        and (not remedy.tools or not known.tool or known.tool in remedy.tools)
        and not any(lacks(need, known) for need in remedy.needs)
    ]
    fitting.sort(key=lambda remedy: (remedy.ranks[verdict], remedy.changes_binary))
    filled = values(known)
    return [_fix(remedy, known, filled) for remedy in fitting]


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
