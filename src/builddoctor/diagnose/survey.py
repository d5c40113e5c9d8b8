"""Look through a log for the facts that decide between verdicts: in a stream, beside the scanner. Pure.

Covers: the kernel's reports and the GPU's messages wherever they stand; the first failing command; and, in the first
and the last 16 MiB, how much ran at once, what grew, which versions. Memory is bounded by those and one chunk.
Does *not* cover: the catalogue's texts (``diagnose.scanning``).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from builddoctor.diagnose.cleaning import clean, text_of, without_sequences
from builddoctor.diagnose.documents import LOOKED_AT, what_document
from builddoctor.diagnose.gpu_memory import GpuOom, decode
from builddoctor.diagnose.growth import GrowthTable
from builddoctor.diagnose.kernel_log import MOST_REPORTS, KernelLog
from builddoctor.diagnose.lines import Lines
from builddoctor.diagnose.log_facts import Count, LogFacts, Quote
from builddoctor.diagnose.sieve import starts_of_lines

BLOCK = 1 << 20
NEAR_BLOCKS = 16
"""blocks at the beginning, and at the end, that are searched for what a build was told and what grew"""

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
_JOBS_FLAG = re.compile(r"\b(?:ninja|g?make|cmake)\b.{0,400}?(?: -j ?| --parallel[ =]| --jobs[ =])(\d{1,4})\b")
_IN_FLIGHT = re.compile(r"\[ *\d{1,6}[/ ,]\d{1,6}[ ,;/]{1,3}r(?:unning)?[ =:]?(\d{1,4})\]")
_THREADS = re.compile(r"--threads[ =](\d{1,3})\b")
_NVCC = re.compile(
    r"CUDA compiler identification is NVIDIA (\d[\d.]{1,12})|Cuda compilation tools, release [\d.]+, V(\d[\d.]{1,12})"
)
_GCC = re.compile(r"CXX compiler identification is GNU (\d[\d.]{1,12})")
_JOB_WORDS = (b"MAX_JOBS", b"PARALLEL_LEVEL", b" -j", b"--parallel", b"--jobs")
_VERSION_WORDS = (b"identification is ", b"Cuda compilation tools")


class Survey:
    """Fed with the bytes of one log."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
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
        self._command, self._command_line = "", 0
        self._command_due = False
        self._threads: int | None = None
        self._growth = GrowthTable()
        self._nvcc = self._gcc = ""

    def feed(self, data: bytes) -> None:
        """The next bytes, in chunks of any size."""
        # Blocks of one size, whatever the chunks were: what stands near a line has to be in the same block.
        data = b"".join((*self._waiting, data)) if self._waiting_bytes + len(data) >= BLOCK else data
        if len(data) < BLOCK:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            return
        whole = len(data) - len(data) % BLOCK
        for start in range(0, whole, BLOCK):
            self._block(self._lines.feed(data[start : start + BLOCK]))
        self._waiting, self._waiting_bytes = [data[whole:]], len(data) - whole

    def finish(self) -> LogFacts:
        """All of it, with the last line where it has no end."""
        self._block(self._lines.feed(b"".join(self._waiting)))
        rest = self._lines.rest()
        if rest:
            self._block(rest if rest.endswith(b"\n") else rest + b"\n")
        for first, block in self._near:
            self._surroundings(block, first)
        return LogFacts(
            document=what_document(self._head.decode("utf-8", "replace").replace("\r\n", "\n")),
            jobs=self._jobs,
            in_flight=self._in_flight,
            failed=tuple(self._failed),
            command=self._command,
            command_line=self._command_line,
            threads=self._threads,
            growth=self._growth.found(),
            grows=self._growth.words,
            nvcc=self._nvcc,
            gcc=self._gcc,
            kernel=tuple(self._kernel.reports),
            gpu=tuple(self._gpu),
            gpu_more=self._gpu_more,
        )

    def _block(self, block: bytes) -> None:
        """Whole lines."""
        if not block:
            return
        block = without_sequences(block)
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
            self._surroundings(block, first)
        else:
            self._near.append((first, block))
        self._before = (self._before + block)[-BYTES_BACK:] if len(block) < BYTES_BACK else block[-BYTES_BACK:]
        self._count += block.count(b"\n")

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
            self._take_command(block, 0, first)
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
                self._take_command(block, block.index(b"\n", start) + 1, first)

    def _take_command(self, block: bytes, start: int, first: int) -> None:
        """ninja prints it in the line after."""
        self._command_due = start >= len(block)
        if self._command_due:
            return
        self._command = clean(_line(block, start))[:LONGEST_COMMAND]
        self._command_line = first + block.count(b"\n", 0, start)
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

    # -- what the build was told, and what grew --------------------------------------------------------------------

    def _surroundings(self, block: bytes, first: int) -> None:
        for word in _JOB_WORDS:
            if word in block:
                self._job_lines(block, first, word)
        if self._threads is None and b"--threads" in block and (threads := _THREADS.search(_some(block, b"--threads"))):
            self._threads = int(threads[1])
        if not (self._nvcc and self._gcc):
            for word in _VERSION_WORDS:
                for start in starts_of_lines(block, word) if word in block else ():
                    text = text_of(_line(block, start))
                    nvcc, gcc = _NVCC.search(text), _GCC.search(text)
                    self._nvcc = self._nvcc or (nvcc[1] or nvcc[2] if nvcc else "")
                    self._gcc = self._gcc or (gcc[1] if gcc else "")
        self._growth.feed(block, first)

    def _job_lines(self, block: bytes, first: int, word: bytes) -> None:
        """The last one counts: who asks for help tried more before."""
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
