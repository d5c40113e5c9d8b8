"""Phases that stand still while memory is short: real processes in a real limit, all of which complete; none is left
stopped."""

from __future__ import annotations

import signal
import subprocess

import psutil
import pytest

from builddoctor.core.events import PhaseEnded, Requeue, Resume, Status, Suspend
from builddoctor.core.units import MIB
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program
from support.replaying import StandIns

pytestmark = [pytest.mark.needs_memcg, pytest.mark.machines("v2", "next")]

GO_MIB, EACH_MIB, GROWS_S = 100, 400, 8
"""Each phase holds the first, until it may grow to the second in this time."""

ROOM_MIB = 420
"""For both together to grow by: less than they want, more than one does."""

GONE_WITHIN_S = 20.0
BOTH = "nvcc -c one.cu -o one.o & one=$!; nvcc -c two.cu -o two.o && wait $one"


def begun(program: Program, group: MemoryCgroup, *, ends: bool = True) -> subprocess.Popen[str]:
    """A build of two phases whose sizes an earlier one showed, in a limit that allows both as they begin, and then one
    after the other. ``ends``: or wait for ever where they have grown."""
    stand_ins = StandIns(program.folder)
    program.env["PATH"] = f"{stand_ins.path}:{program.env['PATH']}"
    options = ["--cores", "4", "--no-doctor", "--toolkit", str(stand_ins.toolkit)]
    for name in ("one", "two"):
        last = "" if ends else "until never\n"
        grows = f"to {1000 * GROWS_S} {1024 * EACH_MIB}\n"
        (program.folder / f"{name}.ii").write_text(f"to 0 {1024 * GO_MIB}\nonce {name}\nuntil go\n{grows}{last}")
        (program.folder / f"{name}.cu").write_text(f"cicc --orig_src_path_name {name}.cu -o {name}.out {name}.ii\n")
    (program.folder / "go").touch()
    (program.folder / "never").touch()
    known = program.supervised("sh", "-c", BOTH, options=options)
    assert group.run(known, cwd=program.folder, env=program.env).returncode == 0
    program.trace_file.unlink()
    for name in ("go", "never", "one", "two"):
        (program.folder / name).unlink()
    process = program.start(group.wrapped(program.supervised("sh", "-c", BOTH, options=options)))
    program.await_record(Status, process, ours_mib=lambda held_mib: held_mib >= 2 * GO_MIB)
    cache_mib = sum(group.stat_mib(f"total_{name}", name) for name in ("inactive_file", "active_file"))
    group.limit(int(group.used_mib - cache_mib + ROOM_MIB) * MIB)
    (program.folder / "go").touch()
    return process


@pytest.mark.slow
def test_one_stands_still_until_the_other_has_ended(program: Program) -> None:
    """Together they would need more than there is. Neither is ended, by the kernel or by us, and no work is lost."""
    with memory_cgroup(4096 * MIB) as group:
        process = begun(program, group)
        output, _ = process.communicate()
        assert process.returncode == 0, output
        assert group.kernel_kills == 0, output
    records = program.records()
    stood = [each for each in records if isinstance(each, Suspend)]
    gone_on = [each for each in records if isinstance(each, Resume)]
    assert stood, output
    assert len(gone_on) == len(stood)
    assert not [each for each in records if isinstance(each, Requeue)]
    ended = {each.phase_id: each for each in records if isinstance(each, PhaseEnded)}
    longest = max(gone_on, key=lambda each: each.stood_s)
    assert longest.stood_s >= 1
    # What it took is what it worked: the next build does not expect it to stand.
    took_s = [each.wall_s for each in ended.values()]
    assert max(took_s) < min(took_s) + longest.stood_s
    assert "stops" in output
    assert "for a while" in output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_stopped(program: Program, number: signal.Signals) -> None:
    """Ctrl-C, or the death of the supervisor, while a phase stands still: all ends."""
    with memory_cgroup(4096 * MIB) as group:
        process = begun(program, group, ends=False)
        program.await_record(Suspend, process)
        itself = psutil.Process(process.pid)
        everything = [itself, *itself.children(recursive=True)]
        process.send_signal(number)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == (130 if number is signal.SIGINT else -signal.SIGKILL), output
        assert psutil.wait_procs(everything, timeout=GONE_WITHIN_S)[1] == []
