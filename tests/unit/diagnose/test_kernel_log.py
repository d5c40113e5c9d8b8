"""The kernel's own words about a kill: whose limit, who died, and who was large beside it."""

from __future__ import annotations

import pytest

from builddoctor.core.verdict import Diagnosis, Verdict
from builddoctor.core.word import Confidence
from builddoctor.diagnose.kernel_log import KernelLog, OomReport, is_compiler, judge_kernel
from builddoctor.diagnose.log_lines import Count, Quote

GROUP = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={limit},task_memcg={own},"
    "task={task},pid={pid},uid=0"
)
KILLED = (
    "Memory cgroup out of memory: Killed process {pid} ({task}) total-vm:{kib}kB, anon-rss:{kib}kB, file-rss:0kB, "
    "shmem-rss:0kB, UID:0 pgtables:5044kB oom_score_adj:0"
)
HEADER = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name"
HEADER_6_18 = (
    "[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name"
)


def row(pid: int, pages: int, name: str, *, newer: bool = False) -> str:
    more = f"{pages:8} {0:8} {0:9} " if newer else ""
    return f"[{pid:7}]  1000 {pid:5} {pages * 2:8} {pages:8} {more}{40960:13} {0:8} {0:13} {name}"


def read(*lines: str) -> list[OomReport]:
    log = KernelLog()
    for number, line in enumerate(lines, 1):
        log.feed(number, line)
    return log.reports


def judged(*lines: str, jobs: int | None = None) -> Diagnosis:
    asked = None if jobs is None else Count(value=jobs, quote=Quote(line=99, text=f"MAX_JOBS={jobs}"))
    told = judge_kernel(read(*lines), asked)
    assert told is not None
    return told[0]


def kill(
    *rows: str, pid: int = 7, task: str = "cicc", kib: int = 2_000_000, limit: str = "/job", own: str = "/job"
) -> list[str]:
    usage = "memory: usage 8388608kB, limit 8388608kB, failcnt 91"
    table = ["Tasks state (memory values in pages):", HEADER, *rows] if rows else []
    lines = ["cicc invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0", usage, *table]
    return [*lines, GROUP.format(limit=limit, own=own, task=task, pid=pid), KILLED.format(pid=pid, task=task, kib=kib)]


def test_a_kill_in_a_cgroup_is_read_whole() -> None:
    """Constraint, both groups, limit, victim with its size, the table in its order: each from its own line."""
    (report,) = read(*kill(row(7, 500_000, "cicc"), row(8, 900_000, "ptxas"), row(9, 10, "sh")))
    assert (report.constraint, report.scope, report.limit_group, report.limit_mib) == ("MEMCG", "group", "/job", 8192)
    assert (report.victim, report.pid, report.victim_mib) == ("cicc", 7, 2_000_000 / 1024)
    assert [task.name for task in report.tasks] == ["ptxas", "cicc", "sh"]
    assert (report.listed, report.listed_pages, report.compiler_pages) == (3, 1_400_010, 1_400_000)
    assert (report.line, report.constraint_line, report.tasks_line) == (9, 8, 4)


def test_a_machine_that_ran_out_is_told_from_a_group() -> None:
    """CONSTRAINT_NONE and global_oom: the whole machine's memory, whatever group the victim was in."""
    line = (
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,"
        "task_memcg=/user.slice/user-1000.slice,task=cc1plus,pid=11,uid=1000"
    )
    killed = "Out of memory: Killed process 11 (cc1plus) total-vm:3kB, anon-rss:900000kB, file-rss:4kB, shmem-rss:0kB"
    (report,) = read(line, killed)
    assert (report.scope, report.task_group) == ("host", "/user.slice/user-1000.slice")
    assert "the whole machine ran out of memory" in judged(line, killed).why


@pytest.mark.parametrize(
    ("limit", "own", "scope"),
    [
        ("/job", "/job", "group"),
        ("/job", "/job/step,1/task", "parent"),
        ("/kubepods/pod1", "/kubepods/pod1/c2", "parent"),
    ],
)
def test_the_limit_of_a_group_above_is_told_from_the_victims_own(limit: str, own: str, scope: str) -> None:
    """A group's name may hold a comma: only the next field's name ends it."""
    (report,) = read(*kill(limit=limit, own=own))
    assert (report.scope, report.limit_group, report.task_group) == (scope, limit, own)


@pytest.mark.parametrize(
    ("constraint", "word"), [("CONSTRAINT_CPUSET", "a cpuset"), ("CONSTRAINT_MEMORY_POLICY", "a memory policy")]
)
def test_some_nodes_only_is_a_verdict_of_its_own(constraint: str, word: str) -> None:
    """Other nodes may have been free: fewer jobs are the second thing to do, not the first."""
    groups = "nodemask=0,cpuset=/a,mems_allowed=0,global_oom,task_memcg=/a,task=cicc,pid=7,uid=0"
    line = f"oom-kill:constraint={constraint},{groups}"
    told = judged(line, "Out of memory: Killed process 7 (cicc) total-vm:9kB, anon-rss:800000kB, file-rss:0kB")
    assert (told.verdict, told.confidence) == (Verdict.NUMA_POLICY, Confidence.HIGH)
    assert word in told.why


def test_a_table_of_a_newer_kernel_is_read_by_its_header() -> None:
    """Linux 6.18 has three columns more, in the middle."""
    table = [HEADER_6_18, row(7, 500_000, "cicc", newer=True), row(8, 400_000, "my tool", newer=True)]
    (report,) = read(*table, KILLED.format(pid=7, task="cicc", kib=2_000_000))
    assert [(task.name, task.pages) for task in report.tasks] == [("cicc", 500_000), ("my tool", 400_000)]


def test_swapped_pages_count_as_held() -> None:
    """With swap the largest in memory need not be the largest."""
    swapped = "[      8]  1000     8  9000000     1000    40960   900000             0 cicc"
    (report,) = read(HEADER, row(7, 5000, "ptxas"), swapped, KILLED.format(pid=8, task="cicc", kib=4000))
    assert report.tasks[0].name == "cicc"
    assert report.tasks[0].pages == 901_000


@pytest.mark.parametrize(("kib_a_page", "said"), [(4, "4 KiB"), (64, "64 KiB")])
def test_size_of_a_page_comes_from_the_victims_own_two_sizes(kib_a_page: int, said: str) -> None:
    """The table is in pages, and Grace's have 64 KiB: the victim stands in the table and in the kill, in both units."""
    told = judged(*kill(row(7, 100_000, "cicc"), row(8, 90_000, "cicc"), kib=100_000 * kib_a_page))
    assert any(f"taken as {said}" in line for line in told.evidence)


def test_the_older_two_lines_of_a_kill_are_one() -> None:
    """Before Linux 5.0: who is chosen, then what was killed, perhaps a child of it; and the groups in a sentence."""
    chosen = "Memory cgroup out of memory: Kill process 7 (nvcc) score 900 or sacrifice child"
    killed = "Killed process 8 (cicc) total-vm:9000kB, anon-rss:800000kB, file-rss:0kB, shmem-rss:0kB"
    (report,) = read("Task in /a/b killed as a result of limit of /a", chosen, killed)
    assert (report.victim, report.pid, report.victim_mib, report.scope) == ("cicc", 8, 781.25, "parent")


@pytest.mark.parametrize("prefix", ["", "[12345.678901] ", "Dec 07 15:40:35 node kernel: ", "<4>[    1.000000] "])
def test_prefixes_do_not_matter(prefix: str) -> None:
    """dmesg, journalctl and a console put different things in front."""
    (report,) = read(*(prefix + line for line in kill(row(7, 500_000, "cicc"), row(8, 400_000, "cicc"))))
    assert (report.listed, report.victim) == (2, "cicc")


def test_other_lines_are_not_the_kernels() -> None:
    """Prose, other programs' kills, and a table of something else leave no report."""
    lines = ["Killed process 12 (make)", "out of memory, said the docs", "[ 12] 34 56 78", "shmem 4096", ""]
    assert read(*lines) == []
    assert judge_kernel([]) is None


# -- too many, too large, without end ----------------------------------------------------------------------------


def test_several_large_compilers_were_too_many() -> None:
    """Each would have fitted; the small ones beside them do not count."""
    rows = [row(pid, 500_000, "cicc") for pid in (7, 8, 9)]
    told = judged(*kill(*rows, row(10, 900, "sh"), row(11, 20_000, "ptxas")))
    assert (told.verdict, told.confidence) == (Verdict.PARALLEL, Confidence.HIGH)
    assert "3 large compilers held 5.7 GiB at once" in told.why
    assert told.died == "cicc (process 7), killed by the kernel at 1.9 GiB"


def test_one_large_compiler_does_not_fit() -> None:
    """No other large one ran: lowering MAX_JOBS is no way out, and is not one of those named."""
    told = judged(*kill(row(7, 2_000_000, "cicc"), row(8, 3000, "ptxas"), kib=8_000_000))
    assert (told.verdict, told.confidence) == (Verdict.TOO_BIG, Confidence.HIGH)
    assert "Lowering MAX_JOBS cannot help" in told.why


@pytest.mark.trap(36)
@pytest.mark.parametrize(("tool", "gib"), [("cudafe++", 61), ("cicc", 46)])
def test_one_far_beyond_what_it_needs_ran_away(tool: str, gib: int) -> None:
    """cudafe++ needs hundreds of MiB: 61 GiB of it are no size, but a fault of the compiler."""
    pages = gib * 1024 * 256
    told = judged(*kill(row(7, pages, tool), row(8, 9000, "cc1plus"), task=tool, kib=pages * 4))
    assert told.verdict == Verdict.RUNAWAY
    assert "grew without end" in told.why


@pytest.mark.trap(37)
def test_a_large_unit_of_cicc_did_not_run_away() -> None:
    """20 GiB with a plateau were seen: too big for its limit, and nothing worse."""
    pages = 20 * 1024 * 256
    assert judged(*kill(row(7, pages, "cicc"), kib=pages * 4)).verdict == Verdict.TOO_BIG


def test_what_others_took_is_not_blamed_on_compilers() -> None:
    """The victim is a compiler, the memory somebody else's: the group holds others too."""
    told = judged(*kill(row(7, 100_000, "cicc"), row(8, 1_900_000, "python3"), kib=400_000, own="/job/build"))
    assert (told.verdict, told.confidence) == (Verdict.CGROUP_PARENT, Confidence.HIGH)
    assert "python3 with 7.2 GiB" in told.why


def test_files_in_memory_are_told_from_processes() -> None:
    """shmem of the group: tmpfs takes of the limit, and no process holds it."""
    lines = kill(row(7, 100_000, "cicc"))
    lines.insert(2, "shmem 7516192768")
    assert judged(*lines).verdict == Verdict.TMPFS
    lines[2] = "Memory cgroup stats for /job: cache:7340032KB rss:400000KB shmem:7340032KB mapped_file:0KB"
    assert judged(*lines).verdict == Verdict.TMPFS


def test_a_kill_without_its_table_says_that_it_is_missing() -> None:
    """One line alone: the kernel killed it, how many ran is not in it; jobs asked for elsewhere decide."""
    line = KILLED.format(pid=7, task="cicc", kib=2_000_000)
    told = judged(line)
    assert (told.verdict, told.confidence) == (Verdict.PARALLEL, Confidence.MEDIUM)
    assert "does not say what else ran" in told.why
    assert judged(line, jobs=1).verdict == Verdict.TOO_BIG
    assert judged(line, KILLED.format(pid=8, task="cicc", kib=1)).confidence == Confidence.HIGH


def test_the_kill_of_a_build_counts_among_others() -> None:
    """A browser was killed first: the report with compilers in it is the one that explains a build."""
    told = judged(
        KILLED.format(pid=3, task="nautilus", kib=90_000), *kill(row(7, 500_000, "cicc"), row(8, 499_999, "cicc"))
    )
    assert told.died.startswith("cicc (process 7)")
    assert any("2 kills in this log" in line for line in told.evidence)


def test_a_group_that_dies_as_one_says_so() -> None:
    """memory.oom.group: every process of it is killed, whoever took the memory."""
    lines = kill(row(7, 500_000, "cicc"), row(8, 400_000, "cicc"))
    lines.insert(-1, "Tasks in /job are going to be killed due to memory.oom.group set")
    assert any("memory.oom.group" in line for line in judged(*lines).evidence)


@pytest.mark.parametrize(
    "name", ["cc1plus", "cicc", "x86_64-linux-g++", "clang++-17", "ld.lld", "lto1-wpa", "/usr/bin/ld"]
)
def test_programs_that_builds_start_are_compilers(name: str) -> None:
    """Whatever they are called on that machine."""
    assert is_compiler(name)


@pytest.mark.parametrize("name", ["python3", "nautilus", "ninja", "bash", "gnome-shell", "java", ""])
def test_others_are_not(name: str) -> None:
    """ninja and a shell hold no memory to speak of, and what else is large is somebody else's."""
    assert not is_compiler(name)
