"""From facts to a verdict: a table, read from the top; the first row whose conditions all hold says it. Pure.

Order: what the kernel counted and which group was full, then how a process ended, then what was printed, then what
follows any failure. A text alone never says what the counters deny: such rows say so, with low confidence.
Does *not* cover: finding the facts (``diagnose.trace_facts``), evidence, words and ways out (``diagnose.from_trace``).
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import msgspec

from builddoctor.core.events import BuildResult
from builddoctor.core.evidence import KillCause
from builddoctor.core.phase import Outcome
from builddoctor.core.verdict import Verdict
from builddoctor.core.word import Confidence
from builddoctor.diagnose.catalogue import Layer, layer_of
from builddoctor.diagnose.kernel_log import OomScope
from builddoctor.diagnose.trace_facts import ROOMY_MIB, Facts, is_exhausted

Condition = Callable[[Facts], bool]

ENDING_SIGNALS = frozenset((signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM))
"""No compiler sends them to itself."""
CRASH_SIGNALS = frozenset((signal.SIGILL, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV))

AMPLE_SHARE = 0.1
"""of the limit free all the time: a compiler that failed did not fail for memory"""

TMPFS_SHARE = 0.33
"""of a limit that files in memory take: they are what filled it"""

TMPFS_BESIDE_SHARE = 0.15
"""or that much, and more than the phase held itself"""

OTHERS_SHARE = 0.25
"""of a parent's limit that others hold at least, where it was they that filled it"""

FAR_SHARE = 0.6
"""of the limit: what was killed alone with less than that did not fill it"""

NEAR_SHARE = 0.25
"""of an address space that was resident: most of the rest is code, and memory that was asked for and not yet touched"""

CPU_SHARE = 0.9

KILL_TEXTS = frozenset(
    (
        Verdict.PARALLEL,
        Verdict.TOO_BIG,
        Verdict.RUNAWAY,
        Verdict.CGROUP_PARENT,
        Verdict.NUMA_POLICY,
        Verdict.TMPFS,
        Verdict.OOMD,
        Verdict.EXTERNAL_KILL,
    )
)
"""Verdicts whose texts speak of a kill: the kernel counts those that are its own."""


# -- conditions: each a question to the facts --------------------------------------------------------------------


def opposite(condition: Condition) -> Condition:
    """It does not hold."""
    return lambda facts: not condition(facts)


def interrupted(facts: Facts) -> bool:
    return facts.result is BuildResult.INTERRUPTED


def by_sigterm(facts: Facts) -> bool:
    return facts.exit_code == 128 + signal.SIGTERM


def in_a_job(facts: Facts) -> bool:
    return bool(facts.job)


def unit_ended(facts: Facts) -> bool:
    """systemd ends a unit as a whole when the kernel has killed something in it, and it has."""
    return facts.kernel_kills > 0 and bool(facts.scene and facts.scene.unit_stops)


def gave_up(facts: Facts) -> bool:
    return facts.gave_up is not None


def gave_up_as(verdict: Verdict) -> Condition:
    """builddoctor gave the phase up with that verdict."""
    return lambda facts: facts.gave_up is verdict


def ran_elsewhere(facts: Facts) -> bool:
    """Its last run was on another machine."""
    return bool(facts.node)


def killed_for_memory(facts: Facts) -> bool:
    given_up = facts.gave_up in (Verdict.TOO_BIG, Verdict.NOT_REDOABLE)
    return given_up or facts.outcome == Outcome.KILLED_BY_KERNEL.value or unseen_kill(facts)


def unseen_kill(facts: Facts) -> bool:
    """The kernel killed something that no gate stood before, and no phase failed for another reason."""
    return facts.unexplained_kills > 0 and (facts.phase is None or text_of_a_kill(facts))


def several_ran(facts: Facts) -> bool:
    return facts.most_running > 1


def marked_by_oomd(facts: Facts) -> bool:
    by_mark = facts.last is not None and facts.last.cause == KillCause.OOMD.value
    return by_mark or (facts.phase is None and bool(facts.scene and facts.scene.oomd_kills) and text_of_a_kill(facts))


def kernel_names_nodes(facts: Facts) -> bool:
    return facts.kernel is not None and facts.kernel.scope is OomScope.NODES


def nodes_left_out(facts: Facts) -> bool:
    return bool(facts.scene and (facts.scene.nodes_allowed or facts.scene.policy))


def no_group_reached(facts: Facts) -> bool:
    return not (facts.scene and any(group.reached for group in facts.scene.groups))


def memory_elsewhere(facts: Facts) -> bool:
    """The machine had room for what died, on nodes that it may not use."""
    available_mib = None if facts.scene is None else facts.scene.available_mib
    return available_mib is not None and available_mib >= 2 * facts.peak_mib


def parent_full(facts: Facts) -> bool:
    return facts.parent is not None


def mostly_others(facts: Facts) -> bool:
    """Others hold as much as all of ours did, and a good part of the limit."""
    if facts.parent is None:
        return False
    ours_mib = max(facts.peak_mib, 0.0 if facts.scene is None else facts.scene.ours_mib)
    return facts.parent.others_mib >= max(ours_mib, OTHERS_SHARE * facts.parent.limit_mib)


def limit_not_seen(facts: Facts) -> bool:
    """The kernel's kill, and no level that can be seen had reached its limit; or the kernel's log says so."""
    if facts.outcome != Outcome.KILLED_BY_KERNEL.value or facts.last is None:
        return False
    above = facts.last.cause in (KillCause.ANCESTOR.value, KillCause.HOST.value)
    return above or (facts.kernel is not None and facts.kernel.scope is OomScope.PARENT)


def ended_at_memory_high(facts: Facts) -> bool:
    """builddoctor ended it, under a limit that throttles and does not kill."""
    return facts.outcome == Outcome.KILLED_BY_US.value and facts.limited_by.endswith("/memory.high")


def far_below_the_limit(facts: Facts) -> bool:
    return 0 < facts.peak_mib <= FAR_SHARE * facts.limit_mib


def tmpfs_filled(facts: Facts) -> bool:
    if facts.limit_mib <= 0:
        return False
    share = facts.tmpfs_mib / facts.limit_mib
    return share >= TMPFS_SHARE or (share >= TMPFS_BESIDE_SHARE and facts.tmpfs_mib >= facts.peak_mib)


def cpu_time_used_up(facts: Facts) -> bool:
    return facts.cpu is not None and facts.last is not None and facts.last.cpu_s >= CPU_SHARE * facts.cpu.size


def allotment_used_up(facts: Facts) -> bool:
    allotted_mib = None if facts.scene is None else facts.scene.allotted_mib
    return allotted_mib is not None and facts.peak_mib >= (1 - AMPLE_SHARE) * allotted_mib


def failed(facts: Facts) -> bool:
    return facts.failed


def cpu_time_signal(facts: Facts) -> bool:
    return facts.signal == signal.SIGXCPU


def file_size_signal(facts: Facts) -> bool:
    return facts.signal == signal.SIGXFSZ


def ending_signal(facts: Facts) -> bool:
    return facts.signal in ENDING_SIGNALS


def crashed(facts: Facts) -> bool:
    return facts.signal in CRASH_SIGNALS


def kernel_saw_the_crash(facts: Facts) -> bool:
    return bool(facts.crash_line)


def disk_full(facts: Facts) -> bool:
    return facts.full is not None


def nothing_fits(facts: Facts) -> bool:
    return facts.full is not None and is_exhausted(facts.full)


def without_a_word(facts: Facts) -> bool:
    """It said nothing of what it failed for. What a signal ended could not; what ran on a full disk may not have had
    room for it; make and ninja say that something failed, and no more."""
    return facts.root is None or crashed(facts) or layer_of(facts.root.entry) == Layer.DRIVER.rank


def looked_at_the_phase(facts: Facts) -> bool:
    return facts.at_phase


def roomy(facts: Facts) -> bool:
    """When the phase died, every folder that was looked at had plenty of room."""
    if facts.scene is None or not facts.at_phase:
        return False
    sizes = [folder.free_mib for folder in facts.scene.folders if folder.role != "trace"]
    return bool(sizes) and all(size is not None and size >= ROOMY_MIB for size in sizes)


def capped(facts: Facts) -> bool:
    return facts.cap is not None


def cap_near(facts: Facts) -> bool:
    return facts.cap is not None and facts.peak_mib >= NEAR_SHARE * facts.cap.size


def few_processes(facts: Facts) -> bool:
    return facts.processes is not None


def ample_memory(facts: Facts) -> bool:
    return facts.least_free_share is not None and facts.least_free_share > AMPLE_SHARE


def counters_read(facts: Facts) -> bool:
    """Some counter that would have risen with a kill of ours could be read."""
    scene = facts.scene
    return scene is not None and (
        scene.host_kills is not None or any(group.kills is not None for group in scene.groups[:1])
    )


def text_known(facts: Facts) -> bool:
    return facts.text is not None and facts.text.verdict is not Verdict.UNKNOWN


def text_says(facts: Facts) -> bool:
    return facts.text is not None and facts.text.says and facts.text.verdict is not Verdict.UNKNOWN


def text_of_a_kill(facts: Facts) -> bool:
    return facts.text is not None and facts.text.verdict in KILL_TEXTS


def text_of(verdict: Verdict) -> Condition:
    """What was printed speaks for that verdict."""
    return lambda facts: facts.text is not None and facts.text.verdict is verdict


def text_of_no_full_disk(facts: Facts) -> bool:
    """A text says another cause than a full disk."""
    return text_says(facts) and not text_of(Verdict.DISK_FULL)(facts)


# -- the table ---------------------------------------------------------------------------------------------------


class Rule(msgspec.Struct, frozen=True):
    """One row."""

    name: str
    when: tuple[Condition, ...]
    verdict: Verdict | None
    confidence: Confidence
    why: str
    """a sentence; ``{name}`` stands for what is known (``diagnose.from_trace``)"""
    by_text: bool = False
    """the verdict is that of the line that was printed"""


def decide(facts: Facts) -> Rule:
    """The first row whose conditions all hold; the last has none."""
    return next(rule for rule in RULES if all(condition(facts) for condition in rule.when))


FEWER_JOBS = "Fewer jobs cannot help"

RULES: tuple[Rule, ...] = (
    # -- what the kernel counted, and whose limit it was ----------------------------------------------------------
    Rule(
        "runaway",
        (gave_up_as(Verdict.RUNAWAY),),
        Verdict.RUNAWAY,
        Confidence.HIGH,
        f"it grew without end: {{held}} when it was ended, and still rising. {FEWER_JOBS}, nor can a lower MAX_JOBS: "
        "one process took all of it; nor does more memory",
    ),
    # What this machine's counters say is of no weight for what ran elsewhere.
    Rule(
        "too-big-elsewhere",
        (gave_up_as(Verdict.TOO_BIG), ran_elsewhere),
        Verdict.TOO_BIG,
        Confidence.HIGH,
        f"it does not fit: {{node}} ended it at {{held}}, and no other node has more memory. {FEWER_JOBS}",
    ),
    Rule(
        "oomd",
        (marked_by_oomd,),
        Verdict.OOMD,
        Confidence.HIGH,
        "systemd-oomd ended it for memory pressure, at {held}: it marks the groups that it kills, and no counter of "
        "the kernel's rises",
    ),
    Rule(
        "nodes-by-kernel",
        (killed_for_memory, kernel_names_nodes),
        Verdict.NUMA_POLICY,
        Confidence.HIGH,
        "the NUMA nodes that it may use were full, as the kernel says ({constraint}); others may have had room",
    ),
    Rule(
        "parent-filled-by-others",
        (killed_for_memory, parent_full, mostly_others),
        Verdict.CGROUP_PARENT,
        Confidence.HIGH,
        "the limit of a group above it was reached, {parent_limit} at {parent}, and others hold {others} of that: what "
        "was killed held {held}",
    ),
    Rule(
        "tmpfs-filled",
        (killed_for_memory, tmpfs_filled),
        Verdict.TMPFS,
        Confidence.HIGH,
        "files in memory take {tmpfs} of the {limit} limit{tmpfs_folder}: they count until they are deleted. What was "
        "killed held {held}",
    ),
    Rule(
        "nodes-left-out",
        (killed_for_memory, nodes_left_out, no_group_reached, memory_elsewhere),
        Verdict.NUMA_POLICY,
        Confidence.MEDIUM,
        "it may use some of the NUMA nodes only ({nodes}), and no cgroup's limit was reached; {available} were free on "
        "the whole machine",
    ),
    Rule(
        "too-big-at-memory-high",
        (gave_up_as(Verdict.TOO_BIG), ended_at_memory_high),
        Verdict.TOO_BIG,
        Confidence.HIGH,
        "it needs more than memory.high allows ({limit}): the kernel holds it back there, and neither kills it nor "
        f"lets it go on. It held {{held}} while it ran alone. {FEWER_JOBS}",
    ),
    Rule(
        "parent-unseen",
        (gave_up_as(Verdict.TOO_BIG), limit_not_seen, far_below_the_limit),
        Verdict.CGROUP_PARENT,
        Confidence.MEDIUM,
        "the kernel killed it at {held}, while it ran alone, and no limit that can be seen from here was reached: a "
        "group above, which holds others too, or the whole machine was full. {limit} is the limit that can be seen",
    ),
    Rule(
        "too-big",
        (gave_up_as(Verdict.TOO_BIG),),
        Verdict.TOO_BIG,
        Confidence.HIGH,
        f"it does not fit: it held {{held}} of the {{limit}} limit while it ran alone. {FEWER_JOBS}",
    ),
    Rule(
        "not-redoable",
        (gave_up_as(Verdict.NOT_REDOABLE),),
        Verdict.NOT_REDOABLE,
        Confidence.HIGH,
        "it was killed for memory at {held}; it reads or writes a pipe and cannot be run again",
    ),
    Rule(
        "processor-time-used-up",
        (gave_up_as(Verdict.EXTERNAL_KILL), cpu_time_used_up),
        Verdict.RLIMIT,
        Confidence.HIGH,
        "its processor time was used up: {cpu} at most (`ulimit -t`). The kernel sends a plain SIGKILL for that, and "
        "counts nothing",
    ),
    Rule(
        "allotment-used-up",
        (gave_up_as(Verdict.EXTERNAL_KILL), in_a_job, allotment_used_up),
        Verdict.SCHEDULER_KILL,
        Confidence.MEDIUM,
        "it was killed twice from outside, at {held}, and {job} was allotted {allotted}: a scheduler without cgroups "
        "ends what takes more",
    ),
    Rule(
        "killed-from-outside",
        (gave_up_as(Verdict.EXTERNAL_KILL),),
        Verdict.EXTERNAL_KILL,
        Confidence.MEDIUM,
        "it was killed twice from outside, at {held}; no kernel counter rose, so it was not this memory limit",
    ),
    Rule("given-up", (gave_up,), Verdict.UNKNOWN, Confidence.LOW, "builddoctor gave it up at {held}"),
    # -- interrupted ----------------------------------------------------------------------------------------------
    Rule(
        "unit-ended",
        (interrupted, by_sigterm, unit_ended),
        Verdict.SCHEDULER_KILL,
        Confidence.HIGH,
        "the kernel killed a process in {unit} for memory ({kernel_kills} in this build), and systemd then ends the "
        "whole unit: SIGTERM came from it (OOMPolicy=stop)",
    ),
    Rule(
        "told-to-end-in-a-job",
        (interrupted, by_sigterm, in_a_job),
        Verdict.SCHEDULER_KILL,
        Confidence.MEDIUM,
        "SIGTERM came, in {job}: schedulers end a job so at its limit of time or memory, or to make room for another",
    ),
    Rule("interrupted", (interrupted,), None, Confidence.HIGH, "the build was interrupted after {after}"),
    # -- kernel kills of what no gate stood before ----------------------------------------------------------------
    Rule(
        "unseen-kill-in-company",
        (unseen_kill, several_ran),
        Verdict.PARALLEL,
        Confidence.MEDIUM,
        "the kernel killed something of the build for memory that no gate stood before, while up to {most_running} "
        "compilers ran at once",
    ),
    Rule(
        "unseen-kill-alone",
        (unseen_kill,),
        Verdict.UNKNOWN,
        Confidence.LOW,
        "the kernel killed something of the build for memory that no gate stood before; how much ran at once is not "
        "known",
    ),
    # -- how it ended ---------------------------------------------------------------------------------------------
    Rule(
        "processor-time-signal",
        (failed, cpu_time_signal),
        Verdict.RLIMIT,
        Confidence.HIGH,
        "its processor time was used up: the kernel sends SIGXCPU for that alone{cpu_limit}",
    ),
    Rule(
        "file-size-signal",
        (failed, file_size_signal),
        Verdict.RLIMIT,
        Confidence.HIGH,
        "a file would have become larger than files may be: the kernel sends SIGXFSZ for that alone{file_limit}",
    ),
    Rule(
        "ended-in-a-job",
        (failed, ending_signal, in_a_job),
        Verdict.SCHEDULER_KILL,
        Confidence.MEDIUM,
        "it was ended by {signal}, in {job}: no compiler does that to itself, and schedulers end jobs so",
    ),
    Rule(
        "ended-from-outside",
        (failed, ending_signal),
        Verdict.EXTERNAL_KILL,
        Confidence.MEDIUM,
        "it was ended by {signal} from outside: no compiler does that to itself. earlyoom and nohang begin with "
        "SIGTERM, and so does stopping a container",
    ),
    # -- disks and limits -----------------------------------------------------------------------------------------
    # Little room is no evidence by itself: a build on such a disk fails for what it says, too.
    Rule(
        "disk-full-said",
        (disk_full, text_of(Verdict.DISK_FULL)),
        Verdict.DISK_FULL,
        Confidence.HIGH,
        "{folder} is full: {folder_left}",
    ),
    Rule(
        "address-space-said",
        (capped, text_of(Verdict.RLIMIT)),
        Verdict.RLIMIT,
        Confidence.HIGH,
        "a limit on each process refused it memory: {cap}. Nothing was killed, and the machine had more",
    ),
    Rule(
        "processes-said",
        (few_processes, text_of(Verdict.RLIMIT)),
        Verdict.RLIMIT,
        Confidence.HIGH,
        "no more processes may be started: {processes}",
    ),
    Rule(
        "disk-full-at-phase",
        (failed, nothing_fits, looked_at_the_phase, without_a_word, opposite(text_of_no_full_disk)),
        Verdict.DISK_FULL,
        Confidence.HIGH,
        "it failed without a word, and {folder} was full: {folder_left}. What it said about that may not have fitted "
        "either",
    ),
    Rule(
        "disk-full-at-end",
        (nothing_fits, without_a_word, opposite(text_of_no_full_disk)),
        Verdict.DISK_FULL,
        Confidence.MEDIUM,
        "{folder} is full: {folder_left}",
    ),
    Rule(
        "crash-near-cap",
        (crashed, capped, cap_near),
        Verdict.RLIMIT,
        Confidence.MEDIUM,
        "it crashed by {signal} at {held}, under a limit on each process: {cap}. Many a program crashes where malloc "
        "fails",
    ),
    # -- crashes --------------------------------------------------------------------------------------------------
    Rule(
        "crash-in-kernel-log",
        (failed, crashed, kernel_saw_the_crash),
        Verdict.TOOLCHAIN,
        Confidence.HIGH,
        "it crashed by itself, with {signal}; no other process sent that",
    ),
    Rule("crash", (failed, crashed), Verdict.TOOLCHAIN, Confidence.MEDIUM, "it crashed by itself, with {signal}"),
    # -- what was printed -----------------------------------------------------------------------------------------
    Rule(
        "kill-denied",
        (text_of_a_kill, counters_read),
        Verdict.UNKNOWN,
        Confidence.LOW,
        "what was printed speaks of a kill, and no kernel counter rose: it was not for a memory limit that can be seen",
    ),
    Rule(
        "kill-said",
        (text_of_a_kill,),
        None,
        Confidence.LOW,
        "{text_cause}; no counter could be read that would confirm it",
        by_text=True,
    ),
    Rule(
        "disk-full-denied",
        (text_of(Verdict.DISK_FULL), roomy),
        Verdict.DISK_FULL,
        Confidence.LOW,
        "{text_cause}; but every folder that was looked at had room: another folder, or a quota",
    ),
    Rule(
        "disk-full-gone",
        (text_of(Verdict.DISK_FULL),),
        Verdict.DISK_FULL,
        Confidence.MEDIUM,
        "{text_cause}; there was room again afterwards: compilers delete what they could not write",
    ),
    Rule(
        "address-space-denied",
        (text_of(Verdict.RLIMIT),),
        Verdict.RLIMIT,
        Confidence.LOW,
        "{text_cause}; but no limit was found on its processes: one that it set itself, or overcommit",
    ),
    Rule("text-at-failure", (text_says, failed), None, Confidence.HIGH, "{text_cause}", by_text=True),
    Rule("text-says", (text_says,), None, Confidence.MEDIUM, "{text_cause}", by_text=True),
    Rule(
        "cap-near",
        (failed, capped, cap_near),
        Verdict.RLIMIT,
        Confidence.MEDIUM,
        "it failed at {held}, under a limit on each process: {cap}; the machine had more",
    ),
    Rule("text-hints", (text_known,), None, Confidence.LOW, "{text_cause}", by_text=True),
    # -- an error of its own, and nothing more is known -----------------------------------------------------------
    Rule(
        "failed-with-ample-memory",
        (failed, ample_memory),
        Verdict.SOURCE,
        Confidence.MEDIUM,
        "it ended with an error of its own, and was not killed: {root}",
    ),
    Rule(
        "failed",
        (failed,),
        Verdict.SOURCE,
        Confidence.LOW,
        "it ended with an error of its own, and was not killed: {root}",
    ),
    Rule(
        "nothing-seen",
        (),
        Verdict.UNKNOWN,
        Confidence.LOW,
        "no compiler phase failed, something else of the build did: {root}",
    ),
)
