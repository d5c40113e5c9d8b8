"""A source as its top-level parts, and the sweep that leaves out those which a trial does not need. Pure.

Covers: declarations of C and C++ and functions of PTX, found by braces and semicolons alone: a wrong cut costs trials,
never a wrong result, for a trial decides about each.
Does *not* cover: the trial (``gates.reduction``), and what is finer than a part: that is C-Vise's work, which begins at
the top of a file, where the headers are that all the rest needs. This begins at the end, where nothing is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_LITERAL = re.compile(rb"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_BLOCK = re.compile(rb"\s*(?:(?:inline\s+)?namespace\b|extern\s*\"C(?:\+\+)?\"\s*(?=\{|\s*\Z))[^;{}]*\{?\s*\Z")
"""Its inside is top level as well; its brace may be on the next line."""

_LINES = (b"#", b".version", b".target", b".address_size")
"""What is a line by itself, in C or PTX."""


def top_level_parts(text: bytes, *, into_blocks: bool = False) -> list[bytes]:
    """All of ``text``, cut after lines that end a declaration. ``into_blocks``: also of those in namespaces and in
    extern "C" (a block's two braces can only go together: where there are hundreds, whole blocks go first)."""
    parts: list[bytes] = []
    lines: list[bytes] = []
    depth, opens = 0, False
    for line in text.splitlines(keepends=True):
        lines.append(line)
        bare = _LITERAL.sub(b"", line).rstrip()
        block = into_blocks and depth == 0 and bool(_BLOCK.match(line))
        if block or (depth == 0 and (bare.startswith(_LINES) or (opens and bare.strip() == b"{"))):
            ends = True
        else:
            # A block's own closing brace counts below the top: it is one part.
            depth = max(0, depth + bare.count(b"{") - bare.count(b"}"))
            ends = depth == 0 and bare.endswith((b";", b"}"))
        opens = block and not bare.endswith(b"{")
        if ends:
            parts.append(b"".join(lines))
            lines = []
    return [*parts, b"".join(lines)] if lines else parts


def needed_parts(
    parts: Sequence[bytes], still: Callable[[bytes], bool], *, go_on: Callable[[], bool] = lambda: True
) -> list[bytes]:
    """The parts without which ``still`` is no longer true of the text, or that were not tried when ``go_on`` ended it.

    From the end to the beginning: users are gone before what they use. As many at a time as went well: twice as many
    after a success, half as many after a failure.
    """
    kept = list(parts)
    end, most = len(kept), 1
    while end > 0 and go_on():
        most = min(most, end)
        without = kept[: end - most] + kept[end:]
        if still(b"".join(without)):
            kept, end, most = without, end - most, most * 2
        elif most == 1:
            end -= 1
        else:
            most //= 2
    return kept
