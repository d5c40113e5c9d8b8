"""Why something failed, from its log alone: a verdict, how sure it is, its evidence, and what to do. Pure.

Covers: a log of any length in one stream, in memory that is bounded; which of the lines that the catalogue knows is the
cause. Texts that say it go before those that hint at it, those before trailers; of equals the first failing step's
counts, for what comes later mostly follows from it. The kernel's report goes before all of them, for a build.
Does *not* cover: opening files (``cli.explain``), builds that left a trace (``diagnose.from_trace``), a SIGKILL without
the kernel's report (``diagnose.killed_compiler``, ``diagnose.killed_training``).

Whatever is said, the root line is shown (``diagnose.root_line``). Where its cause is not known, what mostly is behind
an error of its kind is said, or else the verdict is ``unknown``, with that line; a log of no failure has no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from builddoctor.core.verdict import Diagnosis, Finding, Fix, Verdict, Weight
from builddoctor.core.word import Confidence
from builddoctor.diagnose.catalogue import Layer, cause_of, entry_of, fixes_of, layer_of, load_catalogue
from builddoctor.diagnose.gpu_memory import GpuOom, judge_gpu
from builddoctor.diagnose.kernel_log import judge_kernel, of_a_build
from builddoctor.diagnose.killed_compiler import NO_NAME, weigh_kill
from builddoctor.diagnose.killed_training import builds, in_training, of_host_memory, of_training
from builddoctor.diagnose.log_facts import SOURCE, LogFacts, Survey
from builddoctor.diagnose.log_lines import Blocks, Quote
from builddoctor.diagnose.log_scanner import Reading, Scanner
from builddoctor.diagnose.remedies import ladder, values
from builddoctor.diagnose.remedy_facts import RemedyFacts
from builddoctor.diagnose.root_line.by_findings import root_line
from builddoctor.diagnose.root_line.finding_order import by_step, innermost
from builddoctor.diagnose.root_line.kept_lines import KeptLines
from builddoctor.diagnose.root_line.log_end import ends_badly, last_words
from builddoctor.diagnose.root_line.reason_elsewhere import fixes_of_reason, only_failed
from builddoctor.diagnose.root_line.unknown_cause import around, said_beside, some_line
from builddoctor.diagnose.system_packages import named_in_code


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """What was made of a text."""

    diagnosis: Diagnosis
    lines: int


class Explainer:
    """Fed with the bytes of one log."""

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._scanner = Scanner(load_catalogue())
        self._survey = Survey()

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        self._take(self._blocks.feed(data))

    def finish(self) -> Explained:
        """The verdict."""
        self._take(self._blocks.rest())
        reading = self._scanner.finish()
        return Explained(diagnosis=judge_text(reading, self._survey.finish()), lines=reading.lines)

    def _take(self, blocks: Iterable[bytes]) -> None:
        for block in blocks:
            self._scanner.scan(block)
            self._survey.take(block)


OF_MEMORY: frozenset[Verdict] = frozenset(
    (
        Verdict.PARALLEL,
        Verdict.TOO_BIG,
        Verdict.RUNAWAY,
        Verdict.RLIMIT,
        Verdict.CGROUP_PARENT,
        Verdict.NUMA_POLICY,
        Verdict.TMPFS,
        Verdict.EXTERNAL_KILL,
    )
)
"""what counters decide: a compiler's text alone is never sure of one"""

OF_WATCHERS: frozenset[Verdict] = frozenset((Verdict.OOMD, Verdict.SCHEDULER_KILL))
"""printed by the daemon or scheduler that killed"""

SEGFAULT, CRASHED = "shell-segfault", "program-crashed"
"""of a shell's line: a compiler's crash where something is built, else that of a program that ran"""

OF_COMPANY: frozenset[Verdict] = frozenset((Verdict.PARALLEL, Verdict.RUNAWAY))
"""the ladder knows what to do about them, in the words of the build; a text does not, but for one that speaks of a
program that was too big all by itself"""

MOST_FIXES = 3
"""the likeliest: who reads a log wants the next step"""

SILENT = re.compile(r"^FAILED: \[code=255\]|\bError 255\b|exit (?:code|status):? 255\b")
SILENT_CAUSE = "silent-255"


def judge_text(reading: Reading, facts: LogFacts) -> Diagnosis:
    """The verdict of a whole log."""
    cause = _cause(reading, facts)
    if cause is not None and cause.entry == SEGFAULT and not builds(reading, facts):
        cause = msgspec.structs.replace(cause, entry=CRASHED, verdict=Verdict.NOT_A_BUILD)
    told = _judge(reading, facts, cause)
    if told.verdict is Verdict.UNKNOWN and not told.cause and (guess := _guess(reading, facts)) is not None:
        told = _of_text(reading, facts, guess)
    if told.verdict is None:
        return told
    root = root_line(reading, facts, cause)
    # The kernel's and the GPU's reports are read apart from the catalogue: their own line is the evidence.
    line = next(iter(told.evidence), "") if root is None else root.quoted
    return msgspec.structs.replace(told, root=told.root or line, fixes=told.fixes[:MOST_FIXES])


def _judge(reading: Reading, facts: LogFacts, cause: Finding | None) -> Diagnosis:
    if facts.document and not (facts.document == SOURCE and root_line(reading, facts, cause)):
        return _nothing(f"it is {facts.document}: it speaks of failures, and none happened in it")
    kernel = judge_kernel(facts.kernel, facts.jobs)
    if reading.ok and not (kernel and facts.kernel[-1].line > (reading.succeeded or 0)):
        return _nothing("it went well: nothing failed after the last success")
    if kernel is not None and _kernel_decides(facts, cause):
        killed = facts.kernel[0]
        if not any(map(of_a_build, facts.kernel)) and in_training("", reading.tail, facts.command):
            said = Finding(entry="", verdict=None, weight=Weight.SAYS, line=killed.line, text=killed.text)
            return of_training(said, reading.findings)
        return _of_kernel(kernel, facts, cause)
    if (gpu := _gpu(facts, cause, reading)) is not None:
        return gpu
    if cause is None or cause.verdict is Verdict.UNKNOWN:
        silent = _silent(reading, facts)
        if silent is not None or cause is None:
            return silent or _of_nothing_known(reading, facts)
    if cause.verdict is Verdict.GPU_OOM:
        return judge_gpu(GpuOom(line=cause.line, text=cause.text, library="CUDA"))
    if of_host_memory(cause) and in_training(cause.entry, reading.tail, facts.command):
        return of_training(cause, reading.findings)
    return _of_text(reading, facts, cause)


def _nothing(why: str) -> Diagnosis:
    return Diagnosis(verdict=None, confidence=Confidence.HIGH, died="", why=why)


# -- the line that counts ----------------------------------------------------------------------------------------


def _cause(reading: Reading, facts: LogFacts) -> Finding | None:
    """The finding that is the cause: of the first failing step, what says it, else what hints at it; else of any. Of
    equals the innermost layer's first."""
    for among in by_step(reading, facts):
        for weight in (Weight.SAYS, Weight.HINTS):
            found = innermost(_of_first_command([each for each in among if each.weight == weight], reading))
            if found is not None:
                found = _asked_for(_in_package(_named(found, among), among), among)
                return _of_the_kill(_sender(found, reading.findings), among)
    return None


def _of_first_command(findings: Sequence[Finding], reading: Reading) -> Sequence[Finding]:
    """Of commands that were typed one after the other, those of the first that has any: the next ones are tries."""
    if len(findings) < 2:
        return findings
    first = min(each.line for each in findings)
    next_one = next((line for line in KeptLines(reading).commands if line > first), None)
    return findings if next_one is None else [each for each in findings if each.line < next_one]


ANY_ERROR = "compile-error"
"""what a compiler says of the source where nothing more is known of it"""
NAMES_MORE = frozenset(
    (
        *("torch-api-differs", "torch-type-in-dispatch", "thrust-differs", "tensorrt-differs", "python-api-differs"),
        "torch-too-old-for-source",
        *("cuda-api-removed", "cuda-thread-api-removed", "cuda-api-newer", "numpy-api-differs", "half-operators-off"),
    )
)
ERRORS_NEAR = 12
"""lines after such an error in which the next ones of the same file mostly stand"""


def _named(found: Finding, among: Sequence[Finding]) -> Finding:
    """Of errors of a compiler of which the first tells nothing: one just after it that names the library, or what else
    does not fit, for the first follows from that as well."""
    if found.entry != ANY_ERROR or named_in_code(dict(found.captured).get("what", "")):
        return found
    near = (each for each in among if found.line < each.line <= found.line + ERRORS_NEAR)
    return min((each for each in near if each.entry in NAMES_MORE), key=lambda each: each.line, default=found)


NOT_SET_UP = "package-not-set-up"


def _in_package(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a program that crashed in a package's own script: the package manager's line about that package."""
    if found.entry != SEGFAULT:
        return found
    near = (each for each in findings if found.line < each.line <= found.line + ERRORS_NEAR)
    return next((each for each in near if each.entry == NOT_SET_UP), found)


OTHER_PYTHON = "python-of-another-version"
_IGNORED = re.compile(r"(?:ERROR: )?Ignored the following ")
_ASKED = re.compile(r"satisfies the requirement \S{1,100}?==(?P<version>\S{1,40}) \(from versions: (?!none\))")


def _asked_for(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of pip's list of versions for other Pythons, which holds those of every package that it looked at: the line about
    the package that was not found, where the version that was asked for is not in that list."""
    if found.entry != OTHER_PYTHON or not _IGNORED.match(found.text):
        return found
    near = [each for each in findings if found.line < each.line <= found.line + 3]
    asked = ((each, _ASKED.search(each.text)) for each in near)
    return next((each for each, said in asked if said and f"{said['version']} Requires" not in found.text), found)


def _of_the_kill(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a request for memory that was refused: the kill of another program, where there was one, for then it was all
    the memory that ran out, and not a limit on one of them."""
    if found.verdict is not Verdict.RLIMIT:
        return found
    kills = (each for each in findings if each.verdict is Verdict.PARALLEL and each.weight is Weight.SAYS)
    return next(kills, found)


def _guess(reading: Reading, facts: LogFacts) -> Finding | None:
    """Where nothing says or hints at a cause: the root line, if what mostly is behind its kind is known."""
    root = root_line(reading, facts, None)
    if root is None or root.weight is not Weight.GUESSES:
        return None
    return None if root.verdict is Verdict.NOT_A_BUILD and builds(reading, facts) else root


def _sender(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a SIGTERM, which names no sender: the daemon's or scheduler's own line, where there is one."""
    if found.verdict is not Verdict.EXTERNAL_KILL:
        return found
    said = (each for each in findings if each.verdict in OF_WATCHERS and each.weight is Weight.SAYS)
    return next(said, found)


def _kernel_decides(facts: LogFacts, cause: Finding | None) -> bool:
    """The kernel's report is about this build, or about nothing that another text explains."""
    if any(map(of_a_build, facts.kernel)):
        return cause is None or cause.verdict in OF_MEMORY or cause.verdict in (*OF_WATCHERS, Verdict.UNKNOWN)
    return not facts.gpu and (
        cause is None or cause.verdict in OF_MEMORY or cause.verdict in (*OF_WATCHERS, Verdict.UNKNOWN)
    )


def _gpu(facts: LogFacts, cause: Finding | None, reading: Reading) -> Diagnosis | None:
    """The GPU's memory, where it failed before anything else did; never in place of a step of a build that failed."""
    if not facts.gpu:
        return None
    # A bare message of CUDA may follow one with all its numbers, or stand before it.
    first = facts.gpu[0]
    if cause is not None and cause.verdict is not Verdict.GPU_OOM:
        if reading.failing is not None or cause.line < first.line:
            return None
        if cause.weight is Weight.SAYS and cause.verdict in (Verdict.SOURCE, Verdict.TOOLCHAIN, Verdict.DISK_FULL):
            return None
    best = next((each for each in facts.gpu if each.tried_mib is not None and each.total_mib is not None), first)
    return judge_gpu(best, more=len(facts.gpu) + facts.gpu_more - 1)


# -- verdicts ----------------------------------------------------------------------------------------------------


def _of_text(reading: Reading, facts: LogFacts, cause: Finding) -> Diagnosis:
    entry = entry_of(cause.entry)
    tool = dict(cause.captured).get("tool", "")
    verdict: Verdict = cause.verdict or Verdict.UNKNOWN
    confidence = _confidence(reading, cause)
    evidence = [cause.quoted]
    known = remedy_facts(facts, tool=tool, text=cause.text, captured=cause.captured)
    why = cause_of(entry, cause.captured, values(known)) if entry is not None else "a text that is known"
    if verdict is Verdict.PARALLEL:
        kills = sum(1 for each in reading.findings if each.verdict is Verdict.PARALLEL)
        kill = weigh_kill(facts, tool, max(kills, reading.count(cause.entry)))
        verdict, why = kill.verdict, kill.why
        confidence = Confidence.HIGH if confidence == Confidence.HIGH else kill.confidence
        evidence += kill.evidence
    evidence += _also(reading, cause)
    told = Diagnosis(
        verdict=verdict,
        confidence=confidence,
        died=_died(facts, cause, tool),
        why=why,
        cause=cause.entry,
        evidence=evidence,
    )
    return _finished(told, known, cause)


def _confidence(reading: Reading, cause: Finding) -> Confidence:
    watched = any(each.verdict in OF_WATCHERS and each.weight is Weight.SAYS for each in reading.findings)
    if cause.weight in (Weight.HINTS, Weight.GUESSES):
        return (
            Confidence.MEDIUM
            if cause.verdict not in OF_MEMORY and cause.verdict is not Verdict.UNKNOWN
            else Confidence.LOW
        )
    if cause.verdict in OF_MEMORY:
        return Confidence.HIGH if watched else Confidence.MEDIUM
    return Confidence.HIGH


_IN_GCC = re.compile(r",? at [\w/.-]{1,80}:\d{1,6}$")
"""of a crash of gcc: the place in its own source"""


def _died(facts: LogFacts, cause: Finding, tool: str) -> str:
    entry = entry_of(cause.entry)
    if entry is not None and entry.group == "link" and not tool:
        return "a link"
    said = _IN_GCC.sub("", cause.text)
    source = source_of(facts.command, facts.failed[0].text if facts.failed else "", said)
    if tool and source:
        return f"{tool} of {source}"
    if tool or source:
        return tool or f"the compilation of {source}"
    return f"what printed line {cause.line}"


def _also(reading: Reading, cause: Finding) -> list[str]:
    """Other lines that say it, and how many there were."""
    lines = [each.quoted for each in reading.findings if each.verdict in OF_WATCHERS and each.entry != cause.entry][:2]
    count = reading.count(cause.entry)
    if count > 1:
        lines.append(f"{count} lines of that kind; the first counts")
    if reading.failing is not None and reading.failing != cause.line:
        lines.append(f"the first step that failed stands in line {reading.failing}")
    return lines


def _finished(told: Diagnosis, known: RemedyFacts, cause: Finding | None) -> Diagnosis:
    """With its ways out: those of the line that says it where it has any; they know more than the verdict does."""
    entry = entry_of(cause.entry) if cause is not None else None
    fits = entry is not None and entry.verdict == told.verdict and told.verdict not in OF_COMPANY
    own = fixes_of(entry, cause.captured, values(known)) if entry is not None and cause is not None and fits else ()
    return msgspec.structs.replace(told, fixes=ladder(told.verdict, known, own=own))


def _of_kernel(kernel: tuple[Diagnosis, RemedyFacts], facts: LogFacts, cause: Finding | None) -> Diagnosis:
    """What the kernel says of the kill, with what the log says of the build."""
    told, killed = kernel
    build = remedy_facts(facts, tool=killed.tool)
    peak_mib = killed.peak_mib or build.peak_mib
    return _finished(told, msgspec.structs.replace(build, peak_mib=peak_mib, limit_mib=killed.limit_mib), cause)


# -- where nothing is known --------------------------------------------------------------------------------------


def _of_nothing_known(reading: Reading, facts: LogFacts) -> Diagnosis:
    trails = [each for each in reading.findings if each.weight is Weight.TRAILS]
    if reading.failing is None and not ends_badly(reading, trails):
        if (grown := _growing(facts)) is not None:
            return grown
        why = "nothing in it says that anything failed" if reading.lines else "it is empty"
        return Diagnosis(verdict=None, confidence=Confidence.MEDIUM, died="", why=why, root=last_words(reading))
    root = some_line(reading, facts)
    beside = "".join(f"; {where} it: {text}" for where, text in said_beside(root, reading))
    said = f"the build itself says: {root.text}{beside}"
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        confidence=Confidence.LOW,
        died=f"the step of line {reading.failing}" if reading.failing is not None else "",
        why=f"{said.rstrip('.')}, and not why" if only_failed(root) else said,
        root=root.quoted,
        evidence=around(root, reading),
        fixes=ladder(Verdict.UNKNOWN, remedy_facts(facts), own=fixes_of_reason(root, reading)),
    )


def _growing(facts: LogFacts) -> Diagnosis | None:
    """Nothing failed yet, and a compiler is where none should be."""
    grown = next((growth for growth in facts.growth if growth.monstrous), None)
    if grown is None:
        return None
    kill = weigh_kill(facts, grown.tool, 0)
    return Diagnosis(
        verdict=kill.verdict,
        confidence=kill.confidence,
        died="",
        why=kill.why,
        cause="growth",
        evidence=[text for text in kill.evidence if text != NO_NAME],
        fixes=ladder(kill.verdict, remedy_facts(facts, tool=grown.tool)),
    )


def _silent(reading: Reading, facts: LogFacts) -> Diagnosis | None:
    """nvcc with --threads: killed or out of disk, it prints nothing and gives 255; so it does after an error."""
    root = root_line(reading, facts, None)
    of_a_tool = root is not None and root in reading.findings and layer_of(root.entry) == Layer.TOOL.rank
    if root is not None and of_a_tool and root.weight is not Weight.TRAILS and not SILENT.search(root.text):
        return None
    step = facts.failed[0].text if facts.failed else ""
    numbered = zip(reading.tail_numbers, reading.tail, strict=True)
    lines = [*facts.failed[:1], *(Quote(line=line, text=text) for line, text in numbered)]
    at = next((each for each in lines if SILENT.search(each.text)), None)
    nvcc = "nvcc" in facts.command or any("nvcc" in text for text in reading.tail)
    if at is None or not nvcc or facts.threads == 1:
        return None
    threads = f"--threads {facts.threads}" if facts.threads is not None else "--threads"
    said = str(at)
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        confidence=Confidence.MEDIUM,
        died=f"nvcc of {source_of(facts.command, step)}" if source_of(facts.command, step) else "nvcc",
        why=f"nvcc with {threads} gives 255 and no text for two causes alike: a phase of it was killed for memory, or "
        "TMPDIR was full. The log cannot tell which",
        cause=SILENT_CAUSE,
        root=said,
        evidence=[said, *([str(facts.jobs.quote)] if facts.jobs is not None else [])],
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


# -- the command of the step that failed -----------------------------------------------------------------------------


_COMPILED = re.compile(r"(?:^|[\s=\"'])((?:[\w@%+,.~/-]){1,400}\.(?:cu|cpp|cc|cxx|c\+\+|c|hip))(?=$|[\s\"':,(\]])")
_OBJECT = re.compile(r"(?<![\w@%+,.~/-])((?:[\w@%+,.~/-]){1,400}\.(?:cu|cpp|cc|cxx|c))\.(?:o|obj)\b")
_DEVICE_ARCH = re.compile(r"\b(?:sm|compute)_(\d{2,3}[af]?)\b")
_STD = re.compile(r"-std[= ]((?:c|gnu)\+\+\w{2})\b")
_DEBUG = re.compile(r"(?:^| )(?:-g|-G|-lineinfo|--device-debug|--generate-line-info)(?= |$)")
MOST_LOOKED = 16_000


def source_of(*texts: str) -> str:
    """The source that a command or an output names last; empty without one."""
    for text in texts:
        found = _COMPILED.findall(text[:MOST_LOOKED]) or _OBJECT.findall(text[:MOST_LOOKED])
        if found:
            return str(found[-1])
    return ""


def remedy_facts(
    facts: LogFacts, *, tool: str = "", text: str = "", captured: tuple[tuple[str, str], ...] = ()
) -> RemedyFacts:
    """What is known of the build for finding a way out.

    ``text``: the line that says what died, or why. ``captured``: what its entry took from it.
    """
    command = facts.command
    failed = facts.failed[0].text if facts.failed else ""
    grown = next((growth for growth in facts.growth if growth.tool == tool), None)
    archs = tuple(sorted({f"sm_{number}" for number in _DEVICE_ARCH.findall(command[:MOST_LOOKED])}))
    std = _STD.search(command[:MOST_LOOKED])
    return RemedyFacts(
        tool=tool,
        source=source_of(command, failed, text),
        archs=archs,
        threads=facts.threads,
        jobs=facts.jobs.value if facts.jobs is not None else None,
        nvcc=facts.case.nvcc,
        cuda=facts.case.cuda,
        case=facts.case,
        captured=captured,
        std=std[1].replace("gnu", "c") if std else "",
        debug=_DEBUG.search(command[:MOST_LOOKED]) is not None if command else None,
        peak_mib=grown.last_mib if grown is not None else None,
    )
