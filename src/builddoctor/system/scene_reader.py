"""A snapshot around a phase that failed or was killed: disks, limits, cgroups, nodes, the kernel's log.

Covers: reading it, in a few milliseconds, as the phase's gate sees it: its cgroup, its limits, its mounts. The gate
waits meanwhile: what a compiler wrote before its disk was full is still there.
Does *not* cover: how often (``runtime.failure_capture``), what follows from it (``diagnose.trace_facts``). Nothing
needs a privilege; what cannot be read is named in ``unread``, and never taken for zero or for no limit.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from builddoctor.core.evidence import Evidence, Folder, Group, GroupCounters, ProcessLimits, Scene
from builddoctor.core.machine import Place
from builddoctor.core.units import MIB, printable, whole_number
from builddoctor.system.cgroup import NO_LIMIT, CgroupPlace
from builddoctor.system.memory_sensor import allotment
from builddoctor.system.numa import NODES, read_numa
from builddoctor.system.oom_evidence import KernelLog, host_kills, membership, read_evidence
from builddoctor.system.platform import read_platform
from builddoctor.system.process import read_limit, read_pids
from builddoctor.system.root import SystemRoot, keyed, parse_list
from builddoctor.system.storage import MEMORY_KINDS, mount_of, read_mounts, read_place
from builddoctor.system.unit_policy import unit_that_stops

_HOST_TOOLS = ("as", "cc", "cc1", "cc1plus", "c++", "clang", "clang++", "collect2", "g++", "gcc", "lto1")
_LINKERS = ("gold", "ld", "ld.bfd", "ld.gold", "ld.lld", "mold")
TOOLS = frozenset((*_HOST_TOOLS, *_LINKERS, "cicc", "cudafe++", "fatbinary", "nvcc", "nvlink", "ptxas"))
"""The kernel's names of programs that a build starts for their memory."""

JOB_NUMBERS = ("SLURM_JOB_ID", "SLURM_JOBID", "LSB_JOBID", "PBS_JOBID")

_STAT_WANTED = ("inactive_file", "active_file", "shmem")


class SceneReader:
    """Takes snapshots; counters are told since it was made."""

    def __init__(self, root: SystemRoot, env: Mapping[str, str]) -> None:
        self._root = root
        self._env = env
        self._kills = host_kills(root)
        self._messages = KernelLog(root)
        self._mounts = root.link("/proc/self/ns/mnt")
        self._scheduler = read_platform(root, env).scheduler
        self._job = next((env[name][:64] for name in JOB_NUMBERS if env.get(name)), "") if self._scheduler else ""
        allotted = allotment(env)
        self._allotted_mib = None if allotted is None else round(allotted.memory_mib, 1)

    def close(self) -> None:
        self._messages.close()

    def look(
        self,
        *,
        place: CgroupPlace | None,
        before: Evidence,
        pid: int | None = None,
        folders: Sequence[tuple[str, str]] = (),
        names: Collection[str] = (),
        pids: Collection[int] = (),
        ours_mib: float = 0.0,
    ) -> Scene:
        """``place``: the phase's cgroup, and its counters ``before`` it ran. ``pid``: its gate; None: we ourselves.

        ``folders``: role and path, relative to the gate's working directory; TMPDIR comes by itself.
        """
        root, process = self._root, "self" if pid is None else str(pid)
        unread: list[str] = []
        now = read_evidence(root, place)
        limits = root.text(f"/proc/{process}/limits") or root.text("/proc/self/limits")
        if limits is None:
            unread.append("/proc/self/limits")
        pids_max, pids_now = read_pids(root)
        meminfo = keyed(root.text("/proc/meminfo") or "", ("MemAvailable:", "CommitLimit:", "Committed_AS:"))
        overcommit = whole_number((root.text("/proc/sys/vm/overcommit_memory") or "").strip())
        commit = [meminfo.get(name) for name in ("CommitLimit:", "Committed_AS:")]
        available = meminfo.get("MemAvailable:")
        nodes, policy, nodes_free_mib = self._nodes(process)
        group = membership(root, place, process) if place is not None else None
        return Scene(
            folders=tuple(self._folder(role, path, pid) for role, path in self._folders(pid, folders)),
            groups=_groups(root, place, before, now, unread),
            limits=_limits(limits or ""),
            pids_max=pids_max,
            pids_now=pids_now,
            ours_mib=round(ours_mib, 1),
            available_mib=None if available is None else round(available / 1024, 1),
            overcommit=overcommit,
            commit_left_mib=(
                round((commit[0] - commit[1]) / 1024, 1)
                if overcommit == 2 and commit[0] is not None and commit[1] is not None
                else None
            ),
            host_kills=_rise(self._kills, now.host_oom_kill),
            oomd_kills=now.oomd_kill,
            nodes_allowed=nodes,
            policy=policy,
            nodes_free_mib=nodes_free_mib,
            unit_stops=unit_that_stops(root, place),
            scheduler=self._scheduler,
            job=printable(self._job),
            allotted_mib=self._allotted_mib,
            kernel_log=tuple(
                printable(line)
                for line in self._messages.read(
                    names=TOOLS | {name[:15] for name in names}, pids=frozenset(pids), group=group or ""
                )
            ),
            kernel_log_read=self._messages.readable,
            unread=tuple(unread),
        )

    # -- folders -------------------------------------------------------------------------------------------

    def _folders(self, pid: int | None, folders: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """TMPDIR as the gate has it, then ``folders``, each once."""
        temporary = self._env.get("TMPDIR") or "/tmp"  # noqa: S108 - what every compiler takes without TMPDIR
        if pid is not None and (environ := self._root.path_text(f"/proc/{pid}/environ")):
            # Of all that is in there this one alone is taken.
            found = (each[7:] for each in environ.split("\0") if each.startswith("TMPDIR="))
            temporary = next(found, "") or "/tmp"  # noqa: S108
        cwd = "" if pid is None else self._root.link(f"/proc/{pid}/cwd")
        found_at: dict[str, str] = {}
        for role, path in (("TMPDIR", temporary), *folders):
            found_at.setdefault(os.path.join(cwd, path), role)
        return [(role, path) for path, role in found_at.items()]

    def _folder(self, role: str, path: str, pid: int | None) -> Folder:
        mounts = "" if pid is None else self._root.link(f"/proc/{pid}/ns/mnt")
        if mounts and self._mounts and mounts != self._mounts:
            return self._elsewhere(role, path, str(pid))
        return _as_folder(read_place(self._root, path, role=role))

    def _elsewhere(self, role: str, path: str, process: str) -> Folder:
        """A folder as a process with mounts of its own sees it. Links in its name are not followed."""
        mount = mount_of(read_mounts(self._root, process), path)
        kind = "" if mount is None else mount.kind
        try:
            seen = os.statvfs(self._root.at(f"/proc/{process}/root{path}"))
        except (OSError, ValueError):
            return Folder(
                role=role, path=printable(path), filesystem=kind, in_memory=kind in MEMORY_KINDS, missing=True
            )
        sized = seen.f_blocks > 0
        return Folder(
            role=role,
            path=printable(path),
            filesystem=kind,
            in_memory=kind in MEMORY_KINDS,
            free_mib=round(seen.f_bavail * seen.f_frsize / MIB, 2) if sized else None,
            total_mib=round(seen.f_blocks * seen.f_frsize / MIB, 1) if sized else None,
            free_inodes=seen.f_favail if seen.f_files else None,
        )

    # -- nodes ---------------------------------------------------------------------------------------------

    def _nodes(self, process: str) -> tuple[str, str, float | None]:
        """What leaves nodes out, if anything does, and how much is free on the others."""
        if len(parse_list(self._root.text(f"{NODES}/has_memory") or self._root.text(f"{NODES}/online") or "")) < 2:
            return "", "", None
        numa = read_numa(self._root, process)
        left_out = [node for node in numa.nodes if not node.allowed and node.kind != "hbm"]
        if not left_out:
            return "", "", None
        free_mib = sum(node.available_mib for node in numa.nodes if node.allowed and node.kind != "hbm")
        return numa.allowed or ",".join(str(node.node) for node in numa.nodes if node.allowed), numa.policy, free_mib


def _as_folder(place: Place) -> Folder:
    return Folder(
        role=place.role,
        path=place.path,
        filesystem=place.filesystem,
        in_memory=place.in_memory,
        free_mib=None if place.free_mib is None else round(place.free_mib, 2),
        total_mib=None if place.total_mib is None else round(place.total_mib, 1),
        free_inodes=place.free_inodes,
        writable=place.writable and not place.read_only,
        missing=place.missing,
    )


def _groups(
    root: SystemRoot, place: CgroupPlace | None, before: Evidence, now: Evidence, unread: list[str]
) -> tuple[Group, ...]:
    if place is None:
        return ()
    earlier = {level.directory: level for level in before.levels}
    found = []
    for level in now.levels:
        was = earlier.get(level.directory)
        limit, used, shmem = _sizes(root, level.directory, place.version, unread)
        found.append(
            Group(
                directory=printable(level.directory),
                limit_mib=limit,
                used_mib=used,
                shmem_mib=shmem,
                reached=_reached(was, level),
                kills=None if was is None else _rise(was.oom_kill, level.oom_kill),
            )
        )
    return tuple(found)


def _reached(was: GroupCounters | None, now: GroupCounters) -> int | None:
    """``oom`` where there is one: page cache does not raise it."""
    if was is None:
        return None
    return _rise(was.max, now.max) if now.oom is None else _rise(was.oom, now.oom)


def _sizes(
    root: SystemRoot, directory: str, version: int, unread: list[str]
) -> tuple[float | None, float | None, float | None]:
    """Limit, what is held for good, and what of it is tmpfs and shared memory."""
    limit_file, used_file, prefix = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        if version == 1
        else ("memory.max", "memory.current", "")
    )
    limit = whole_number((root.text(f"{directory}/{limit_file}") or "").strip())
    used = whole_number((root.text(f"{directory}/{used_file}") or "").strip())
    stat = root.text(f"{directory}/memory.stat")
    if used is None or stat is None:
        # The root of v2 has neither: it has no limit either.
        if root.exists(f"{directory}/{used_file}"):
            unread.append(printable(f"{directory}/{used_file if used is None else 'memory.stat'}"))
        return _mib(limit), None, None
    parts = keyed(stat, tuple(prefix + name for name in _STAT_WANTED))
    cache = sum(parts.get(prefix + name, 0) for name in ("inactive_file", "active_file"))
    return _mib(limit), _mib(max(0, used - cache)), _mib(parts.get(f"{prefix}shmem"))


def _mib(size: int | None) -> float | None:
    return None if size is None or size >= NO_LIMIT else round(size / MIB, 1)


def _limits(text: str) -> ProcessLimits:
    """Soft limits from /proc/PID/limits."""

    def soft(label: str) -> int | None:
        return read_limit(text, label)[0]

    return ProcessLimits(
        address_space_mib=_mib(soft("Max address space")),
        data_mib=_mib(soft("Max data size")),
        file_size_mib=_mib(soft("Max file size")),
        processes=soft("Max processes"),
        files=soft("Max open files"),
        cpu_s=soft("Max cpu time"),
    )


def _rise(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)
