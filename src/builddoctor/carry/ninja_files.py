"""ninja's two memories of what is done, changed for a build that has moved: ``.ninja_log`` and ``.ninja_deps``.

Covers: the log's versions 5 to 7, version 4 of the other, and what a ninja that died has left half written. A file of
another version stays as it is: ninja then builds again what it knows nothing of, which is never wrong.
Does *not* cover: the log of a build that runs (``toolchain.ninja_log``).
Sources: ninja's manual, "The Ninja log"; src/build_log.cc and src/deps_log.cc of ninja-build/ninja.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

_LOG_HEAD = re.compile(rb"# ninja log v(\d+)\n")
_DEPS_HEAD = b"# ninjadeps\n" + struct.pack("=i", 4)
_OF_A_FILE = 1 << 31
"""this bit of a record's size: it lists what an output was made from; else it names one path"""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is other than it was."""

    path: Callable[[bytes], bytes]
    hashes: Mapping[int, int]
    """of commands that are the same but for their paths; others stay, and ninja runs them again"""
    times: Mapping[int, int]
    """in ns; others stay"""


def log_version(log: bytes) -> int:
    """0 for what is no log."""
    head = _LOG_HEAD.match(log)
    return int(head[1]) if head else 0


def changed_log(log: bytes, changes: Changes) -> bytes:
    """Each line with its time, output and hash as they are now."""
    if not 5 <= log_version(log) <= 7:
        return log
    head, *lines = log.split(b"\n")
    return b"\n".join([head, *(_changed_line(line, changes) for line in lines)])


def _changed_line(line: bytes, changes: Changes) -> bytes:
    words = line.split(b"\t")
    try:
        start, end, time_ns, output, command = words
        told = int(command, 16)
        time_ns = b"%d" % changes.times.get(int(time_ns), int(time_ns))
    except ValueError:
        return line
    return b"\t".join([start, end, time_ns, changes.path(output), b"%x" % changes.hashes.get(told, told)])


def changed_deps(deps: bytes, changes: Changes) -> bytes:
    """Each path, and the time of each output, as they are now."""
    if not deps.startswith(_DEPS_HEAD):
        return deps
    made = [_DEPS_HEAD]
    for of_a_file, record in _records(deps):
        if of_a_file:
            output, time_ns = struct.unpack_from("=iq", record)
            now = struct.pack("=iq", output, changes.times.get(time_ns, time_ns)) + record[12:]
        else:
            path = changes.path(record[:-4].rstrip(b"\0"))
            now = path + bytes(-len(path) % 4) + record[-4:]
        made.append(struct.pack("=I", len(now) | (_OF_A_FILE if of_a_file else 0)) + now)
    return b"".join(made)


def paths_in(deps: bytes) -> list[bytes]:
    """All that outputs were made from, and outputs."""
    return [record[:-4].rstrip(b"\0") for of_a_file, record in _records(deps) if not of_a_file]


def times_in(log: bytes, deps: bytes) -> set[int]:
    """All times that the two hold, in ns."""
    lines = (line.split(b"\t") for line in log.split(b"\n"))
    found = {int(words[2]) for words in lines if len(words) == 5 and words[2].isdigit()}
    return found | {struct.unpack_from("=iq", record)[1] for of_a_file, record in _records(deps) if of_a_file}


def hashes_of(
    commands: Sequence[tuple[str, str]], hash_of: Callable[[bytes], int], path: Callable[[bytes], bytes]
) -> dict[int, int]:
    """Of ``(before, after)`` the hashes of those that differ by their paths alone."""
    pairs = [(before.encode(), after.encode()) for before, after in commands]
    return {hash_of(before): hash_of(after) for before, after in pairs if before != after and path(before) == after}


def _records(deps: bytes) -> Iterator[tuple[bool, bytes]]:
    """Whole records, up to where the file is torn."""
    at = len(_DEPS_HEAD)
    while deps.startswith(_DEPS_HEAD) and at + 4 <= len(deps):
        (size,) = struct.unpack_from("=I", deps, at)
        end = at + 4 + (size & ~_OF_A_FILE)
        if end > len(deps) or end - at < (16 if size & _OF_A_FILE else 9):
            return
        yield bool(size & _OF_A_FILE), deps[at + 4 : end]
        at = end
