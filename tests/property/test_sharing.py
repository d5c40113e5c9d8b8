"""Several builds under one limit, acting in any order and between each other's steps: what they promise fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from builddoctor.model.build_record import BuildRecord
from builddoctor.policy.sharing import Answer, Service, SharedLevel, budget_mib, may_start, outranks

POOL_MIB = 1000.0
SIZES = st.sampled_from([10.0, 100.0, 300.0, 450.0, 700.0, 1000.0, 1500.0])
"""MiB; some do not fit beside each other, one fits nowhere"""
TIMES = st.sampled_from([0.5, 2.0, 20.0])
SLOTS = 4
SLACK_MIB = 0.1


@dataclass
class Build:
    """One build's side: what waits and runs, its record in the ledger, and how far it is with its question."""

    name: str
    waiting: list[tuple[float, float]]
    """(MiB, seconds), in order"""
    running: list[tuple[float, float]] = field(default_factory=list)
    """(MiB, end)"""
    service: Service = field(default_factory=Service)
    served_s: float = 0.0
    seen: Sequence[BuildRecord] | None = None
    asked: BuildRecord | None = None

    def record(self, now_s: float, *, claim_mib: float = 0.0, trying: bool = False) -> BuildRecord:
        committed_mib = sum(size for size, _ in self.running)
        return BuildRecord(
            build_id=self.name,
            pid=1,
            scopes=("host",),
            beat_s=now_s,
            committed_mib=committed_mib,
            rss_mib=committed_mib,
            waiting_mib=sum(size for size, _ in self.waiting[: SLOTS - len(self.running)]),
            running=len(self.running),
            claim_mib=claim_mib,
            trying=trying,
            served_s=self.served_s,
        )


class World:
    """The ledger, and the clock."""

    def __init__(self, work: Sequence[Sequence[tuple[float, float]]]) -> None:
        self.now_s = 0.0
        self.builds = [Build(f"{number:016x}", list(phases)) for number, phases in enumerate(work)]
        self.ledger = {build.name: build.record(0.0) for build in self.builds}

    def others(self, build: Build) -> list[BuildRecord]:
        return [record for name, record in self.ledger.items() if name != build.name]

    def levels(self, peers: Sequence[BuildRecord], build: Build) -> list[SharedLevel]:
        """All memory is somebody's or free: the same pool whoever looks."""
        held = tuple((peer.build_id, peer.rss_mib) for peer in peers)
        return [SharedLevel(scope="host", free_mib=POOL_MIB - sum(mib for _, mib in held), held=held)]

    def step(self, build: Build) -> None:
        """One of: write the question; read the others; decide, and write that."""
        if build.asked is None:
            if not build.waiting or len(build.running) >= SLOTS:
                self.ledger[build.name] = build.record(self.now_s)
                return
            build.asked = build.record(self.now_s, claim_mib=build.waiting[0][0], trying=True)
            self.ledger[build.name] = build.asked
        elif build.seen is None:
            build.seen = self.others(build)
        else:
            answer = may_start(build.asked, build.seen, self.levels(build.seen, build), self.now_s)
            build.asked = build.seen = None
            if answer is Answer.START:
                size_mib, lasts_s = build.waiting.pop(0)
                build.running.append((size_mib, self.now_s + lasts_s))
                self.ledger[build.name] = build.record(self.now_s)
                self.check()
            else:
                claim_mib = 0.0 if build.running else build.waiting[0][0]
                self.ledger[build.name] = build.record(self.now_s, claim_mib=claim_mib)

    def whole(self, build: Build) -> None:
        """A question from beginning to end, with nobody in between."""
        for _ in range(3):
            self.step(build)
            if build.asked is None:
                return

    def end(self, build: Build) -> None:
        """The phase that ends first ends; between questions, as in one thread."""
        if build.running and build.asked is None:
            build.running.remove(min(build.running, key=lambda each: each[1]))
            claim_mib = build.waiting[0][0] if build.waiting and not build.running else 0.0
            self.ledger[build.name] = build.record(self.now_s, claim_mib=claim_mib)

    def look(self, build: Build) -> None:
        running = bool(build.running)
        build.served_s = build.service.look(
            self.others(build), running=running, wanting=running or bool(build.waiting), now_s=self.now_s
        )

    def check(self) -> None:
        """What all have promised fits, or it is one phase that nothing runs beside."""
        sizes = [size for build in self.builds for size, _ in build.running]
        assert sum(sizes) <= POOL_MIB + SLACK_MIB or len(sizes) == 1, sizes


WORK = st.lists(st.lists(st.tuples(SIZES, TIMES), min_size=1, max_size=8), min_size=2, max_size=4)


@settings(max_examples=500)
@given(WORK, st.lists(st.tuples(st.integers(0, 11), st.booleans()), min_size=60, max_size=60))
def test_no_two_builds_start_on_the_same_memory(
    work: list[list[tuple[float, float]]], order: list[tuple[int, bool]]
) -> None:
    """Writing, reading and deciding in any interleaving: promises never exceed the pool."""
    world = World(work)
    for number, ends in order:
        build = world.builds[number % len(world.builds)]
        world.end(build) if ends and build.asked is None and build.running else world.step(build)


@settings(max_examples=300)
@given(WORK)
def test_every_build_comes_to_its_end_and_nobody_starves(work: list[list[tuple[float, float]]]) -> None:
    """On a clock: all complete, and nobody waits with nothing running for longer than the others' turns take."""
    world = World(work)
    longest_s = max(lasts for phases in work for _, lasts in phases)
    waits_since = {build.name: 0.0 for build in world.builds}
    most_s = 0.0
    for _ in range(100_000):
        for build in world.builds:
            while build.running and min(end for _, end in build.running) <= world.now_s:
                world.end(build)
            world.look(build)
            world.whole(build)
            if build.running or not build.waiting:
                waits_since[build.name] = world.now_s
            most_s = max(most_s, world.now_s - waits_since[build.name])
        if not any(build.running or build.waiting for build in world.builds):
            break
        world.now_s += 0.25
    else:
        raise AssertionError("the builds do not end")
    assert most_s <= len(work) * (2 * longest_s + 1.0), most_s


@settings(max_examples=300)
@given(WORK, st.lists(st.floats(0, 100), min_size=4, max_size=4))
def test_when_nothing_runs_somebody_may_start(work: list[list[tuple[float, float]]], served_s: list[float]) -> None:
    """Whatever waits, of whatever size, and whoever was served how long: after a round of questions something runs."""
    world = World(work)
    for build, seconds in zip(world.builds, served_s, strict=False):
        build.served_s = seconds
    for build in world.builds * 2:
        world.whole(build)
    assert any(build.running for build in world.builds)


@given(
    st.lists(st.tuples(st.floats(0, 2000), st.floats(0, 2000), st.floats(0, 50)), min_size=2, max_size=5),
    st.floats(0, 3000),
)
def test_budgets_that_are_used_up_in_turn_fit(sizes: list[tuple[float, float, float]], pool_mib: float) -> None:
    """Each takes as much of its budget as it wants, one after the other: whoever takes stays within the pool."""
    records = [
        BuildRecord(build_id=f"{number:016x}", pid=1, scopes=("host",), waiting_mib=wants, served_s=served)
        for number, (_, wants, served) in enumerate(sizes)
    ]
    level = SharedLevel(scope="host", free_mib=pool_mib)
    for number, record in enumerate(records):
        peers = records[:number] + records[number + 1 :]
        takes = min(record.waiting_mib, budget_mib(record, peers, [level], 0.0))
        if takes > 0:
            records[number] = msgspec.structs.replace(record, committed_mib=takes, running=1, waiting_mib=0.0)
    assert sum(record.committed_mib for record in records) <= pool_mib + SLACK_MIB


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3)), min_size=2, max_size=2, unique=True))
def test_of_two_builds_one_goes_first(ranks: list[tuple[float, int]]) -> None:
    """Never both, never neither, once they differ."""
    one, two = (BuildRecord(build_id=f"{number:016x}", pid=1, served_s=served) for served, number in ranks)
    if one.build_id != two.build_id:
        assert outranks(one, two) != outranks(two, one)
