"""Sizes and durations: parsed from what people type, written as people read them. Pure.

Sizes inside builddoctor are MiB (``_mib``), durations are seconds (``_s``). Beside them: text from outside (names of
files, what programs print) made fit for a screen or a file.
"""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from typing import Annotated

import msgspec

from builddoctor.core.errors import UsageError

MIB = 1024 * 1024

Seconds = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]
Mib = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]
"""Numbers beyond any build's: a line of a trace that holds one is not readable, and no sum of them overflows."""

_SIZE = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>[A-Za-z]*)\s*\Z")
_BYTES_OF = {
    "": 1,
    "B": 1,
    "K": 1024,
    "KIB": 1024,
    "KB": 1000,
    "M": MIB,
    "MIB": MIB,
    "MB": 1000**2,
    "G": 1024**3,
    "GIB": 1024**3,
    "GB": 1000**3,
    "T": 1024**4,
    "TIB": 1024**4,
    "TB": 1000**4,
}


_SPAN = re.compile(r"\s*(?:(?P<hours>\d{1,3})h)?\s*(?:(?P<minutes>\d{1,4})m(?:in)?)?\s*(?:(?P<seconds>\d{1,6})s)?\s*\Z")
_TIME_OF_DAY = re.compile(r"\s*(?P<hour>\d{1,2}):(?P<minute>\d\d)\s*\Z")


def parse_until_s(text: str, now: datetime) -> float:
    """``5h20m``, ``45m``, ``90s`` as seconds; ``18:00`` as seconds from ``now`` to when it is next that time.

    Raises UsageError for anything else, and for no time at all.
    """
    if (day := _TIME_OF_DAY.match(text)) is not None and int(day["hour"]) < 24 and int(day["minute"]) < 60:
        then = now.replace(hour=int(day["hour"]), minute=int(day["minute"]), second=0, microsecond=0)
        return (then - now).total_seconds() % 86400 or 86400.0
    total_s = _span_s(text)
    if total_s <= 0:
        raise UsageError(f"not a time: {text!r}", hint="write it as `--until 5h20m`, `45m` or `18:00`")
    return total_s


def parse_span_s(text: str) -> float:
    """``5h20m``, ``45m``, ``90s`` as seconds. Raises UsageError for anything else, and for no time at all."""
    total_s = _span_s(text)
    if total_s <= 0:
        raise UsageError(f"not a span of time: {text!r}", hint="write it as `4h`, `3h40m` or `45m`")
    return total_s


def _span_s(text: str) -> float:
    span = _SPAN.match(text)
    parts = [int(each or 0) for each in span.groups()] if span is not None else []
    return float(sum(part * scale for part, scale in zip(parts, (3600, 60, 1), strict=True))) if parts else 0.0


def read_size_mib(text: str) -> float | None:
    """``24GiB``, ``24G``, ``512M``, ``1.5TB`` or plain bytes, as MiB; None for anything else."""
    match = _SIZE.match(text)
    scale = _BYTES_OF.get(match["unit"].upper()) if match else None
    return None if match is None or scale is None else float(match["number"]) * scale / MIB


def parse_size_mib(text: str) -> float:
    """``24GiB``, ``24G``, ``512M``, ``1.5TB`` or plain bytes, as MiB.

    Raises UsageError for anything else, for zero, and for a size below 64 MiB, in which no compiler runs.
    """
    size_mib = read_size_mib(text)
    if size_mib is None:
        raise UsageError(f"not a memory size: {text!r}", hint="write it as `--memory 24GiB`, `512M` or `1.5T`")
    if size_mib < 64:
        raise UsageError(
            f"a memory limit of {text.strip()} leaves no room for any compiler",
            hint="the smallest compiler phases need about 100 MiB, big ones 4 GiB; for example `--memory 8GiB`",
        )
    return size_mib


def whole_number(text: str) -> int | None:
    """A plain non-negative number as the kernel writes it (at most 64 bits); None for anything else."""
    word = text.strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 20 else None


def counted(number: int, what: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{number} {what}{'s' * (number != 1)}"


def printable(text: str) -> str:
    """Text that any screen and any file takes: bytes that are no UTF-8 (in file names) as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def printable_tree(value: object) -> object:
    """The same lists, tuples and dicts with every text printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {name: printable_tree(each) for name, each in value.items()}
    return [printable_tree(each) for each in value] if isinstance(value, (list, tuple)) else value


def one_line(text: str) -> str:
    """Text that cannot move the cursor: control characters become blanks."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " for char in text)


def escaped(text: str) -> str:
    """Likewise, with control characters as ``\\x1b``: what is shown to be pasted never names another file."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def shell_word(text: str) -> str:
    """One word for a shell, whatever is in it, without any control character: for lines that are shown to be pasted."""
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(_ansi_c(char) for char in text) + "'"


def _ansi_c(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def format_mib(size_mib: float) -> str:
    """``3.4 GiB`` from 1 GiB on, else ``412 MiB``."""
    if abs(size_mib) >= 1024:
        return f"{size_mib / 1024:.1f} GiB"
    return f"{size_mib:.0f} MiB"


def format_gib(size_mib: float) -> str:
    """Bare GiB with one decimal, for places that name the unit once: ``19.2``."""
    return f"{size_mib / 1024:.1f}"


def format_clock(duration_s: float) -> str:
    """``0:21``, ``12:41`` or ``1:02:03``."""
    whole = max(0, round(duration_s))
    hours, rest = divmod(whole, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
