"""Places where tools disagree on how much memory there is, made for real; for ``scripts/side_by_side``.

Covers: memory cgroups (v1, as root) of our own below the root group, all with a limit, named ``bd-side-PID-*``; mount
and cgroup namespaces; kernel files laid over the real ones. Everything is undone when the stack unwinds.
Does *not* cover: asking anybody there, or measuring.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from support.capabilities import CGROUP_V1
from unit.numa_trees import HBM_GIB, LPDDR_GIB, gb200_tray

PREFIX = f"bd-side-{os.getpid()}-"
SLURM_MIB = 4096
NOT_OF_THE_CASE = ("SLURM_", "LSB_", "PBS_", "KUBERNETES_")
"""What the caller's scheduler set, and would be taken for the case's own."""

HOLD = 'import sys; held = b"x" * (int(sys.argv[1]) << 20); print("ready", flush=True); sys.stdin.read()'

KEEP_TMPFS = """
mount -t tmpfs none "$1" || exit 1
(echo 0 > "$0/cgroup.procs" && exec dd if=/dev/zero of="$1/file" bs=1M count=200) || exit 1
echo ready
cat
"""
"""The mount namespace lives as long as this shell, which stays outside of the group."""

LAY_OVER = """
from=$0
while [ "$1" != -- ]; do
    case $1 in /proc/self/*) to=/proc/$$/${1#/proc/self/} ;; *) to=$1 ;; esac
    mount --bind "$from$1" "$to" || exit 1
    shift
done
shift
mount -t tmpfs none /sys/fs/cgroup && exec "$@"
"""
"""exec keeps the pid: what lies over /proc/$$ is /proc/self of the one who asks."""


class CannotMakeError(Exception):
    """This case cannot be made here; the text says why."""


@dataclass
class Place:
    """A case that stands: how to get into it, and what is known of it."""

    group: Path | None = None
    limit_mib: int = 0
    """no process in ``group`` gets more; 0: nothing holds it, so nothing may be measured"""
    inside: tuple[str, ...] = ()
    """a command that runs another one where the case is"""
    env: Mapping[str, str] = field(default_factory=dict)
    reference_mib: float = 0.0
    """what is right where nothing is measured, and what that figure is"""
    reference: str = ""

    def wrapped(self, argv: Sequence[str]) -> list[str]:
        """A command that enters the case before it becomes ``argv``."""
        command = [*self.inside, *argv]
        if self.group is None:
            return command
        return ["/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.group), *command]

    def run(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_OF_THE_CASE)}
        env = {**kept, **self.env, "LC_ALL": "C"}
        command = self.wrapped(argv)
        return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@dataclass
class Case:
    """One case: ``make`` enters all that it needs into the stack, or raises CannotMakeError."""

    number: int
    title: str
    why: str
    make: Callable[[contextlib.ExitStack], Place]


@contextlib.contextmanager
def group(name: str, limit_mib: int | None, parent: Path | None = None) -> Iterator[Path]:
    """A memory cgroup of our own. One without a limit needs a parent, which has one."""
    if os.geteuid() != 0 or not (CGROUP_V1 / "memory.limit_in_bytes").exists():
        raise CannotMakeError("needs root and memory cgroups (v1)")
    folder = CGROUP_V1 / f"{PREFIX}{name}" if parent is None else parent / name
    try:
        folder.mkdir()
    except OSError as error:
        raise CannotMakeError(f"cannot make a memory cgroup: {error.strerror}") from error
    try:
        # With swap, a process could take more than its group may hold.
        (folder / "memory.swappiness").write_text("0")
        if limit_mib is not None:
            (folder / "memory.limit_in_bytes").write_text(str(limit_mib << 20))
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """Kill what is in a group of ours and remove it; the kernel needs a moment to let go of the dead."""
    deadline = time.monotonic() + 20
    while folder.is_dir():
        with contextlib.suppress(OSError):
            for word in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(word), signal.SIGKILL)
            folder.rmdir()
        if time.monotonic() > deadline:
            sys.stderr.write(f"cannot remove {folder}\n")
            return
        time.sleep(0.02)


def remove_all() -> None:
    """Whatever a signal in the middle of cleaning up has left."""
    for folder in sorted(CGROUP_V1.glob(f"{PREFIX}*/**/"), reverse=True):
        remove(folder)


@contextlib.contextmanager
def running(argv: Sequence[str]) -> Iterator[None]:
    """A process that says it is ready, and ends when its input does: also when we are killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise CannotMakeError(_last_line(process.communicate()[1]))
            yield
            process.communicate()
        finally:
            process.kill()


def scratch(stack: contextlib.ExitStack, parent: str | None = None) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bd-side-", dir=parent)))


def laid_over(stack: contextlib.ExitStack, files: Mapping[str, str]) -> tuple[str, ...]:
    """A command that runs another one where these files are the kernel's, and where there are no cgroups."""
    files = {**files, "/proc/self/cgroup": "0::/\n"}
    folder = scratch(stack)
    for name, text in files.items():
        (folder / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        (folder / name[1:]).write_text(text)
    whole = [each for each in ("/sys/devices/system/node", "/proc/driver") if (folder / each[1:]).is_dir()]
    single = [name for name in files if Path(name).exists() and not name.startswith(tuple(whole))]
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ("unshare", "--mount", *user, "/bin/sh", "-c", LAY_OVER, str(folder), *whole, *single, "--")
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotMakeError(f"needs unshare(1): {error.strerror}") from error
    if tried.returncode != 0:
        raise CannotMakeError(f"needs root, or user namespaces, to lay files over /proc: {_last_line(tried.stderr)}")
    return command


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1]


def available_mib() -> float:
    """MemAvailable, as it stands in /proc/meminfo."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) / 1024


def _nothing_set(_: contextlib.ExitStack) -> Place:
    return Place(reference_mib=available_mib(), reference="MemAvailable")


def _parents_limit(stack: contextlib.ExitStack) -> Place:
    parent = stack.enter_context(group("parent", 512))
    return Place(group=stack.enter_context(group("ours", None, parent)), limit_mib=512)


def _sibling(stack: contextlib.ExitStack) -> Place:
    parent = stack.enter_context(group("parent", 600))
    ours = stack.enter_context(group("ours", 500, parent))
    other = stack.enter_context(group("sibling", 500, parent))
    stack.enter_context(running(Place(group=other).wrapped([sys.executable, "-c", HOLD, "400"])))
    return Place(group=ours, limit_mib=500)


def _page_cache(stack: contextlib.ExitStack) -> Place:
    # By convention a disk, which /tmp may not be.
    file = scratch(stack, "/var/tmp") / "file"
    place = Place(group=stack.enter_context(group("group", 300)), limit_mib=300)
    for way in (["if=/dev/zero", f"of={file}", "count=1000", "conv=fsync"], [f"if={file}", "of=/dev/null"]):
        if place.run(["dd", "bs=1M", *way]).returncode != 0:
            raise CannotMakeError("needs 1 GB in /var/tmp, on a disk")
    return place


def _tmpfs(stack: contextlib.ExitStack) -> Place:
    folder = stack.enter_context(group("group", 512))
    keeper = ["unshare", "--mount", "/bin/sh", "-c", KEEP_TMPFS, str(folder), str(scratch(stack))]
    stack.enter_context(running(keeper))
    return Place(group=folder, limit_mib=512)


def _private_namespace(stack: contextlib.ExitStack) -> Place:
    return Place(group=stack.enter_context(group("group", 512)), limit_mib=512, inside=("unshare", "--cgroup"))


def _container(stack: contextlib.ExitStack) -> Place:
    folder = stack.enter_context(group("group", 512))
    script = f'mount --bind "$0" {CGROUP_V1} && exec "$@"'
    inside = ("unshare", "--mount", "/bin/sh", "-c", script, str(folder))
    return Place(group=folder, limit_mib=512, inside=inside)


def _gb200(stack: contextlib.ExitStack) -> Place:
    # The machine's own zones say nothing of the tray's nodes.
    inside = laid_over(stack, {**gb200_tray(), "/proc/zoneinfo": "\n"})
    return Place(inside=inside, reference_mib=2 * LPDDR_GIB * 1024, reference="the CPUs' own")


def _lxcfs(stack: contextlib.ExitStack) -> Place:
    gib = {"MemTotal": 8, "MemFree": 2, "MemAvailable": 20, "Buffers": 0, "Cached": 5}
    gib |= {"Active(file)": 1, "Inactive(file)": 4}
    text = "".join(f"{name + ':':<16}{size << 20} kB\n" for name, size in gib.items())
    inside = laid_over(stack, {"/proc/meminfo": text})
    return Place(inside=inside, reference_mib=7 * 1024, reference="MemFree and page cache")


def _slurm(_: contextlib.ExitStack) -> Place:
    env = {"SLURM_JOB_ID": "1", "SLURM_MEM_PER_NODE": str(SLURM_MIB)}
    return Place(env=env, reference_mib=min(SLURM_MIB, available_mib()), reference="the job's share")


CASES = (
    Case(
        1,
        "nothing set (control)",
        "No cgroup limits us, so MemAvailable of the host is what there is, and everybody is right. dask and the "
        "leaf-only reading give the total, which is a little more than what is left of it.",
        _nothing_set,
    ),
    Case(
        2,
        "limit on the parent, none on the child",
        "The child's own file says 2^63, and only the parent's says 512 MiB. free and psutil read no cgroup, dask "
        "reads the one at the top of the mount, and the leaf-only reading stops one level too early.",
        _parents_limit,
    ),
    Case(
        3,
        "a sibling holds 2/3 of the parent's 600 MiB",
        "Our own group may have 500 MiB, but a sibling holds 400 of the 600 that both share. Whoever reads limits "
        "only is wrong here: what counts is how much of the parent's is in use.",
        _sibling,
    ),
    Case(
        4,
        "300 MiB, full of page cache",
        "A file of 1 GB was written and read in the group: its usage is at the limit, and nearly all of it can be "
        "dropped at once. builddoctor counts page cache as room, and the leaf's limit is right as well, since "
        "nothing else lives there.",
        _page_cache,
    ),
    Case(
        5,
        "512 MiB, 200 of them in a tmpfs, no process",
        "Files in a tmpfs are the group's memory until they are deleted, and no list of processes shows them. A "
        "limit does not tell that two fifths of it are gone.",
        _tmpfs,
    ),
    Case(
        6,
        "512 MiB, private cgroup namespace",
        "The mounts were made outside of the namespace: /proc/self/cgroup says `/`, and under the mount that is the "
        "file of the host's root, 2^63. builddoctor looks for the directory whose cgroup.procs lists it.",
        _private_namespace,
    ),
    Case(
        7,
        "512 MiB, container whose mount shows its own group",
        "So Docker does it on v1, and for this dask and the leaf-only reading were made. free and psutil show the "
        "host.",
        _container,
    ),
    Case(
        8,
        "GB200 tray in NUMA mode (files)",
        f"MemTotal and MemAvailable count the HBM of the four GPUs, {HBM_GIB:g} GiB each, as the host's. The kernel "
        "would give it to a compiler, and somebody's GPU job would miss it: builddoctor counts the nodes of the two "
        "CPUs.",
        _gb200,
    ),
    Case(
        9,
        "lxcfs, MemAvailable above MemTotal (files)",
        "Of 8 GiB 2 are free and 5 are page cache, but MemAvailable is the host's 20. free and psutil see that this "
        "cannot be and fall back to MemFree; builddoctor takes what is free and what of the page cache can be had "
        "at once. In a real container its cgroup says more than these files.",
        _lxcfs,
    ),
    Case(
        10,
        "Slurm job of 4 GiB, no cgroup",
        "Nothing in /sys or /proc keeps the job to its share; the scheduler looks from time to time and ends the "
        "step. Only the job's environment says so.",
        _slurm,
    ),
)
