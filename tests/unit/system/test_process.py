"""Single processes, trees of them, and the limits on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.core.limits import ProcessRoom
from builddoctor.system.process import Processes, RssProbe, TreeProcess, process_caps, read_process_room, read_tree
from builddoctor.system.root import own_pid
from unit.trees import GIB, TextRoot, plant


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


def family_without_lists(**more: str) -> dict[str, str | None]:
    """1 has 2 and 3, 2 has 4; 5 is another's. A kernel without CONFIG_PROC_CHILDREN, by our own thread."""
    parents = {1: 0, 2: 1, 3: 1, 4: 2, 5: 9}
    files: dict[str, str | None] = {f"/proc/{pid}/stat": stat("sh", parent) for pid, parent in parents.items()}
    return {"/proc/self/task/77/stat": "77 (x) R 1", **files, **more}


def test_a_kernel_without_lists_of_children_is_asked_process_by_process() -> None:
    """Parents are in every stat: the same family, parents first, and nothing of others'."""
    processes = Processes(TextRoot(family_without_lists()))
    assert processes.children(1) == [2, 3]
    assert processes.descendants(1) == [2, 3, 4]
    assert processes.descendants(99) == []


def test_what_cannot_be_read_hides_no_other_child() -> None:
    """A process that ended meanwhile has no parent; the others have."""
    assert Processes(TextRoot(family_without_lists() | {"/proc/2/stat": None})).children(1) == [3]


def test_lists_are_believed_where_the_kernel_has_them() -> None:
    """An empty list of one process is no reason to look at all of them."""
    files = family_without_lists() | {"/proc/self/task/77/children": ""}
    assert Processes(TextRoot(files)).descendants(1) == []


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


PAGE_BYTES = 65536
"""16 of them are a MiB."""


def planted(
    pid: int,
    *children: int,
    name: str = "cc1plus",
    rss_mib: int = 0,
    state: str = "R",
    parent: int = 1,
    session: int = 1,
    threads: dict[int, list[int]] | None = None,
) -> dict[str, str | None]:
    """Kernel files of one process; 1 MiB of what is resident is shared."""
    fields = [state, str(parent), str(pid), str(session), "0", "-1", "4194304", "0", "0", "0", "0", "250", "50"]
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


def test_all_below_are_found_by_a_kernel_without_lists_of_children() -> None:
    """Every process is asked for its parent, once for a walk."""
    family = (planted(10, 11), planted(11, parent=10), planted(12, parent=11, rss_mib=301), planted(13, parent=1))
    files = {name: text for each in family for name, text in each.items() if not name.endswith("children")}
    found = walked(files, {"/proc/self/task/77/stat": "77 (x) R 1"})
    assert found.keys() == {11, 12}
    assert found[12].anon_mib == 300
    assert (found[11].is_leaf, found[12].is_leaf) == (False, True)


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


LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max processes             {nproc}                 127000               processes \n"
    "Max open files            1024                 524288               files     \n"
)
PIDS = "40 31 0:35 / /sys/fs/cgroup/pids rw,nosuid shared:17 - cgroup cgroup rw,pids\n"


def process(uid: int, threads: int) -> str:
    return f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nThreads:\t{threads}\n"


def tree(*, nproc: str = "unlimited", uid: int = 1000, **files: str | None) -> TextRoot:
    return TextRoot({"/proc/self/limits": LIMITS.format(nproc=nproc), "/proc/self/status": process(uid, 1), **files})


def test_without_limits_on_processes_there_are_those_on_files() -> None:
    """The hard limit is ours, since we raise it for ourselves; the soft one is the build's."""
    assert read_process_room(tree()) == ProcessRoom(processes=None, own_files=524288, build_files=1024)


@pytest.mark.parametrize(
    ("nproc", "uid", "room"), [("4096", 1000, 4093), ("2", 1000, 0), ("4096", 0, None), ("63000", 1000, None)]
)
def test_a_users_threads_count_against_his_limit(nproc: str, uid: int, room: int | None) -> None:
    """Of all processes those of this user, with all their threads; root has no such limit; a far one is none."""
    others = {"/proc/7/status": process(1000, 1), "/proc/8/status": process(1000, 2), "/proc/9/status": process(7, 50)}
    assert read_process_room(tree(nproc=nproc, uid=uid, **others)).processes == room


def test_the_tightest_cgroup_counts() -> None:
    """A pod's pids.max above the container's own."""
    root = tree(
        nproc="4096",
        **{
            "/proc/self/cgroup": "5:pids:/pod/box\n",
            "/proc/self/mountinfo": PIDS,
            "/sys/fs/cgroup/pids/pod/box/pids.max": "max\n",
            "/sys/fs/cgroup/pids/pod/box/pids.current": "12\n",
            "/sys/fs/cgroup/pids/pod/pids.max": "1024\n",
            "/sys/fs/cgroup/pids/pod/pids.current": "24\n",
        },
    )
    assert read_process_room(root).processes == 1000


@pytest.mark.parametrize("text", [None, "", "Max processes", "Max processes lots more\nMax open files \x00 9\n"])
def test_odd_limits_are_unknown(text: str | None) -> None:
    """What cannot be read limits nothing here: the build would say so itself."""
    room = read_process_room(TextRoot({"/proc/self/limits": text}))
    assert room.processes is None
    assert room.build_files is None


HEAD = "Limit                     Soft Limit           Hard Limit           Units     \n"


def limits(data: str = "unlimited", space: str = "unlimited") -> TextRoot:
    """/proc/self/limits as the kernel prints it."""
    text = (
        f"{HEAD}Max data size             {data:<20} unlimited            bytes     \n"
        f"Max resident set          1048576              1048576              bytes     \n"
        f"Max address space         {space:<20} unlimited            bytes     \n"
    )
    return TextRoot({"/proc/self/limits": text})


def test_unlimited_processes_have_no_caps() -> None:
    """RLIMIT_RSS is set in the fixture and has no effect on Linux: it is not one."""
    assert process_caps(limits()) == ()


@pytest.mark.trap(38)
def test_caps_are_named_and_in_mib() -> None:
    """They are per process, and no level of memory."""
    caps = process_caps(limits(data=str(2 * GIB), space=str(GIB)))
    assert [(cap.name, cap.limit_mib) for cap in caps] == [("RLIMIT_DATA", 2048), ("RLIMIT_AS", 1024)]


@pytest.mark.parametrize("text", [None, "", "Max address space", "Max address space  lots many bytes", "\x00\n"])
def test_odd_files_are_no_caps(text: str | None) -> None:
    """Nor an error."""
    assert process_caps(TextRoot({"/proc/self/limits": text})) == ()
