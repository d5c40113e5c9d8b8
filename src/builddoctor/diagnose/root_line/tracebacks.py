"""Tracebacks of Python in the lines of a log: what was raised, whatever it is called, and what stands above them. Pure.

Covers: whole ones, those that a copy cut off before or after, those with the exception above the frames.
Does *not* cover: exceptions that the catalogue knows (``diagnose.texts``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from builddoctor.diagnose.log_lines import Quote

HEADER = re.compile(r"Traceback \(most recent call last\)|During handling of the above|The above exception was")
CAUSED = "The above exception was the direct cause of the following exception:"

_FRAME = re.compile(r'File ".{1,300}", line \d')
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:: \S|:?$)")
_RAISED = re.compile(r"raise \w|assert |(?:sys\.)?exit\(.{0,4}[\"']")
_UNDERLINES = re.compile(r"[\^~ ]+$|[)\]}]")
LINES_OF_A_FRAME = 4
_NAME_ALONE = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception|Exit):?$")

_ABOVE_FRAMES = re.compile(r"[A-Z]\w{0,60}(?:Error|Exception|Exit)\b.{0,300}:$")
LAST_LINES = 3
"""of a log, one of which is a frame where it ends within a traceback"""


def raised(lines: Sequence[Quote]) -> Quote | None:
    """What the first traceback in these lines ends with. Where the copy ends before that: what was raised."""
    for place, each in enumerate(lines):
        below = lines[place + 1 : place + 1 + LINES_OF_A_FRAME]
        innermost = _is_frame(each) and not any(map(_is_frame, below))
        if innermost and (said := _below_frame(below)) is not None:
            return said
    return raised_above_frames(lines)


def _is_frame(each: Quote) -> bool:
    return _FRAME.match(each.text) is not None


def _below_frame(below: Sequence[Quote]) -> Quote | None:
    """An exception; else the statement that raises it; else, in no form of Python's, what stands below the frame's line
    of source."""
    exceptions = [each for each in below if _EXCEPTION.match(each.text)]
    statements = [each for each in below if _RAISED.match(each.text)]
    others = [each for each in below[1:] if not _UNDERLINES.match(each.text)]
    return next(iter((*exceptions, *statements, *others)), None)


def source_of_bare(said: str, above: Sequence[Quote]) -> Quote | None:
    """Of an exception that says nothing but its name: the line of source that raised it, else the frame."""
    if not _NAME_ALONE.match(said):
        return None
    near = [each for each in above[-LINES_OF_A_FRAME:] if not _UNDERLINES.match(each.text)]
    return near[-1] if any(map(_is_frame, near[-2:])) else None


def raised_above_frames(lines: Sequence[Quote]) -> Quote | None:
    """Of a log that ends within the frames of a traceback whose exception stands above them, as SCons prints it."""
    if not any(map(_is_frame, lines[-LAST_LINES:])):
        return None
    above = [each for each, below in pairwise(lines) if _is_frame(below) and _ABOVE_FRAMES.search(each.text)]
    return above[-1] if above else None


def without_frames(lines: Sequence[Quote]) -> list[Quote]:
    """Those that are no frame of a traceback, and no line of source that stands below one."""
    told, sources = [], 0
    for each in lines:
        if _is_frame(each):
            sources = each.line + 1
        elif each.line > sources and not _UNDERLINES.match(each.text):
            told.append(each)
    return told


def before_traceback(lines: Sequence[Quote]) -> Sequence[Quote]:
    """What was printed before the last traceback of these lines; where the copy lacks its header, before its frames."""
    headers = [place for place, each in enumerate(lines) if HEADER.match(each.text)]
    if headers:
        return lines[: headers[-1]]
    end = len(lines)
    while end and _is_frame(lines[end - 1]):
        end -= 1
    return lines[:end]
