"""Traces of builds that never ran, written by the real writer: a small scheduler plays phases on cores and a budget.

Covers: good, killed and redone, too big, runaway and torn builds, of any length. Does *not* cover: how production
decides (``scheduler``): what comes first starts first, when a core and the memory are there.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from builddoctor.core.events import (
    TRACE_SCHEMA,
    BuildEnded,
    BuildResult,
    GiveUp,
    Header,
    Kill,
    KillReason,
    MemorySampled,
    PhaseStarted,
    Requeue,
    Rise,
    Status,
    Summary,
    UnitEnded,
)
from builddoctor.core.verdict import Verdict
from builddoctor.trace.writer import TraceWriter
from support.trace_events import Events, admitted, estimate_of, events, held, phase_asked, phase_ended, unit_began

TICK_S = 1.0
RAMP_STEPS = 8
TOOL_OF = {"host": "cc1plus", "preprocess": "cc1plus", "link": "collect2"}


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One phase as it will be. ``fate``: ``ok``, ``killed-once``, ``too-big`` or ``runaway``."""

    kind: str
    peak_mib: float
    wall_s: float
    arch: str = ""
    estimate_mib: float = 0.0
    fate: str = "ok"


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A build to be played: units in order, each with its phases in order, on a machine."""

    units: Sequence[tuple[str, Sequence[Work]]]
    cores: int = 4
    limit_mib: float = 8192.0
    budget_mib: float = 7168.0
    others_mib: float = 200.0
    title: str = "demo 1.0 · sm_100 · nvcc 13.0"
    stop_at_s: float | None = None
    """the trace ends here, in the middle of a line"""


def write_trace(path: Path, build: Made) -> Path:
    """Play the build and write its trace."""
    writer = TraceWriter(path)
    try:
        _Player(writer, build).play()
    finally:
        writer.close()
    if build.stop_at_s is not None:
        with path.open("ab") as file:
            file.write(b'{"t":"sample","at_s":')
    return path


class _Running(msgspec.Struct, eq=False):
    phase_id: int
    unit: int
    step: int
    work: Work
    reserve_mib: float
    tries: int
    from_s: float = 0.0
    rss_mib: float = 0.0


class _Player:
    def __init__(self, writer: TraceWriter, build: Made) -> None:
        self.writer, self.build = writer, build
        self.events: list[tuple[float, int, str, Any]] = []
        self.order = itertools.count()
        self.ids = itertools.count(1)
        self.line: list[tuple[float, _Running]] = []
        self.running: dict[int, _Running] = {}
        self.now_s = self.peak_mib = self.cpu_s = 0.0
        self.requeued = self.kills = self.phases = self.most = 0
        self.held: set[int] = set()
        self.verdict: str | None = None
        self.done = 0

    def say(self, *said: Events) -> None:
        self.writer.write(*events(*said))

    def at(self, at_s: float, what: str, value: Any) -> None:
        heapq.heappush(self.events, (at_s, next(self.order), what, value))

    def play(self) -> None:
        build = self.build
        self.say(_header(build))
        for unit in range(min(len(build.units), 2 * build.cores)):
            self.at(0.1 + 0.02 * unit, "unit", unit)
        self.at(0.0, "tick", None)
        while self.events:
            at_s, _, what, value = heapq.heappop(self.events)
            if build.stop_at_s is not None and at_s > build.stop_at_s:
                return
            self.now_s = at_s
            getattr(self, f"on_{what}")(value)
            if self.verdict is not None and not self.running:
                break
            if what == "tick" and self.done < len(build.units):
                self.at(at_s + TICK_S, "tick", None)
        self.say(BuildEnded(at_s=self.now_s, summary=self.summary()))

    def on_unit(self, index: int) -> None:
        name, work = self.build.units[index]
        archs = sorted({each.arch for each in work if each.arch})
        self.say(unit_began(at_s=self.now_s, unit_id=f"u{index}", source=name, archs=archs, threads=1))
        self.ask(index, 0)

    def ask(self, unit: int, step: int) -> None:
        work = self.build.units[unit][1][step]
        estimate = work.estimate_mib or work.peak_mib * 1.08
        run = _Running(
            phase_id=next(self.ids), unit=unit, step=step, work=work, reserve_mib=round(1.2 * estimate, 1), tries=0
        )
        self.phases += 1
        self.say(
            phase_asked(
                at_s=self.now_s,
                phase_id=run.phase_id,
                unit_id=f"u{unit}",
                kind=work.kind,
                tool=TOOL_OF.get(work.kind, work.kind),
                source=self.build.units[unit][0],
                arch=work.arch,
                input_mib=round(work.peak_mib / 200, 3),
                estimate_mib=round(estimate, 1),
                reserve_mib=run.reserve_mib,
                estimate_source="prior",
            )
        )
        self.line.append((self.now_s, run))
        self.admit()

    def admit(self) -> None:
        budget = self.build.budget_mib - self.build.others_mib
        while self.line and self.verdict is None and len(self.running) < self.build.cores:
            asked_s, run = self.line[0]
            free = budget - sum(max(each.reserve_mib, each.rss_mib) for each in self.running.values())
            if self.running and (run.reserve_mib > free or run.tries):
                self.hold(run, free)
                return
            self.line.pop(0)
            self.running[run.phase_id] = run
            self.most = max(self.most, len(self.running))
            run.from_s = self.now_s
            waited = round(self.now_s - asked_s, 3)
            self.say(
                admitted(
                    at_s=self.now_s,
                    phase_id=run.phase_id,
                    reserve_mib=run.reserve_mib,
                    waited_s=waited,
                    running=len(self.running),
                    estimate_mib=round(run.work.estimate_mib or run.work.peak_mib * 1.08, 1),
                    expected_s=run.work.wall_s,
                )
            )
            self.say(PhaseStarted(at_s=self.now_s + 0.001, phase_id=run.phase_id, pid=1000 + run.phase_id))
            steps = RAMP_STEPS if run.work.wall_s > 0.5 else 0
            for step in range(1, steps + 1):
                at_s = self.now_s + run.work.wall_s * step / (steps + 1)
                self.at(at_s, "grow", (run, run.tries, run.work.peak_mib * step / steps))
            self.at(self.now_s + run.work.wall_s, "end", (run, run.tries))

    def hold(self, run: _Running, free_mib: float) -> None:
        if run.phase_id in self.held:
            return
        self.held.add(run.phase_id)
        self.say(held(self.now_s, run.phase_id, run.reserve_mib, round(max(0.0, free_mib), 1)))

    def on_grow(self, value: tuple[_Running, int, float]) -> None:
        run, tries, rss_mib = value
        if run.tries != tries or run.phase_id not in self.running:
            return
        run.rss_mib = rss_mib
        self.peak_mib = max(self.peak_mib, sum(each.rss_mib for each in self.running.values()))
        ours_mib = sum(each.rss_mib for each in self.running.values())
        self.say(
            MemorySampled(
                at_s=self.now_s,
                rss_mib=((run.phase_id, round(rss_mib, 1)),),
                held_mib=round(ours_mib, 1),
                headroom_mib=round(self.build.limit_mib - self.build.others_mib - ours_mib, 1),
                budget_mib=self.build.budget_mib,
                reserve_mib=500.0,
            )
        )

    def on_end(self, value: tuple[_Running, int]) -> None:
        run, tries = value
        del self.running[run.phase_id]
        fate, work = run.work.fate, run.work
        killed = fate in ("too-big", "runaway") or (fate == "killed-once" and not tries)
        outcome = "ok" if not killed else "killed-by-us" if fate == "runaway" else "killed-by-kernel"
        if outcome == "killed-by-us":
            self.say(Kill(at_s=self.now_s, phase_id=run.phase_id, reason=KillReason.RUNAWAY, rise=_rise(work)))
        self.kills += outcome == "killed-by-kernel"
        self.cpu_s += 0.97 * work.wall_s
        self.say(
            phase_ended(
                at_s=self.now_s,
                phase_id=run.phase_id,
                outcome=outcome,
                exit_code=None if killed else 0,
                signal=9 if killed else None,
                cause="cgroup" if outcome == "killed-by-kernel" else "",
                peak_mib=work.peak_mib,
                wall_s=work.wall_s,
                cpu_s=round(0.97 * work.wall_s, 3),
            )
        )
        if killed:
            self.after_kill(run)
        else:
            self.next_step(run)
        self.admit()

    def after_kill(self, run: _Running) -> None:
        work = run.work
        if work.fate == "killed-once":
            self.requeued += 1
            run.tries, run.rss_mib, run.reserve_mib = 1, 0.0, round(1.5 * work.peak_mib, 1)
            self.say(
                Requeue(
                    at_s=self.now_s,
                    phase_id=run.phase_id,
                    estimate=estimate_of(work.peak_mib, run.reserve_mib),
                    solo=True,
                    lost_s=work.wall_s,
                    peak_mib=work.peak_mib,
                )
            )
            self.line.insert(0, (self.now_s, run))
            return
        self.verdict = work.fate
        rise = _rise(work) if work.fate == "runaway" else None
        verdict = Verdict(work.fate)
        self.say(GiveUp(at_s=self.now_s, phase_id=run.phase_id, verdict=verdict, peak_mib=work.peak_mib, rise=rise))

    def next_step(self, run: _Running) -> None:
        if self.verdict is not None:
            return
        if run.step + 1 < len(self.build.units[run.unit][1]):
            self.ask(run.unit, run.step + 1)
            return
        self.say(UnitEnded(at_s=self.now_s, unit_id=f"u{run.unit}"))
        self.done += 1
        following = self.done - 1 + min(len(self.build.units), 2 * self.build.cores)
        if following < len(self.build.units):
            self.on_unit(following)

    def on_tick(self, _: None) -> None:
        ours = sum(each.rss_mib for each in self.running.values())
        build = self.build
        self.say(
            Status(
                at_s=self.now_s,
                budget_mib=build.budget_mib - build.others_mib,
                limit_mib=build.limit_mib,
                headroom_mib=round(build.limit_mib - build.others_mib - ours, 1),
                ours_mib=round(ours, 1),
                running=len(self.running),
                waiting=len(self.line),
                open_units=len(self.running) + len(self.line),
                oom_kills=self.kills,
            )
        )

    def summary(self) -> Summary:
        build = self.build
        return Summary(
            result=BuildResult.OK if self.verdict is None else BuildResult.FAILED,
            exit_code=0 if self.verdict is None else 9,
            verdict=self.verdict,
            wall_s=round(self.now_s, 3),
            cpu_s=round(self.cpu_s, 3),
            budget_mib=build.budget_mib,
            limit_mib=build.limit_mib,
            peak_mib=round(self.peak_mib, 1),
            kernel_oom_kills=self.kills,
            requeued=self.requeued,
            killed=int(self.verdict == "runaway"),
            runaways=int(self.verdict == "runaway"),
            units=len(build.units),
            phases=self.phases,
            effective_jobs_mean=round(self.cpu_s / max(self.now_s, 1.0), 2),
            effective_jobs_max=self.most,
            gate_overhead_s=0.01 * self.phases,
            gate_peak_mib=9.0,
            gates=self.phases,
            trace=str(self.writer.path),
        )


def _rise(work: Work) -> Rise:
    return Rise(held_mib=work.peak_mib, expected_mib=round(work.peak_mib / 12, 1), rose_s=work.wall_s)


def _header(build: Made) -> Header:
    return Header(
        at_s=0.0,
        schema=TRACE_SCHEMA,
        builddoctor="0.1.0",
        trace_id="3f2a01",
        started_at="2025-06-01T10:00:00+00:00",
        command=["ninja"],
        cwd="/src/demo",
        title=build.title,
        archs=["sm_100"],
        cores=build.cores,
        window=2 * build.cores,
        budget_mib=build.budget_mib,
        limit_mib=build.limit_mib,
        limited_by="/sys/fs/cgroup/memory.max",
        page_kib=4,
        nvcc="13.0.88",
    )


def unit_of(
    name: str, *, device_mib: float, wall_s: float, arch: str = "sm_100", **fates: str
) -> tuple[str, list[Work]]:
    """A CUDA unit: what its phases take follows from its cicc. ``fates``: by kind, e.g. ``cicc="too-big"``."""
    shares = (
        ("preprocess", 0.05, 0.02),
        ("cudafe++", 0.25, 0.06),
        ("cicc", 1.0, 0.5),
        ("ptxas", 0.45, 0.3),
        ("host", 0.3, 0.12),
    )
    return name, [
        Work(
            kind=kind,
            peak_mib=round(max(20.0, device_mib * size), 1),
            wall_s=round(wall_s * time, 3),
            arch=arch if kind in ("cicc", "ptxas") else "",
            fate=fates.get(kind.replace("++", ""), "ok"),
        )
        for kind, size, time in shares
    ]


NAMES = (
    ("fused_attn/fused_attn_fp8.cu", 3400, 60),
    ("fused_attn/fused_attn_f16.cu", 2600, 48),
    ("normalization/layernorm/ln_fwd.cu", 1900, 40),
    ("normalization/layernorm/ln_bwd.cu", 2100, 44),
    ("normalization/rmsnorm/rms_fwd.cu", 1500, 30),
    ("activation/gelu.cu", 2900, 36),
    ("activation/swiglu.cu", 2400, 33),
    ("activation/relu.cu", 2300, 30),
    ("gemm/cublaslt_gemm.cu", 420, 9),
    ("gemm/cutlass_grouped_gemm.cu", 3900, 70),
    ("transpose/cast_transpose.cu", 700, 15),
    ("transpose/multi_cast_transpose.cu", 650, 14),
    ("multi_tensor/adam.cu", 270, 8),
    ("multi_tensor/l2norm.cu", 260, 8),
    ("util/padding.cu", 300, 7),
    ("hadamard/hadamard_cast_fusion.cu", 2500, 31),
)
"""Like the units of a library of deep learning: path, most memory in MiB, seconds."""


def usual_units(**fates: dict[str, str]) -> list[tuple[str, list[Work]]]:
    """The units above and a link. ``fates``: by the file's name without its end, as ``gelu={"cudafe": "runaway"}``."""
    units: list[tuple[str, list[Work]]] = []
    for name, device_mib, wall_s in NAMES:
        fate = fates.get(Path(name).stem, {})
        units.append(unit_of(name, device_mib=device_mib, wall_s=wall_s, **fate))
    units.append(("", [Work(kind="link", peak_mib=610.0, wall_s=4.0)]))
    return units


def many_units(number: int, phases: int = 5) -> Iterable[tuple[str, list[Work]]]:
    """A large build, for sizes and times."""
    for index in range(number):
        name, device_mib, wall_s = NAMES[index % len(NAMES)]
        unit = unit_of(
            f"part{index // 16}/{name}", device_mib=device_mib * (0.6 + (index * 37 % 80) / 100), wall_s=wall_s
        )
        yield unit[0], unit[1][:phases]
