"""Everything that happens in a build, as typed events: the one log that is decided on, shown, kept and replayed.

Covers: what gates, the kernel and other builds say (facts), what the scheduler decides (decisions), what is kept for
people and for later diagnosis (observations). A trace is these events, one JSON object a line, told apart by its ``t``,
in the order in which they were decided upon; ``scripts/generate`` writes the JSON Schema from them.
Does *not* cover: the file (``trace.writer``, ``trace.reader``), what they add up to (``trace.state``), their words
(``trace.words``).

``at_s`` is seconds since the build began, on the supervisor's monotonic clock; sizes are MiB. The scheduler is given an
event exactly as the log has it: what is rounded is rounded before it is decided upon, so that a replay decides the
same. A trace holds no environment but TMPDIR and a scheduler's job number, and of a failed build's output the lines
that tell why and the last thirty; what looks like a credential is masked before it gets here. Fields may be added
within a schema version; a reader skips events whose ``t`` it does not know.
"""

from __future__ import annotations

import math

import msgspec

from builddoctor.core.evidence import KillCause, Scene
from builddoctor.core.past import PastUnit, UnitKey
from builddoctor.core.phase import Estimate, Outcome, Phase, Unit
from builddoctor.core.settings import SchedulerSettings
from builddoctor.core.units import Mib, Seconds, Whole
from builddoctor.core.verdict import Verdict
from builddoctor.core.word import Word

TRACE_SCHEMA = 2
"""1: notes in place of typed waits, no samples and no pasts, so that nothing could be replayed (``trace.schema1``)."""


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="t", omit_defaults=True):
    """Base of all events."""

    at_s: Seconds = 0.0


class Header(Event, frozen=True, kw_only=True, tag="header"):
    """First line: what was run, where, under which limits."""

    schema: Whole
    builddoctor: str
    trace_id: str
    started_at: str
    """UTC, ISO 8601"""
    command: list[str]
    cwd: str
    title: str
    archs: list[str]
    cores: Whole
    window: Whole
    budget_mib: Mib
    limit_mib: Mib
    limited_by: str
    page_kib: Whole
    toolkit: str = ""
    nvcc: str = ""
    caps: list[str] = msgspec.field(default_factory=list)
    boot_id: str = ""
    oom_kills: Whole | None = None
    """the kernel's kill counter at the start"""
    threads: Whole = 0
    """nvcc's ``--threads``; 0 in traces that do not say"""
    project: str = ""
    """what the project calls itself"""
    project_version: str = ""
    host_compiler: str = ""
    """such as ``12.2.0``"""
    host_arch: str = ""
    settings: SchedulerSettings | None = None
    """None in traces that cannot be replayed"""
    staged: bool = False
    """a staged build: its phases have no gates of their own"""
    attached: bool = False
    """a build that was started without us: its compilers were found running, and seen once a second at best"""

    @property
    def project_name(self) -> str:
        """What was built, for a person: the project, else the folder."""
        return self.project or self.cwd.rstrip("/").rpartition("/")[2]


# -- facts: what the scheduler decides upon ------------------------------------------------------------------


class UnitBegan(Event, frozen=True, kw_only=True, tag="unit"):
    """A compiler driver began a unit."""

    unit: Unit
    held: bool = False
    """it waits at its gate until it is released"""
    argv_digest: str = ""
    key: UnitKey | None = None
    """its name across builds and machines; None for what has none: what configure steps try out"""
    target: str = ""
    """what is made, as the build tool calls it: a path below the folder where it runs the compiler"""
    source_digest: str = ""
    """of the source file itself, not of what it includes"""
    past: PastUnit | None = None
    """what the user's history or a recipe knows of it, the nearer of both for each phase"""
    teaches: bool = True
    """other units are like it; what a configure step tries out is not"""


class UnitEnded(Event, frozen=True, kw_only=True, tag="unit-end"):
    """The driver of a unit ended."""

    unit_id: str


class PhaseAsked(Event, frozen=True, kw_only=True, tag="ask"):
    """A gate asks to start its tool."""

    phase: Phase
    argv_digest: str = ""


class CompilerFound(Event, frozen=True, kw_only=True, tag="found"):
    """A compiler that runs already: nobody asked for it, and nobody held it back (``builddoctor attach``)."""

    phase: Phase
    pid: Whole
    estimate: Estimate
    expected_s: Seconds = 0.0
    """time that it is expected to take in all"""

    @property
    def phase_id(self) -> int:
        return self.phase.phase_id


class PhaseStarted(Event, frozen=True, kw_only=True, tag="start"):
    """The tool runs."""

    phase_id: Whole
    pid: Whole


class Beside(Word):
    """What else held memory under the same limit while a phase ran."""

    OTHER_BUILDS = "other-builds"
    """supervised ones, of the same user"""
    UNGATED = "ungated"
    """processes of this build that no gate asked for"""


class PhaseEnded(Event, frozen=True, kw_only=True, tag="end"):
    """A tool ended, or its gate went away. The outcome is what happened, whatever is made of it."""

    phase_id: Whole
    outcome: Outcome
    peak_mib: Mib
    wall_s: Seconds
    """from its admission on, without the time that it stood still"""
    cpu_s: Seconds = 0.0
    exit_code: Whole | None = None
    signal: Whole | None = None
    cause: KillCause | None = None
    """what sent a SIGKILL that was not ours"""
    beside: tuple[Beside, ...] = ()
    """what else was there while it ran; told of kernel kills, where it matters"""
    node: str = ""
    """the other machine that it ran on; then ``wall_s`` is its time there. ``phase.STORE`` where it did not run: then
    size and time are those of the run that was kept"""
    sent_mib: Mib = 0.0
    """compressed, to that machine"""
    back_mib: Mib = 0.0
    """compressed, from it"""
    transfer_s: Seconds = 0.0
    """from the decision to send it to its end, less its time there; or what taking it from the store took"""


class NodeSeen(Event, frozen=True, kw_only=True, tag="node"):
    """Another machine can run phases of this build (``--cluster``)."""

    node: str
    cores: Whole
    budget_mib: Mib
    """what phases may hold there, when nothing else runs"""
    tools: tuple[str, ...]
    """names of the programs that it has too, byte for byte"""


class NodeLost(Event, frozen=True, kw_only=True, tag="node-lost"):
    """It is gone: what ran there ends with ``Outcome.NODE_LOST``."""

    node: str


class MemorySampled(Event, frozen=True, kw_only=True, tag="sample"):
    """A look at memory: what running phases hold, and what is left at the tightest level."""

    rss_mib: tuple[tuple[Whole, Mib], ...] = ()
    """(phase_id, anonymous resident memory) of the running phases that were looked at; the others hold still"""
    held_mib: Mib = 0.0
    """what all running phases hold"""
    headroom_mib: Mib
    """left before something is killed, at the tightest level that kills at once"""
    budget_mib: Mib
    """what phases may hold together: headroom of the level that leaves least, their own use added, less the reserve"""
    reserve_mib: Mib
    cpu_s: tuple[tuple[Whole, Seconds], ...] = ()
    """(phase_id, processor time so far) of phases that ``Scheduler.suspects`` named"""


class MemoryUnseen(Event, frozen=True, kw_only=True, tag="unseen"):
    """Memory could not be looked at: nothing new starts beside what runs, until it can."""

    problem: str


class HighLevel(msgspec.Struct, frozen=True, kw_only=True):
    """A ``memory.high``: beyond it the kernel kills nothing, it holds processes back."""

    source: str
    limit_mib: Mib
    headroom_mib: Mib


class PressureSampled(Event, frozen=True, kw_only=True, tag="pressure"):
    """A look at how hard the kernel works for memory (``core.limits``)."""

    full_s: Seconds | None = None
    refault_mib: Mib | None = None
    fullness: float | None = None
    headroom_share: float
    """headroom of the tightest level as a share of its limit"""
    some_s: Seconds | None = None
    high_events: Whole | None = None
    """times that processes were held back at a ``memory.high``, in total"""
    high: HighLevel | None = None
    """the one with the least headroom; None where none is set"""
    held_mib: Mib = 0.0
    """what all running phases hold; told where there is a ``memory.high``"""


class UngatedProcess(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process of the build that no gate asked for, without children, which may be stopped for a while."""

    pid: Whole
    start_ticks: Whole
    """since the machine started: with the pid, its identity; the larger, the younger"""
    name: str
    rss_mib: Mib
    cpu_s: Seconds
    stopped: bool = False
    """by anyone"""

    @property
    def key(self) -> tuple[int, int]:
        """Its identity; in order of age, oldest first."""
        return (self.start_ticks, self.pid)


class UngatedSeen(Event, frozen=True, kw_only=True, tag="ungated"):
    """Memory is short and phases do not explain it: the processes of the build that no gate asked for."""

    processes: tuple[UngatedProcess, ...] = ()
    headroom_mib: Mib
    reserve_mib: Mib
    phases_mib: Mib
    """what phases hold"""
    phases_cpu_s: Seconds = 0.0
    """processor time of the phases that run: when it changes, they make progress"""


class UngatedGone(Event, frozen=True, kw_only=True, tag="ungated-gone"):
    """Memory is no longer short, or phases explain it again."""


class PauseRefused(Event, frozen=True, kw_only=True, tag="pause-refused"):
    """A process could not be stopped: it is gone, or not ours."""

    process: UngatedProcess


class SuspendRefused(Event, frozen=True, kw_only=True, tag="suspend-refused"):
    """This phase could not be suspended: it works."""

    phase_id: Whole


class ShareSettled(Event, frozen=True, kw_only=True, tag="share"):
    """What this build may promise to its phases beside the other supervised builds of its user has changed."""

    lease_mib: Mib | None = None
    """None: there are no others"""
    pool_mib: Mib | None = None
    """what all builds under the tightest limit may have together; None: not known"""
    growth_mib_s: float = 0.0
    """how fast the phases of all of them grow"""
    yields: bool = False
    """should memory run out now, it is this build that ends its only phase, by the rule that all of them share"""


class Interrupted(Event, frozen=True, kw_only=True, tag="interrupted"):
    """The build is being ended: nothing is released or paused any more, and what is paused goes on."""

    signal: Whole | None = None
    """None: it has ended by itself"""


class NinjaFailed(Event, frozen=True, kw_only=True, tag="ninja-failed"):
    """A ninja that ends at its first failure had one: it starts nothing more, and waits for what it has started."""

    pid: Whole
    unit_id: str
    """that failed"""
    units: tuple[str, ...] = ()
    """that it has started, the failed one among them"""


class TimePassed(Event, frozen=True, kw_only=True, tag="time"):
    """Nothing else happened."""


# -- decisions: what the scheduler wants done -----------------------------------------------------------------


class Queue(Event, frozen=True, kw_only=True, tag="queue"):
    """The phase waits, with this estimate; what runs at once is admitted by the next decision."""

    phase_id: Whole
    estimate: Estimate


class Admit(Event, frozen=True, kw_only=True, tag="admit"):
    """Let this phase start (or start again)."""

    phase_id: Whole
    estimate: Estimate
    alone: bool = False
    """nothing else ran when it was admitted"""
    waited_s: Seconds = 0.0
    running: Whole = 0
    """phases that run now, itself among them"""
    expected_s: Seconds = 0.0
    """time that it is expected to take"""
    thrift: bool = False
    """its compiler is told to collect garbage earlier, which leaves its output as it is"""
    gives_way: bool = False
    """it works at a lower priority, beside a unit on which the end of the build depends"""
    node: str = ""
    """the other machine that it is sent to, or ``phase.STORE``"""


class HoldReason(Word):
    """Why a phase waits."""

    MEMORY = "memory"
    CORES = "cores"
    ALONE = "alone"
    """it must run alone"""
    OTHER_ALONE = "other-alone"
    """another phase runs alone"""
    FREEING = "freeing"
    """a phase was ended, and its memory is not back yet"""
    TIME = "time"
    """its unit would not end before the build has to"""
    NODE = "node"
    """it does not fit here, and waits for another machine"""
    FAILURE = "failure"
    """another unit failed, and its ninja ends with that"""


class Hold(Event, frozen=True, kw_only=True, tag="hold"):
    """This phase waits; decided once when it begins to, and again when the reason changes."""

    phase_id: Whole
    needs_mib: Mib
    free_mib: Mib
    reason: HoldReason


class Rise(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Growth without a rest, beyond all expectation."""

    held_mib: Mib
    expected_mib: Mib
    rose_s: Seconds
    to_its_end: bool = False
    """it rose until the kernel ended it"""


class Stall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The build hangs at its memory limit instead of dying of it."""

    over_s: Seconds
    full_share: float | None = None
    """share of ``over_s`` for which all processes waited for memory; None where refaults tell"""
    refault_mib_s: float | None = None
    """memory read in again at the limit, while no phase ended"""


class Throttled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A phase that needs more than ``memory.high`` gets no further: the kernel holds it back for ever."""

    times: Whole
    """that it was held back"""
    over_s: Seconds
    limit_mib: Mib
    source: str


class KillReason(Word):
    """Why a phase is ended."""

    HEADROOM = "headroom"
    """what is left would be taken before the next look"""
    STOOD = "stood"
    """it stood still for a minute, nothing ended meanwhile, and others wait for what it holds"""
    STALL = "stall"
    RUNAWAY = "runaway"
    THROTTLED = "throttled"
    """it gets no further at ``memory.high``"""
    UNGATED = "ungated"
    """memory runs out beside processes that cannot be run again"""
    OTHER_BUILD = "other-build"
    """memory runs out, and another build goes on"""
    LARGER_PLACE = "larger-place"
    """memory runs out, and another machine has more"""
    INTERRUPTED = "interrupted"
    """the build is being ended, and what is asked to end would wait for memory first"""


class Kill(Event, frozen=True, kw_only=True, tag="kill"):
    """End this running phase now; what becomes of it is decided when it has ended."""

    phase_id: Whole
    reason: KillReason
    headroom_mib: Mib = 0.0
    growth_mib_s: float = 0.0
    rise: Rise | None = None
    stall: Stall | None = None
    throttled: Throttled | None = None
    said: str = ""
    """the reason in words, in traces of schema 1 alone"""


class Suspend(Event, frozen=True, kw_only=True, tag="suspend"):
    """Stop this running phase for a while: the others can end beside it, and it loses nothing."""

    phase_id: Whole
    held_mib: Mib
    left_mib: float
    """before what would be danger"""
    growth_mib_s: float
    """of all that worked"""


class ContinueReason(Word):
    """Why a phase or a process that was stopped goes on."""

    MEMORY_BACK = "memory-back"
    NOTHING_MOVES = "nothing-moves"
    """nothing else makes progress"""
    LONG_ENOUGH = "long-enough"
    """timeouts around it go on counting"""
    REFUSED = "refused"
    """it could not be stopped"""
    BUILD_ENDS = "build-ends"
    UNSEEN = "unseen"
    """memory cannot be looked at any more"""


class Resume(Event, frozen=True, kw_only=True, tag="resume"):
    """Let this phase go on."""

    phase_id: Whole
    stood_s: Seconds
    reason: ContinueReason


class Requeue(Event, frozen=True, kw_only=True, tag="requeue"):
    """This phase died for memory and will run again with this estimate."""

    phase_id: Whole
    estimate: Estimate
    solo: bool = False
    """it will run alone"""
    lost_s: Seconds = 0.0
    peak_mib: Mib = 0.0
    """what it held when it was ended"""
    thrift: bool = False
    """it will be started so that its compiler collects garbage earlier"""


class GiveUp(Event, frozen=True, kw_only=True, tag="give-up"):
    """This phase cannot be saved: the build gets its failure."""

    phase_id: Whole
    verdict: Verdict
    """too big, a runaway, killed from outside again, or not to be run again"""
    peak_mib: Mib = 0.0
    rise: Rise | None = None
    throttled: Throttled | None = None
    standstill: Stall | None = None
    """it ran alone, and stood still at the limit"""
    said: str = ""
    """the reason in words, in traces of schema 1 alone"""


class OutOfTime(Event, frozen=True, kw_only=True, tag="out-of-time"):
    """Nothing that waits can end before the build has to: stop it in order."""


class StopNinja(Event, frozen=True, kw_only=True, tag="stop-ninja"):
    """End this ninja, which had a failure, as soon as it waits for none but these units."""

    pid: Whole
    units: tuple[str, ...] = ()


class ReleaseUnit(Event, frozen=True, kw_only=True, tag="unit-open"):
    """Let this unit, which waits at its gate, become nvcc."""

    unit_id: str
    threads: Whole = 0
    """for nvcc's ``--threads``; 0 leaves it as the build gave it"""
    waited_s: Seconds = 0.0


class Pause(Event, frozen=True, kw_only=True, tag="pause"):
    """Stop this process for a while. ``free_mib``: what was free for all such processes that grow."""

    process: UngatedProcess
    free_mib: Mib


class Continue(Event, frozen=True, kw_only=True, tag="continue"):
    """Let this process go on."""

    process: UngatedProcess
    stopped_s: Seconds
    reason: ContinueReason


class WarningKind(Word):
    """What a person should know of a decision."""

    OVERDRAWN = "overdrawn"
    """a phase alone holds more than a limit that the kernel does not keep (``--memory``)"""
    STALLED = "stalled"
    """the build hangs for memory: nothing new starts"""
    THRIFT = "thrift"
    """a phase that does not fit is tried with less memory"""
    FIRST_FAILURE = "first-failure"
    """ninja ends with the unit that failed: others that it has started are not built"""


class Warn(Event, frozen=True, kw_only=True, tag="warn"):
    """Something that a person should know of a decision."""

    kind: WarningKind
    phase_id: Whole | None = None
    size_mib: Mib = 0.0
    """what the phase holds, is expected to take, or was killed at"""
    budget_mib: Mib | None = None
    """what there is, where it is less than that"""
    stall: Stall | None = None
    units: Whole = 0
    """that are not built"""


Decision = (
    Queue
    | Admit
    | Hold
    | Suspend
    | Resume
    | Kill
    | Requeue
    | GiveUp
    | OutOfTime
    | StopNinja
    | ReleaseUnit
    | Pause
    | Continue
    | Warn
)

Fact = (
    UnitBegan
    | UnitEnded
    | PhaseAsked
    | PhaseEnded
    | MemorySampled
    | MemoryUnseen
    | PressureSampled
    | UngatedSeen
    | UngatedGone
    | PauseRefused
    | SuspendRefused
    | ShareSettled
    | NodeSeen
    | NodeLost
    | Interrupted
    | NinjaFailed
    | TimePassed
)
"""What the scheduler takes."""


# -- observations: kept for people and for diagnosis, decided upon by nothing ----------------------------------


class Status(Event, frozen=True, kw_only=True, tag="tick"):
    """Once a second: the whole picture."""

    budget_mib: Mib
    limit_mib: Mib
    headroom_mib: Mib
    ours_mib: Mib
    running: Whole
    waiting: Whole
    open_units: Whole
    held_units: Whole = 0
    """units that wait at their nvcc gate: not among the open ones"""
    oom_kills: Whole | None = None
    planned: Whole | None = None
    """units that the build tool means to compile, those that are done included; None while it has not said"""
    left_s: tuple[Seconds, Seconds] | None = None
    """time until the last unit has ended, from and to; None while that is not known"""
    committed_mib: Mib = 0.0
    """what running phases hold or may still take"""
    limited_by: str = ""
    """the tightest limit, where it is another than the header's"""


class NoteLevel(Word):
    """How much a note matters."""

    INFO = "info"
    WARNING = "warning"
    HOLD = "hold"
    """a wait in words, as traces of schema 1 have it"""


class Note(Event, frozen=True, kw_only=True, tag="note"):
    """A line for a person, about surroundings or settings. No program reads it."""

    text: str
    level: NoteLevel = NoteLevel.INFO


class ToolkitChosen(Event, frozen=True, kw_only=True, tag="toolkit"):
    """From here on the build takes another CUDA toolkit than before: its script loads a module, or its folder was
    configured with that one. Written before the first unit that takes it."""

    toolkit: str
    """what CUDA_HOME would be, as in the header"""
    nvcc: str
    """its version"""


class UnitCommand(Event, frozen=True, kw_only=True, tag="command"):
    """The compiler driver's own command line, credentials masked; written before its unit's event.

    Where it is nearly that of an earlier unit, only what differs (``trace.commands`` puts it together again).
    """

    unit_id: str
    tool: str = ""
    """the driver as it was called"""
    cwd: str = ""
    argv: list[str] = msgspec.field(default_factory=list)
    """without the driver itself"""
    like: str = ""
    """the unit that has the other words, in an event of its own; then tool and folder are that one's too"""
    changed: list[tuple[int, str]] = msgspec.field(default_factory=list)
    """place and word"""


class KeptFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input of a phase, kept."""

    name: str
    """in the phase's folder beside the trace, without its ``.gz``"""
    path: str
    """what the command line calls it"""
    size_bytes: Whole


class InputsKept(Event, frozen=True, kw_only=True, tag="kept"):
    """The inputs of a phase that was given up, or crashed, were kept: ``<trace without .jsonl>.repro/<phase_id>/``."""

    phase_id: Whole
    tool: str
    """the program itself, not its gate"""
    argv: list[str]
    cwd: str
    files: list[KeptFile]
    preprocessed: bool = False
    """its source stands there with all that it includes"""
    versions: list[str] = msgspec.field(default_factory=list)
    """such as ``g++ 12.2.0``"""
    note: str = ""
    """what is missing"""


class SceneMoment(Word):
    """When a look around was taken."""

    START = "start"
    """of the build"""
    PHASE = "phase"
    """a phase failed or was killed"""
    END = "end"
    """the build has failed"""


class SceneSeen(Event, frozen=True, kw_only=True, tag="seen"):
    """What was around: once at the start, at a phase that failed or was killed, and when a build has failed."""

    phase_id: Whole | None = None
    when: SceneMoment
    scene: Scene


class OutputFinding(Event, frozen=True, kw_only=True, tag="said"):
    """A line of the build's output that the catalogue of texts knows. Credentials in it are masked."""

    entry: str
    verdict: str = ""
    weight: str
    line: Whole
    """from 1, within its stream"""
    text: str
    captured: dict[str, str] = msgspec.field(default_factory=dict)
    stream: str = ""
    """``stdout`` or ``stderr``; empty where both are one"""


class OutputTail(Event, frozen=True, kw_only=True, tag="tail"):
    """The last lines that a build printed which failed, cleaned and masked."""

    lines: list[str]
    stream: str = ""
    read: Whole = 0
    """lines in all"""
    failing: Whole | None = None
    """line of the first command that failed, as the build tool says it"""


SUMMARY_SCHEMA = 1
"""of what ``--summary FILE`` writes"""


class BuildResult(Word):
    """How a build ended."""

    OK = "ok"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one build: what ``--summary FILE`` writes, one JSON object. Its keys are relied upon."""

    schema: int = SUMMARY_SCHEMA
    """version of this object"""
    result: BuildResult
    """``ok``, ``failed`` or ``interrupted``"""
    exit_code: int
    """the build's own exit code; 128 + N after signal N"""
    verdict: str | None = None
    """why it failed, as its trace was judged at the end (one of the verdicts in remedies.md); null where it did not"""
    wall_s: float
    """from the start of the build command to its end"""
    cpu_s: float
    """processor time of all gated compiler phases"""
    budget_mib: float
    """memory that phases could have at the end: headroom + their own use - reserve"""
    limit_mib: float
    """the smallest memory limit in force"""
    peak_mib: float
    """most memory that phases held at once, sampled"""
    kernel_oom_kills: int
    """kills that the kernel made in this build's limits"""
    requeued: int
    """phases that were killed and run again"""
    killed: int
    """phases that builddoctor killed itself"""
    runaways: int = 0
    """phases that grew without end and were given up"""
    remedied: int = 0
    """phases that were too big and tried again with less memory (``--auto-remedy``)"""
    left_s: float | None = None
    """what the rest would take, about, where the build was stopped by ``--until`` (exit code 75)"""
    suspended: int = 0
    """times that a phase was stopped for a while, so that others could end within memory"""
    paused: int = 0
    """times that a process was stopped for a while for memory, since no gate had asked for it"""
    units: int
    """translation units that were compiled"""
    phases: int
    """compiler phases that ran, or were taken from the store"""
    stored: int = 0
    """phases that were taken from the store (``--store``)"""
    stored_s: float = 0.0
    """processor time that these took when they ran"""
    effective_jobs_mean: float
    """phases running at once, mean over the time that any ran"""
    effective_jobs_max: int
    """phases running at once, most"""
    gate_overhead_s: float
    """processor time of all gates and of the supervisor's answers to them"""
    gate_peak_mib: float
    """most memory that one gate held"""
    gates: int
    """gates that ran"""
    trace: str
    """path of the trace"""

    @property
    def runs_left(self) -> int:
        """Runs as long as this one that the rest takes, about; 0 where that is not known."""
        return math.ceil(self.left_s / max(1.0, self.wall_s)) if self.left_s else 0


class BuildEnded(Event, frozen=True, kw_only=True, tag="summary"):
    """Last line of a whole trace: the summary object."""

    summary: Summary


Observation = (
    Header
    | CompilerFound
    | PhaseStarted
    | Status
    | Note
    | ToolkitChosen
    | UnitCommand
    | InputsKept
    | SceneSeen
    | OutputFinding
    | OutputTail
    | BuildEnded
)

BuildEvent = Fact | Decision | Observation
