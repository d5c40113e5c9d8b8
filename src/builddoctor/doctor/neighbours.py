"""Checks of who else ends processes here, and of core dumps that fill a disk. Pure.

Rules: memory.md 3.2 and 4. earlyoom and nohang look at the memory of the whole host, systemd-oomd at cgroups; none of
them is counted by the kernel's own counters.
Does *not* cover: reading any of it (``sensors.neighbours``).
"""

from __future__ import annotations

from builddoctor.model.check import Check, Status
from builddoctor.model.machine import HostMemory
from builddoctor.model.neighbours import CoreDumps, Neighbours, OomDaemon
from builddoctor.units import format_mib

TOPIC = "neighbours"

DUMP_MIB = 4.1 * 1024
"""The largest compiler phase measured (TransformerEngine 2.8): what it leaves when it crashes."""

DEFAULT_PERCENT = {"earlyoom": 10.0, "nohang": 5.0}
"""Below this share of the host's memory they send SIGTERM, if they were not told otherwise."""


def neighbour_checks(
    neighbours: Neighbours, *, host: HostMemory, headroom_mib: float, reserve_mib: float
) -> list[Check]:
    """All checks of topic ``neighbours``.

    ``headroom_mib``: at the tightest level; ``reserve_mib``: what builddoctor keeps free.
    """
    found = [_daemon(daemon, neighbours, host, headroom_mib, reserve_mib) for daemon in neighbours.daemons]
    if not found:
        text = "no user-space OOM killer runs here"
        if neighbours.unread:
            text = f"no user-space OOM killer to be seen, but one may run: {'; '.join(neighbours.unread)}"
        found.append(Check(name="oom-daemon", topic=TOPIC, status=Status.OK, text=text))
    return [*found, *_dumps(neighbours.dumps)]


def _daemon(
    daemon: OomDaemon, neighbours: Neighbours, host: HostMemory, headroom_mib: float, reserve_mib: float
) -> Check:
    if daemon.name in DEFAULT_PERCENT:
        return _host_watcher(daemon, host, headroom_mib, reserve_mib)
    where = f"all of {neighbours.scope}" if neighbours.scope else "a whole cgroup"
    text = (
        f"{daemon.name} runs: when memory stays short it ends {where} at once, builddoctor and your shell with it, "
        "and no kernel counter says so"
    )
    # In a scope of its own the build is what dies, and not the terminal.
    hint = "systemd-run --user --scope builddoctor run -- ..." if daemon.name == "systemd-oomd" else ""
    return Check(name="oom-daemon", topic=TOPIC, status=Status.WARNING, text=text, hint=hint)


def _host_watcher(daemon: OomDaemon, host: HostMemory, headroom_mib: float, reserve_mib: float) -> Check:
    percent = daemon.acts_below_percent or DEFAULT_PERCENT[daemon.name]
    threshold_mib = percent / 100 * host.total_mib
    acts = f"{daemon.name} runs: it ends the process that it likes least when {format_mib(threshold_mib)} are available"
    # What the build may take at most before its own reserve stops it, seen from the whole host.
    left_mib = host.available_mib - max(0.0, headroom_mib - reserve_mib)
    if left_mib >= threshold_mib:
        text = f"{acts}; this build stops taking more at {format_mib(left_mib)}"
        return Check(name="oom-daemon", topic=TOPIC, status=Status.OK, text=text)
    lower_mib = host.available_mib - threshold_mib
    hint = f"builddoctor run --memory {int(lower_mib)}MiB -- ..." if lower_mib >= 1024 else ""
    text = f"{acts}, and this build goes down to {format_mib(max(0.0, left_mib))}: it would come first"
    if host.swap_total_mib > 0:
        text += ", once swap is short too"
    return Check(name="oom-daemon", topic=TOPIC, status=Status.WARNING, text=text, hint=hint)


def _dumps(dumps: CoreDumps | None) -> list[Check]:
    if dumps is None:
        text = "where core dumps go cannot be read (/proc/sys/kernel/core_pattern)"
        return [Check(name="core-dumps", topic=TOPIC, status=Status.OK, text=text)]
    if not dumps.written:
        return [Check(name="core-dumps", topic=TOPIC, status=Status.OK, text="no core dumps are kept")]
    way = f"are piped to {dumps.piped_to}" if dumps.piped_to else "are written"
    place = dumps.place
    if place is None:
        text = f"core dumps {way}; where that keeps them cannot be seen from here"
        return [Check(name="core-dumps", topic=TOPIC, status=Status.OK, text=text)]
    expected_mib = min(DUMP_MIB, dumps.limit_mib) if dumps.limit_mib is not None and not dumps.piped_to else DUMP_MIB
    size = format_mib(expected_mib)
    if place.in_memory:
        text = f"core dumps {way} in {place.path}, which is memory: a compiler that crashes leaves up to {size} there"
    elif place.free_mib is not None and place.free_mib < 2 * expected_mib:
        text = (
            f"core dumps {way} in {place.path}, where {format_mib(place.free_mib)} are free: "
            f"a compiler that crashes writes up to {size}"
        )
    else:
        room = "" if place.free_mib is None else f", {format_mib(place.free_mib)} free"
        text = f"core dumps {way} in {place.path}{room}"
        return [Check(name="core-dumps", topic=TOPIC, status=Status.OK, text=text)]
    # The kernel pipes at a limit of 0, too, but not at one of 1 byte, which `ulimit` cannot write (fs/coredump.c).
    hint = "prlimit --pid $$ --core=1:" if dumps.piped_to else "ulimit -c 0"
    return [Check(name="core-dumps", topic=TOPIC, status=Status.WARNING, text=text, hint=hint)]
