"""ninja's files and times of a build that has moved, for any of them."""

from __future__ import annotations

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.carry.ninja_files import Changes, changed_deps, changed_log, paths_in, times_in
from builddoctor.carry.times import AGO_NS, newer_times
from support.examples import examples

NOW_NS = 1_800_000_000_000_000_000
TIMES = st.integers(0, NOW_NS + 10**9) | st.integers(NOW_NS - 100, NOW_NS + 2)
PATHS = st.binary(min_size=1, max_size=40).filter(lambda each: b"\0" not in each)


def same(path: bytes) -> bytes:
    return path


def longer(path: bytes) -> bytes:
    return b"/moved/" + path


def written(paths: list[bytes], outputs: list[tuple[int, int]]) -> bytes:
    """``.ninja_deps`` as ninja writes it: the paths, and of each output (number, time) all of them."""
    made = [b"# ninjadeps\n", struct.pack("=i", 4)]
    for number, path in enumerate(paths):
        padded = path + bytes(-len(path) % 4)
        made.append(struct.pack("=I", len(padded) + 4) + padded + struct.pack("=i", ~number))
    for number, time_ns in outputs:
        record = struct.pack("=iq", number, time_ns) + struct.pack(f"={len(paths)}i", *range(len(paths)))
        made.append(struct.pack("=I", len(record) | 1 << 31) + record)
    return b"".join(made)


@examples(200)
@given(
    paths=st.lists(PATHS, max_size=5),
    outputs=st.lists(st.tuples(st.integers(0, 4), TIMES), max_size=5),
    cut=st.integers(0, 30),
)
def test_lists_of_headers_are_those_of_moved_files(
    paths: list[bytes], outputs: list[tuple[int, int]], cut: int
) -> None:
    """Each path and each time, whatever their lengths; a torn end is left out, the rest is as ninja would write it."""
    whole = written(paths, outputs)
    times = {time_ns: time_ns + 1 for _, time_ns in outputs}
    moved = changed_deps(whole, Changes(path=longer, hashes={}, times=times))
    assert moved == written([longer(each) for each in paths], [(number, time_ns + 1) for number, time_ns in outputs])
    assert paths_in(whole) == paths
    torn = changed_deps(whole[: len(whole) - cut], Changes(path=same, hashes={}, times={}))
    assert whole.startswith(torn)


@examples(200)
@given(
    content=st.binary(max_size=200),
    start=st.sampled_from([b"", b"# ninjadeps\n\4\0\0\0", b"# ninja log v6\n", b"# ninja log v9\n"]),
)
def test_any_bytes_are_read(content: bytes, start: bytes) -> None:
    """Nothing is raised, and a log without changes keeps all that ninja reads of it."""
    nothing = Changes(path=same, hashes={}, times={})
    changed_deps(start + content, nothing)
    paths_in(start + content)
    times_in(start + content, start + content)
    assert changed_log(start + content, nothing).count(b"\n") == (start + content).count(b"\n")


@examples(500)
@given(
    known=st.sets(TIMES, min_size=1, max_size=50), outside=st.lists(st.tuples(TIMES, TIMES), max_size=5), data=st.data()
)
def test_times_keep_their_order(known: set[int], outside: list[tuple[int, int]], data: st.DataObject) -> None:
    """Later than what was installed anew, past, in the order that they had; none where a change would be hidden."""
    objects = data.draw(st.lists(st.sampled_from(sorted(known)), min_size=1))
    times = newer_times(known, objects=objects, outside=outside, now_ns=NOW_NS)
    newest = max((now for _, now in outside), default=0)
    hides = any(then > min(objects) for then, _ in outside)
    if hides or newest <= min(objects) or newest > NOW_NS - 2 * len(known):
        assert times == {}
        return
    assert set(times) == known - {0}
    values = [times[each] for each in sorted(times)]
    assert all(before < after for before, after in pairwise(values))
    assert all(max(newest + 1, NOW_NS - AGO_NS) <= each < NOW_NS for each in values)
