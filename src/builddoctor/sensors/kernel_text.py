"""Two small grammars that many kernel files share: sets of numbers, and ``name: value`` lines. Pure."""

from __future__ import annotations

from builddoctor.units import whole_number

_MOST = 8192
"""More CPUs or nodes than any kernel is built for: a list that says more is garbage, and would take memory to hold."""


def parse_list(text: str) -> frozenset[int]:
    """``0-3,8,10-11`` as the kernel writes sets of CPUs and nodes. What is not a number or a range is passed over."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low = whole_number(first)
        high = whole_number(last) if dash else low
        if low is not None and high is not None and low <= high < _MOST:
            found.update(range(low, high + 1))
    return frozenset(found)


def labelled(text: str, name: str) -> str:
    """Value of the first line ``name: value``; empty without one."""
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return value.strip()
    return ""
