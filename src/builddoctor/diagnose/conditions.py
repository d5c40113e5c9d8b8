"""The conditions that rules name, each a question to the facts. Pure.

Does *not* cover: what follows from them (``diagnose.rules``).
"""

from __future__ import annotations

from collections.abc import Callable

from builddoctor.diagnose.facts import CRASH_SIGNALS, ENDING_SIGNALS, ROOMY_MIB, TERM, XCPU, XFSZ, Facts
from builddoctor.model.evidence import KillCause
from builddoctor.model.phase import Outcome

AMPLE_SHARE = 0.1
"""of the limit free all the time: a compiler that failed did not fail for memory"""

TMPFS_SHARE = 0.33
"""of a limit that files in memory take: they are what filled it"""

TMPFS_BESIDE_SHARE = 0.15
"""or that much, and more than the phase held itself"""

OTHERS_SHARE = 0.25
"""of a parent's limit that others hold at least, where it was they who filled it"""

FAR_SHARE = 0.6
"""of the limit: what was killed alone with less than that did not fill it"""

NEAR_SHARE = 0.25
"""of an address space that was resident: most of the rest is code, and memory that was asked for and not yet touched"""

CPU_SHARE = 0.9

KILL_TEXTS = frozenset(
    ("parallel", "too-big", "runaway", "cgroup-parent", "numa-policy", "tmpfs", "oomd", "external-kill")
)
"""Verdicts whose texts speak of a kill: the kernel counts those that are its own."""


def _killed_for_memory(facts: Facts) -> bool:
    if facts.gave_up in ("too-big", "not-redoable") or facts.outcome == Outcome.KILLED_BY_KERNEL.value:
        return True
    return _unseen_kill(facts)


def _unseen_kill(facts: Facts) -> bool:
    """The kernel killed something that no gate stood before, and no phase failed for another reason."""
    return facts.unexplained_kills > 0 and (facts.phase is None or _text_of_a_kill(facts))


def _text_of_a_kill(facts: Facts) -> bool:
    return facts.text is not None and facts.text.verdict in KILL_TEXTS


def _text_is(verdict: str) -> Callable[[Facts], bool]:
    return lambda facts: facts.text is not None and facts.text.verdict == verdict


def _gave_up(verdict: str) -> Callable[[Facts], bool]:
    return lambda facts: facts.gave_up == verdict


def _mostly_others(facts: Facts) -> bool:
    """Others hold as much as all of ours did, and a good part of the limit."""
    if facts.parent is None:
        return False
    ours_mib = max(facts.peak_mib, 0.0 if facts.scene is None else facts.scene.ours_mib)
    return facts.parent.others_mib >= max(ours_mib, OTHERS_SHARE * facts.parent.limit_mib)


def _tmpfs_filled(facts: Facts) -> bool:
    if facts.limit_mib <= 0:
        return False
    share = facts.tmpfs_mib / facts.limit_mib
    return share >= TMPFS_SHARE or (share >= TMPFS_BESIDE_SHARE and facts.tmpfs_mib >= facts.peak_mib)


def _oomd(facts: Facts) -> bool:
    by_mark = facts.last is not None and facts.last.cause == KillCause.OOMD.value
    return by_mark or (facts.phase is None and bool(facts.scene and facts.scene.oomd_kills) and _text_of_a_kill(facts))


def _counters_read(facts: Facts) -> bool:
    """Some counter that would have risen with a kill of ours could be read."""
    scene = facts.scene
    return scene is not None and (
        scene.host_kills is not None or any(group.kills is not None for group in scene.groups[:1])
    )


def _roomy(facts: Facts) -> bool:
    """When the phase died, every folder that was looked at had plenty of room."""
    if facts.scene is None or not facts.at_phase:
        return False
    sizes = [folder.free_mib for folder in facts.scene.folders if folder.role != "trace"]
    return bool(sizes) and all(size is not None and size >= ROOMY_MIB for size in sizes)


def _cap_near(facts: Facts) -> bool:
    return facts.cap is not None and facts.peak_mib >= NEAR_SHARE * facts.cap.size


def _cpu_used_up(facts: Facts) -> bool:
    return facts.cpu is not None and facts.last is not None and facts.last.cpu_s >= CPU_SHARE * facts.cpu.size


def _allotment_used_up(facts: Facts) -> bool:
    allotted_mib = None if facts.scene is None else facts.scene.allotted_mib
    return allotted_mib is not None and facts.peak_mib >= (1 - AMPLE_SHARE) * allotted_mib


def _memory_elsewhere(facts: Facts) -> bool:
    """The machine had room for what died, on nodes that it may not use."""
    available_mib = None if facts.scene is None else facts.scene.available_mib
    return available_mib is not None and available_mib >= 2 * facts.peak_mib


def _limit_not_seen(facts: Facts) -> bool:
    """The kernel's kill, and no level that can be seen had reached its limit; or the kernel's log says so."""
    if facts.outcome != Outcome.KILLED_BY_KERNEL.value or facts.last is None:
        return False
    above = facts.last.cause in (KillCause.ANCESTOR.value, KillCause.HOST.value)
    return above or (facts.kernel is not None and facts.kernel.scope == "parent")


def _far_below(facts: Facts) -> bool:
    return 0 < facts.peak_mib <= FAR_SHARE * facts.limit_mib


def _other_text(facts: Facts) -> bool:
    """A text says another cause than a full disk."""
    return facts.text is not None and facts.text.says and facts.text.verdict not in ("disk-full", "unknown")


CONDITIONS: dict[str, Callable[[Facts], bool]] = {
    "interrupted": lambda facts: facts.result == "interrupted",
    "by SIGTERM": lambda facts: facts.exit_code == 128 + TERM,
    "in a job": lambda facts: bool(facts.job),
    "gave up": lambda facts: bool(facts.gave_up),
    "gave up: runaway": _gave_up("runaway"),
    "gave up: too-big": _gave_up("too-big"),
    "gave up: not-redoable": _gave_up("not-redoable"),
    "gave up: external-kill": _gave_up("external-kill"),
    "killed for memory": _killed_for_memory,
    "kernel kill unseen": _unseen_kill,
    "several ran": lambda facts: facts.most_running > 1,
    "marked by oomd": _oomd,
    "kernel names nodes": lambda facts: facts.kernel is not None and facts.kernel.scope == "nodes",
    "nodes left out": lambda facts: bool(facts.scene and (facts.scene.nodes_allowed or facts.scene.policy)),
    "no group reached": lambda facts: not (facts.scene and any(group.reached for group in facts.scene.groups)),
    "memory elsewhere": _memory_elsewhere,
    "parent full": lambda facts: facts.parent is not None,
    "mostly others": _mostly_others,
    "limit not seen": _limit_not_seen,
    "far below the limit": _far_below,
    "tmpfs filled": _tmpfs_filled,
    "processor time used up": _cpu_used_up,
    "allotment used up": _allotment_used_up,
    "failed": lambda facts: facts.failed,
    "processor time signal": lambda facts: facts.signal == XCPU,
    "file size signal": lambda facts: facts.signal == XFSZ,
    "ending signal": lambda facts: facts.signal in ENDING_SIGNALS,
    "crashed": lambda facts: facts.signal in CRASH_SIGNALS,
    "kernel saw the crash": lambda facts: bool(facts.crash_line),
    "disk full": lambda facts: facts.full is not None,
    "looked at the phase": lambda facts: facts.at_phase,
    "roomy": _roomy,
    "capped": lambda facts: facts.cap is not None,
    "cap near": _cap_near,
    "few processes": lambda facts: facts.processes is not None,
    "ample": lambda facts: facts.least_free_share is not None and facts.least_free_share > AMPLE_SHARE,
    "counters read": _counters_read,
    "text": lambda facts: facts.text is not None and facts.text.verdict != "unknown",
    "text says": lambda facts: facts.text is not None and facts.text.says and facts.text.verdict != "unknown",
    "text of another cause": _other_text,
    "text of a kill": _text_of_a_kill,
    "text of disk-full": _text_is("disk-full"),
    "text of rlimit": _text_is("rlimit"),
}


def holds(condition: str, facts: Facts) -> bool:
    """``not …`` turns one round. KeyError for one that there is not."""
    name = condition.removeprefix("not ")
    return CONDITIONS[name](facts) is (name == condition)
