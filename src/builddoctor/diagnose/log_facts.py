"""What a log tells about a build beside its errors: the facts that decide between verdicts. Pure.

Covers: the kernel's reports and the GPU's messages wherever they stand; the first failing command; in the first and the
last 16 MiB, how much ran at once, which compilers grew, which versions; texts that are no log at all (documentation,
change logs, workflows, sources). Memory is bounded by those and one block.
Does *not* cover: the catalogue's texts (``diagnose.log_scanner``), or weighing the facts (``diagnose.from_log``).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

import msgspec

from builddoctor.core.units import whole_number
from builddoctor.diagnose.case_facts import MOST_BLOCKS, Case, CaseTable
from builddoctor.diagnose.gpu_memory import GpuOom, decode
from builddoctor.diagnose.kernel_log import MOST_REPORTS, KernelLog, OomReport
from builddoctor.diagnose.log_lines import Count, Quote, clean, starts_of_lines, text_of

LEAST_POINTS = 3
GROWN = 1.5
"""a compiler that ends at that many times what it began with, and never came down, grew"""
SUSPICIOUS_MIB = 8 * 1024.0
"""cudafe++ needs a hundredth of it (TransformerEngine#1996 saw 142 GiB)"""


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one compiler in the order the log has them: of ``top``, ``ps``, or a person who wrote them down."""

    tool: str
    first_mib: float
    last_mib: float
    points: int
    falls: int
    """how often it was clearly smaller than before"""
    first: Quote
    last: Quote

    @property
    def grew(self) -> bool:
        """It rose from first to last, and never came down."""
        return self.points >= LEAST_POINTS and not self.falls and self.last_mib >= GROWN * max(1.0, self.first_mib)

    @property
    def monstrous(self) -> bool:
        """Far beyond what the program needs for anything that it should compile."""
        return self.tool == "cudafe++" and self.last_mib >= SUSPICIOUS_MIB


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """None and empty: the log does not say."""

    document: str = ""
    """what kind of text it is, where it is about failures and none happened in it"""
    jobs: Count | None = None
    """compilers at once, as it was asked for"""
    in_flight: Count | None = None
    """edges that ran when the first one failed: ninja's %r"""
    failed: tuple[Quote, ...] = ()
    """ninja's ``FAILED:`` lines, at most 32"""
    command: str = ""
    """of the first edge that failed: masked, at most 16,000 characters"""
    threads: int | None = None
    """nvcc's --threads in that command, else in any"""
    growth: tuple[Growth, ...] = ()
    grows: Quote | None = None
    """a line that says in words that something grows"""
    case: Case = Case()
    kernel: tuple[OomReport, ...] = ()
    gpu: tuple[GpuOom, ...] = ()
    gpu_more: int = 0
    """messages beyond those"""


# -- reading them ----------------------------------------------------------------------------------------------------


NEAR_BLOCKS = 8
"""blocks at the beginning, and at the end, that are searched for the options of a build and what grew"""

KERNEL_WORDS = (b"oom-kill", b"ut of memory: Kill", b"Killed process ", b"emory.oom.group set")
GPU_WORDS = (
    b"ut of memory",
    b"OutOfMemoryError",
    b"OUT_OF_MEMORY",
    b"MemoryAllocation",
    b"STATUS_ALLOC_FAILED",
    b"RESOURCE_EXHAUSTED",
    b"OOM when allocating",
)
FAILED = b"FAILED: "

MOST_GPU = 32
MOST_FAILED = 32
LINES_BACK = 400
"""before the kernel's first word, where its table may stand without a beginning"""
LINES_IDLE = 300
"""of others between two of the kernel's about one kill: traces of calls, counters, another log"""
MOST_LOOKED = 20_000
"""lines with a word of GPUs or of a failed step that are looked at: what says it, says it in few"""
MOST_KERNEL_LINES = 200_000
BYTES_BACK = 64 * 1024
LONGEST_COMMAND = 16_000
LONGEST_SHOWN = 400
JOINED_LINES = 8

_JOBS = re.compile(
    r"\b(?:MAX_JOBS|CMAKE_BUILD_PARALLEL_LEVEL|BUILD_PARALLEL_LEVEL|PARALLEL_LEVEL|NVTE_BUILD_MAX_JOBS)\W{1,4}(\d{1,4})\b"
)
_JOBS_FLAG = re.compile(
    r"\b(?:ninja|g?make|cmake)\b.{0,400}?[ '](?:-j ?|--parallel[ =]|--jobs[ =]|(?:-j|--parallel|--jobs)', ')(\d{1,4})\b"
)
"""as a shell has them, or Python's list of a command's words"""
_IN_FLIGHT = re.compile(r"\[ *\d{1,6}[/ ,]\d{1,6}[ ,;/]{1,3}r(?:unning)?[ =:]?(\d{1,4})\]")
_THREADS = re.compile(r"--threads[ =](\d{1,3})\b")
_JOB_WORDS = (b"MAX_JOBS", b"PARALLEL_LEVEL", b" -j", b"'-j", b"--parallel", b"--jobs")


class Survey:
    """Fed with the blocks of one log."""

    def __init__(self) -> None:
        self._count = 0
        self._kernel = KernelLog()
        self._kernel_idle = LINES_IDLE
        self._kernel_lines_read = self._gpu_looked = self._failed_looked = 0
        self._gpu: list[GpuOom] = []
        self._gpu_more = 0
        self._before = b""
        self._begun = 0
        self._head = b""
        self._near: deque[tuple[int, bytes]] = deque(maxlen=NEAR_BLOCKS)
        self._jobs: Count | None = None
        self._in_flight: Count | None = None
        self._failed: list[Quote] = []
        self._command = ""
        self._command_due = False
        self._threads: int | None = None
        self._growth = GrowthTable()
        self._case = CaseTable()

    def take(self, block: bytes) -> None:
        """The next of ``log_lines.Blocks``."""
        first = self._count + 1
        if self._kernel_idle < LINES_IDLE or any(word in block for word in KERNEL_WORDS):
            self._kernel_lines(block, first)
        if any(word in block for word in GPU_WORDS):
            self._gpu_lines(block, first)
        if self._command_due or (len(self._failed) < MOST_FAILED and FAILED in block):
            self._failing(block, first)
        if len(self._head) < LOOKED_AT:
            self._head += block[:LOOKED_AT]
        if self._begun < NEAR_BLOCKS:
            self._begun += 1
            if self._begun <= MOST_BLOCKS:
                self._case.feed(block)
            self._surroundings(block, first)
        else:
            self._near.append((first, block))
        self._before = (self._before + block)[-BYTES_BACK:] if len(block) < BYTES_BACK else block[-BYTES_BACK:]
        self._count += block.count(b"\n")

    def finish(self) -> LogFacts:
        """The facts of all blocks."""
        for first, block in self._near:
            self._surroundings(block, first)
        for _, block in list(self._near)[-MOST_BLOCKS:]:
            self._case.feed(block)
        return LogFacts(
            document=what_document(self._head.decode("utf-8", "replace").replace("\r\n", "\n")),
            jobs=self._jobs,
            in_flight=self._in_flight,
            failed=tuple(self._failed),
            command=self._command,
            threads=self._threads,
            growth=self._growth.found(),
            grows=self._growth.words,
            case=self._case.found(),
            kernel=tuple(self._kernel.reports),
            gpu=tuple(self._gpu),
            gpu_more=self._gpu_more,
        )

    # -- the kernel ----------------------------------------------------------------------------------------------

    def _kernel_lines(self, block: bytes, first: int) -> None:
        at = 0
        while len(self._kernel.reports) < MOST_REPORTS and self._kernel_lines_read < MOST_KERNEL_LINES:
            if self._kernel_idle >= LINES_IDLE:
                word = min((place for each in KERNEL_WORDS if (place := block.find(each, at)) >= 0), default=-1)
                if word < 0:
                    return
                at = _back(block, at, word)
            at = self._kernel_run(block, first, at)
            if at >= len(block):
                return

    def _kernel_run(self, block: bytes, first: int, at: int) -> int:
        """Lines from there on, until the kernel has not spoken for long; gives the place after the last one."""
        number = first + block.count(b"\n", 0, at)
        # Those before its first word do not count as silence.
        self._kernel_idle = (
            min(self._kernel_idle, LINES_IDLE) - LINES_BACK if self._kernel_idle >= LINES_IDLE else self._kernel_idle
        )
        while at < len(block) and self._kernel_idle < LINES_IDLE:
            end = block.index(b"\n", at)
            line = block[at:end]
            if len(line) < 4096 and self._kernel.feed(number, clean(line)):
                self._kernel_idle = 0
            else:
                self._kernel_idle += 1
            at, number = end + 1, number + 1
            self._kernel_lines_read += 1
        return at

    # -- the GPU -------------------------------------------------------------------------------------------------

    def _gpu_lines(self, block: bytes, first: int) -> None:
        starts = sorted({start for word in GPU_WORDS for start in starts_of_lines(block, word)})
        line, counted = first, 0
        for start in starts:
            line, counted = line + block.count(b"\n", counted, start), start
            self._gpu_looked += 1
            if len(self._gpu) >= MOST_GPU or self._gpu_looked > MOST_LOOKED:
                self._gpu_more += bool(self._gpu)
                continue
            found = decode(_joined(block, start), line, self._around(block, start))
            if found is not None:
                self._gpu.append(found)

    def _around(self, block: bytes, start: int) -> Iterator[str]:
        """What stands before: back to where its traceback begins."""
        near = (self._before + block[:start])[-BYTES_BACK:] if start < BYTES_BACK else block[start - BYTES_BACK : start]
        begin = near.rfind(b"Traceback (most recent call last)")
        near = near[begin:] if begin >= 0 else near[-BYTES_BACK // 8 :]
        yield near.decode("utf-8", "replace")

    # -- the step that failed ------------------------------------------------------------------------------------

    def _failing(self, block: bytes, first: int) -> None:
        if self._command_due:
            self._take_command(block, 0)
        line, counted = first, 0
        for start in starts_of_lines(block, FAILED):
            line, counted = line + block.count(b"\n", counted, start), start
            self._failed_looked += 1
            if self._failed_looked > MOST_LOOKED:
                return
            text = clean(_line(block, start)[: 2 * LONGEST_SHOWN])
            if not text.startswith("FAILED: ") or len(self._failed) >= MOST_FAILED:
                continue
            self._failed.append(Quote(line=line, text=text[:LONGEST_SHOWN]))
            if len(self._failed) == 1:
                self._look_before(block, start, first)
                self._take_command(block, block.index(b"\n", start) + 1)

    def _take_command(self, block: bytes, start: int) -> None:
        """ninja prints it in the line after."""
        self._command_due = start >= len(block)
        if self._command_due:
            return
        self._command = clean(_line(block, start))[:LONGEST_COMMAND]
        if threads := _THREADS.search(self._command):
            self._threads = int(threads[1])

    def _look_before(self, block: bytes, at: int, first: int) -> None:
        """How many edges ran: ninja says so in the status before, or nowhere."""
        near = block[max(0, at - 4 * BYTES_BACK) : at].splitlines()[-4:]
        for behind, line in enumerate(reversed(near)):
            text = text_of(line)[:LONGEST_SHOWN]
            if (status := _IN_FLIGHT.search(text)) is not None:
                number = first + block.count(b"\n", 0, at) - 1 - behind
                self._in_flight = Count(
                    value=int(status[1]), quote=Quote(line=number, text=clean(line)[:LONGEST_SHOWN])
                )
                return

    # -- options of the build, and what grew -----------------------------------------------------------------------

    def _surroundings(self, block: bytes, first: int) -> None:
        for word in _JOB_WORDS:
            if word in block:
                self._job_lines(block, first, word)
        if self._threads is None and b"--threads" in block and (threads := _THREADS.search(_some(block, b"--threads"))):
            self._threads = int(threads[1])
        self._growth.feed(block, first)

    def _job_lines(self, block: bytes, first: int, word: bytes) -> None:
        """The last one counts: a person who asks for help tried higher numbers before."""
        at = len(block)
        for _ in range(64):
            at = block.rfind(word, 0, at)
            if at < 0:
                return
            start = block.rfind(b"\n", 0, at) + 1
            text = text_of(_line(block, start)[: 2 * LONGEST_COMMAND])
            if found := _JOBS.search(text) or _JOBS_FLAG.search(text[:2000]):
                line = first + block.count(b"\n", 0, start)
                if self._jobs is None or line >= self._jobs.quote.line:
                    quote = Quote(line=line, text=clean(_line(block, start))[:LONGEST_SHOWN])
                    self._jobs = Count(value=int(found[1]), quote=quote)
                return
            at = start


def _line(block: bytes, start: int) -> bytes:
    return block[start : block.index(b"\n", start)]


def _some(block: bytes, word: bytes) -> str:
    """The last place of a word, as text."""
    at = block.rfind(word)
    return block[at : at + 64].decode("ascii", "replace")


def _back(block: bytes, lowest: int, place: int) -> int:
    """The beginning of the line LINES_BACK before a place, not before ``lowest``."""
    at = place
    for _ in range(LINES_BACK):
        before = block.rfind(b"\n", lowest, max(lowest, at - 1))
        if before < 0:
            return lowest
        at = before
    return at + 1


def _joined(block: bytes, start: int) -> str:
    """A message in one line, where a terminal or a logger has broken it into several."""
    text = clean(_line(block, start))
    if "Tried to allocate" not in text or ("total" in text and "free" in text):
        return text
    at = block.index(b"\n", start) + 1
    parts = [text.rstrip(" │|")]
    for _ in range(JOINED_LINES):
        if at >= len(block):
            break
        more = clean(_line(block, at)).rstrip(" │|")
        at = block.index(b"\n", at) + 1
        if not more or more.startswith(("Traceback", "File ", "During handling")):
            break
        parts.append(more)
        if "unallocated" in more or "Management" in more:
            break
    joined = " ".join(parts)
    return joined if "total cap" in joined or "is free" in joined else text


# -- sizes of compilers: rows of top and ps, or what a person wrote beside -------------------------------------------


TOOLS = (b"cudafe++", b"cicc", b"ptxas", b"cc1plus")
LONGEST_ROW = 300
"""A command line is longer, and holds sizes of something else."""
MOST_ROWS = 20_000
LEAST_MIB = 64.0
FELL = 0.9
"""smaller than that share of before: it came down"""

_TOP = re.compile(
    r"^\s*\d{1,8} +\S{1,40} +(?:-?\d{1,3}|rt) +-?\d{1,3} +\S{1,12} +(\d[\d.]{0,12}[kmgtp]?) +\S{1,12} +[RSDTtZI] "
)
_PS_AUX = re.compile(
    r"^\s*\S{1,40} +\d{1,8} +[\d.]{1,6} +[\d.]{1,6} +\d{1,20} +(\d{1,20}) +\S{1,12} +[RSDTZI][\w<+]{0,4} "
)
_PS_RSS = re.compile(r"^\s*\d{1,8} +(\d{4,12}) +(?:\S{1,8} +){0,3}\S{0,200}(?:cudafe\+\+|cicc|ptxas|cc1plus)")
_WITH_UNIT = re.compile(r"(?<![\w./-])(\d{1,6}(?:\.\d{1,3})?) ?([MGT])(?:i?B)?(?![\w/])", re.IGNORECASE)
_ROW_TOOL = re.compile(r"(?<![\w-])(?:\S{0,200}/)?(cudafe\+\+|cicc|ptxas|cc1plus)(?![\w.-])")
_UNITS = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2, "p": 1024.0**3}

_GROWS = re.compile(
    r"(?i)\b(?:memory|RES|RSS|RAM|cudafe\+\+|cicc|ptxas|cc1plus)\b.{0,120}?"
    r"(?:without (?:a |any )?(?:plateau|bound|end|limit)|no plateau|never (?:stops|plateaus)"
    r"|keeps? (?:on )?(?:growing|increasing|rising)|still (?:growing|rising)|unbounded"
    r"|(?:grows?|growing|increas(?:es|ing)|rising) (?:continuously|steadily|endlessly|indefinitely|forever|unbounded)"
    r"|(?:continuously|steadily|endlessly|relentlessly) (?:grow|increas|ris))"
)
_GROW_WORDS = (b"grow", b"increas", b"plateau", b"unbounded", b"rising")


OWN_WORDS = b"ptxas info "
"""what ptxas says of registers, once a kernel: no row of a process, and in some logs a third of all lines"""


class GrowthTable:
    """Fed with blocks of whole lines."""

    def __init__(self) -> None:
        self.words: Quote | None = None
        self._rows = 0
        self._of: dict[str, Growth] = {}

    def found(self) -> tuple[Growth, ...]:
        """The largest first."""
        return tuple(sorted(self._of.values(), key=lambda each: -each.last_mib))

    def feed(self, block: bytes, first: int) -> None:
        """``first``: the number of the block's first line."""
        starts = {
            start
            for tool in TOOLS
            if tool in block
            for start in starts_of_lines(block, tool)
            if not block.startswith(OWN_WORDS, start)
        }
        line, counted = first, 0
        for start in sorted(starts):
            line, counted = line + block.count(b"\n", counted, start), start
            end = block.index(b"\n", start)
            if end - start <= LONGEST_ROW and self._rows < MOST_ROWS:
                self._rows += 1
                self._row(line, block[start:end])
        if self.words is None:
            self._look_for_words(block, first)

    def _look_for_words(self, block: bytes, first: int) -> None:
        for word in _GROW_WORDS:
            if word not in block:
                continue
            for looked, start in enumerate(starts_of_lines(block, word)):
                said = block[start : min(block.index(b"\n", start), start + 2000)]
                if _GROWS.search(text_of(said)):
                    self.words = Quote(line=first + block.count(b"\n", 0, start), text=clean(said)[:400])
                    return
                if looked > 200:
                    break

    def _row(self, line: int, row: bytes) -> None:
        # Masking takes most of the time of a long log: only what is shown is masked.
        text = text_of(row)
        if (tool := _ROW_TOOL.search(text)) is None or (size := size_mib(text)) is None or size < LEAST_MIB:
            return
        quote = Quote(line=line, text=clean(row))
        had = self._of.get(tool[1])
        if had is None:
            self._of[tool[1]] = Growth(
                tool=tool[1], first_mib=size, last_mib=size, points=1, falls=0, first=quote, last=quote
            )
            return
        self._of[tool[1]] = Growth(
            tool=had.tool,
            first_mib=had.first_mib,
            last_mib=size,
            points=had.points + 1,
            falls=had.falls + (size < FELL * had.last_mib),
            first=had.first,
            last=quote,
        )


def size_mib(row: str) -> float | None:
    """What a row says that a process holds; None when it says nothing of that kind."""
    if (top := _TOP.search(row)) is not None:
        number, unit = top[1].rstrip("kmgtp"), top[1][-1]
        return _scaled(number, unit if unit.isalpha() else "k")
    for pattern in (_PS_AUX, _PS_RSS):
        if (found := pattern.search(row)) is not None:
            kib = whole_number(found[1])
            return None if kib is None else kib / 1024
    if (found := _WITH_UNIT.search(row)) is not None:
        return _scaled(found[1], found[2].lower())
    return None


def _scaled(number: str, unit: str) -> float | None:
    try:
        return float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        return None


# -- texts that are no log -------------------------------------------------------------------------------------------


LOOKED_AT = 64 * 1024
FEW = 2
MANY = 8
"""headings: a report of a failure has few"""

SOURCE = "a source"
"""by its first line: a log may begin with one, too"""

_LOG = re.compile(
    r"(?m)^\W{0,8}(?:\[ *\d{1,6}/\d{1,6}\] |\[ {0,2}\d{1,3}%\] |FAILED: |Traceback \(most recent call last\):)"
    r"|^(?:g?make(?:\[\d\])?|ninja): (?:\*\*\*|Entering|error)|invoked oom-killer|oom-kill:constraint"
    r"|(?i:-- the c\w* compiler identification)"
)
_HTML = re.compile(r"(?i)\A\W{0,8}(?:<!doctype html|<html\b)")
_GIT_LOG = re.compile(r"(?m)^commit [0-9a-f]{7,40}\b.*\n(?:Merge: .*\n)?Author: ")
_HEADING = re.compile(r"(?m)^#{1,4} [^\n]{1,100}$|^(?!```)[^\n]{3,80}\n(?:={3,80}|-{3,80}|~{3,80})$")
"""a title, underlined or marked; not a fence above Docker's ruler"""
_MARKUP = re.compile(
    r"(?m)^ {0,3}(?:[-*] |\*\*|```|> |\.\. |\d\. )|::$|\[[^\]\n]{1,80}\]\([^)\n]{1,200}\)"
    r"|``[^`\n]{1,120}``|`[^`\n]{1,120}`"
)
_SOURCE = re.compile(r"\A\s*(?:\"\"\"|#!.*\bpython|import \w|from [\w.]+ import |#include\b|#pragma |/\*|// )")
_YAML = re.compile(r"(?m)^ {2,12}(?:- )?(?:runs-on|steps|uses|run|env|image|script|stage|needs|if): ?")
_SEARCH = re.compile(r"(?m)^[\w./-]{1,120}\.(?:md|rst|txt|sh|py|ya?ml|toml|json|html)[:-]\d{1,7}[:-]")
_FORMATS = re.compile(r"'%[sd]'|%s: %s|%l?d %s|%zu|\(%s\)")
_RAISED = re.compile(r"(?m)^\W{0,8}(?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{0,60}(?:Error|Exception): ")
"""an exception may show the format of its message, as torch's of CUDA versions does"""


def what_document(head: str) -> str:
    """What kind of document a text is by its first 64 KiB; empty when it is none, or holds a log."""
    head = head[:LOOKED_AT]
    if _LOG.search(head):
        return ""
    lines = head.count("\n") + 1
    if _HTML.search(head):
        return "a web page"
    if _GIT_LOG.match(head.lstrip()):
        return "a history of changes"
    if len(_YAML.findall(head)) >= FEW and re.match(r"\s*(?:#.*\n|\s)*[\w'\"-]{1,40}:", head):
        return "a workflow's file"
    if _few(_FORMATS, head) and len(_FORMATS.findall(head)) * 10 >= lines and not _RAISED.search(head):
        return "a list of formats, not of messages"
    if _SEARCH.search(head) and 2 * len(re.findall(r"(?m)^[\w./-]{1,120}[:-]\d{1,7}[:-]", head)) > lines:
        return "a search through files"
    if _SOURCE.match(head):
        return SOURCE
    first = _HEADING.search(head)
    if first is not None and not head[: first.start()].strip() and _few(_MARKUP, head):
        return "a document"
    if len(re.findall(r"(?m)^#{1,4} [^\n]{1,100}$", head)) >= MANY and len(_MARKUP.findall(head)) >= 2 * MANY:
        return "a document"
    return ""


def _few(pattern: re.Pattern[str], text: str) -> bool:
    return len(pattern.findall(text)) >= FEW
