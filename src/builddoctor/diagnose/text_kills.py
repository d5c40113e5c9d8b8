"""A compiler that died of SIGKILL, and only a log to say so: too many, one too large, or one without end. Pure.

Covers: what a log shows of company and of growth. Does *not* cover: the kernel's own report
(``diagnose.kernel_verdict``), which decides where there is one.

A text cannot tell these apart by itself: every verdict here says what it goes by, and is of medium confidence at most.
"""

from __future__ import annotations

import msgspec

from builddoctor.diagnose.kernel_verdict import FEWER_CANNOT
from builddoctor.diagnose.log_facts import Growth, LogFacts
from builddoctor.model.verdict import Confidence, VerdictName
from builddoctor.units import format_mib

NO_NAME = (
    "a SIGKILL says not who sent it: the kernel or a daemon for memory most often, else a scheduler or a person "
    "(journalctl -k, dmesg)"
)
MANY = 2


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """What a log makes of it."""

    verdict: VerdictName
    confidence: Confidence
    why: str
    evidence: tuple[str, ...] = ()


def weigh_kill(facts: LogFacts, tool: str, kills: int) -> Kill:
    """``tool``: the program that was killed, empty when the log does not say. ``kills``: lines that say one was."""
    grown = next(
        (each for each in facts.growth if each.tool == tool or (not tool and (each.grew or each.monstrous))), None
    )
    evidence = _evidence(facts, grown)
    alone = _alone(facts)
    name = tool or (grown.tool if grown is not None else "the compiler")
    if grown is not None and (grown.monstrous or (grown.grew and alone)):
        held = f"{name} held {format_mib(grown.last_mib)}" + (" and was still growing" if grown.grew else "")
        return _runaway(f"{held}{', alone' if alone else ''}: it grew without end", "medium", evidence)
    if facts.grows is not None and (alone or name == "cudafe++"):
        return _runaway(f"{name} grew without end, as the text says{f', {alone}' if alone else ''}", "medium", evidence)
    if alone and name == "cudafe++":
        why = f"cudafe++ was killed {alone}, and it needs a few hundred MiB for anything it can compile: most likely it"
        return _runaway(f"{why} grew without end", "low", [*evidence, NO_NAME])
    if alone:
        why = f"{name} was killed {alone}: it does not fit by itself. {FEWER_CANNOT}"
        return Kill(verdict="too-big", confidence="medium", why=why, evidence=(*evidence, NO_NAME))
    many = kills >= MANY or (facts.in_flight is not None and facts.in_flight.value > 1)
    asked = facts.jobs is not None and facts.jobs.value > 1
    ran = "several ran at once" if many or asked else "how many ran at once, the log does not say"
    return Kill(
        verdict="parallel",
        confidence="medium" if many or asked else "low",
        why=f"{name} was killed (SIGKILL), most likely for memory; {ran}",
        evidence=(*evidence, NO_NAME),
    )


def _runaway(why: str, confidence: Confidence, evidence: list[str]) -> Kill:
    return Kill(verdict="runaway", confidence=confidence, why=f"{why}. {FEWER_CANNOT}", evidence=tuple(evidence))


def _alone(facts: LogFacts) -> str:
    """How it is known that no other compiler ran; empty when it is not."""
    if facts.in_flight is not None:
        return "while no other edge ran" if facts.in_flight.value == 1 else ""
    if facts.jobs is not None and facts.jobs.value == 1 and (facts.threads or 1) == 1:
        return "with one compiler at a time"
    return ""


def _evidence(facts: LogFacts, grown: Growth | None) -> list[str]:
    lines = [str(said.quote) for said in (facts.jobs, facts.in_flight) if said is not None]
    if grown is not None:
        first, last = format_mib(grown.first_mib), format_mib(grown.last_mib)
        rows = f" over {grown.points} rows, from {first} to {last}" if grown.points > 1 else f" at {last}"
        lines.append(f"{grown.tool}{rows}: {grown.last}")
    if facts.grows is not None:
        lines.append(str(facts.grows))
    return lines
