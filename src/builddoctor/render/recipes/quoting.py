"""Text from outside in files that a shell, BuildKit or YAML reads: it stays text. Pure.

Covers: comments, words for a shell, here-documents that their own content cannot end.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterable, Mapping

from builddoctor.errors import RecipeError
from builddoctor.units import escaped

WIDTH = 110
_DIRECTIVE = re.compile(r"\A\s*(?:shellcheck|hadolint|escape|syntax|check|SBATCH|!)", re.IGNORECASE)
"""Comments that programs read; ours are written out where we want them."""

_MARK = re.compile(r"\{(\w+)\}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


def comment(text: str) -> list[str]:
    """The text as lines of a comment, whatever is in it."""
    # GitHub replaces expressions wherever they stand, in comments too.
    tame = escaped(text).replace("${{", "$ {{")
    lines = textwrap.wrap(tame, WIDTH - 2, break_on_hyphens=False, subsequent_indent="  " * tame.startswith("- "))
    return [f"# . {line}" if _DIRECTIVE.match(line) else f"# {line}".rstrip() for line in lines]


def comments(texts: Iterable[str]) -> list[str]:
    """One comment line or more for each; an empty text is an empty comment line."""
    return [line for text in texts for line in (comment(text) if text.strip() else ["#"])]


def word(text: str) -> str:
    """One word for a shell. Raises RecipeError for control characters, which no such word of ours has."""
    if not text.isprintable():
        raise RecipeError(f"a control character in {escaped(text)!r}", hint="leave it out: it would go into a script")
    return shlex.quote(text)


def words(texts: Iterable[str], marks: Mapping[str, str]) -> str:
    """A command line; ``{name}`` in a text becomes the shell's variable that ``marks`` names."""
    return " ".join(filled(text, marks) for text in texts)


def filled(text: str, marks: Mapping[str, str]) -> str:
    """One word in which ``{name}`` becomes the value of the shell's variable ``marks[name]``."""
    parts: list[str] = []
    end = 0
    for found in _MARK.finditer(text):
        if found[1] in marks:
            parts += [text[end : found.start()], ""]
            parts[-1] = f'"${marks[found[1]]}"'
            parts[-2] = word(parts[-2]) if parts[-2] else ""
            end = found.end()
    rest = text[end:]
    return "".join(parts) + (word(rest) if rest or not parts else "")


def delimiter(text: str, name: str = "BUILDDOCTOR_END") -> str:
    """A line that the text does not have."""
    lines = set(re.split(r"[\r\n]", text)) | {line.strip() for line in text.splitlines()}
    number, found = 1, name
    while found in lines:
        number += 1
        found = f"{name}_{number}"
    return found


def here_document(command: str, text: str) -> str:
    """``command`` with the text on its stdin, as it is: no shell looks into it."""
    if "\0" in text:
        raise RecipeError("a NUL in a text that goes into a script", hint="look at the recipe with `recipe check`")
    whole = text if text.endswith("\n") or not text else f"{text}\n"
    end = delimiter(whole)
    return f"{command} <<'{end}'\n{whole}{end}\n"


def file_name(name: str) -> str:
    """The name of a file in a folder of ours. Raises RecipeError for anything that leads out of it."""
    if not _FILE_NAME.match(name):
        raise RecipeError(f"no name for a file: {escaped(name)!r}", hint="letters, digits, `.`, `_` and `-` only")
    return name
