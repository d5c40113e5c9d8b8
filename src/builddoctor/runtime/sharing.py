"""This build among the others of its machine: tells them how it stands, and learns what it may promise beside them.

Covers: our record, look by look; the share that the scheduler is told; what the user hears of it; the ledger, a folder
in which every supervised build of this user keeps one small file about itself (ours, closed to others): our own file,
reading the others', removing those of the dead.
Does *not* cover: the rules (``scheduler.sharing``).

Nothing in here ends a build: whatever goes wrong, sharing is switched off, with one warning, and the build goes on as
if it were alone.

The ledger has no locks: no build waits for another. A file belongs to one build, which alone writes it, under another
name first, so that whoever reads it reads all of it. A build is dead when its supervisor is: pid and start time say so,
where both count processes alike; elsewhere a dead build falls silent, like one that was stopped.

Its folder is not XDG_RUNTIME_DIR: that is set in one login and not in the other, and all builds must meet.
BUILDDOCTOR_LEDGER_DIR names another. Containers that share it (a bind mount) see each other; others do not.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from builddoctor.core.events import ShareSettled
from builddoctor.core.limits import MemoryReading
from builddoctor.runtime.phases import LivePhases
from builddoctor.scheduler.budget import level_reserve_mib
from builddoctor.scheduler.sharing import (
    LAPSED_S,
    MOST_MIB,
    MOST_SCOPES,
    BuildRecord,
    Demand,
    Own,
    Peer,
    Peers,
    Share,
    SharedLevel,
    gives_way,
)
from builddoctor.system.cgroup import Scopes
from builddoctor.system.platform import boot_id
from builddoctor.system.process import Processes
from builddoctor.system.root import Clock, SystemRoot

ALONE_S, BESIDE_S, CONTENDED_S = 0.25, 0.1, 0.05
"""The longest time between two looks: so that a newcomer is seen; beside others; while any waits."""

NEVER_S = float("inf")

MOST_BYTES = 4096
"""of a record"""

MOST_BUILDS = 64
FORGOTTEN_S = 86_400.0
"""Files of builds that cannot be asked about from here are removed when they are this old."""

_NAME = re.compile(r"\A[0-9a-f]{16}\Z")
_NEW = ".new"
_PARENTS = ("/tmp", "/dev/shm")  # noqa: S108 - closed to others, and its owner is looked at
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(BuildRecord)
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Sharing:
    """One build's side. All methods are called in the event loop, and none raises."""

    def __init__(
        self,
        env: Mapping[str, str] | None,
        phases: LivePhases,
        *,
        root: SystemRoot,
        clock: Clock,
        tell: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """``env``: may name the ledger's folder; None: nothing is shared. Where no place is fit, that is said."""
        self._ledger: Ledger | None = None
        try:
            self._ledger = Ledger(env, root) if env is not None else None
        except Exception as error:  # noqa: BLE001 - a build does not depend on others
            warn(_off_because(error))
        self._phases = phases
        self._clock = clock
        self._tell = tell
        self._warn = warn
        self._scopes = Scopes(root)
        self._share = Share(self._ledger.build_id if self._ledger is not None else "0" * 16)
        self._watch = Peers()
        self._peers: tuple[Peer, ...] = ()
        self._names: tuple[str, ...] = ()
        self._tight = ""
        self._company_s: dict[str, float] = {}
        self._running: tuple[tuple[int, float], ...] = ()
        self._changes = 0
        self._used = (clock(), 0.0)
        self._told = 0
        self._said = ShareSettled()

    def period_s(self, *, waiting: bool) -> float:
        """Looks at memory come no later than this. ``waiting``: a phase of ours waits."""
        if self._ledger is None:
            return NEVER_S
        rivals = self._share.rivals.values()
        contended = (waiting and rivals) or any(each.claim_mib for each in rivals)
        return CONTENDED_S if contended else BESIDE_S if rivals else ALONE_S

    def look(
        self, reading: MemoryReading, demand: Callable[[], Demand], *, held_mib: float, at_s: float
    ) -> ShareSettled | None:
        """Say how we stand, and what our phases may be promised together; None where that is as it was. ``demand`` goes
        through all running phases: it is asked for only where it is told to others."""
        if self._ledger is None:
            return None
        try:
            lease_mib = self._look(self._ledger, reading, demand(), held_mib)
            return self._settled(lease_mib, at_s)
        except Exception as error:  # noqa: BLE001 - see above
            return self._off(error, at_s)

    def phase_ended(self, held_mib: float, at_s: float) -> ShareSettled | None:
        """Before another phase starts, the others hear that memory came free. ``held_mib``: what our others hold."""
        if self._ledger is None or not self._share.rivals:
            return None
        try:
            self._settle(self._ledger, self._share.less(held_mib))
            # What the next look allows may be more; until then, no more than it was.
            before_mib = MOST_MIB if self._said.lease_mib is None else self._said.lease_mib
            return self._settled(min(self._share.lease_mib, before_mib), at_s)
        except Exception as error:  # noqa: BLE001 - see above
            return self._off(error, at_s)

    def had_company(self, since_s: float) -> bool:
        """Phases of another build ran under our tightest limit, then or later (on the clock)."""
        return self._company_s.get(self._tight, float("-inf")) >= since_s

    def close(self) -> None:
        """The build is over."""
        ledger, self._ledger = self._ledger, None
        if ledger is not None:
            with contextlib.suppress(Exception):
                ledger.close()

    def _off(self, error: Exception, at_s: float) -> ShareSettled:
        self.close()
        self._warn(_off_because(error))
        self._said = ShareSettled(at_s=at_s)
        return self._said

    def _settled(self, lease_mib: float, at_s: float) -> ShareSettled | None:
        """What the scheduler is told, where it is news."""
        pool_mib = self._share.pool_mib(self._tight) if self._share.rivals else MOST_MIB
        here = [peer.record for peer in self._peers if not peer.silent and self._tight in peer.record.scopes]
        me = self._share.record()
        growth_mib_s = me.growth_mib_s + sum(record.growth_mib_s for record in here)
        settled = ShareSettled(
            lease_mib=None if lease_mib >= MOST_MIB else round(lease_mib, 1),
            pool_mib=None if pool_mib >= MOST_MIB else round(pool_mib, 1),
            growth_mib_s=round(growth_mib_s, 1) if here else 0.0,
            yields=gives_way(msgspec.structs.replace(me, running=1), here),
        )
        if settled == msgspec.structs.replace(self._said, at_s=0.0):
            return None
        self._said = msgspec.structs.replace(settled, at_s=at_s)
        return self._said

    def _look(self, ledger: Ledger, reading: MemoryReading, demand: Demand, held_mib: float) -> float:
        now_s = self._clock()
        levels = self._levels(reading, held_mib)
        self._read(ledger, now_s)
        own = self._own(demand, held_mib, now_s)
        self._settle(ledger, self._share.propose(own, levels, self._peers, now_s))
        if not self._share.rivals:
            self._told = 0
            return self._share.lease_mib
        if demand.wants_mib > demand.committed_mib and self._share.lease_mib < own.wants_mib:
            self._tell_of_rivals()
        # Stopped between reading and now, we may know nothing any more.
        return self._share.lease_mib if self._clock() - now_s < LAPSED_S else 0.0

    def _settle(self, ledger: Ledger, record: BuildRecord) -> None:
        """A build that decides at this very moment sees what is written here, or we see what it has written."""
        ledger.write(msgspec.structs.replace(record, scopes=self._names))
        self._read(ledger, self._clock())
        settled = self._share.settle(self._peers)
        if settled != record:
            ledger.write(msgspec.structs.replace(settled, scopes=self._names))

    def _read(self, ledger: Ledger, now_s: float) -> None:
        self._peers = self._watch.look(ledger.others(), now_s)
        for peer in self._peers:
            if peer.active:
                self._company_s.update(dict.fromkeys(peer.record.scopes, now_s))

    def _levels(self, reading: MemoryReading, own_use_mib: float) -> list[SharedLevel]:
        found = [
            SharedLevel(
                source=level.source,
                scope=scope,
                free_mib=level.headroom_mib - level_reserve_mib(level, reading) + own_use_mib,
            )
            for level in reading.levels
            if (scope := self._scopes.of(level))
        ]
        self._names = tuple(dict.fromkeys(level.scope for level in found))[:MOST_SCOPES]
        self._tight = self._scopes.of(reading.tightest)
        return found

    def _own(self, demand: Demand, held_mib: float, now_s: float) -> Own:
        running = [(live.phase.phase_id, live.admitted_at_s or 0.0) for live in self._phases.running]
        changed, self._running = tuple(running) != self._running, tuple(running)
        self._changes += changed
        (last_s, last_mib), self._used = self._used, (now_s, held_mib)
        grown_mib = 0.0 if changed else max(0.0, held_mib - last_mib)
        return Own(
            **msgspec.structs.asdict(demand),
            use_mib=held_mib,
            growth_mib_s=grown_mib / max(now_s - last_s, CONTENDED_S),
            changes=self._changes,
        )

    def _tell_of_rivals(self) -> None:
        rivals = list(self._share.rivals.values())
        if self._told == len(rivals):
            return
        self._told = len(rivals)
        pids = ", ".join(str(each.pid) for each in rivals[:4])
        others = "another build" if len(rivals) == 1 else f"{len(rivals)} other builds"
        self._tell(f"shares memory with {others} (pid {pids}): each of the {1 + len(rivals)} has its part")


def _off_because(error: Exception) -> str:
    return f"does not share memory with other builds of this machine ({error})"


class Ledger:
    """Our file and the others'. Raises OSError where the folder cannot be used, and for nothing that lies in it."""

    def __init__(self, env: Mapping[str, str], root: SystemRoot, *, pid: int | None = None) -> None:
        """Raises OSError when there is no folder for it. ``pid``: whose life stands for the build, if not ours."""
        self.build_id = secrets.token_hex(8)
        self._env = dict(env)
        self._processes = Processes(root)
        self._pid = pid or os.getpid()
        self._start_ticks = self._processes.start_ticks(self._pid) or 0
        self._boot_id = boot_id(root)
        self._pid_space = root.link("/proc/self/ns/pid")[:64]
        self._beat = 0
        self._folder, self._descriptor = open_folder(env)

    def write(self, record: BuildRecord) -> None:
        """Say how it stands with us. About 50 us."""
        self._beat += 1
        content = _ENCODER.encode(
            msgspec.structs.replace(
                record,
                build_id=self.build_id,
                pid=self._pid,
                start_ticks=self._start_ticks,
                boot_id=self._boot_id,
                pid_space=self._pid_space,
                beat=self._beat,
            )
        )
        try:
            self._put(content)
        except FileNotFoundError:
            # The folder was removed just now.
            self._put(content)

    def _put(self, content: bytes) -> None:
        self._enter()
        new = f"{self.build_id}{_NEW}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(new, flags, 0o600, dir_fd=self._descriptor)
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError("no space for it")
        finally:
            os.close(descriptor)
        os.replace(new, self.build_id, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def others(self) -> list[BuildRecord]:
        """The other builds that live, as they last said. About 10 us, and 40 us for each."""
        names = [name for name in sorted(os.listdir(self._descriptor)) if _NAME.match(name.removesuffix(_NEW))]
        found: list[BuildRecord] = []
        for name in names:
            if len(found) < MOST_BUILDS and not name.startswith(self.build_id):
                record = None if name.endswith(_NEW) else self._read(name)
                if record is None or record.build_id != name:
                    self._forget(name)
                elif self._lives(record):
                    found.append(record)
        return found

    def close(self) -> None:
        """We are done: our file goes."""
        for name in (self.build_id, f"{self.build_id}{_NEW}"):
            self._remove(name)
        os.close(self._descriptor)

    def _enter(self) -> None:
        """The folder may have been removed: other builds would see us no more."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(self._folder), os.fstat(self._descriptor)):
                return
        folder, descriptor = open_folder(self._env)
        os.close(self._descriptor)
        self._folder, self._descriptor = folder, descriptor

    def _read(self, name: str) -> BuildRecord | None:
        """A small plain file of this user's, and nothing else: no link, no pipe, no other's, no nonsense."""
        try:
            descriptor = os.open(
                name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._descriptor
            )
        except OSError:
            return None
        try:
            status = os.fstat(descriptor)
            plain = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink <= 1
            if not plain or status.st_size > MOST_BYTES:
                return None
            return _DECODER.decode(os.read(descriptor, MOST_BYTES))
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        finally:
            os.close(descriptor)

    def _lives(self, record: BuildRecord) -> bool:
        if record.boot_id != self._boot_id:
            self._forget(record.build_id)
            return False
        if not record.start_ticks or not record.pid_space or record.pid_space != self._pid_space:
            # Its pid means another process here, or none: only its silence tells.
            self._forget(record.build_id)
            return True
        if self._processes.lives(record.pid, record.start_ticks):
            return True
        for name in (record.build_id, f"{record.build_id}{_NEW}"):
            self._remove(name)
        return False

    def _forget(self, name: str) -> None:
        """Remove files that have long been of no use."""
        with contextlib.suppress(OSError):
            status = os.lstat(name, dir_fd=self._descriptor)
            if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > FORGOTTEN_S:
                self._remove(name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._descriptor)


def open_folder(env: Mapping[str, str]) -> tuple[Path, int]:
    """The folder, made where it is missing, and a descriptor of it. Raises OSError when no place is ours alone."""
    named = env.get("BUILDDOCTOR_LEDGER_DIR", "")
    user = os.geteuid()
    places = [named] if os.path.isabs(named) else [f"{parent}/builddoctor-{user}-ledger" for parent in _PARENTS]
    problem: OSError | None = None
    for place in places:
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(place, 0o700)
            descriptor = os.open(place, _FOLDER_FLAGS)
        except (OSError, ValueError) as error:
            problem = error if isinstance(error, OSError) else OSError(str(error))
            continue
        status = os.fstat(descriptor)
        if status.st_uid == user and not status.st_mode & 0o077:
            return Path(place), descriptor
        os.close(descriptor)
        problem = PermissionError(f"{place} is not this user's alone")
    raise problem or OSError("no place for it")
