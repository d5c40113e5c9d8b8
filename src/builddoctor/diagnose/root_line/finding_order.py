"""Which of several findings of a log counts: the first failed step's before others, the innermost layer's first. Pure.

Covers: findings by step, what was only tried out left aside; the innermost of some.
Does *not* cover: which weight goes first (``diagnose.from_log``), layers themselves (``diagnose.catalogue``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from builddoctor.core.verdict import Finding, Verdict
from builddoctor.diagnose.catalogue import layer_of
from builddoctor.diagnose.log_facts import LogFacts
from builddoctor.diagnose.log_scanner import Reading

LINES_BEFORE_STEP = 200
"""make says after the error which step it was, and other steps print in between"""

TRIED_OUT = re.compile(r"\bconftest\b|CMakeTmp\b|CMakeScratch\b|\bTryCompile\b|\bCMake(?:Error|Output|ConfigureLog)\b")
"""what configure steps try out may fail"""
NOT_EVEN_TRIED = "CMake Error in "
"""but not to write down what is to be tried"""

MUST_WORK = "compiler-lacks-standard"
"""said where nothing of what was tried out did"""
MUST_COMPILE = frozenset(("compiler-makes-nothing", "cmake-nvcc-broken", "cmake-nvcc-id-failed"))
"""but for the compilers themselves: what stands below is why they do not work"""


def innermost(findings: Iterable[Finding]) -> Finding | None:
    """The first one of the innermost layer; a full disk before all others, which it explains and they do not."""
    return min(
        findings,
        key=lambda each: (each.verdict is not Verdict.DISK_FULL, layer_of(each.entry), each.line),
        default=None,
    )


def by_step(reading: Reading, facts: LogFacts) -> tuple[list[Finding], ...]:
    """Findings of the first step that failed, those from there on, all."""
    begin, end = _first_step(reading, facts)
    findings = _not_tried_out(reading)
    after = [each for each in findings if each.line >= begin]
    return [each for each in after if each.line < end], after, findings


def _first_step(reading: Reading, facts: LogFacts) -> tuple[int, int]:
    """Its first line, and the first line behind it: ninja says it before what a step printed, make after that."""
    behind = reading.lines + 1
    if reading.failing is None:
        return 1, behind
    of_ninja = bool(facts.failed) and facts.failed[0].line == reading.failing
    if not of_ninja:
        return max(1, reading.failing - LINES_BEFORE_STEP), behind
    return reading.failing, facts.failed[1].line if len(facts.failed) > 1 else behind


def _not_tried_out(reading: Reading) -> list[Finding]:
    """Without what may fail; of what was tried out alone: that."""
    must = next((each.line for each in reading.findings if each.entry in MUST_COMPILE), reading.lines + 1)
    findings = [each for each in reading.findings if each.line > must or not _tried_out(each)]
    if any(each.entry == MUST_WORK for each in findings):
        return findings
    return [each for each in findings if each.line not in reading.tried] or findings


def _tried_out(found: Finding) -> bool:
    return TRIED_OUT.search(found.text) is not None and not found.text.startswith(NOT_EVEN_TRIED)
