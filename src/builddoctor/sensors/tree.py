"""A process and everything below it, in one walk: for what no gate announced.

Covers: name, state, age, processor time and memory of each. About 50 us a process: not for every sample.
Does *not* cover: single processes by pid (``sensors.process``). What starts or ends during the walk may be missed; the
next one has it.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import msgspec

from builddoctor.sensors.root import SystemRoot
from builddoctor.units import MIB, whole_number

_PARENT, _SESSION, _USER_TICKS, _SYSTEM_TICKS, _START_TICKS, _RSS_PAGES = 1, 3, 11, 12, 19, 21
"""Fields of stat behind the name, from ``state`` on (proc(5))."""


class TreeProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process as it was when the walk came by."""

    pid: int
    parent: int
    name: str
    state: str
    """one letter: ``R``, ``S``, ``T`` for stopped"""
    start_ticks: int
    cpu_s: float
    anon_mib: float
    """0 for one that holds less than was asked for"""
    leads_session: bool
    is_leaf: bool
    """without children of its own"""


def own_pid(root: SystemRoot) -> int | None:
    """This process's own number."""
    return whole_number((root.text("/proc/self/stat") or "").partition(" ")[0])


def read_tree(
    root: SystemRoot, top: int, *, page_bytes: int, least_mib: float, without: Collection[int] = ()
) -> list[TreeProcess]:
    """All below ``top``, parents first; not those in ``without``, nor what is below them."""
    found: list[TreeProcess] = []
    seen = {top, *without}
    pending = [child for child in _children(root, top) if child not in seen]
    while pending:
        pid = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        children = _children(root, pid)
        pending += children
        process = _read(root, pid, page_bytes, least_mib, is_leaf=not children)
        if process is not None:
            found.append(process)
    return found


def _children(root: SystemRoot, pid: int) -> list[int]:
    """Children of all its threads: cargo and others start them from any."""
    found: list[int] = []
    for task in root.names(f"/proc/{pid}/task"):
        text = root.text(f"/proc/{pid}/task/{task}/children")
        if text:
            found += [child for word in text.split() if (child := whole_number(word)) is not None]
    return found


def _read(root: SystemRoot, pid: int, page_bytes: int, least_mib: float, *, is_leaf: bool) -> TreeProcess | None:
    head, _, tail = (root.text(f"/proc/{pid}/stat") or "").rpartition(")")
    fields = tail.split()
    numbers = [whole_number(field) for field in fields[1 : _RSS_PAGES + 1]]
    if len(numbers) < _RSS_PAGES or fields[0] in "ZX":
        return None

    def number(index: int) -> int:
        return numbers[index - 1] or 0

    anon_mib = 0.0
    if number(_RSS_PAGES) * page_bytes / MIB >= least_mib:
        anon_mib = _anon_mib(root, pid, page_bytes)
    return TreeProcess(
        pid=pid,
        parent=number(_PARENT),
        name=head.partition("(")[2],
        state=fields[0],
        start_ticks=number(_START_TICKS),
        cpu_s=(number(_USER_TICKS) + number(_SYSTEM_TICKS)) / os.sysconf("SC_CLK_TCK"),
        anon_mib=anon_mib if anon_mib >= least_mib else 0.0,
        leads_session=number(_SESSION) == pid,
        is_leaf=is_leaf,
    )


def _anon_mib(root: SystemRoot, pid: int, page_bytes: int) -> float:
    """resident - shared of statm."""
    fields = [whole_number(word) for word in (root.text(f"/proc/{pid}/statm") or "").split()[1:3]]
    if len(fields) < 2 or fields[0] is None or fields[1] is None:
        return 0.0
    return max(0, fields[0] - fields[1]) * page_bytes / MIB
