"""Why something failed, from its log alone: a verdict, how sure it is, its evidence, and what to do. Pure.

Covers: a log of any length in one stream, in memory that is bounded; which of the lines that the catalogue knows is the
cause. Texts that say it go before those that hint at it, those before trailers; of equals the first failing step's
counts, for what comes later mostly follows from it. The kernel's report goes before all of them, for a build. A SIGKILL
without it: too many, one too large, or one without end; a process of a training rather than of a build.
Does *not* cover: opening files (``cli.explain``), builds that left a trace (``diagnose.from_trace``).

Whatever is said, the root line is shown: the first error of the innermost layer that failed. Where its cause is not
known, what mostly is behind an error of its kind is said, or else the verdict is ``unknown``, with that line; a log of
no failure has no verdict.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from builddoctor.core.units import format_mib
from builddoctor.core.verdict import Diagnosis, Finding, Fix, Verdict, Weight
from builddoctor.core.word import Confidence
from builddoctor.diagnose.catalogue import Layer, cause_of, entry_of, fixes_of, layer_of, load_catalogue
from builddoctor.diagnose.gpu_memory import GpuOom, judge_gpu
from builddoctor.diagnose.kernel_log import FEWER_CANNOT, judge_kernel, of_a_build
from builddoctor.diagnose.log_facts import SOURCE, Growth, LogFacts, Survey
from builddoctor.diagnose.log_lines import Blocks, Quote
from builddoctor.diagnose.log_scanner import Reading, Scanner, failure
from builddoctor.diagnose.remedies import ladder, values
from builddoctor.diagnose.remedy_facts import RemedyFacts
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


LINES_BEFORE_STEP = 200
"""make says after the error which step it was, and other steps print in between"""

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

OF_COMPANY: frozenset[Verdict] = frozenset((Verdict.PARALLEL, Verdict.TOO_BIG, Verdict.RUNAWAY))
"""the ladder knows what to do about them, in the words of the build; a text does not"""

TRIED_OUT = re.compile(r"\bconftest\b|CMakeTmp\b|CMakeScratch\b|\bTryCompile\b|\bCMake(?:Error|Output|ConfigureLog)\b")
"""what configure steps try out may fail"""

MUST_COMPILE = frozenset(("compiler-makes-nothing", "cmake-nvcc-broken", "cmake-nvcc-id-failed"))
"""but for the compilers themselves: what stands below is why they do not work"""

HARMLESS = re.compile(r"hit memory(?:\+swap)? limit at least once")
"""Slurm says so of full page cache too"""

WENT_ON = re.compile(
    r"^-- (?:Build files have been written|Generating done)|^config(?:ure|\.status): creating "
    r"|^Your branch is up to date|^Already on |\(ignored\)$"
)
"""printed after an error that did not stop the build"""

MOST_FIXES = 3
"""the likeliest: who reads a log wants the next step"""

LAST_WORDS = 3
ENDS_BADLY = re.compile(
    r"\bFAILED\b|[Ee]rrors? while running|: Broken pipe$|\bexited with (?:code )?(?!0\b)\d|\bAborted\b"
    r"|^The configuration failed|^Failing command: |\bmake(?:\[\d{1,4}\])?: \*\*\* "
)

LINES_NEXT = 2
LONGEST_LINE = 300
SILENT = re.compile(r"^FAILED: \[code=255\]|\bError 255\b|exit (?:code|status):? 255\b")
SILENT_CAUSE = "silent-255"
MATTERS = re.compile(
    r"(?i)error|fatal|fail|kill|abort|cannot|not found|no such|denied|exception|undefined|exit (?:code|status)"
)


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
    line = next(iter(told.evidence), "") if root is None else _quoted(root)
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
    for among in _by_step(reading, facts):
        for weight in (Weight.SAYS, Weight.HINTS):
            found = _innermost(each for each in among if each.weight == weight)
            if found is not None:
                return _of_the_kill(_sender(_named(found, among), reading.findings), among)
    return None


ANY_ERROR = "compile-error"
"""what a compiler says of the source where nothing more is known of it"""
NAMES_MORE = frozenset(
    (
        *("torch-api-differs", "torch-type-in-dispatch", "thrust-differs", "tensorrt-differs", "python-api-differs"),
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


def _of_the_kill(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a request for memory that was refused: the kill of another program, where there was one, for then it was all
    the memory that ran out, and not a limit on one of them."""
    if found.verdict is not Verdict.RLIMIT:
        return found
    kills = (each for each in findings if each.verdict is Verdict.PARALLEL and each.weight is Weight.SAYS)
    return next(kills, found)


def _innermost(findings: Iterable[Finding]) -> Finding | None:
    """A full disk before all others: it explains them, and they do not explain it."""
    return min(
        findings,
        key=lambda each: (each.verdict is not Verdict.DISK_FULL, layer_of(each.entry), each.line),
        default=None,
    )


def _guess(reading: Reading, facts: LogFacts) -> Finding | None:
    """Where nothing says or hints at a cause: the root line, if what mostly is behind its kind is known."""
    root = root_line(reading, facts, None)
    if root is None or root.weight is not Weight.GUESSES:
        return None
    return None if root.verdict is Verdict.NOT_A_BUILD and builds(reading, facts) else root


def root_line(reading: Reading, facts: LogFacts, cause: Finding | None) -> Finding | None:
    """The first error of the innermost layer that failed: what says the cause, else an error in a tool's own words,
    else what make or ninja say of their step. None where the log has no such line."""
    if cause is not None and cause.weight is Weight.SAYS:
        return cause
    for among in _by_step(reading, facts):
        errors = [each for each in among if each.weight in (Weight.HINTS, Weight.GUESSES, Weight.SHOWS)]
        if (first := _innermost([each for each in errors if not _wraps(each)] or errors)) is not None:
            if cause is not None and layer_of(cause.entry) <= layer_of(first.entry):
                return cause
            # A wrapper alone: what a tool said in words that nobody knows stands beside it.
            said = _said_near(reading, first.line) if _wraps(first) else _said_within(reading, first)
            return said or _end_of_chain(first, among)
    driver = _innermost(each for each in reading.findings if each.weight is Weight.TRAILS)
    return None if driver is None else _said_near(reading, driver.line) or driver


WRAPPER, CHAIN = "wrapper-said", "chain-said"
MESSAGE = "message-below"
_EMPTY = re.compile(r": ?(?:WARNING: .*)?$")
RAISED = frozenset(("python-raised", "python-raised-below"))
LINES_TO_QUOTED = 12
"""from a message to where the output begins that it quotes"""
CHAIN_LINES = 6
"""from an error to the last of what it names as its causes"""


def _wraps(found: Finding) -> bool:
    return found.entry == WRAPPER or _WRAPS.search(found.text) is not None


def _said_within(reading: Reading, found: Finding) -> Finding | None:
    """Of an exception that another one caused: that one, though nobody knows its name. Of a message that quotes the
    output of a program: the first line of that which speaks of an error."""
    lines = _lines_of(reading)
    numbered = sorted(lines.items())
    if found.entry in RAISED:
        first = _exception([each for each in numbered if each[0] < found.line])
        told = first is not None and ": " in first.text and _CAUSED in lines.values()
        return _shown(first.line, first.text) if first is not None and told else None
    quotes = next((line for line, text in numbered if line >= found.line and _QUOTES.search(text)), None)
    if quotes is None or quotes - found.line > LINES_TO_QUOTED:
        return None
    within = [each for each in numbered if quotes < each[0] <= quotes + NEAR and not _WRAPS.search(each[1])]
    return next((_shown(*each) for each in within if _speaks_of_failure(each[1])), None)


def _end_of_chain(found: Finding, findings: Sequence[Finding]) -> Finding:
    """The last of the causes that are named right below an error, or the error that its own message hands on: each is
    nearer to what happened."""
    near = [each for each in findings if 0 < each.line - found.line <= CHAIN_LINES]
    below = [each for each in near if each.entry == CHAIN]
    # Of a message that begins with nothing, or with warnings: the error in it.
    inner = [each for each in near if _EMPTY.search(found.text.partition(each.text)[0]) and each.text in found.text]
    inner = inner if found.entry == MESSAGE else []
    return [found, *inner[:1], *below[-1:]][-1] if found.weight is Weight.SHOWS else found


NEAR = 20
"""lines that are not empty, before a build tool's own: where the reason stands, if it stands anywhere"""

NINJA = "FAILED: "
_SAYS_BELOW = re.compile(rf"{NINJA}|(?:error|Error|ERROR): ")
_NINJAS_OWN = re.compile(rf"\[\d{{1,6}}/\d{{1,6}}\] |ninja: |{NINJA}|Traceback |^\[end of output\]")

_FAILS = re.compile(
    r"(?i)(?:\b|_)(?:error|fatal|failed|failure|bailing out|fehler|fehlgeschlagen|erreur|échec|échoué|erro|falló|falha"
    r"|errore|ошибка|fout|błąd)\b|错误|失败|エラー|失敗|오류"
)
_KILLED = re.compile(r"(?:[Kk]illed|[Tt]erminated|[Aa]borting|SIG(?:KILL|TERM|SEGV|ABRT|BUS|ILL))\b")
_LACKS = re.compile(
    r"(?i)\b(?:cannot|can't|could ?n[o']t|unable to|not found|no such|missing|denied|invalid|unsupported|not supported"
    r"|undefined|unrecognized|unknown|mismatch|refused|aborted|incompatible|too old|too new|does not exist"
    r"|(?:is|was) not (?:set|defined|installed|available))\b"
)
_LACKS_TOO = re.compile(
    r"(?i)\b(?:not (?:set|defined|installed|available|detected|compatible|recogni[sz]ed|satisfied|working)|sorry"
    r"|giving up|not \w{3,20} successfully"
    r"|(?:does not|doesn't|do not|don't) (?:match|work|support|have|contain|provide)|too (?:low|small)"
    r"|no [\w .+/-]{1,40} (?:found|detected)|conflicts? with|problems? \w+ing)\b"
)
"""where something failed: the end of a log that went well may say as much"""
_ASKS = re.compile(
    r"(?i)^(?!.*(?:\bto (?:use|enable|get|build|run|view|see|generate)\b|\bif you\b|\boptional|\brecommend|\bwarn"
    r"|\bfor (?:more|better|best)\b)).*(?:\bplease (?:\w+ ){0,3}install\b|\bmust be installed\b)|^\+{1,3} exit [1-9]"
)
_GAVE_UP = re.compile(
    r"(?i)^\W{0,5}(?:the following .{1,60} (?:are|were) (?:not (?:satisfied|met|found|installed)|missing)\b"
    r"|(?:installation|configuration|configure|set-?up|the build) (?:has )?(?:failed|aborted)\b|giving up\b)"
)
"""said by scripts of projects, above what they say of the machine"""
_ADVISES = re.compile(r"(?:To|Please|You|If|Try|Run|See) \w")
_DEMANDS = re.compile(
    r"(?i)\b(?:please (?:\w+ ){0,4}(?:install|upgrade|update|set|specify|use|run)|(?:must|need to|have to|needs to) be"
    r"|you (?:must|need|have to|should)|(?:is|are) (?:required|needed)|requires|at least|or (?:later|newer|higher)"
    r"|>= ?\d|only (?:works|supports?|available)|exiting|quitting|stopping)\b"
)
_NO_REASON = re.compile(
    r"(?i)\bwarning\b|\bnote: |^-- |^checking |\b(?:no|0) (?:errors?|failures?|failed|tests? failed)\b|\bError \d+$"
    r"|\bexit (?:code|status)\b|\bnon-zero\b|\bunfinished jobs\b|\brecipe for target\b"
    r"|\bsee (?:above|below|also)\b|\blogs? (?:for|file)\b|errors? found in"
    r"|\bskipp|: In (?:\w{4,12} )?function "
)


_WRAPS = re.compile(
    r"\.\.\. (?:error|failed)$|\bdid not run successfully\b|\bfinished with status 'error'|\berrored (?:out|with)\b"
    r"|\bwith error code\b|^(?:ERROR: )?Failed (?:to build|building) |^The configuration failed|^[-=*#]{4,}$"
    r"|-generation-failed$|-exited-with-error$|^(?:error: )?The build backend returned an error"
    r"|\bBackend subprocess exited\b|\berror originates from a sub"
    r"|^error: [Cc]ould not compile |^(?:ERROR|error):$|-- ANTICONF ERROR -"
    r"|\bduring the fetch of repository '|\bTraceback \(most recent call last\):"
)
"""what says that something failed, and never why"""
_OPENS = re.compile(
    r"\[\d{1,7} lines? of output\]|Complete output(?: from command .{1,600}| \(\d{1,7} lines?\))?:?|\[std(?:err|out)\]$"
)
_CLOSES = re.compile(
    r"\[end of output\]|-{8,}$|hint: |note: |Command \"|\[std(?:err|out)\]$|(?:ERROR: )?Command errored out"
)
"""around what pip and uv hand on of a build"""
_ENDED = re.compile(
    r"(?:[\w./-]{0,100}make|scons)(?:\[\d{1,4}\])?: \*\*\* |\+{1,3} exit [1-9]"
    r"|(?:Error: )?Process completed with exit code"
    r"|The command ['\"].{1,600}['\"] (?:returned a non-zero code|exited with)"
    r"|(?:ERROR: )?(?:failed to solve: )?process \".{1,600}\" did not complete"
    r"|collect2: |\S{0,200}ld: final link failed|\S{0,200}clang(?:\+\+)?: error: linker command failed"
)
"""what a build tool or CI says of a step right below the last that it printed"""
_TOOLS_OWN = re.compile(r"(?:[\w.+-]{0,80}/){0,12}[\w.+-]{2,40}: [A-Za-z]")
_STARTED = re.compile(
    r"[$+>#] |Run |Entering |Leaving |\[\s*\d{1,3}%\]|(?:cd|set|export|echo|mkdir|cp|rm) "
    r"|(?:[\w.+-]{0,80}/){0,12}[\w.+-]{1,40} -\w"
)

_CAUSED = "The above exception was the direct cause of the following exception:"
_QUOTES = re.compile(r"(?:[Tt]he output was|the following output):$")

_WORDS = re.compile(r"[A-Za-z]{2}")
_PROMPT = re.compile(r"^\S{0,80}[$#>]$")


def _shown(line: int, text: str) -> Finding:
    return Finding(entry="", verdict=None, weight=Weight.SHOWS, line=line, text=text)


def _lines_of(reading: Reading) -> dict[int, str]:
    """The lines that are known: the last ones, and those around the first step that failed."""
    return {**dict(_numbered(reading)), **{each.line: each.text for each in reading.near}}


def _tells(text: str) -> bool:
    """It says that something failed; a tool that names itself may say so in other words than error."""
    return bool(_FAILS.search(text) or (_TOOLS_OWN.match(text) and _LACKS.search(text)))


def _speaks_of_failure(text: str) -> bool:
    return bool(_FAILS.search(text) or _LACKS.search(text)) and not _NO_REASON.search(text)


def _said_near(reading: Reading, line: int) -> Finding | None:
    """Where no text of an error is known but a build tool's own, in that line: the first one just before it that speaks
    of an error, else of something that is missing; ninja prints what a tool said after its own line and the command."""
    told = {each.line for each in reading.findings}
    lines = _lines_of(reading)
    others = [(number, lines[number]) for number in sorted(lines.keys() - told) if not _WRAPS.search(lines[number])]
    handed_on = _handed_on(others)
    before = [each for each in others if each[0] < line][-NEAR:]
    # Below ninja's own line stands the command.
    begin = line + lines.get(line, "").startswith(NINJA)
    after = [each for each in others if each[0] > begin][:NEAR] if _SAYS_BELOW.match(lines.get(line, "")) else []
    likely = [each for each in (*after, *(handed_on or before)) if not _NO_REASON.search(each[1])]
    plain = [each for each in likely if not _ADVISES.match(each[1])]
    for tells in (_tells, _LACKS.search, _LACKS_TOO.search, _KILLED.search, _DEMANDS.search):
        for number, text in likely if tells in (_tells, _DEMANDS.search) else plain:
            if tells(text):
                return _shown(number, text)
    # In no known words: the last that the tool printed.
    if handed_on:
        said = handed_on
    elif lines.get(line, "").startswith(NINJA):
        own = next((place for place, each in enumerate(after) if _NINJAS_OWN.match(each[1])), len(after))
        said = after[:own]
    else:
        said = _right_above(others, lines.get(line, ""), line)
    said = [each for each in said if not _NO_REASON.search(each[1])]
    return _shown(*said[-1]) if said else None


def _handed_on(numbered: Sequence[tuple[int, str]]) -> list[tuple[int, str]]:
    """What pip or uv hands on of a build, where these lines have its beginning: the last that is not empty."""
    handed_on: list[tuple[int, str]] = []
    for place, (_, text) in enumerate(numbered):
        if _OPENS.match(text):
            below = numbered[place + 1 :]
            end = next((behind for behind, each in enumerate(below) if _CLOSES.match(each[1])), len(below))
            handed_on = list(below[:end]) or handed_on
    return handed_on


LINES_ABOVE = 2


def _right_above(numbered: Sequence[tuple[int, str]], driver: str, line: int) -> list[tuple[int, str]]:
    """The last that was printed above what a build tool or CI says of a step that ended: of make's, in the form in
    which programs speak, for a command may stand there."""
    above = [each for each in numbered if line - LINES_ABOVE <= each[0] < line and not _STARTED.match(each[1])]
    if not _ENDED.match(driver):
        return []
    return [each for each in above if _TOOLS_OWN.match(each[1])] if "***" in driver else above


def _any_wrong(reading: Reading) -> Finding:
    """Of a log that ends badly, with no line that is known: the first that speaks of a failure, else the last one."""
    numbered = _numbered(reading)
    matter = [Quote(line=number, text=text) for number, text in numbered if MATTERS.search(text)]
    last = Quote(line=reading.lines, text="") if not numbered else Quote(line=numbered[-1][0], text=numbered[-1][1])
    said = _exception(numbered) or reading.wrong or next(iter(matter), last)
    return _shown(said.line, said.text)


_FRAME = re.compile(r'File ".{1,300}", line \d')
_RAISED = re.compile(r"raise \w|assert |(?:sys\.)?exit\(.{0,4}[\"']")
_EXCEPTION = re.compile(r"(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:: \S|:?$)")
_UNDERLINES = re.compile(r"[\^~ ]+$|[)\]}]")
LINES_OF_A_FRAME = 4


def _exception(numbered: Sequence[tuple[int, str]]) -> Quote | None:
    """What a traceback of Python ends with, whatever the exception is called: of the first one in these lines. Where
    the copy ends before that: what was raised."""
    for place, (_, text) in enumerate(numbered):
        below = numbered[place + 1 : place + 1 + LINES_OF_A_FRAME]
        if _FRAME.match(text) and not any(_FRAME.match(each) for _, each in below):
            said = next((each for each in below if _EXCEPTION.match(each[1])), None)
            said = said or next((each for each in below if _RAISED.match(each[1])), None)
            # In no form of Python's: what stands below the frame's line of source.
            said = said or next((each for each in below[1:] if not _UNDERLINES.match(each[1])), None)
            if said is not None:
                return Quote(line=said[0], text=said[1])
    return _before_frames(numbered)


_ABOVE_FRAMES = re.compile(r"[A-Z]\w{0,60}(?:Error|Exception|Exit)\b.{0,300}:$")


def _before_frames(numbered: Sequence[tuple[int, str]]) -> Quote | None:
    """Of a log that ends within the frames of a traceback whose exception stands above them, as SCons prints it."""
    if not any(_FRAME.match(text) for _, text in numbered[-LAST_WORDS:]):
        return None
    above = [each for each, (_, below) in pairwise(numbered) if _FRAME.match(below) and _ABOVE_FRAMES.search(each[1])]
    return Quote(line=above[-1][0], text=above[-1][1]) if above else None


def _by_step(reading: Reading, facts: LogFacts) -> tuple[list[Finding], ...]:
    """Findings of the first step that failed, those from there on, all."""
    begin = 1
    if reading.failing is not None:
        begin = reading.failing if _is_ninja(reading, facts) else max(1, reading.failing - LINES_BEFORE_STEP)
    end = facts.failed[1].line if len(facts.failed) > 1 and _is_ninja(reading, facts) else reading.lines + 1
    must = next((each.line for each in reading.findings if each.entry in MUST_COMPILE), reading.lines + 1)
    findings = [each for each in reading.findings if each.line > must or not TRIED_OUT.search(each.text)]
    after = [each for each in findings if each.line >= begin]
    return [each for each in after if each.line < end], after, findings


def _sender(found: Finding, findings: Sequence[Finding]) -> Finding:
    """Of a SIGTERM, which names no sender: the daemon's or scheduler's own line, where there is one."""
    if found.verdict is not Verdict.EXTERNAL_KILL:
        return found
    said = (each for each in findings if each.verdict in OF_WATCHERS and each.weight is Weight.SAYS)
    return next(said, found)


def _is_ninja(reading: Reading, facts: LogFacts) -> bool:
    return bool(facts.failed) and facts.failed[0].line == reading.failing


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
    evidence = [_quoted(cause)]
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


def _died(facts: LogFacts, cause: Finding, tool: str) -> str:
    source = source_of(facts.command, facts.failed[0].text if facts.failed else "", cause.text)
    if tool and source:
        return f"{tool} of {source}"
    if tool or source:
        return tool or f"the compilation of {source}"
    return f"what printed line {cause.line}"


def _also(reading: Reading, cause: Finding) -> list[str]:
    """Other lines that say it, and how many there were."""
    lines = [_quoted(each) for each in reading.findings if each.verdict in OF_WATCHERS and each.entry != cause.entry][
        :2
    ]
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
    if reading.failing is None and not _ends_badly(reading, trails):
        if (grown := _growing(facts)) is not None:
            return grown
        why = "nothing in it says that anything failed" if reading.lines else "it is empty"
        return Diagnosis(verdict=None, confidence=Confidence.MEDIUM, died="", why=why)
    last = max((line for line, text in _numbered(reading)[-1:] if _ENDED.match(text)), default=reading.lines + 1)
    root = root_line(reading, facts, None) or _said_near(reading, last) or _any_wrong(reading)
    said = f"the build itself says: {root.text}"
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        confidence=Confidence.LOW,
        died=f"the step of line {reading.failing}" if reading.failing is not None else "",
        why=said,
        root=_quoted(root),
        evidence=_around(root, reading),
        fixes=ladder(Verdict.UNKNOWN, remedy_facts(facts)),
    )


def _ends_badly(reading: Reading, trails: Sequence[Finding]) -> bool:
    """The end of a log says that something failed, and nothing after it that all is well."""
    wrong = failure()
    numbered = _numbered(reading)
    bad = [number for number, text in numbered if wrong.is_it(text) and not HARMLESS.search(text)]
    bad += [number for number, text in numbered[-LAST_WORDS:] if ENDS_BADLY.search(text)]
    last = [each for each in numbered if _WORDS.search(each[1]) and not _PROMPT.search(each[1])][-1:]
    bad += [number for number, text in last if _speaks_of_failure(text) and not HARMLESS.search(text)]
    bad += [number for number, text in last if _ASKS.search(text)]
    bad += [number for number, text in numbered if _GAVE_UP.search(text) and not _NO_REASON.search(text)]
    if (above := _before_frames(numbered)) is not None:
        bad.append(above.line)
    bad += [trail.line for trail in trails]
    said = [each for each in reading.findings if each.weight in (Weight.GUESSES, Weight.SHOWS)]
    bad += [each.line for each in said if layer_of(each.entry) < Layer.DRIVER.rank]
    went_on = max((number for number, text in numbered if WENT_ON.search(text)), default=0)
    return max(bad, default=0) > went_on


def _numbered(reading: Reading) -> list[tuple[int, str]]:
    """The last lines that are not empty, with their numbers."""
    return list(zip(reading.tail_numbers, reading.tail, strict=True))


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
    """nvcc with --threads: killed or out of disk, it prints nothing and gives 255."""
    step = facts.failed[0].text if facts.failed else ""
    at = next((text for text in (step, *reading.tail) if SILENT.search(text)), "")
    nvcc = "nvcc" in facts.command or any("nvcc" in text for text in reading.tail)
    if not at or not nvcc or facts.threads == 1:
        return None
    threads = f"--threads {facts.threads}" if facts.threads is not None else "--threads"
    number = f"line {facts.failed[0].line}: " if at == step and step else ""
    return Diagnosis(
        verdict=Verdict.UNKNOWN,
        confidence=Confidence.MEDIUM,
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


def _around(root: Finding, reading: Reading) -> list[str]:
    """What may say more than the root line, or instead of it: those next to it, other errors, the last that matters."""
    kept = sorted(
        {**dict(_numbered(reading)), **{each.line: each.text for each in reading.near}, root.line: root.text}.items()
    )
    at = next(place for place, each in enumerate(kept) if each[0] == root.line)
    next_to_it = kept[max(0, at - LINES_NEXT) : at + LINES_NEXT + 1]
    errors = [(each.line, each.text) for each in reading.findings if each.weight is not Weight.TRAILS]
    last = [each for each in kept if MATTERS.search(each[1])][-LINES_NEXT:]
    shown = dict(sorted({**dict(last), **dict(errors[:LINES_NEXT]), **dict(next_to_it)}.items()))
    return [f"near line {number}: {text[:LONGEST_LINE]}" for number, text in shown.items()]


def _quoted(finding: Finding) -> str:
    return f"line {finding.line}: {finding.text}"


# -- a compiler that died of SIGKILL ---------------------------------------------------------------------------------


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
    name = tool or (grown.tool if grown is not None else "the compiler")
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


# -- a training ------------------------------------------------------------------------------------------------------


DATALOADER, LAUNCHER = "dataloader-killed", "launcher-saw-sigkill"
OF_TRAINING = frozenset((DATALOADER, LAUNCHER))
OF_JOBS_MEMORY = frozenset(
    (
        "slurm-oom-kill",
        "slurm-task-oom",
        "slurm-polled-memory",
        "slurm-exceeded-memory",
        "slurm-state-oom",
        "lsf-memory-limit",
        "pbs-memory-limit",
        "kubernetes-oom",
        "docker-oom-flag",
    )
)
FEW_LINES = 2

_TRAINING = re.compile(
    r"(?i)\b(?:epoch|step|iteration|iter|batch)s?\b[ :=/\[]{1,3}\d|\bloss\b[ :='\"]{1,4}\d|[\d?](?:it/s|s/it)\b"
    r"|\bsigkill_handler\b"
    r"|\btorchrun\b|\baccelerate launch\b|\bdeepspeed\b|\btrain\w*\.py\b|\bDataLoader\b"
    r"|\bLoading (?:safetensors |pt )?checkpoint shards\b|\bvllm serve\b|\bapi_server\b|\bUvicorn running\b"
    r"|\btritonserver\b"
)
_PROGRESS = re.compile(r"\d/\d{1,9} \[\d\d:\d\d<.{1,40}(?:it/s|s/it)\]")
_BUILD = re.compile(
    r"\bnvcc\b|\bcc1plus\b|\bcicc\b|\bptxas\b|\bninja\b|\bg?make(?:\[\d+\])?: |\bg\+\+|\bc\+\+|\bBuilding \w+ object\b"
    r"|\bBuilding wheel\b|\bsetup\.py\b|^FAILED: "
)


def of_host_memory(cause: Finding) -> bool:
    """A kill for memory, or one that looks like it, of something that may be no build."""
    return cause.verdict is Verdict.PARALLEL or cause.entry in OF_TRAINING or cause.entry in OF_JOBS_MEMORY


def builds(reading: Reading, facts: LogFacts) -> bool:
    """Something in it is of a build: a step that failed, or a compiler at the end."""
    return reading.failing is not None or bool(facts.command) or any(_BUILD.search(text) for text in reading.tail)


def in_training(entry: str, tail: Sequence[str], command: str) -> bool:
    """Whether what was killed was of a training or a server: by the text itself, else by what the log ends with."""
    if entry in OF_TRAINING:
        return True
    if command or any(_BUILD.search(text) for text in tail):
        return False
    marks = sum(_TRAINING.search(text) is not None for text in tail)
    # A progress bar that the kill stands behind is enough.
    return marks >= FEW_LINES or bool(tail and _PROGRESS.search(tail[-1]))


def of_training(cause: Finding, findings: Sequence[Finding]) -> Diagnosis:
    """Too many workers times what each holds, most likely, or the job's limit; no advice that belongs to builds."""
    limit = next((each for each in findings if each.entry in OF_JOBS_MEMORY and each.weight is Weight.SAYS), None)
    by_limit = entry_of(limit.entry) if limit is not None else None
    own: list[Fix] = []
    killed = "it was killed (SIGKILL) and left no traceback of its own: most likely the host's memory ran out"
    if limit is not None and by_limit is not None:
        killed = (
            f"a training or a server, no build: {cause_of(by_limit, limit.captured, {})}. The host's memory ran out"
        )
        own = [fix for fix in fixes_of(by_limit, limit.captured, {}) if not fix.command.startswith("builddoctor")]
    workers = entry_of(DATALOADER if cause.entry == DATALOADER else LAUNCHER)
    return Diagnosis(
        verdict=Verdict.NOT_A_BUILD,
        confidence=Confidence.MEDIUM if cause.entry == DATALOADER or limit is not None else Confidence.LOW,
        died="a worker of the training's DataLoader" if cause.entry == DATALOADER else "a process of a training",
        why=f"{killed}, not the GPU's. Usually it is the number of worker processes times what each of them loads; a "
        "smaller model or batch does not help",
        cause=cause.entry,
        root="" if limit is None else _quoted(limit),
        evidence=[
            _quoted(cause),
            *([_quoted(limit)] if limit is not None and limit != cause else []),
            "a GPU that runs out of memory gives a Python traceback and kills no process",
        ],
        fixes=[*own, *(workers.fixes if workers is not None else ())][:MOST_FIXES],
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
