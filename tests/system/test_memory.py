"""Memory for real: g++ in memory cgroups, kills by the kernel, by us and by others."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from builddoctor.core.events import GiveUp, Header, MemorySampled, PhaseAsked, PhaseEnded, PhaseStarted, Requeue, Status
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program

pytestmark = pytest.mark.machines("v2", "next")

MIB = 1024**2
EXAMPLE = Path(__file__).parents[2] / "examples" / "attention_kernels"


def big_unit(output: str = "planner.o") -> list[str]:
    """A compile whose cc1plus takes about 1.3 GiB."""
    flags = ["-std=c++17", "-O2", "-I", str(EXAMPLE / "include"), "-c", str(EXAMPLE / "src" / "planner.cpp")]
    return ["/usr/bin/g++", *flags, "-o", output]


def waiting_header(program: Program) -> Path:
    """What includes it waits until somebody writes it: a compile ends when the test says so."""
    path = program.folder / "waits.h"
    os.mkfifo(path)
    return path


def lower_to_use(group: MemoryCgroup) -> None:
    """Put the limit 4 MiB above what is used now; again where it grew faster than we wrote."""
    while True:
        try:
            group.limit(int(group.used_mib + 4) * MIB)
        except OSError:
            continue
        return


@pytest.mark.needs_memcg
def test_limit_of_an_ancestor_is_seen(program: Program) -> None:
    """The parent's limit binds, though the child group itself has none."""
    with memory_cgroup(700 * MIB) as parent, memory_cgroup(2**62, parent=parent.folder) as child:
        done = child.run(program.supervised("true"), env=program.env)
        assert done.returncode == 0, done.stderr
    header = program.records()[0]
    assert isinstance(header, Header)
    assert header.limit_mib == 700
    assert header.budget_mib < 700


@pytest.mark.needs_memcg
def test_page_cache_leaves_the_budget_whole(program: Program) -> None:
    """A group full of page cache has nearly all of its memory for the build."""
    big = program.folder / "big"
    with memory_cgroup(300 * MIB) as group:
        group.run(["dd", "if=/dev/zero", f"of={big}", "bs=1M", "count=600", "conv=fsync"])
        done = group.run(program.supervised("true"), env=program.env)
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    big.unlink()
    header = program.records()[0]
    assert isinstance(header, Header)
    assert header.budget_mib > 200


@pytest.mark.needs_memcg
def test_phase_killed_by_the_kernel_is_redone(program: Program) -> None:
    """The limit falls under a running compiler, the kernel kills it: it runs again, g++ never knows."""
    with memory_cgroup(3000 * MIB) as group:
        process = program.start(group.wrapped(program.supervised(*big_unit())))
        # Until it is larger than builddoctor, the kernel may take that.
        program.await_record(MemorySampled, process, rss_mib=lambda held: dict(held).get(1, 0.0) > 150)
        # Or it would run again, and into the same limit, before that is as it was.
        process.send_signal(signal.SIGSTOP)
        lower_to_use(group)
        while group.kernel_kills == 0:
            assert process.poll() is None, process.communicate()[0]
        group.limit(3000 * MIB)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate()
        assert process.returncode == 0, output
    assert (program.folder / "planner.o").exists()
    summary = program.summary()
    assert summary["kernel_oom_kills"] >= 1
    assert summary["requeued"] >= 1
    outcomes = [record.outcome for record in program.records() if isinstance(record, PhaseEnded)]
    assert outcomes[-1] == "ok"
    assert "killed-by-kernel" in outcomes
    assert "fatal error" not in output


@pytest.mark.needs_memcg
def test_phase_that_does_not_fit_alone_is_given_up_with_its_name(program: Program) -> None:
    """900 MiB cannot hold this unit: the build fails, and says which phase, how big, and that jobs cannot help."""
    with memory_cgroup(900 * MIB) as group:
        done = group.run(program.supervised(*big_unit()), env=program.env, cwd=program.folder)
        assert done.returncode != 0
    assert program.summary()["verdict"] == "too-big"
    gave_up = [record for record in program.records() if isinstance(record, GiveUp)]
    assert [record.verdict for record in gave_up] == ["too-big"]
    assert "planner.cpp" in done.stderr
    assert "Fewer jobs cannot help" in " ".join(done.stderr.split())


@pytest.mark.trap(23)
def test_phase_killed_by_somebody_is_redone_once(program: Program) -> None:
    """A stray kill -9 of cc1plus costs a retry, not the build; no counter rose, so it is not called out of memory."""
    waits = waiting_header(program)
    process = program.start(program.supervised(*big_unit(), "-include", str(waits)))
    started = program.await_record(PhaseStarted, process, phase_id=1)
    assert isinstance(started, PhaseStarted)
    os.kill(started.pid, signal.SIGKILL)
    program.await_record(PhaseEnded, process, outcome="killed-outside")
    waits.write_text("")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    outcomes = [record.outcome for record in program.records() if isinstance(record, PhaseEnded)]
    assert outcomes[:2] == ["killed-outside", "ok"]
    assert program.summary()["kernel_oom_kills"] == 0


def test_gcc_called_by_its_own_path_is_gated(program: Program) -> None:
    """No CXX, no PATH: cc1plus inside /usr/bin/g++ asks all the same, and so does the linker."""
    (program.folder / "one.cpp").write_text("#include <vector>\nint main() { return std::vector<int>(1)[0]; }\n")
    done = subprocess.run(
        program.supervised("/usr/bin/g++", "one.cpp", "-o", "one"),
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [record.phase.tool for record in program.records() if isinstance(record, PhaseAsked)] == [
        "cc1plus",
        "collect2",
    ]


def test_a_compile_from_a_pipe_is_not_redone_into_a_wrong_object(program: Program) -> None:
    """Killed while it reads stdin, a compile fails as it does without us: it never ends well with half a source."""
    source = waiting_header(program)
    process = program.start(program.supervised("sh", "-c", f"g++ -x c++ -c - -o piped.o < {source}"))
    with source.open("w") as writes:
        writes.write("int half() {")
        writes.flush()
        started = program.await_record(PhaseStarted, process, phase_id=1)
        assert isinstance(started, PhaseStarted)
        os.kill(started.pid, signal.SIGKILL)
        output, _ = process.communicate()
    assert process.returncode != 0, output
    assert program.summary()["requeued"] == 0
    assert program.summary()["verdict"] == "not-redoable"


def test_verbose_compiles_are_gated_too(program: Program) -> None:
    """`g++ -v -c` compiles, though its cc1plus is called with -version."""
    (program.folder / "one.cpp").write_text("int one() { return 1; }\n")
    command = program.supervised("g++", "-v", "-c", "one.cpp")
    assert (
        subprocess.run(command, cwd=program.folder, env=program.env, capture_output=True, check=False).returncode == 0
    )
    assert [record.phase.tool for record in program.records() if isinstance(record, PhaseAsked)] == ["cc1plus"]


def test_a_phase_beyond_the_users_own_limit_goes_on_and_is_said(program: Program) -> None:
    """--memory is kept by admission: a phase that alone needs more runs by itself, and the user is told."""
    command = program.supervised(*big_unit(), options=["--memory", "300MiB"])
    done = subprocess.run(command, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("alone holds more than the limit") == 1


def test_a_tool_whose_gate_died_does_not_run_on(program: Program) -> None:
    """kill -9 of a gate: its compiler, which nobody waits for any more, is ended and does not grow unseen."""
    header = waiting_header(program)
    script = " ".join([*big_unit(), "-include", str(header)]) + "; while [ ! -e seen ]; do sleep 0.1; done; exit 3"
    process = program.start(program.supervised("sh", "-c", script))
    started = program.await_record(PhaseStarted, process, phase_id=1)
    assert isinstance(started, PhaseStarted)
    tool = psutil.Process(started.pid)
    # Stopped, it cannot end by itself; and the build is still going on, so it is not the guardian that ends it.
    # It is the compiler once it reads: stopped before it became that, it would hold its gate's socket open.
    with header.open("w"):
        tool.suspend()
        os.kill(tool.ppid(), signal.SIGKILL)
        _, alive = psutil.wait_procs([tool], timeout=60)
    for left in alive:
        left.kill()
    (program.folder / "seen").touch()
    output, _ = process.communicate()
    assert process.returncode == 3, output
    assert alive == []
    (end,) = [record for record in program.records() if isinstance(record, PhaseEnded)]
    assert end.outcome == "withdrawn"


def test_a_tool_inside_a_phase_does_not_wait_for_it(program: Program) -> None:
    """g++ -flto on one core: lto1 runs inside the link's phase, and nobody waits for what he holds himself."""
    for name, text in (("a", "int b(); int main() { return b(); }\n"), ("b", "int b() { return 0; }\n")):
        (program.folder / f"{name}.cpp").write_text(text)
    done = subprocess.run(
        program.supervised("g++", "-flto", "-O2", "a.cpp", "b.cpp", "-o", "x", options=["--cores", "1"]),
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    tools = [record.phase.tool for record in program.records() if isinstance(record, PhaseAsked)]
    assert tools == ["cc1plus", "cc1plus", "collect2"]


def test_a_compile_error_is_the_builds_own(program: Program) -> None:
    """A source error runs once, with the compiler's exit code and words."""
    (program.folder / "bad.cpp").write_text("int main() { return nothing; }\n")
    done = subprocess.run(
        program.supervised("g++", "-c", "bad.cpp"),
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("bad.cpp:1:21: error: ") == 1
    assert not [record for record in program.records() if isinstance(record, Requeue)]
    assert program.summary()["verdict"] == "source"


def test_two_big_units_share_a_budget_that_holds_one(program: Program) -> None:
    """With --memory for one of them, two compilers do not grow big at once."""
    script = " & ".join(" ".join(big_unit(f"{name}.o")) for name in ("one", "two")) + " & wait"
    options = ["--memory", "1900MiB", "--cores", "8"]
    done = subprocess.run(
        program.supervised("sh", "-c", script, options=options),
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (program.folder / "one.o").exists()
    assert (program.folder / "two.o").exists()
    assert program.summary()["peak_mib"] < 1900
    assert max(record.ours_mib for record in program.records() if isinstance(record, Status)) < 1900
