"""The catalogue of texts: what compilers, linkers, build tools, kernels and schedulers print when a build fails.

Covers: the entries as data (``texts/*.toml``, a file a group), and what each must be to be relied upon.
Does *not* cover: looking for them in a log (``diagnose.log_scanner``), weighing what was found (``diagnose.from_log``),
or fixes that depend on the project (``diagnose.remedies``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib.resources import files

import msgspec

from builddoctor.core.units import shell_word
from builddoctor.core.verdict import Fix, Verdict, Weight
from builddoctor.core.word import Word
from builddoctor.diagnose.log_lines import text_of
from builddoctor.diagnose.text_forms import TextForm, pattern_of, triggers_of
from builddoctor.diagnose.windows_commands import for_windows


class Layer(Word):
    """Who prints an error: the innermost one knows most of it."""

    TOOL = "tool"
    """a compiler, a linker, git, a package manager"""
    SCRIPT = "script"
    """what starts tools: CMake's files, Python's exceptions"""
    DRIVER = "driver"
    """what only says that something failed: make, ninja"""

    @property
    def rank(self) -> int:
        """0 for the innermost."""
        return list(Layer).index(self)


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One text, in all its forms. Read from TOML: unknown fields and words are refused."""

    name: str
    """in small letters, with hyphens; a verdict names its cause by it"""
    verdict: Verdict | None = None
    """what it speaks for; None for what names no cause, or is never one"""
    weight: Weight
    form: TextForm = TextForm.LINE
    """what the pattern in the file is; an entry that was read has the whole pattern"""
    pattern: str
    """searched in a cleaned line (``diagnose.log_lines``): no colours, no prefixes of CI, no indentation"""
    triggers: tuple[str, ...] = ()
    """of these, every line that the pattern finds holds at least one: what a long log is searched for first. Without
    any, those of its form"""
    layer: Layer = Layer.TOOL
    """of what prints it"""
    goes_on: bool = False
    """its message is in the lines below, up to an empty one"""
    after: str = ""
    """a second pattern, that one of the few lines before must have"""
    below: str = ""
    """a second pattern, that one of the few lines after must have: what a compiler quotes of the source"""
    versions: str
    """of what it is a text"""
    cause: str
    """one sentence. ``@name@``, here and in fixes, stands for what the pattern's group of that name found, or for what
    else is known of the case (``diagnose.case_words``)"""
    fixes: tuple[Fix, ...] = ()
    """cheapest and least intrusive first"""
    fixes_of: str = ""
    """the entry whose fixes it shares"""
    source: str
    """``owner/repository#number``, a document, or ``measured``"""
    example: str
    """a line as it is printed"""
    also: tuple[str, ...] = ()
    """other forms of it"""
    unlike: tuple[str, ...] = ()
    """lines that look like it, and are not"""
    group: str = ""
    """the name of its file"""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    title: str
    entry: tuple[Entry, ...]


@lru_cache(maxsize=1)
def load_catalogue() -> tuple[Entry, ...]:
    """All entries: those that say the cause first, those that hint at it, those that trail any failure, other errors
    (of which the kind may be known).

    Raises ValueError for a name that stands twice, and for fixes of an entry that has none.
    """
    entries = [entry for _, group in load_groups() for entry in group]
    return tuple(sorted(entries, key=lambda entry: entry.weight.rank))


def entry_of(name: str) -> Entry | None:
    """What the catalogue has under a name; None for an entry that is no longer, or not yet, in it."""
    return _by_name().get(name)


def cause_of(entry: Entry, captured: Iterable[tuple[str, str]], known: Mapping[str, str]) -> str:
    """The cause in this case, without the full stop: filled in as fixes are."""
    return _filled(entry.cause, {**known, **dict(captured)}).rstrip(".")


def fixes_of(entry: Entry, captured: Iterable[tuple[str, str]], known: Mapping[str, str]) -> list[Fix]:
    """The entry's fixes with what was found in place of ``@name@``, or else what is ``known`` of the build under that
    name. Those with a blank that nothing fills are left out: nobody can follow them."""
    given = {name: value for name, value in captured if value}
    found = {**known, **given}
    quoted = {**known, **{name: shell_word(value) for name, value in given.items()}}
    written = for_windows if known.get("on_windows") else str
    return [
        msgspec.structs.replace(fix, text=_filled(fix.text, found), command=written(_filled(fix.command, quoted)))
        for fix in entry.fixes
        if all(found.get(name) for name in BLANK.findall(fix.text + fix.command))
    ]


BLANK = re.compile(r"@(\w+)@")


def _filled(text: str, found: Mapping[str, str]) -> str:
    return BLANK.sub(lambda blank: found.get(blank[1], "…"), text)


def layer_of(name: str) -> int:
    """Of the entry with that name: 0 for the innermost, and for an entry that is not in the catalogue."""
    entry = entry_of(name)
    return 0 if entry is None else entry.layer.rank


@lru_cache(maxsize=1)
def _by_name() -> dict[str, Entry]:
    return {entry.name: entry for entry in load_catalogue()}


def load_groups() -> tuple[tuple[str, tuple[Entry, ...]], ...]:
    """The same entries by file: its title, and its entries in the order they stand in."""
    read: list[tuple[str, list[Entry]]] = []
    for file in sorted((files(__package__) / "texts").iterdir(), key=lambda each: each.name):
        if file.name.endswith(".toml"):
            content = _parse(file.name, file.read_text(encoding="utf-8"))
            group = file.name.removesuffix(".toml")
            read.append((content.title, [_whole(entry, group) for entry in content.entry]))
    return tuple((title, tuple(group)) for title, group in _resolved(read))


def _parse(name: str, text: str) -> _File:
    try:
        return msgspec.toml.decode(text, type=_File)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{name}: {error}") from error


def _whole(entry: Entry, group: str) -> Entry:
    return msgspec.structs.replace(
        entry,
        pattern=pattern_of(entry.form, entry.pattern),
        triggers=entry.triggers or triggers_of(entry.form),
        group=group,
    )


def _resolved(read: list[tuple[str, list[Entry]]]) -> list[tuple[str, list[Entry]]]:
    """Every entry with fixes of its own."""
    known: dict[str, Entry] = {}
    for _, group in read:
        for entry in group:
            if entry.name in known:
                raise ValueError(f"{entry.group}: {entry.name} stands twice in the catalogue")
            known[entry.name] = entry
    return [(title, [_with_fixes(entry, known) for entry in group]) for title, group in read]


def _with_fixes(entry: Entry, known: dict[str, Entry]) -> Entry:
    if not entry.fixes_of:
        return entry
    if entry.fixes or entry.fixes_of not in known or known[entry.fixes_of].fixes_of:
        raise ValueError(f"{entry.group}: {entry.name} shares the fixes of {entry.fixes_of}, which has none to share")
    return msgspec.structs.replace(entry, fixes=known[entry.fixes_of].fixes)


def check(entry: Entry) -> None:
    """Raises ValueError for an entry that cannot be relied upon: a pattern that does not find its own example, or one
    without a trigger. For tests: what ships was checked by them, and compiling all patterns for it takes 0.2 s."""

    def refuse(why: str) -> None:
        raise ValueError(f"{entry.group}: {entry.name}: {why}")

    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.name):
        refuse("a name is small letters, digits and hyphens")
    if (entry.verdict is None) != (entry.weight in (Weight.SHOWS, Weight.TRAILS)):
        refuse("what says a cause or hints at it has a verdict, and what has no verdict names no cause")
    if not entry.triggers or not all(len(trigger.encode()) >= SHORTEST_TRIGGER for trigger in entry.triggers):
        refuse(f"a trigger is {SHORTEST_TRIGGER} bytes or more")
    try:
        pattern, *near = map(re.compile, (entry.pattern, entry.after, entry.below))
    except re.error as error:
        raise ValueError(f"{entry.group}: {entry.name}: no pattern: {error}") from error
    if any(each.flags & re.IGNORECASE for each in (pattern, *near)):
        refuse("case is told apart: triggers are searched as they stand")
    for line in (entry.example, *entry.also):
        text = text_of(line.encode())
        if not pattern.search(text):
            refuse(f"its pattern does not find {line!r}")
        if not any(trigger in text for trigger in entry.triggers):
            refuse(f"no trigger is in {line!r}")
    for line in entry.unlike:
        if pattern.search(text_of(line.encode())):
            refuse(f"its pattern finds {line!r}")


SHORTEST_TRIGGER = 4
