"""Failures of builds, made for real: full disks, memory taken at once, and what builddoctor then says of them.

Covers: file systems of a fixed size in a mount namespace of the build's own, which are gone with its last process;
the three places where a verdict is told (the last words on stderr, ``--summary``, ``trace show --json``).
Does *not* cover: memory cgroups (``support.memcg``) or stand-ins for compilers (``support.stand_ins``).
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from builddoctor.core.events import PhaseEnded
from builddoctor.core.verdict import Fix
from support.memcg import MemoryCgroup
from support.program import Program

AT_ONCE = f"{sys.executable} -IS {Path(__file__).with_name('at_once.py')}"
"""``AT_ONCE MIB``: so much memory in one step of the kernel's, faster than anybody can look"""

LOOPS = Path("/sys/block")

# The namespace, and with it the mount and the loop device, lives as long as the command.
IN_NAMESPACE = 'mount $1 "$2" "$3"; shift 3; exec "$@"'


def on_disk(folder: Path, command: Sequence[str], *, kib: int, inodes: int | None = None) -> list[str]:
    """``command``, with a disk of that size at ``folder``: ext4 in a file, on a loop device."""
    image = folder.with_name(f"{folder.name}.img")
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(kib << 10)
    few = [] if inodes is None else ["-N", str(inodes)]
    make = ["mkfs.ext4", "-q", "-F", "-b", "1024", "-m", "0", "-O", "^has_journal,^resize_inode", *few, str(image)]
    subprocess.run(make, check=True, capture_output=True)
    return _mounted("-oloop", str(image), folder, command)


def on_tmpfs(folder: Path, command: Sequence[str], *, mib: int) -> list[str]:
    """``command``, with a tmpfs of that size at ``folder``."""
    folder.mkdir()
    return _mounted(f"-ttmpfs -osize={mib}m", "none", folder, command)


def _mounted(options: str, what: str, folder: Path, command: Sequence[str]) -> list[str]:
    space = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", IN_NAMESPACE, "sh"]
    return [*space, options, what, str(folder), *command]


def with_bash_as_sh(command: Sequence[str]) -> list[str]:
    """``command``, where /bin/sh is bash: nvcc's steps then die without the shell's ``Killed``."""
    script = 'mount --bind "$(command -v bash)" /bin/sh && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "bash", "-euc", script, "sh", *command]


@contextlib.contextmanager
def going(program: Program, command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A build that goes on while a test does something to it; ended if the test fails before it does."""
    with program.start(command) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()


def loops_left(folder: Path) -> list[str]:
    """Loop devices that still hold a file below ``folder``; the kernel needs a moment to let go of one."""
    deadline = time.monotonic() + 60
    while (left := _loops(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def _loops(folder: Path) -> list[str]:
    left = []
    for backing in LOOPS.glob("loop*/loop/backing_file"):
        try:
            if backing.read_text().startswith(f"{folder}/"):
                left.append(backing.parts[3])
        except OSError:
            continue  # it went meanwhile
    return left


def mounts_left(folder: Path) -> list[str]:
    """What is mounted below ``folder`` where everybody sees it."""
    fields = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [field[4] for field in fields if field[4].startswith(f"{folder}/")]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What builddoctor says of a build."""

    returncode: int
    output: str
    """of the build and builddoctor, stdout first"""
    words: str
    """its last words on stderr, in one line"""
    verdict: str | None
    confidence: str
    died: str
    why: str
    cause: str
    evidence: list[str]
    fixes: list[Fix]
    summary: dict[str, Any]
    ends: list[tuple[str, str]]
    """(outcome, cause) of all runs of phases, in order"""

    @property
    def printed(self) -> str:
        """What the build itself printed: a log without builddoctor's own lines."""
        lines = self.output.partition("\n✗ ")[0].splitlines()
        return "".join(f"{line}\n" for line in lines if not (line.startswith("[") and line[2:3] == ":"))

    @property
    def grounds(self) -> str:
        """All evidence in one text."""
        return "\n".join(self.evidence)

    @property
    def advice(self) -> str:
        """All fixes in one text."""
        return "\n".join(f"{fix.text} {fix.command}" for fix in self.fixes)


def run(program: Program, command: Sequence[str], *, group: MemoryCgroup | None = None) -> Told:
    """Run builddoctor to its end and gather what it says; the three places must agree."""
    argv = list(command) if group is None else group.wrapped(command)
    done = subprocess.run(
        argv, cwd=program.folder, env=program.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return told(program, done.returncode, done.stdout, done.stderr)


def told(program: Program, returncode: int, stdout: str, stderr: str) -> Told:
    """What was said of a build that ended."""
    assert program.summary_file.exists(), stderr
    shown = program.run("trace", "show", str(program.trace_file), "--json")
    assert shown.returncode == 0, shown.stderr
    answer = json.loads(shown.stdout)
    summary = program.summary()
    return Told(
        returncode=returncode,
        output=f"{stdout}{stderr}",
        words=" ".join(stderr.split()),
        verdict=answer["verdict"],
        confidence=answer["confidence"],
        died=answer["died"],
        why=answer["why"],
        cause=answer.get("cause", ""),
        evidence=answer["evidence"],
        fixes=[msgspec.convert(fix, Fix) for fix in answer["fixes"]],
        summary=summary,
        ends=phase_ends(program),
    )


def phase_ends(program: Program) -> list[tuple[str, str]]:
    """(outcome, cause) of all runs of phases, in order; an empty cause where no SIGKILL came from elsewhere."""
    ended = [each for each in program.records() if isinstance(each, PhaseEnded)]
    return [(each.outcome.value, each.cause.value if each.cause is not None else "") for each in ended]


def explained(program: Program, log: str) -> dict[str, object]:
    """What ``builddoctor explain`` makes of a log alone."""
    file = program.folder / "build.log"
    file.write_text(log)
    done = program.run("explain", str(file), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer
