"""Why something failed, from its log alone: a verdict, how sure it is, its evidence, and what to do. Pure.

Covers: which of the lines that the catalogue knows is the cause. Texts that say it beat those that hint at it, those
beat trailers; of equals the first failing step's counts, for what comes later is mostly its collateral. The kernel's
report beats all of them, for a build. Does *not* cover: builds that left a trace (``diagnose.from_trace``).

Nothing known in a log that failed is ``unknown``, with its last lines that matter; a log of no failure has no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from builddoctor.diagnose.catalogue import Entry, load_catalogue
from builddoctor.diagnose.failed_command import remedy_facts, source_of
from builddoctor.diagnose.gpu_memory import GpuOom
from builddoctor.diagnose.gpu_verdict import judge_gpu
from builddoctor.diagnose.kernel_log import is_compiler
from builddoctor.diagnose.kernel_verdict import judge_kernel
from builddoctor.diagnose.landmarks import failure
from builddoctor.diagnose.log_facts import LogFacts
from builddoctor.diagnose.remedies import ladder
from builddoctor.diagnose.remedy_facts import RemedyFacts
from builddoctor.diagnose.scanning import Reading
from builddoctor.diagnose.text_kills import NO_NAME, weigh_kill
from builddoctor.diagnose.training import DATALOADER, in_training, of_training
from builddoctor.model.finding import Finding
from builddoctor.model.verdict import Confidence, Fix, Verdict, VerdictName

LINES_BEFORE_STEP = 200
"""make says after the error which step it was, and other steps print in between"""

OF_MEMORY: frozenset[VerdictName] = frozenset(
    ("parallel", "too-big", "runaway", "rlimit", "cgroup-parent", "numa-policy", "tmpfs", "external-kill")
)
"""what counters decide: a compiler's text alone is never sure of one"""

OF_WATCHERS: frozenset[VerdictName] = frozenset(("oomd", "scheduler-kill"))
"""said by those who killed"""

OF_COMPANY: frozenset[VerdictName] = frozenset(("parallel", "too-big", "runaway"))
"""the ladder knows what to do about them, in the words of the build; a text does not"""

TRIED_OUT = re.compile(r"\bconftest\b|CMakeTmp\b|CMakeScratch\b|\bTryCompile\b|\bCMake(?:Error|Output|ConfigureLog)\b")
"""what configure steps try out may fail"""

HARMLESS = re.compile(r"hit memory(?:\+swap)? limit at least once")
"""Slurm says so of full page cache too"""

WENT_ON = re.compile(
    r"^-- (?:Build files have been written|Generating done)|^config(?:ure|\.status): creating "
    r"|^Your branch is up to date|^Already on "
)
"""what comes after an error that nobody minded"""

LAST_WORDS = 3
ENDS_BADLY = re.compile(r"\bFAILED\b|[Ee]rrors? while running|: Broken pipe$|\bexited with code (?!0\b)\d|\bAborted\b")

MOST_LINES = 6
LONGEST_LINE = 300
SILENT = re.compile(r"^FAILED: \[code=255\]|\bError 255\b|exit (?:code|status):? 255\b")
SILENT_CAUSE = "silent-255"
MATTERS = re.compile(
    r"(?i)error|fatal|fail|kill|abort|cannot|not found|no such|denied|exception|undefined|exit (?:code|status)"
)


def judge_text(reading: Reading, facts: LogFacts | None = None) -> Verdict:
    """The verdict of a whole log. ``facts``: what ``diagnose.survey`` found in it."""
    known = facts or LogFacts()
    cause = _cause(reading, known)
    if known.document:
        return _nothing(f"it is {known.document}: it speaks of failures, and none happened in it")
    kernel = judge_kernel(known.kernel, known.jobs)
    if reading.ok and not (kernel and known.kernel[-1].line > (reading.succeeded or 0)):
        return _nothing("it went well: nothing failed after the last success")
    if kernel is not None and _kernel_decides(known, cause):
        return _finished(kernel[0], _merged(remedy_facts(known, tool=kernel[1].tool), kernel[1]), cause)
    gpu = _gpu(known, cause, reading)
    if gpu is not None:
        return gpu
    silent = _silent(reading, known) if cause is None or cause.verdict == "unknown" else None
    if silent is not None:
        return silent
    if cause is not None and cause.verdict == "gpu-oom":
        return judge_gpu(GpuOom(line=cause.line, text=cause.text, library="CUDA"))
    if cause is not None and cause.verdict == "parallel" and in_training(cause.entry, reading.tail, known.command):
        return of_training(cause, _entries()[DATALOADER].fixes)
    if cause is not None:
        return _of_text(reading, known, cause)
    return _of_nothing_known(reading, known)


def _nothing(why: str) -> Verdict:
    return Verdict(verdict=None, confidence="high", died="", why=why)


# -- the line that counts ----------------------------------------------------------------------------------------


def _cause(reading: Reading, facts: LogFacts) -> Finding | None:
    """The finding that is the cause: of the first failing step, what says it, else what hints at it; else of any."""
    begin = 1
    if reading.failing is not None:
        begin = reading.failing if _is_ninja(reading, facts) else max(1, reading.failing - LINES_BEFORE_STEP)
    end = facts.failed[1].line if len(facts.failed) > 1 and _is_ninja(reading, facts) else reading.lines + 1
    findings = [each for each in reading.findings if not TRIED_OUT.search(each.text)]
    of_step = [each for each in findings if begin <= each.line < end]
    after = [each for each in findings if each.line >= begin]
    for among in (of_step, after, findings):
        for weight in ("says", "hints"):
            found = next((each for each in among if each.weight == weight), None)
            if found is not None:
                return _sender(found, findings)
    return None


def _sender(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a SIGTERM, which never says who sent it: the watchdog's or scheduler's own line, where there is one."""
    if found.verdict != "external-kill":
        return found
    said = (each for each in findings if each.verdict in OF_WATCHERS and each.weight == "says")
    return next(said, found)


def _is_ninja(reading: Reading, facts: LogFacts) -> bool:
    return bool(facts.failed) and facts.failed[0].line == reading.failing


def _kernel_decides(facts: LogFacts, cause: Finding | None) -> bool:
    """The kernel's report is about this build, or about nothing that another text explains."""
    of_build = any(is_compiler(report.victim) or any(task.compiler for task in report.tasks) for report in facts.kernel)
    if of_build:
        return cause is None or cause.verdict in OF_MEMORY or cause.verdict in (*OF_WATCHERS, "unknown")
    return not facts.gpu and (cause is None or cause.verdict in OF_MEMORY or cause.verdict in (*OF_WATCHERS, "unknown"))


def _gpu(facts: LogFacts, cause: Finding | None, reading: Reading) -> Verdict | None:
    """The GPU's memory, where it failed before anything else did; never in place of a step of a build that failed."""
    if not facts.gpu:
        return None
    # A bare message of CUDA may follow one with all its numbers, or stand before it.
    first = facts.gpu[0]
    if cause is not None and cause.verdict != "gpu-oom":
        if reading.failing is not None or cause.line < first.line:
            return None
        if cause.weight == "says" and cause.verdict in ("source", "toolchain", "disk-full"):
            return None
    best = next((each for each in facts.gpu if each.tried_mib is not None and each.total_mib is not None), first)
    return judge_gpu(best, more=len(facts.gpu) + facts.gpu_more - 1)


# -- verdicts ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def _entries() -> dict[str, Entry]:
    return {entry.name: entry for entry in load_catalogue()}


def _of_text(reading: Reading, facts: LogFacts, cause: Finding) -> Verdict:
    entry = _entries().get(cause.entry)
    tool = dict(cause.captured).get("tool", "")
    verdict: VerdictName = cause.verdict or "unknown"
    confidence = _confidence(reading, cause)
    why = entry.cause.rstrip(".") if entry is not None else "a text that is known"
    evidence = [_quoted(cause)]
    known = remedy_facts(facts, tool=tool, text=cause.text)
    if verdict == "parallel":
        kills = sum(1 for each in reading.findings if each.verdict == "parallel")
        kill = weigh_kill(facts, tool, max(kills, reading.count(cause.entry)))
        verdict, why = kill.verdict, kill.why
        confidence = "high" if confidence == "high" else kill.confidence
        evidence += kill.evidence
    evidence += _also(reading, cause)
    told = Verdict(
        verdict=verdict,
        confidence=confidence,
        died=_died(facts, cause, tool),
        why=why,
        cause=cause.entry,
        evidence=evidence,
    )
    return _finished(told, known, cause)


def _confidence(reading: Reading, cause: Finding) -> Confidence:
    watched = any(each.verdict in OF_WATCHERS and each.weight == "says" for each in reading.findings)
    if cause.weight == "hints":
        return "medium" if cause.verdict not in OF_MEMORY and cause.verdict != "unknown" else "low"
    if cause.verdict in OF_MEMORY:
        return "high" if watched else "medium"
    return "high"


def _died(facts: LogFacts, cause: Finding, tool: str) -> str:
    source = source_of(facts.command, facts.failed[0].text if facts.failed else "", cause.text)
    if tool and source:
        return f"{tool} of {source}"
    if tool or source:
        return tool or f"the compilation of {source}"
    return f"what printed line {cause.line}"


def _also(reading: Reading, cause: Finding) -> list[str]:
    """Who else says it, and how much more there was."""
    lines = [_quoted(each) for each in reading.findings if each.verdict in OF_WATCHERS and each.entry != cause.entry][
        :2
    ]
    count = reading.count(cause.entry)
    if count > 1:
        lines.append(f"{count} lines of that kind; the first counts")
    if reading.failing is not None and reading.failing != cause.line:
        lines.append(f"the first step that failed stands in line {reading.failing}")
    return lines


def _finished(verdict: Verdict, known: RemedyFacts, cause: Finding | None) -> Verdict:
    """With its ways out: those of the line that says it where it has any; they know more than the verdict does."""
    entry = _entries().get(cause.entry) if cause is not None else None
    fits = entry is not None and entry.verdict == verdict.verdict and verdict.verdict not in OF_COMPANY
    own: Sequence[Fix] = entry.fixes if entry is not None and fits else ()
    return _with_fixes(verdict, own, known)


def _with_fixes(verdict: Verdict, own: Sequence[Fix], known: RemedyFacts) -> Verdict:
    fixes: list[Fix] = []
    for fix in own or ladder(verdict.verdict, known):
        said = {each.text for each in fixes} | {each.command for each in fixes if each.command}
        if fix.text not in said and (not fix.command or fix.command not in said):
            fixes.append(fix)
    if verdict.verdict == "runaway" and not any("trace repro" in fix.command for fix in fixes):
        fixes.append(REPRODUCE)
    return Verdict(
        verdict=verdict.verdict,
        confidence=verdict.confidence,
        died=verdict.died,
        why=verdict.why,
        cause=verdict.cause,
        evidence=verdict.evidence,
        fixes=fixes,
    )


REPRODUCE = Fix(
    text="send that one step to the compiler's vendor: built once under builddoctor, it is a command and its input",
    command="builddoctor trace repro",
)


def _merged(text: RemedyFacts, kernel: RemedyFacts) -> RemedyFacts:
    """What the log says of the build, with what the kernel says of the kill."""
    return RemedyFacts(
        tool=kernel.tool or text.tool,
        source=text.source,
        archs=text.archs,
        threads=text.threads,
        jobs=text.jobs,
        nvcc=text.nvcc,
        gcc=text.gcc,
        std=text.std,
        debug=text.debug,
        host_arch=text.host_arch,
        peak_mib=kernel.peak_mib or text.peak_mib,
        limit_mib=kernel.limit_mib,
    )


# -- where nothing is known --------------------------------------------------------------------------------------


def _of_nothing_known(reading: Reading, facts: LogFacts) -> Verdict:
    trails = [each for each in reading.findings if each.weight == "trails"]
    if reading.failing is None and not _ends_badly(reading, trails):
        if (grown := _growing(facts)) is not None:
            return grown
        why = "nothing in it says that anything failed" if reading.lines else "it is empty"
        return Verdict(verdict=None, confidence="medium", died="", why=why)
    shown = _last_that_matter(reading)
    return _with_fixes(
        Verdict(
            verdict="unknown",
            confidence="low",
            died=f"the step of line {reading.failing}" if reading.failing is not None else "something in this log",
            why="no line of it is a text that is known: what it ends with says more than a guess would",
            evidence=[*(_quoted(each) for each in trails[:1]), *shown],
        ),
        (),
        remedy_facts(facts),
    )


def _ends_badly(reading: Reading, trails: Sequence[Finding]) -> bool:
    """The end of a log says that something failed, and nothing after it that all is well."""
    wrong = failure()
    numbered = _numbered(reading)
    bad = [number for number, text in numbered if wrong.is_it(text) and not HARMLESS.search(text)]
    bad += [number for number, text in numbered[-LAST_WORDS:] if ENDS_BADLY.search(text)]
    bad += [trail.line for trail in trails]
    went_on = max((number for number, text in numbered if WENT_ON.search(text)), default=0)
    return max(bad, default=0) > went_on


def _numbered(reading: Reading) -> list[tuple[int, str]]:
    """The last lines with their numbers, about: empty ones are not among them."""
    first = reading.lines - len(reading.tail) + 1
    return [(first + place, text) for place, text in enumerate(reading.tail)]


def _growing(facts: LogFacts) -> Verdict | None:
    """Nothing failed yet, and a compiler is where none should be."""
    grown = next((growth for growth in facts.growth if growth.monstrous), None)
    if grown is None:
        return None
    kill = weigh_kill(facts, grown.tool, 0)
    told = Verdict(
        verdict=kill.verdict,
        confidence=kill.confidence,
        died="",
        why=kill.why,
        cause="growth",
        evidence=[text for text in kill.evidence if text != NO_NAME],
    )
    return _with_fixes(told, (), remedy_facts(facts, tool=grown.tool))


def _silent(reading: Reading, facts: LogFacts) -> Verdict | None:
    """nvcc with --threads: killed or out of disk, it prints nothing and gives 255."""
    step = facts.failed[0].text if facts.failed else ""
    at = next((text for text in (step, *reading.tail) if SILENT.search(text)), "")
    nvcc = "nvcc" in facts.command or any("nvcc" in text for text in reading.tail)
    if not at or not nvcc or facts.threads == 1:
        return None
    threads = f"--threads {facts.threads}" if facts.threads is not None else "--threads"
    number = f"line {facts.failed[0].line}: " if at == step and step else ""
    return Verdict(
        verdict="unknown",
        confidence="medium",
        died=f"nvcc of {source_of(facts.command, step)}" if source_of(facts.command, step) else "nvcc",
        why=f"nvcc with {threads} gives 255 and no text for two causes alike: a phase of it was killed for memory, or "
        "TMPDIR was full. The log cannot tell which",
        cause=SILENT_CAUSE,
        evidence=[f"{number}{at[:LONGEST_LINE]}", *([str(facts.jobs.quote)] if facts.jobs is not None else [])],
        fixes=list(TELL_APART),
    )


TELL_APART = (
    Fix(text="was it a kill for memory? A number that rose says yes", command="grep oom_kill /proc/vmstat"),
    Fix(
        text="is the folder of temporary files full, in bytes or in files?",
        command='df -h "${TMPDIR:-/tmp}"; df -i "${TMPDIR:-/tmp}"',
    ),
    Fix(
        text="make it speak: with one thread nvcc says what died",
        command='export NVCC_APPEND_FLAGS="$NVCC_APPEND_FLAGS --threads 1"',
    ),
)


def _last_that_matter(reading: Reading) -> list[str]:
    numbered = _numbered(reading)
    last = max((place for place, each in enumerate(numbered) if MATTERS.search(each[1])), default=len(numbered) - 1)
    shown = numbered[max(0, last + 1 - MOST_LINES) : last + 1]
    return [f"near line {number}: {text[:LONGEST_LINE]}" for number, text in shown]


def _quoted(finding: Finding) -> str:
    return f"line {finding.line}: {finding.text}"
