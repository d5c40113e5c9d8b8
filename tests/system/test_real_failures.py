"""Builds that fail for memory, made for real, and what is said of them: the verdict, and what it rests on.

Other failures are in ``test_real_failures_by_others``.

No nvcc is needed: gcc, scripts in the place of compilers, memory cgroups, disks in files. Each test makes the failure
with the kernel's or the compiler's own means; what looks strange about it is said there.
"""

from __future__ import annotations

import signal
import subprocess

import pytest

from builddoctor.core.events import PhaseEnded, PhaseStarted, Requeue, Status
from support.failures import AT_ONCE, Told, going, on_tmpfs, run, told
from support.fake_toolkit import fake_toolkit
from support.memcg import MemoryCgroup, here, memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = [pytest.mark.slow, pytest.mark.machines("v2", "next")]

MIB = 1024**2
COMPILE = ("clang++", "-c", "one.cpp")

SCRIPTED = """
import os, sys
os.execv("/bin/sh", ["/bin/sh", "-c", {script!r}, *sys.argv])
"""
"""A tool of a fake toolkit that is a shell script; $2 is the unit."""


def advises_fewer_jobs(said: Told) -> bool:
    return any(words in said.advice for words in ("MAX_JOBS", "--cores", "-j", "fewer jobs"))


# -- the kernel, for memory --------------------------------------------------------------------------------------


def two_hogs(group: MemoryCgroup, program: Program) -> list[subprocess.Popen[bytes]]:
    """Beside ours; each smaller than the phase of 250 MiB, so that the kernel takes that. They end at ``done``."""
    words = ["/bin/sh", "-c", f"exec {HOG} 150 0 done"]
    return [subprocess.Popen(group.wrapped(words), cwd=program.folder) for _ in range(2)]


@pytest.mark.needs_memcg
def test_a_lone_phase_that_the_kernel_kills_is_too_big(program: Program) -> None:
    """2 GiB at once in 400 MiB, nobody beside it: it does not fit, fewer jobs cannot help, and the counter is named."""
    stand_in(program, f"exec {AT_ONCE} 2000")
    with memory_cgroup(400 * MIB) as group:
        said = run(program, program.supervised(*COMPILE), group=group)
        assert group.kernel_kills >= 1
    assert (said.verdict, said.confidence) == ("too-big", "high")
    assert said.summary["verdict"] == "too-big"
    assert set(said.ends) == {("killed-by-kernel", "cgroup")}
    assert "host code of one.cpp, killed by the kernel" in said.died
    assert "Fewer jobs cannot help" in said.why
    assert "kernel kills 1" in said.grounds
    assert not advises_fewer_jobs(said)
    assert "Fewer jobs cannot help" in said.words


@pytest.mark.needs_memcg
def test_a_phase_that_the_kernel_kills_in_company_is_redone_and_named(program: Program) -> None:
    """Two fit one after the other only: the kernel kills the larger, it runs again alone, the build goes well.

    builddoctor would be first; it is held still for the moment, as on a machine where everything waits for memory.
    """
    script = f"case $2 in big.cu) exec {AT_ONCE} 480 go;; *) exec {HOG} 150 300 done;; esac"
    toolkit = fake_toolkit(program.folder / "cuda", SCRIPTED.format(script=script))
    both = "nvcc -c small.cu & first=$!; nvcc -c big.cu & wait $! && wait $first"
    options = ["--cores", "4", "--no-doctor", "--toolkit", str(toolkit)]
    with memory_cgroup(600 * MIB) as group:
        command = group.wrapped(program.supervised("sh", "-c", both, options=options))
        with going(program, command) as process:
            program.await_record(PhaseStarted, process, phase_id=2)
            program.await_record(Status, process, ours_mib=lambda ours_mib: ours_mib >= 150)
            process.send_signal(signal.SIGSTOP)
            (program.folder / "go").touch()
            while group.kernel_kills == 0 or group.used_mib > 300:
                assert process.poll() is None
            process.send_signal(signal.SIGCONT)
            program.await_record(PhaseEnded, process, outcome="killed-by-kernel")
            (program.folder / "done").touch()
            output, _ = process.communicate()
        assert group.kernel_kills == 1
    said = told(program, process.returncode, "", output)
    assert (said.returncode, said.verdict, said.summary["result"]) == (0, None, "ok"), output
    assert (said.summary["kernel_oom_kills"], said.summary["requeued"]) == (1, 1)
    assert sorted(said.ends) == [("killed-by-kernel", "cgroup"), ("ok", ""), ("ok", "")]
    (redone,) = [record for record in program.records() if isinstance(record, Requeue)]
    (killed,) = [each for each in program.records() if isinstance(each, PhaseEnded) and each.outcome != "ok"]
    assert redone.phase_id == killed.phase_id
    assert "big.cu: ended by the kernel" in said.words


@pytest.mark.needs_memcg
@pytest.mark.trap(21)
def test_a_parents_limit_that_a_sibling_fills_is_the_parents(program: Program) -> None:
    """The group above holds 600 MiB for two; the neighbour takes the rest of it at once, and our phase is killed.

    v1 counts the kill in our own group, whose own limit was never reached: nothing of the build is too big.
    """
    stand_in(program, f"exec {HOG} 250 0 done")
    with (
        memory_cgroup(600 * MIB) as parent,
        memory_cgroup(2**62, parent=parent.folder) as ours,
        memory_cgroup(2**62, parent=parent.folder) as sibling,
    ):
        with going(program, ours.wrapped(program.supervised(*COMPILE))) as process:
            program.await_record(Status, process, ours_mib=lambda ours_mib: ours_mib >= 250)
            neighbours = two_hogs(sibling, program)
            output, _ = process.communicate()
            (program.folder / "done").touch()
            assert [each.wait() for each in neighbours] == [0, 0]
        assert ours.kernel_kills >= 1
        assert (parent.kernel_kills, sibling.kernel_kills) == (0, 0)
        name = parent.folder.name
    said = told(program, process.returncode, "", output)
    assert said.verdict == "cgroup-parent", output
    assert said.summary["verdict"] == "cgroup-parent"
    assert set(said.ends) == {("killed-by-kernel", "cgroup")}
    assert name in said.grounds
    assert "does not fit" not in said.words


@pytest.mark.needs_memcg
@pytest.mark.needs_unshare
@pytest.mark.trap(21)
def test_a_parents_limit_that_cannot_be_seen_is_not_the_phases_fault(program: Program) -> None:
    """The same in a container, which shows its own group alone: 4 GiB of limit, a phase of 250 MiB, and a kernel kill.

    No limit that can be seen was reached, so it was one above. Memory of others cannot be seen either.
    """
    stand_in(program, f"exec {HOG} 250 0 done")
    with (
        memory_cgroup(600 * MIB) as parent,
        memory_cgroup(4096 * MIB, parent=parent.folder) as ours,
        memory_cgroup(4096 * MIB, parent=parent.folder) as sibling,
    ):
        script = f'mount --bind "{ours.folder}" {here().root} && exec "$@"'
        inside = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", script, "sh"]
        with going(program, ours.wrapped([*inside, *program.supervised(*COMPILE)])) as process:
            program.await_record(Status, process, ours_mib=lambda ours_mib: ours_mib >= 250)
            neighbours = two_hogs(sibling, program)
            output, _ = process.communicate()
            (program.folder / "done").touch()
            assert [each.wait() for each in neighbours] == [0, 0]
        assert ours.kernel_kills >= 1
        assert (parent.kernel_kills, sibling.kernel_kills) == (0, 0)
    said = told(program, process.returncode, "", output)
    assert said.verdict == "cgroup-parent", output
    assert "does not fit" not in said.words


@pytest.mark.needs_memcg
def test_what_no_gate_stood_before_and_ran_in_company(program: Program) -> None:
    """Two programs that are no compilers by their name hold 330 MiB each of 500: the kernel kills one, and that fails
    the build. builddoctor, which would stop one of them in time, is held still."""
    tool = stand_in(program, f": > begun.$$; exec {AT_ONCE} 330 go done", name="codegen")
    both = f"{tool} & first=$!; {tool}; second=$?; wait $first && exit $second"
    with memory_cgroup(500 * MIB) as group:
        with going(program, group.wrapped(program.supervised("sh", "-c", both))) as process:
            while len(list(program.folder.glob("begun.*"))) < 2:
                assert process.poll() is None
            process.send_signal(signal.SIGSTOP)
            (program.folder / "go").touch()
            while group.kernel_kills == 0:
                assert process.poll() is None
            (program.folder / "done").touch()
            process.send_signal(signal.SIGCONT)
            output, _ = process.communicate()
        assert group.kernel_kills == 1
    said = told(program, process.returncode, "", output)
    assert said.returncode == 137
    assert said.verdict in ("parallel", "unknown"), output
    assert said.confidence in ("medium", "low")
    assert "kernel" in said.why
    assert "memory" in said.why


@pytest.mark.needs_memcg
def test_what_no_gate_stood_before_and_does_not_fit_alone(program: Program) -> None:
    """A lone program that is no compiler wants 2 GiB in 400 MiB: nobody may say that there were too many at once."""
    tool = stand_in(program, f"exec {AT_ONCE} 2000", name="codegen")
    with memory_cgroup(400 * MIB) as group:
        said = run(program, program.supervised(str(tool)), group=group)
        assert group.kernel_kills == 1
    assert said.returncode == 137
    assert said.verdict in ("too-big", "unknown"), said.output
    assert "kernel" in said.why
    assert "memory" in said.why
    assert not advises_fewer_jobs(said)


@pytest.mark.needs_memcg
@pytest.mark.trap(10)
def test_a_tmpfs_that_takes_the_memory_is_named(program: Program) -> None:
    """300 of 500 MiB are files in TMPDIR, which is a tmpfs; a phase of 300 is killed: it is not the phase's fault."""
    stand_in(program, f"exec {AT_ONCE} 300")
    folder = program.folder / "tmp"
    program.env["TMPDIR"] = str(folder)
    script = 'dd if=/dev/zero of="$TMPDIR/precompiled" bs=1M count=300 2> /dev/null && exec clang++ -c one.cpp'
    with memory_cgroup(500 * MIB) as group:
        said = run(program, on_tmpfs(folder, program.supervised("sh", "-c", script), mib=400), group=group)
        assert group.kernel_kills >= 1
    assert said.verdict == "tmpfs", said.output
    assert said.summary["verdict"] == "tmpfs"
    assert str(folder) in said.grounds + said.why
    assert "TMPDIR" in said.fixes[0].text + said.fixes[0].command
    assert not said.fixes[0].changes_binary
