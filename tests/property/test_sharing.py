"""Several builds under one limit, acting in any order and between each other's steps: what they promise fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.scheduler.sharing import PATIENCE_S, SILENT_S, BuildRecord, Own, Peer, Peers, Share, SharedLevel
from support.examples import examples

POOL_MIB = 1000.0
SIZES = st.sampled_from([10.0, 100.0, 300.0, 450.0, 700.0, 1000.0, 1500.0])
"""MiB; some do not fit beside each other, one fits nowhere"""
TIMES = st.sampled_from([0.5, 2.0, 4.0])
SLOTS = 4
SLACK_MIB = 5.0
LOOK_S = 0.5


@dataclass
class Running:
    """One phase: promised its size at once, holds it later, and dies before its build hears of it."""

    size_mib: float
    ends_s: float
    held_mib: float = 0.0
    dead: bool = False


@dataclass
class Build:
    """One build's side: what waits and runs, and how far it is with its look."""

    name: str
    waiting: list[tuple[float, float]]
    """(MiB, seconds), in order"""
    share: Share = field(init=False)
    running: list[Running] = field(default_factory=list)
    watch: Peers = field(default_factory=Peers)
    changes: int = 0
    beat: int = 0
    seen: tuple[Peer, ...] | None = None
    seen_again: tuple[Peer, ...] | None = None
    wrote: bool = False
    stopped: bool = False

    def __post_init__(self) -> None:
        self.share = Share(self.name)

    @property
    def busy(self) -> bool:
        return bool(self.running or self.waiting)

    @property
    def committed_mib(self) -> float:
        return sum(phase.size_mib for phase in self.running)

    def own(self) -> Own:
        room = max(0, SLOTS - len(self.running))
        wants_mib = self.committed_mib + sum(size for size, _ in self.waiting[:room])
        return Own(
            committed_mib=self.committed_mib,
            wants_mib=max(self.committed_mib, min(wants_mib, POOL_MIB)),
            first_mib=self.waiting[0][0] if self.waiting and not self.running else 0.0,
            use_mib=self.held_mib,
            running=len(self.running),
            changes=self.changes,
        )

    @property
    def held_mib(self) -> float:
        return sum(phase.held_mib for phase in self.running if not phase.dead)


class World:
    """The ledger, the memory and the clock."""

    def __init__(self, work: Sequence[Sequence[tuple[float, float]]]) -> None:
        self.now_s = 0.0
        self.builds = [Build(f"{number:016x}", list(phases)) for number, phases in enumerate(work)]
        self.ledger: dict[str, BuildRecord] = {}

    def others(self, build: Build) -> tuple[Peer, ...]:
        records = [record for name, record in self.ledger.items() if name != build.name]
        return build.watch.look(records, self.now_s)

    def write(self, build: Build, record: BuildRecord) -> None:
        build.beat += 1
        self.ledger[build.name] = msgspec.structs.replace(record, beat=build.beat, scopes=("host",))

    def step(self, build: Build) -> None:
        """One of: read the others; propose, and write that; read again; settle, write that, and start what fits."""
        if build.stopped:
            return
        if build.seen is None:
            build.seen = self.others(build)
        elif build.wrote and build.seen_again is None:
            build.seen_again = self.others(build)
        elif build.seen_again is None:
            free_mib = POOL_MIB - sum(each.held_mib for each in self.builds if each is not build)
            level = SharedLevel(source="/proc/meminfo", scope="host", free_mib=free_mib)
            self.write(build, build.share.propose(build.own(), [level], build.seen, self.now_s))
            build.wrote = True
        else:
            self.write(build, build.share.settle(build.seen_again))
            build.seen, build.seen_again, build.wrote = None, None, False
            self.hear_of_ends(build)
            self.start(build)

    def look(self, build: Build) -> None:
        """A whole one, with nobody in between."""
        self.step(build)
        while not build.stopped and build.seen is not None:
            self.step(build)

    def hear_of_ends(self, build: Build) -> None:
        """The scheduler hears of an end only after a look (``Session.catch_up``)."""
        left = [phase for phase in build.running if not phase.dead]
        build.changes += len(left) != len(build.running)
        build.running = left

    def start(self, build: Build) -> None:
        """As the scheduler: in order, whatever fits budget and share; the first one goes by the share alone."""
        for size_mib, lasts_s in list(build.waiting):
            allowed_mib = min(POOL_MIB, build.share.lease_mib) if build.running else build.share.lease_mib
            if len(build.running) < SLOTS and build.committed_mib + size_mib <= allowed_mib:
                build.waiting.remove((size_mib, lasts_s))
                build.running.append(Running(size_mib, self.now_s + lasts_s))
                build.changes += 1
                self.check()

    def grow(self, build: Build) -> None:
        for phase in build.running:
            phase.held_mib = phase.size_mib

    def die(self, build: Build) -> None:
        """The phase that ends first frees its memory; its build does not know yet."""
        if build.running:
            min(build.running, key=lambda each: each.ends_s).dead = True

    def check(self) -> None:
        """What all who speak have promised fits, or it is one phase that nothing runs beside."""
        speaking = [build for build in self.builds if not build.stopped]
        sizes = [phase.size_mib for build in speaking for phase in build.running if not phase.dead]
        if any(build.share.impatient for build in self.builds):
            return
        assert sum(sizes) <= POOL_MIB + SLACK_MIB or len(sizes) == 1, sizes


WORK = st.lists(st.lists(st.tuples(SIZES, TIMES), min_size=1, max_size=5), min_size=2, max_size=4)
STEPS = st.lists(st.tuples(st.integers(0, 11), st.sampled_from("ssssgd")), min_size=30, max_size=70)


@examples(2000)
@given(WORK, STEPS)
def test_no_two_builds_start_on_the_same_memory(
    work: list[list[tuple[float, float]]], order: list[tuple[int, str]]
) -> None:
    """Reading, writing and deciding in any interleaving, ends heard of late: promises never exceed the pool."""
    world = World(work)
    for number, what in order:
        build = world.builds[number % len(world.builds)]
        if what == "s":
            world.step(build)
        elif what == "g":
            world.grow(build)
        else:
            world.die(build)
        world.now_s += 0.001


def run_to_the_end(world: World, *, stop: Build | None = None, stop_at_s: float = 0.0, dies: bool = False) -> float:
    """Until nobody who goes on has work; gives how long one of them waited at most with nothing running."""
    waits_since = {build.name: 0.0 for build in world.builds}
    most_s = 0.0
    for _ in range(60_000):
        if stop is not None and world.now_s >= stop_at_s:
            stop.stopped = True
            if dies:
                stop.running = []
                world.ledger.pop(stop.name, None)
        for build in world.builds:
            for phase in build.running:
                phase.dead = phase.ends_s <= world.now_s
            if build.stopped:
                build.running = [phase for phase in build.running if not phase.dead]
            world.grow(build)
            world.look(build)
            if build.running or not build.waiting or build.stopped:
                waits_since[build.name] = world.now_s
            most_s = max(most_s, world.now_s - waits_since[build.name])
        if not any(build.busy for build in world.builds if not build.stopped):
            return most_s
        world.now_s += LOOK_S
    raise AssertionError("the builds do not end")


@examples(2000)
@given(WORK)
def test_every_build_comes_to_its_end_and_nobody_starves(work: list[list[tuple[float, float]]]) -> None:
    """On a clock: all complete, and nobody waits with nothing running for longer than the others' turns take."""
    longest_s = max(lasts for phases in work for _, lasts in phases)
    most_s = run_to_the_end(World(work))
    assert most_s <= len(work) * (2 * longest_s + 1.0), most_s


@examples(2000)
@given(WORK, st.sampled_from([0.0, 0.25, 1.0, 3.0, 6.0]), st.booleans())
def test_what_a_stopped_or_dead_build_was_promised_comes_back(
    work: list[list[tuple[float, float]]], stop_at_s: float, dies: bool
) -> None:
    """From then on it counts for what its phases visibly hold, after a few seconds; the others come to their end."""
    longest_s = max(lasts for phases in work for _, lasts in phases)
    world = World(work)
    most_s = run_to_the_end(world, stop=world.builds[0], stop_at_s=stop_at_s, dies=dies)
    assert most_s <= len(work) * (2 * longest_s + 1.0) + SILENT_S, most_s


@examples(2000)
@given(WORK, st.lists(st.floats(0, 100), min_size=4, max_size=4))
def test_when_nothing_runs_somebody_may_start(work: list[list[tuple[float, float]]], served_s: list[float]) -> None:
    """Whatever waits, of whatever size, and whoever was served how long: after three looks of each something runs."""
    world = World(work)
    for build, seconds in zip(world.builds, served_s, strict=False):
        build.share._service.served_s = seconds
    for _ in range(4):
        for build in world.builds:
            world.look(build)
        world.now_s += LOOK_S
    assert any(build.running for build in world.builds)


@examples(2000)
@given(WORK, STEPS)
def test_the_same_looks_give_the_same_leases(
    work: list[list[tuple[float, float]]], order: list[tuple[int, str]]
) -> None:
    """No clock of its own, no chance."""
    leases = []
    for _ in range(2):
        world = World(work)
        for number, _what in order:
            world.step(world.builds[number % len(world.builds)])
            world.now_s += 0.01
        leases.append(world.ledger)
    assert leases[0] == leases[1]


def test_promises_that_nobody_takes_up_do_not_keep_another_waiting_for_ever() -> None:
    """A phase of an hour that was promised everything and takes a tenth: another build's first phase goes beside it."""
    world = World([[(1000.0, 3600.0)], [(700.0, 1.0)]])
    giant, small = world.builds
    world.look(giant)
    giant.running[0].held_mib = 100.0
    started_s = None
    while started_s is None and world.now_s < 2 * PATIENCE_S:
        world.look(giant)
        world.look(small)
        started_s = world.now_s if small.running else None
        world.now_s += LOOK_S
    assert started_s is not None
    assert started_s >= PATIENCE_S
    assert world.ledger[small.name].lease_mib == 700.0
