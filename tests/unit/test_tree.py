"""A process and all below it."""

from __future__ import annotations

import pytest

from builddoctor.sensors.tree import TreeProcess, own_pid, read_tree
from unit.trees import TextRoot

PAGE_BYTES = 65536
"""16 of them are a MiB."""


def planted(
    pid: int,
    *children: int,
    name: str = "cc1plus",
    rss_mib: int = 0,
    state: str = "R",
    session: int = 1,
    threads: dict[int, list[int]] | None = None,
) -> dict[str, str | None]:
    """Kernel files of one process; 1 MiB of what is resident is shared."""
    fields = [state, "1", str(pid), str(session), "0", "-1", "4194304", "0", "0", "0", "0", "250", "50"]
    fields += ["0", "0", "20", "0", "1", "0", str(1000 + pid), "1", str(16 * rss_mib), "18446744073709551615"]
    files: dict[str, str | None] = {
        f"/proc/{pid}/stat": f"{pid} ({name}) {' '.join(fields)}\n",
        f"/proc/{pid}/statm": f"99999 {16 * rss_mib} 16 1 0 1 0\n",
    }
    for thread, started in {pid: list(children), **(threads or {})}.items():
        files[f"/proc/{pid}/task/{thread}/children"] = "".join(f"{child} " for child in started)
    return files


def walked(*processes: dict[str, str | None], without: set[int] = frozenset()) -> dict[int, TreeProcess]:  # type: ignore[assignment]
    root = TextRoot({name: text for files in processes for name, text in files.items()})
    found = read_tree(root, 10, page_bytes=PAGE_BYTES, least_mib=64, without=without)
    assert len({each.pid for each in found}) == len(found)
    return {each.pid: each for each in found}


def test_all_below_are_found_with_what_they_hold() -> None:
    """Name, age, processor time and anonymous memory; the top itself is not one of them."""
    found = walked(planted(10, 11), planted(11, 12, name="sh"), planted(12, rss_mib=301, name="a (b) c"))
    assert found.keys() == {11, 12}
    leaf = found[12]
    assert (leaf.name, leaf.start_ticks, leaf.cpu_s, leaf.anon_mib) == ("a (b) c", 1012, 3.0, 300.0)
    assert leaf.is_leaf
    assert not found[11].is_leaf


def test_children_of_every_thread_are_found() -> None:
    """cargo starts compilers from threads that are not its first."""
    assert walked(planted(10, threads={15: [16]}), planted(16)).keys() == {16}


def test_what_is_left_out_is_left_out_with_all_below() -> None:
    """A gated tool, and what it starts itself."""
    assert walked(planted(10, 11, 13), planted(11, 12), planted(12), planted(13), without={11}).keys() == {13}


def test_a_dead_process_is_none() -> None:
    """It holds nothing, and waits for its parent only."""
    assert walked(planted(10, 11, 12, 13), planted(11, state="Z"), planted(12, state="T")).keys() == {12}


def test_one_that_leads_a_session_is_told() -> None:
    """A daemon, or another terminal's shell."""
    found = walked(planted(10, 11, 12), planted(11, session=11), planted(12, session=11))
    assert (found[11].leads_session, found[12].leads_session) == (True, False)


def test_small_ones_are_not_measured() -> None:
    """Their second file is not even read."""
    small = planted(11, rss_mib=63)
    del small["/proc/11/statm"]
    assert walked(planted(10, 11), small)[11].anon_mib == 0


@pytest.mark.parametrize("text", ["", "11 (x", "11 (x) R 1", "garbage", None])
def test_what_cannot_be_read_is_left_out(text: str | None) -> None:
    """It ended during the walk."""
    assert walked(planted(10, 11, 12), planted(11) | {"/proc/11/stat": text}, planted(12)).keys() == {12}


def test_a_circle_ends() -> None:
    """Numbers that were given out anew during the walk."""
    assert walked(planted(10, 11), planted(11, 12), planted(12, 11, 10)).keys() == {11, 12}


def test_without_proc_there_is_nothing() -> None:
    """And no number of our own."""
    assert read_tree(TextRoot(), 1, page_bytes=PAGE_BYTES, least_mib=64) == []
    assert own_pid(TextRoot()) is None
    assert own_pid(TextRoot(planted(10) | {"/proc/self/stat": "10 (x) R"})) == 10
