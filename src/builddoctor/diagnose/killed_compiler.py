"""A compiler that died of SIGKILL, by its log alone: one of too many, one that is too large, or one without end. Pure.

Does *not* cover: the kernel's report (``diagnose.kernel_log``), or a training (``diagnose.killed_training``).
"""

from __future__ import annotations

import msgspec

from builddoctor.core.units import format_mib
from builddoctor.core.verdict import Verdict
from builddoctor.core.word import Confidence
from builddoctor.diagnose.kernel_log import FEWER_CANNOT
from builddoctor.diagnose.log_facts import Growth, LogFacts

NO_NAME = (
    "a SIGKILL names no sender: most often the kernel or a daemon, for memory; else a scheduler or a person "
    "(journalctl -k, dmesg)"
)
MANY_KILLS = 2


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """What a log makes of it."""

    verdict: Verdict
    confidence: Confidence
    why: str
    evidence: tuple[str, ...] = ()


def weigh_kill(facts: LogFacts, tool: str, kills: int) -> Kill:
    """``tool``: the program that was killed, empty when the log does not say. ``kills``: lines that say one was."""
    grown = next(
        (each for each in facts.growth if each.tool == tool or (not tool and (each.grew or each.monstrous))), None
    )
    evidence = _kill_evidence(facts, grown)
    alone = _alone(facts)
    name = tool or (grown.tool if grown is not None else "a process of the build")
    if grown is not None and (grown.monstrous or (grown.grew and alone)):
        held = f"{name} held {format_mib(grown.last_mib)}" + (" and was still growing" if grown.grew else "")
        return _runaway(f"{held}{', alone' if alone else ''}: it grew without end", Confidence.MEDIUM, evidence)
    if facts.grows is not None and (alone or name == "cudafe++"):
        return _runaway(
            f"{name} grew without end, as the text says{f', {alone}' if alone else ''}", Confidence.MEDIUM, evidence
        )
    if alone and name == "cudafe++":
        why = f"cudafe++ was killed {alone}, and it needs a few hundred MiB for anything it can compile: most likely it"
        return _runaway(f"{why} grew without end", Confidence.LOW, [*evidence, NO_NAME])
    if alone:
        why = f"{name} was killed {alone}: it does not fit by itself. {FEWER_CANNOT}"
        return Kill(verdict=Verdict.TOO_BIG, confidence=Confidence.MEDIUM, why=why, evidence=(*evidence, NO_NAME))
    many = kills >= MANY_KILLS or (facts.in_flight is not None and facts.in_flight.value > 1)
    asked = facts.jobs is not None and facts.jobs.value > 1
    ran = "several ran at once" if many or asked else "how many ran at once, the log does not say"
    return Kill(
        verdict=Verdict.PARALLEL,
        confidence=Confidence.MEDIUM if many or asked else Confidence.LOW,
        why=f"{name} was killed (SIGKILL), most likely for memory; {ran}",
        evidence=(*evidence, NO_NAME),
    )


def _runaway(why: str, confidence: Confidence, evidence: list[str]) -> Kill:
    return Kill(verdict=Verdict.RUNAWAY, confidence=confidence, why=f"{why}. {FEWER_CANNOT}", evidence=tuple(evidence))


def _alone(facts: LogFacts) -> str:
    """How it is known that no other compiler ran; empty when it is not."""
    if facts.in_flight is not None:
        return "while no other edge ran" if facts.in_flight.value == 1 else ""
    if facts.case.one_at_a_time and facts.jobs is None:
        return "while setuptools started one compiler at a time"
    if facts.jobs is not None and facts.jobs.value == 1 and (facts.threads or 1) == 1:
        return "with one compiler at a time"
    return ""


def _kill_evidence(facts: LogFacts, grown: Growth | None) -> list[str]:
    lines = [str(said.quote) for said in (facts.jobs, facts.in_flight) if said is not None]
    if grown is not None:
        first, last = format_mib(grown.first_mib), format_mib(grown.last_mib)
        rows = f" over {grown.points} rows, from {first} to {last}" if grown.points > 1 else f" at {last}"
        lines.append(f"{grown.tool}{rows}: {grown.last}")
    if facts.grows is not None:
        lines.append(str(facts.grows))
    return lines
