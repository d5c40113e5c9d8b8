"""From facts to a verdict: a table, read from the top; the first row whose conditions all hold says it. Pure.

Order: what the kernel counted and which group was full, then how a process ended, then what was printed, then what
follows any failure. A text alone never says what the counters deny: such rows say so, with low confidence.
Does *not* cover: the conditions (``diagnose.conditions``), evidence and words (``diagnose.sentences``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from builddoctor.diagnose.conditions import holds
from builddoctor.diagnose.facts import Facts
from builddoctor.model.verdict import Confidence, VerdictName


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    name: str
    when: tuple[str, ...]
    verdict: VerdictName | Literal["text"] | None
    """``text``: that of the line that was printed"""
    confidence: Confidence
    why: str
    """a sentence; ``{name}`` stands for what is known (``diagnose.sentences``)"""


def _rule(
    name: str, when: str, verdict: VerdictName | Literal["text"] | None, confidence: Confidence, why: str
) -> Rule:
    conditions = tuple(each.strip() for each in when.split(",") if each.strip())
    return Rule(name=name, when=conditions, verdict=verdict, confidence=confidence, why=why)


FEWER_JOBS = "Fewer jobs cannot help"

RULES: tuple[Rule, ...] = (
    # -- what the kernel counted, and whose limit it was ----------------------------------------------------------
    _rule(
        "runaway",
        "gave up: runaway",
        "runaway",
        "high",
        f"it grew without end: {{held}} when it was ended, and still rising. {FEWER_JOBS}, nor can a lower MAX_JOBS: "
        "one process took all of it; nor does more memory",
    ),
    _rule(
        "oomd",
        "marked by oomd",
        "oomd",
        "high",
        "systemd-oomd ended it for memory pressure, at {held}: it marks the groups that it kills, and no counter of "
        "the kernel's rises",
    ),
    _rule(
        "nodes-by-kernel",
        "killed for memory, kernel names nodes",
        "numa-policy",
        "high",
        "the NUMA nodes that it may use were full, as the kernel says ({constraint}); others may have had room",
    ),
    _rule(
        "parent-filled-by-others",
        "killed for memory, parent full, mostly others",
        "cgroup-parent",
        "high",
        "the limit of a group above it was reached, {parent_limit} at {parent}, and others hold {others} of that: what "
        "was killed held {held}",
    ),
    _rule(
        "tmpfs-filled",
        "killed for memory, tmpfs filled",
        "tmpfs",
        "high",
        "files in memory take {tmpfs} of the {limit} limit{tmpfs_folder}: they count until they are deleted. What was "
        "killed held {held}",
    ),
    _rule(
        "nodes-left-out",
        "killed for memory, nodes left out, no group reached, memory elsewhere",
        "numa-policy",
        "medium",
        "it may use some of the NUMA nodes only ({nodes}), and no cgroup's limit was reached; {available} were free on "
        "the whole machine",
    ),
    _rule(
        "parent-unseen",
        "gave up: too-big, limit not seen, far below the limit",
        "cgroup-parent",
        "medium",
        "the kernel killed it at {held}, while it ran alone, and no limit that can be seen from here was reached: a "
        "group above, which holds others too, or the whole machine was full. {limit} is the limit that can be seen",
    ),
    _rule(
        "too-big",
        "gave up: too-big",
        "too-big",
        "high",
        f"it does not fit: it held {{held}} of the {{limit}} limit while it ran alone. {FEWER_JOBS}",
    ),
    _rule(
        "not-redoable",
        "gave up: not-redoable",
        "not-redoable",
        "high",
        "it was killed for memory at {held}; it reads or writes a pipe and cannot be run again",
    ),
    _rule(
        "processor-time-used-up",
        "gave up: external-kill, processor time used up",
        "rlimit",
        "high",
        "its processor time was used up: {cpu} at most (`ulimit -t`). The kernel kills for that as anybody might, and "
        "counts nothing",
    ),
    _rule(
        "allotment-used-up",
        "gave up: external-kill, in a job, allotment used up",
        "scheduler-kill",
        "medium",
        "it was killed twice from outside, at {held}, and {job} was allotted {allotted}: a scheduler without cgroups "
        "ends what takes more",
    ),
    _rule(
        "killed-from-outside",
        "gave up: external-kill",
        "external-kill",
        "medium",
        "it was killed twice from outside, at {held}; no kernel counter rose, so it was not this memory limit",
    ),
    _rule("given-up", "gave up", "unknown", "low", "builddoctor gave it up at {held}"),
    # -- interrupted ----------------------------------------------------------------------------------------------
    _rule(
        "told-to-end-in-a-job",
        "interrupted, by SIGTERM, in a job",
        "scheduler-kill",
        "medium",
        "SIGTERM came, in {job}: so schedulers end a job at its limit of time or memory, or for another's sake",
    ),
    _rule("interrupted", "interrupted", None, "high", "the build was interrupted after {after}"),
    # -- kernel kills of what no gate stood before ----------------------------------------------------------------
    _rule(
        "unseen-kill-in-company",
        "kernel kill unseen, several ran",
        "parallel",
        "medium",
        "the kernel killed something of the build for memory that no gate stood before, while up to {most_running} "
        "compilers ran at once",
    ),
    _rule(
        "unseen-kill-alone",
        "kernel kill unseen",
        "unknown",
        "low",
        "the kernel killed something of the build for memory that no gate stood before; how much ran at once is not "
        "known",
    ),
    # -- how it ended ---------------------------------------------------------------------------------------------
    _rule(
        "processor-time-signal",
        "failed, processor time signal",
        "rlimit",
        "high",
        "its processor time was used up: the kernel sends SIGXCPU for that alone{cpu_limit}",
    ),
    _rule(
        "file-size-signal",
        "failed, file size signal",
        "rlimit",
        "high",
        "a file would have become larger than files may be: the kernel sends SIGXFSZ for that alone{file_limit}",
    ),
    _rule(
        "ended-in-a-job",
        "failed, ending signal, in a job",
        "scheduler-kill",
        "medium",
        "it was ended by {signal}, in {job}: no compiler does that to itself, and so schedulers end jobs",
    ),
    _rule(
        "ended-by-somebody",
        "failed, ending signal",
        "external-kill",
        "medium",
        "it was ended by {signal} from outside: no compiler does that to itself. earlyoom and nohang begin with "
        "SIGTERM, and so does whoever stops a container",
    ),
    # -- disks and limits -----------------------------------------------------------------------------------------
    _rule("disk-full-said", "disk full, text of disk-full", "disk-full", "high", "{folder} is full: {folder_left}"),
    _rule(
        "address-space-said",
        "capped, text of rlimit",
        "rlimit",
        "high",
        "a limit on each process refused it memory: {cap}. Nothing was killed, and the machine had more",
    ),
    _rule(
        "processes-said",
        "few processes, text of rlimit",
        "rlimit",
        "high",
        "no more processes may be started: {processes}",
    ),
    _rule(
        "disk-full-at-phase",
        "failed, disk full, looked at the phase, not text of another cause",
        "disk-full",
        "high",
        "{folder} was full when it failed: {folder_left}. What it said about that may not have fitted either",
    ),
    _rule(
        "disk-full-at-end",
        "disk full, not text of another cause",
        "disk-full",
        "medium",
        "{folder} is full: {folder_left}",
    ),
    _rule(
        "crash-near-cap",
        "crashed, capped, cap near",
        "rlimit",
        "medium",
        "it crashed by {signal} at {held}, under a limit on each process: {cap}. Many a program crashes where malloc "
        "fails",
    ),
    # -- crashes --------------------------------------------------------------------------------------------------
    _rule(
        "crash-in-kernel-log",
        "failed, crashed, kernel saw the crash",
        "toolchain",
        "high",
        "it crashed by itself, with {signal}; nobody sent that",
    ),
    _rule("crash", "failed, crashed", "toolchain", "medium", "it crashed by itself, with {signal}"),
    # -- what was printed -----------------------------------------------------------------------------------------
    _rule(
        "kill-denied",
        "text of a kill, counters read",
        "unknown",
        "low",
        "what was printed speaks of a kill, and no kernel counter rose: it was not for a memory limit that can be seen",
    ),
    _rule("kill-said", "text of a kill", "text", "low", "{text_cause}; no counter could be read that would confirm it"),
    _rule(
        "disk-full-denied",
        "text of disk-full, roomy",
        "disk-full",
        "low",
        "{text_cause}; but every folder that was looked at had room: another folder, or a quota",
    ),
    _rule(
        "disk-full-gone",
        "text of disk-full",
        "disk-full",
        "medium",
        "{text_cause}; there was room again afterwards: compilers delete what they could not write",
    ),
    _rule(
        "address-space-denied",
        "text of rlimit",
        "rlimit",
        "low",
        "{text_cause}; but no limit was found on its processes: one that it set itself, or overcommit",
    ),
    _rule("text-at-failure", "text says, failed", "text", "high", "{text_cause}"),
    _rule("text-says", "text says", "text", "medium", "{text_cause}"),
    _rule(
        "cap-near",
        "failed, capped, cap near",
        "rlimit",
        "medium",
        "it failed at {held}, under a limit on each process: {cap}; the machine had more",
    ),
    _rule("text-hints", "text", "text", "low", "{text_cause}"),
    # -- an error of its own, and nothing more is known -----------------------------------------------------------
    _rule(
        "failed-with-ample-memory",
        "failed, ample",
        "source",
        "medium",
        "it ended with an error of its own, and was not killed: what the build printed says which",
    ),
    _rule(
        "failed",
        "failed",
        "source",
        "low",
        "it ended with an error of its own, and was not killed: what the build printed says which",
    ),
    _rule(
        "nothing-seen",
        "",
        "unknown",
        "low",
        "no compiler phase failed: something else of the build did, and what it printed says what",
    ),
)


def decide(facts: Facts) -> Rule:
    """The first row whose conditions all hold; the last has none."""
    return next(rule for rule in RULES if all(holds(condition, facts) for condition in rule.when))
