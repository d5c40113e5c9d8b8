"""Processes that are stopped, left behind, or no longer who they were: nothing stays, and nobody else is hit."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from builddoctor.core.events import Kill, PhaseEnded, PhaseStarted, Status
from builddoctor.gates import guardian_program
from builddoctor.gates.guardian import Guardian
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = pytest.mark.machines("v2", "next")

MIB = 1024**2
GONE_WITHIN_S = 20.0


def started(program: Program, process: subprocess.Popen[str], phase_id: int = 1) -> psutil.Process:
    """The tool of a phase, once it runs."""
    record = program.await_record(PhaseStarted, process, phase_id=phase_id)
    assert isinstance(record, PhaseStarted)
    return psutil.Process(record.pid)


def with_all_below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """A running builddoctor and everything that it started."""
    itself = psutil.Process(process.pid)
    return [itself, *itself.children(recursive=True)]


def leave_free(group: MemoryCgroup, free_mib: int) -> None:
    """Put the limit this much above what cannot be given back."""
    names = ("inactive_file", "active_file")
    cache_mib = sum(group.stat_mib(f"total_{name}", name) for name in names)
    group.limit(int(group.used_mib - cache_mib + free_mib) * MIB)


@pytest.mark.needs_memcg
@pytest.mark.trap(31)
def test_a_stopped_tool_that_has_to_go_is_gone_at_once(program: Program) -> None:
    """Stopped, it would hear of SIGTERM when it goes on, which is never: it is ended without.

    It grows slowly and is stopped before memory is short: growth alone would end it, too, and earlier.
    """
    done = program.folder / "done"
    stand_in(program, f"exec {HOG} 40 0 {done}", name="clang")
    stand_in(program, f"[ -e second ] && exit 0; touch second; exec {HOG} 900 300 {done}")
    script = "clang -c old.cpp & while [ ! -e go ]; do sleep 0.05; done; clang++ -c young.cpp && wait"
    with memory_cgroup(4096 * MIB) as group:
        process = program.start(group.wrapped(program.supervised("sh", "-c", script, options=["--cores", "4"])))
        started(program, process)
        (program.folder / "go").touch()
        tool = started(program, process, phase_id=2)
        program.await_record(Status, process, ours_mib=lambda held_mib: held_mib >= 940)
        tool.suspend()
        leave_free(group, 16)
        program.await_record(Kill, process, phase_id=2)
        program.await_record(PhaseEnded, process, phase_id=2, outcome="killed-by-us")
        assert not tool.is_running()
        group.limit(4096 * MIB)
        done.touch()
        output, _ = process.communicate()
        assert group.kernel_kills == 0
    assert process.returncode == 0, output


@pytest.mark.trap(31)
@pytest.mark.parametrize("front", ["sh", "ninja"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_with_a_stopped_tool_leaves_nothing(
    program: Program, front: str, number: signal.Signals, code: int
) -> None:
    """Ctrl-C while a compiler is stopped: it ends like all others. ninja's edges are in groups of their own."""
    stand_in(program, "exec sleep 1000")
    (program.folder / "build.ninja").write_text("rule cc\n  command = clang++ -c $out.cpp\nbuild one: cc\n")
    command = ["ninja"] if front == "ninja" else ["sh", "-c", "clang++ -c one.cpp; exit 3"]
    process = program.start(program.supervised(*command))
    tool = started(program, process)
    tool.suspend()
    everything = with_all_below(process)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert psutil.wait_procs(everything, timeout=GONE_WITHIN_S)[1] == []


@pytest.mark.trap(31)
def test_a_signal_to_the_build_reaches_what_is_stopped_in_it(tmp_path: Path) -> None:
    """A stopped process goes on when the build is signalled, so that its end need not be forced."""
    guardian = Guardian(
        ["sh", "-c", "kill -STOP $$; exit 7"], env=os.environ, cwd=str(tmp_path), cleanup=tmp_path / "run"
    )
    (build,) = await_child(guardian.pid)
    while psutil.Process(build).status() != psutil.STATUS_STOPPED:
        assert select.select([guardian.fileno()], [], [], 0.02)[0] == []
    guardian.signal_build(signal.SIGTERM)
    while not guardian.ended:
        assert select.select([guardian.fileno()], [], [], GONE_WITHIN_S)[0], "it is still stopped"
        guardian.hear()
    guardian.close()
    assert guardian.status is not None
    assert os.WTERMSIG(guardian.status) == signal.SIGTERM


def await_child(pid: int) -> list[int]:
    """Children of a process, once it has one."""
    while not (children := psutil.Process(pid).children()):
        select.select([], [], [], 0.02)
    return [child.pid for child in children]


@pytest.fixture
def run_folders(program: Program) -> Iterator[Path]:
    """Where runs have their folders: short enough for a socket's path, however long that of the test is."""
    with tempfile.TemporaryDirectory(prefix="bd-") as name:
        program.env["XDG_RUNTIME_DIR"] = name
        yield Path(name)


@pytest.mark.trap(33)
@pytest.mark.parametrize("front", ["sh", "ninja"])
def test_death_of_the_supervisor_ends_what_is_stopped(program: Program, run_folders: Path, front: str) -> None:
    """kill -9 of builddoctor while a compiler is stopped: within seconds nothing of the build is there."""
    stand_in(program, "exec sleep 1000")
    (program.folder / "build.ninja").write_text("rule cc\n  command = clang++ -c $out.cpp\nbuild one two: cc\n")
    process = program.start(program.supervised(*(["ninja"] if front == "ninja" else ["sh", "-c", "clang++ -c a; :"])))
    started(program, process).suspend()
    everything = with_all_below(process)
    assert len(everything) >= 4
    assert list(run_folders.iterdir())
    process.kill()
    process.communicate()
    assert psutil.wait_procs(everything, timeout=GONE_WITHIN_S)[1] == []
    assert not list(run_folders.iterdir()), "the run's own folder is removed"


def test_what_is_left_where_all_were_killed_goes_with_the_next_build(program: Program, run_folders: Path) -> None:
    """As by the end of a job or a cgroup: nobody was left to remove it. A build that goes on keeps its own."""
    stand_in(program, "exec sleep 1000")
    process = program.start(program.supervised("sh", "-c", "clang++ -c a; :"))
    started(program, process)
    (folder,) = run_folders.iterdir()
    assert program.run("run", "--no-doctor", "--", "true").returncode == 0
    assert (folder / "socket").exists()
    for each in (everything := with_all_below(process)):
        # One may end by itself, as soon as the one before it is gone.
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    process.communicate()
    psutil.wait_procs(everything, timeout=GONE_WITHIN_S)
    assert (folder / "socket").exists()
    assert program.run("run", "--no-doctor", "--", "true").returncode == 0
    assert not list(run_folders.iterdir())


@pytest.mark.trap(34)
def test_death_of_ninja_leaves_no_compiler(program: Program) -> None:
    """kill -9 of ninja: its edges, each in a group of its own, become ours, are ended, and that is said."""
    stand_in(program, "exec sleep 1000")
    (program.folder / "build.ninja").write_text(
        "rule cc\n  command = clang++ -c $out.cpp\nbuild one: cc\nbuild two: cc\n"
    )
    process = program.start(program.supervised("ninja", options=["--cores", "4"]))
    tools = [started(program, process, phase_id) for phase_id in (1, 2)]
    everything = with_all_below(process)
    # Not the one that counts units at the start, which may still be there.
    (ninja,) = {above for tool in tools for above in tool.parents() if above.name() == "ninja"}
    assert ninja in everything
    assert ninja.pid not in {os.getpgid(tool.pid) for tool in tools}, "groups of their own: the trap"
    ninja.kill()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL, output
    assert psutil.wait_procs(everything, timeout=GONE_WITHIN_S)[1] == []
    assert "left behind" in output


REUSED = """
import asyncio, os, signal, time
from builddoctor.core.phase import Phase, PhaseKind
from builddoctor.system.process import Processes
from builddoctor.system.root import SystemRoot
from builddoctor.runtime.phases import LivePhase

PID = 100


def fork_as(pid, run):
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(pid - 1))
    child = os.fork()
    if child == 0:
        run()
        os._exit(0)
    assert child == pid, (child, pid)
    return child


def rest():
    time.sleep(1000)


def rest_with_a_child():
    child = os.fork()
    if child == 0:
        rest()
    os.write(writer, str(child).encode())
    rest()


def alive(pid):
    with open("/proc/%d/stat" % pid) as stat:
        return stat.read().rpartition(")")[2].split()[0] not in "ZX"


async def main():
    processes = Processes(SystemRoot())
    phase = Phase(phase_id=1, unit_id="", kind=PhaseKind.LINK, source="")
    live = LivePhase(phase, gate_pid=os.getpid(), trusted=True)
    tool = fork_as(PID, rest)
    live.tool_started(tool, SystemRoot(), processes, 4096)
    began = processes.start_ticks(tool)
    os.kill(tool, signal.SIGKILL)
    os.waitpid(tool, 0)
    # Another tick of the clock, so that another start time.
    time.sleep(0.05)
    other = fork_as(PID, rest_with_a_child)
    grandchild = int(os.read(reader, 16))
    assert processes.start_ticks(other) != began
    print("killed" if live.kill(processes) else "not ours", flush=True)
    time.sleep(0.05)
    print(alive(other), alive(grandchild))


reader, writer = os.pipe()
asyncio.run(main())
"""


@pytest.mark.needs_memcg
@pytest.mark.trap(20)
def test_a_process_that_got_a_dead_tools_number_lives_on(tmp_path: Path) -> None:
    """For real, in a pid namespace where the kernel is told which pid comes next: neither it nor its child is hit."""
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-c", REUSED],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "not ours\nTrue True\n", done.stderr


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_what_was_ignored_before_is_ignored(program: Program, number: signal.Signals) -> None:
    """`nohup builddoctor … &`, and the shell's window is closed; a script's `&` does so with Ctrl-C."""
    done = program.folder / "done"
    stand_in(program, f"exec {HOG} 10 100 {done}")
    argv = program.supervised("clang++", "-c", "a.cpp", options=["--no-doctor"])
    ignoring = ["sh", "-c", f'trap "" {number.name[3:]}; exec "$@"', "sh"]
    process = program.start([*ignoring, *argv])
    program.await_record(PhaseStarted, process)
    process.send_signal(number)
    last_s = max((each.at_s for each in program.records() if isinstance(each, Status)), default=0.0)
    # Heard, if at all, before the second tick from here.
    program.await_record(Status, process, at_s=lambda at_s: at_s > last_s + 1.5)
    done.touch()
    output, _ = process.communicate()
    assert process.returncode == 0, output


AS_NOBODY = """
import os, runpy, sys
guardian = runpy.run_path(sys.argv[1])
os.setgid(65534)
os.setuid(65534)
guardian["main"](sys.argv[1:])
"""


@pytest.mark.needs_unshare
def test_a_build_that_became_another_users_is_gone_without() -> None:
    """`builddoctor run -- sudo make`, and Ctrl-C: who cannot be ended is not waited for, nor counted as ended."""
    folder = Path(tempfile.mkdtemp())
    ours, theirs = socket.socketpair()
    ours.settimeout(GONE_WITHIN_S)
    try:
        folder.chmod(0o755)
        sudo = shutil.copy("/usr/bin/setpriv", folder / "sudo")
        os.chmod(sudo, 0o4755)
        guardian = [sys.executable, "-c", AS_NOBODY, guardian_program.__file__, str(theirs.fileno()), str(folder), "--"]
        build = [sudo, "--reuid", "0", "--regid", "0", "--clear-groups", "sh", "-c", "echo $$; exec sleep 1000"]
        process = subprocess.Popen(
            [*guardian, *build],
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            text=True,
        )
        theirs.close()
        assert process.stdout is not None
        sleeping = psutil.Process(int(process.stdout.readline()))
        try:
            assert sleeping.uids().real == 0
            ours.send(bytes([guardian_program.END_ALL]))
            said = b""
            while piece := ours.recv(1000):
                said += piece
            assert said.decode().splitlines() == ["left 0", f"status {signal.SIGKILL.value}"]
            assert process.wait() == 0
            assert sleeping.is_running()
        finally:
            sleeping.kill()
            process.stdout.close()
    finally:
        ours.close()
        shutil.rmtree(folder)
