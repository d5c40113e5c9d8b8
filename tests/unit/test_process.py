"""Memory and family of processes, from files of a /proc."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.sensors.process import Processes, RssProbe
from unit.trees import plant


def stat(name: str, parent: int = 7, start: int = 4242, *, user: int = 0, kernel: int = 0) -> str:
    """A stat line of a process with this name."""
    zeroes = ["0"] * 9, ["0"] * 6
    after = ["S", str(parent), *zeroes[0], str(user), str(kernel), *zeroes[1], str(start), "1000", "200"]
    return f"12 ({name}) {' '.join(after)}\n"


@pytest.mark.trap(17)
@pytest.mark.parametrize(("page_bytes", "size_mib"), [(4096, 300), (16384, 1200), (65536, 4800)])
def test_statm_counts_pages_of_this_kernels_size(tmp_path: Path, page_bytes: int, size_mib: float) -> None:
    """76800 anonymous pages are 300 MiB on x86-64 and 4.7 GiB on a Grace with 64 KiB pages."""
    probe = RssProbe(plant(tmp_path, {"/proc/12/statm": "99999 80000 3200 10 0 500 0\n"}), 12, page_bytes=page_bytes)
    assert probe.anon_mib() == size_mib
    probe.close()


def test_a_probe_follows_its_process(tmp_path: Path) -> None:
    """The file is kept open and read anew each time."""
    system = plant(tmp_path, {"/proc/12/statm": "1000 512 256 0 0 0 0\n"})
    probe = RssProbe(system, 12, page_bytes=4096)
    assert probe.anon_mib() == 1
    plant(tmp_path, {"/proc/12/statm": "1000 768 256 0 0 0 0\n"})
    assert probe.anon_mib() == 2
    probe.close()


@pytest.mark.parametrize("text", ["", "1", "1 2", "a b c", "1 2 \ufffd", "100 50 80 0 0 0 0"])
def test_memory_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    """A zombie's empty file, or one with more shared than resident pages, counts as nothing."""
    probe = RssProbe(plant(tmp_path, {"/proc/12/statm": text}), 12, page_bytes=4096)
    assert probe.anon_mib() == 0
    assert probe.anon_mib() == 0
    probe.close()


def test_a_process_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    """No file, a closed probe, closed twice: never an error."""
    probe = RssProbe(plant(tmp_path, {}), 12, page_bytes=4096)
    assert probe.anon_mib() == 0
    probe.close()
    probe.close()
    assert probe.anon_mib() == 0


@pytest.mark.parametrize(
    "name", ["cicc", "foo) Z (", ") S 1 2 3", "a b", "((((", "))))", "new\nline", "cc1plus (deleted)", "é"]
)
def test_a_process_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Parent and start time are read behind the last parenthesis."""
    processes = Processes(plant(tmp_path, {"/proc/12/stat": stat(name)}))
    assert (processes.parent(12), processes.start_ticks(12)) == (7, 4242)


@pytest.mark.parametrize("text", [None, "", "12 (cut", "12 (cut) S 7", "12 (x) " + "S " * 30])
def test_what_is_no_stat_line_tells_nothing(tmp_path: Path, text: str | None) -> None:
    """A process that is gone, or a line that is cut, gives None."""
    processes = Processes(plant(tmp_path, {} if text is None else {"/proc/12/stat": text}))
    assert processes.parent(12) is None
    assert processes.start_ticks(12) is None


def test_a_family_is_listed_parents_first(tmp_path: Path) -> None:
    """Children of children are found, each once, though a pid were named twice."""
    files = {"/proc/1/task/1/children": "2 3 ", "/proc/2/task/2/children": "4 3 ", "/proc/4/task/4/children": "2 "}
    processes = Processes(plant(tmp_path, files))
    assert processes.children(1) == [2, 3]
    assert processes.descendants(1) == [2, 3, 4]
    assert processes.descendants(99) == []


@pytest.mark.parametrize("text", ["", "x y", "-1", "2.5", "²"])
def test_what_are_no_children_are_passed_over(tmp_path: Path, text: str) -> None:
    """Only numbers are pids."""
    assert Processes(plant(tmp_path, {"/proc/1/task/1/children": text})).children(1) == []


@pytest.mark.parametrize(
    ("cmdline", "argv"),
    [
        ("nvcc\0-c\0a.cu\0", ["nvcc", "-c", "a.cu"]),
        ("sh\0-c\0\0", ["sh", "-c", ""]),
        ("", []),
        (b"cc1plus\0caf\xe9.cpp\0", ["cc1plus", "caf\ufffd.cpp"]),
    ],
)
def test_a_command_line_is_split_at_its_nuls(tmp_path: Path, cmdline: str | bytes, argv: list[str]) -> None:
    """Empty arguments count; a kernel thread has none; bytes that are no text are replaced."""
    processes = Processes(plant(tmp_path, {"/proc/12/cmdline": cmdline}))
    assert processes.argv(12) == argv
    assert processes.argv(13) == []


def test_processor_time_is_that_of_user_and_kernel_mode(tmp_path: Path) -> None:
    """In clock ticks, of which Linux has a hundred a second."""
    processes = Processes(plant(tmp_path, {"/proc/12/stat": stat("cudafe++ (x)", user=5900, kernel=150)}))
    assert processes.cpu_s(12) == 6050 / os.sysconf("SC_CLK_TCK")
    assert processes.cpu_s(13) is None


def test_a_process_that_waits_for_a_core_wants_one(tmp_path: Path) -> None:
    """schedstat: nanoseconds that it ran, that it was ready to run, and how often. Nothing where it is not told."""
    processes = Processes(plant(tmp_path, {"/proc/12/schedstat": "1083545 2500000000 2\n", "/proc/13/schedstat": "7"}))
    assert [processes.run_delay_s(pid) for pid in (12, 13, 14)] == [2.5, 0.0, 0.0]


@pytest.mark.parametrize("text", ["", "12 (cut) S 7", "12 (x) S 7 " + "x " * 30])
def test_processor_time_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    """Not zero: a process that uses none is something else."""
    assert Processes(plant(tmp_path, {"/proc/12/stat": text})).cpu_s(12) is None


def test_page_tables_tell_anonymous_memory(tmp_path: Path) -> None:
    """Not what is mapped from files or shared, and not huge pages a second time."""
    rollup = (
        "55cee6e2f000-7ffe736da000 ---p 00000000 00:00 0                          [rollup]\n"
        "Rss:             5000000 kB\nPss_Anon:        9 kB\nAnonymous:       4194304 kB\nAnonHugePages:   2048 kB\n"
    )
    assert Processes(plant(tmp_path, {"/proc/12/smaps_rollup": rollup})).anon_by_rollup_mib(12) == 4096


@pytest.mark.parametrize("text", [None, "", "Anonymous:", "Anonymous: x kB", "Anonymous: -4 kB", b"\xff\0Anonymous"])
def test_page_tables_that_cannot_be_read_are_none(tmp_path: Path, text: str | bytes | None) -> None:
    """A process that is gone, or another user's; zero would be a reading."""
    processes = Processes(plant(tmp_path, {} if text is None else {"/proc/12/smaps_rollup": text}))
    assert processes.anon_by_rollup_mib(12) is None
