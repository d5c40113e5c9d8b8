"""Who killed it, for real: kernel kills in memory cgroups, kills by hand, failures that only look like either."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseStarted, Status
from builddoctor.trace.state import BuildState
from builddoctor.trace.words import event_row
from support.failures import phase_ends
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = pytest.mark.machines("v2", "next")

MIB = 1024**2
EXAMPLE = Path(__file__).parents[2] / "examples" / "attention_kernels"


def kernel_kill_in(group: MemoryCgroup) -> None:
    """Let a hog run into a group's limit; the kernel takes it first of all that is in there."""
    first = f"echo 1000 > /proc/self/oom_score_adj; exec {HOG} 1024 0 /no/such/file"
    before = group.kernel_kills
    assert group.run(["/bin/sh", "-c", first]).returncode == -signal.SIGKILL
    assert group.kernel_kills == before + 1


def said(program: Program) -> str:
    """The lines of the build's screen, made of its trace again."""
    state = BuildState()
    happenings = [state.apply(record) for record in program.records()]
    rows = [event_row(each) for each in happenings if each is not None]
    return "\n".join(row.text for row in rows if row is not None)


def run(program: Program, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        program.supervised(*command), cwd=program.folder, env=program.env, capture_output=True, text=True, check=False
    )


def nothing_was_made_of_it(program: Program) -> bool:
    """No verdict of memory or of a kill for it, no kernel kill, nothing redone."""
    summary = program.summary()
    innocent = summary["verdict"] in (None, "unknown", "source", "toolchain", "rlimit", "external-kill")
    return innocent and (summary["kernel_oom_kills"], summary["requeued"]) == (0, 0)


def killed_by_hand(
    program: Program, group: MemoryCgroup, *, held_mib: int, elsewhere: MemoryCgroup | None = None
) -> None:
    """A tool that holds memory is killed with kill -9, after a kernel kill elsewhere; its second run ends well.

    So much that memory is not ample: counters must tell.
    """
    stand_in(program, f"[ -e second ] && exit 0; touch second; exec {HOG} {held_mib} 0 /no/such/file")
    process = program.start(group.wrapped(program.supervised("clang++", "-c", "one.cpp")))
    started = program.await_record(PhaseStarted, process, phase_id=1)
    assert isinstance(started, PhaseStarted)
    program.await_record(Status, process, ours_mib=lambda ours_mib: ours_mib >= held_mib)
    if elsewhere is not None:
        kernel_kill_in(elsewhere)
    os.kill(started.pid, signal.SIGKILL)
    output, _ = process.communicate()
    assert process.returncode == 0, output


@pytest.mark.needs_memcg
@pytest.mark.trap(21)
def test_a_kernel_kill_in_a_group_below_ours_is_seen(program: Program) -> None:
    """v1 counts it in the tool's own group and not in builddoctor's: it is the kernel's, and counted once."""
    stand_in(program, f"[ -e second ] && exit 0; touch second; exec {HOG} 1024 0 /no/such/file")
    with memory_cgroup(1024 * MIB) as parent, memory_cgroup(128 * MIB, parent=parent.folder) as child:
        done = parent.run(
            program.supervised(*child.wrapped(["clang++", "-c", "one.cpp"])), env=program.env, cwd=program.folder
        )
        assert (parent.kernel_kills, child.kernel_kills) == (0, 1)
    assert done.returncode == 0, done.stderr
    assert phase_ends(program) == [("killed-by-kernel", "cgroup"), ("ok", "")]
    assert program.summary()["kernel_oom_kills"] == 1
    assert "ended by the kernel at" in said(program)


@pytest.mark.needs_memcg
@pytest.mark.trap(24)
def test_a_kernel_kill_elsewhere_does_not_explain_a_kill_by_hand(program: Program) -> None:
    """The machine's counter rises for another container while somebody kills our tool: not out of memory."""
    with memory_cgroup(1024 * MIB) as group, memory_cgroup(64 * MIB) as other:
        killed_by_hand(program, group, held_mib=600, elsewhere=other)
        assert (group.kernel_kills, other.kernel_kills) == (0, 1)
    assert phase_ends(program) == [("killed-outside", "outside"), ("ok", "")]
    assert program.summary()["kernel_oom_kills"] == 0
    assert "ended by something else at" in said(program)


@pytest.mark.needs_memcg
@pytest.mark.trap(24)
def test_a_kernel_kill_elsewhere_does_not_explain_an_error(program: Program) -> None:
    """A tool fails by itself, and even speaks of a kill: its exit code passes through, without a verdict."""
    text = "clang++: error: unable to execute command: Killed"
    stand_in(program, f"while [ ! -e go ]; do sleep 0.05; done; echo '{text}' >&2; exit 1")
    with memory_cgroup(1024 * MIB) as group, memory_cgroup(64 * MIB) as other:
        process = program.start(group.wrapped(program.supervised("clang++", "-c", "one.cpp")))
        program.await_record(PhaseStarted, process, phase_id=1)
        kernel_kill_in(other)
        (program.folder / "go").touch()
        output, _ = process.communicate()
    assert process.returncode == 1
    assert text in output
    assert phase_ends(program) == [("failed", "")]
    assert nothing_was_made_of_it(program)


@pytest.mark.needs_memcg
@pytest.mark.trap(25)
def test_a_group_whose_limit_was_hit_a_thousand_times_killed_nobody(program: Program) -> None:
    """Page cache fails charges by the hundred; a tool that somebody kills there was not killed for memory."""
    big = program.folder / "big"
    with memory_cgroup(300 * MIB) as group:
        group.run(["dd", "if=/dev/zero", f"of={big}", "bs=1M", "count=600", "conv=fsync"])
        assert group.hits > 0
        killed_by_hand(program, group, held_mib=150)
        assert group.kernel_kills == 0
    big.unlink()
    assert phase_ends(program) == [("killed-outside", "outside"), ("ok", "")]
    assert program.summary()["kernel_oom_kills"] == 0


@pytest.mark.trap(22)
@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("clang++", 1, "clang++: fatal error: Killed signal terminated program cc1plus"),
        ("clang++", 4, "internal compiler error: Killed (program cc1plus)"),
        ("clang++", 9, "clang++: error: 'ld.lld' died due to signal 9 (Kill signal)"),
        ("clang++", 137, "Killed"),
        ("clang++", 139, "Segmentation fault"),
        ("clang++", 143, "Terminated"),
        ("clang++", 255, "LLVM ERROR: out of memory"),
        ("nvcc", 9, "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"),
        ("nvcc", 139, "nvcc error   : 'ptxas' died due to signal 11 (Invalid memory reference)"),
        ("nvcc", 255, ""),
        ("g++", 1, "g++: fatal error: Killed signal terminated program cc1plus"),
        ("g++", 4, "g++: internal compiler error: Killed (program cc1plus)"),
    ],
)
def test_exit_codes_and_texts_alone_are_no_evidence(program: Program, name: str, code: int, text: str) -> None:
    """A compiler that says it was killed: its words and its exit code pass through, and no verdict is made of them.

    clang++ is gated; nvcc and g++ are drivers called by their own path.
    """
    path = stand_in(program, f'echo "{text}" >&2; exit {code}', name=name)
    done = run(program, name if name == "clang++" else str(path), "-c", "one.cu")
    assert done.returncode == code
    assert text in done.stderr
    assert nothing_was_made_of_it(program)
    assert phase_ends(program) == ([("failed", "")] if name == "clang++" else [])


@pytest.mark.trap(22)
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM])
def test_a_crash_is_no_kill(program: Program, number: signal.Signals) -> None:
    """A compiler that dies of another signal than SIGKILL is not redone."""
    stand_in(program, f"ulimit -c 0; kill -{int(number)} $$")
    assert run(program, "clang++", "-c", "one.cpp").returncode == 128 + number
    assert phase_ends(program) == [("failed", "")]
    assert nothing_was_made_of_it(program)


@pytest.mark.trap(38)
def test_an_allocation_that_fails_is_no_kill(program: Program) -> None:
    """`ulimit -v`: malloc gives nothing, cc1plus says so and exits with 1. Nobody was killed, nothing is redone."""
    compile_it = f"g++ -std=c++17 -O2 -I {EXAMPLE}/include -c {EXAMPLE}/src/planner.cpp -o planner.o"
    done = run(program, "sh", "-c", f"ulimit -v 200000; {compile_it}")
    assert done.returncode == 1, done.stderr
    words = ("out of memory allocating", "virtual memory exhausted")
    assert any(text in done.stderr for text in words), "this is the trap: without it the test shows nothing"
    assert phase_ends(program) == [("failed", "")]
    assert nothing_was_made_of_it(program)


AS_NOBODY = """
import os
from builddoctor.runtime.kill_evidence import compare
from builddoctor.system.cgroup import find_place
from builddoctor.system.oom_evidence import read_evidence
from builddoctor.system.root import SystemRoot

os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
root = SystemRoot()
place = find_place(root)
before = [read_evidence(root, each, proven=True) for each in (place, None)]
try:
    os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    log = "readable"
except PermissionError:
    log = "forbidden"
print(log, flush=True)
input()
after = [read_evidence(root, each, proven=True) for each in (place, None)]
print(*[compare(*each).value for each in zip(before, after)])
"""


@pytest.mark.needs_memcg
@pytest.mark.trap(28)
def test_evidence_needs_no_privilege() -> None:
    """As nobody the kernel log is forbidden; the group's counter tells all the same, and so does /proc/vmstat alone."""
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "1"
    with memory_cgroup(256 * MIB) as group:
        command = group.wrapped([sys.executable, "-c", AS_NOBODY])
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sensor:
            assert sensor.stdout is not None
            assert sensor.stdout.readline() == ("forbidden\n" if restricted else "readable\n")
            kernel_kill_in(group)
            said, _ = sensor.communicate("\n")
    assert said == "cgroup host\n"
