"""Why a traced build failed, from the trace alone: a verdict, how sure it is, its evidence, and what to do. Pure.

Covers: builds that failed, were interrupted, or whose trace stops short. Facts (``diagnose.facts``), then a table
(``diagnose.rules``), then words (``diagnose.sentences``) and ways out (``diagnose.ways_out``).
Does *not* cover: logs without a trace (``diagnose.from_text``).
"""

from __future__ import annotations

from builddoctor.diagnose.facts import Facts, gather_facts
from builddoctor.diagnose.rules import Rule, decide
from builddoctor.diagnose.sentences import course, death, evidence, why
from builddoctor.diagnose.ways_out import again, lower_limit, ways_out
from builddoctor.model.verdict import Fix, Verdict, VerdictName
from builddoctor.trace.endings import Ending, how_it_ended
from builddoctor.trace.report import TraceReport
from builddoctor.units import format_clock


def judge(report: TraceReport, *, boot_id: str = "", idle_s: float | None = None) -> Verdict:
    """Judge a build by its trace.

    ``boot_id``: this machine's now; empty when it is not known. ``idle_s``: since the trace was last written to.
    """
    summary = report.summary
    if summary is None:
        return _cut_off(report, how_it_ended(report, boot_id=boot_id, idle_s=idle_s))
    if summary.result == "ok":
        return Verdict(verdict=None, confidence="high", died="", why="the build went well", evidence=course(report))
    facts = gather_facts(report)
    rule = decide(facts)
    verdict = _named(rule, facts)
    if verdict is None:
        return Verdict(verdict=None, confidence=rule.confidence, died="", why=why(rule, facts), evidence=course(report))
    text = facts.text
    return Verdict(
        verdict=verdict,
        confidence=rule.confidence,
        died=death(facts),
        why=why(rule, facts),
        cause=text.entry if text is not None and text.verdict == verdict else "",
        evidence=evidence(rule, facts, verdict, report),
        fixes=ways_out(facts, verdict, report),
    )


def _named(rule: Rule, facts: Facts) -> VerdictName | None:
    if rule.verdict != "text":
        return rule.verdict
    return facts.text.verdict if facts.text is not None else "unknown"


def _cut_off(report: TraceReport, ending: Ending) -> Verdict:
    if ending.still_running:
        still = f"the build still runs: {format_clock(report.last_at_s)} so far"
        return Verdict(verdict=None, confidence="medium", died="", why=still)
    fixes = [lower_limit(report)] if ending.memory_was_short else []
    fixes += [Fix(text=text, command=command) for text, command in ending.look_at]
    fixes.append(Fix(text="run the build again: what was done is kept", command=again(report)))
    return Verdict(
        verdict="unknown",
        confidence="medium" if ending.memory_was_short else "low",
        died=f"builddoctor itself, at {format_clock(report.last_at_s)}: the trace stops short",
        why=ending.why,
        evidence=[*ending.evidence, *course(report)],
        fixes=fixes,
    )
