"""Any text at all: the parsers of logs never fail, and how a log is cut into chunks changes nothing."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.diagnose.from_log import source_of
from builddoctor.diagnose.gpu_memory import decode, judge_gpu
from builddoctor.diagnose.kernel_log import KernelLog, judge_kernel
from builddoctor.diagnose.log_facts import Growth, Survey, size_mib, what_document
from builddoctor.diagnose.log_lines import Blocks, Quote
from builddoctor.ui.verdict import explain_page

PIECES = [
    "cicc invoked oom-killer: gfp_mask=0x0",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task_memcg=/a/b,task=cicc,pid=7",
    "oom-kill:constraint=,oom_memcg=,task_memcg=",
    "Memory cgroup out of memory: Killed process 7 (cicc) total-vm:1kB, anon-rss:99999999999999999999kB",
    "Out of memory: Kill process 8 (cc1plus) score 9 or sacrifice child",
    "Tasks in /a are going to be killed due to memory.oom.group set",
    "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
    "[      7]  1000     7   900000   700000    40960        0             0 cicc",
    "[      8]  1000     8   900000   0    40960        18446744073709551615             0 cc 1plus",
    "memory: usage 8388608kB, limit 0kB, failcnt 9",
    "shmem 18446744073709551615",
    "Task in /a/b killed as a result of limit of /a",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 194.00 MiB. GPU 1 has a total capacity of 0 bytes",
    "of which 153.19 MiB is free. Process 4788 has 139.64 GiB memory in use. Of the allocated memory ... GiB is",
    "CUDA out of memory. Tried to allocate . GiB (GPU 0; 1.2. GiB total capacity; 7 GiB already allocated; 3 GiB free",
    "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 99999999999999999999 bytes.",
    "Traceback (most recent call last):",
    "torch.cuda.graph capture_begin torch.autograd.grad",
    "FAILED: [code=255] gelu.cu.o",
    "[41/66 r7] nvcc --threads 4 -c gelu.cu",
    "MAX_JOBS=1 ninja -j 0",
    " 911842 user      20   0  142.2g 142.1g   3072 R 100.0   8.4  18:51.20 cudafe++",
    "user 12 99.0 1.0 99999999999999999999 99999999999999999999 ? R 10:00 0:01 cudafe++",
    "cudafe++ 9999999999 GiB, memory keeps growing",
    "CUDA compiler identification is NVIDIA 12.8.93",
    "\x1b[31merror: ",
    "\0\0",
    "",
]
LINES = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=60)), max_size=40)
ENDS = st.sampled_from(["\n", "\r\n", "\r", " "])


def surveyed(data: bytes, size: int) -> bytes:
    survey, blocks = Survey(), Blocks()
    for at in range(0, len(data), size):
        for block in blocks.feed(data[at : at + size]):
            survey.take(block)
    for block in blocks.rest():
        survey.take(block)
    return msgspec.json.encode(survey.finish())


@given(LINES, ENDS, st.integers(1, 400))
def test_a_survey_is_the_same_for_any_chunks(lines: list[str], end: str, size: int) -> None:
    """It reads anything, and what it finds can be written down."""
    data = end.join(lines).encode("utf-8", "surrogatepass")
    assert surveyed(data, size) == surveyed(data, len(data) + 1)


@given(st.binary(max_size=2000))
def test_any_bytes_can_be_surveyed(data: bytes) -> None:
    """Whatever a file holds."""
    assert surveyed(data, 512)


@given(LINES)
def test_any_kernel_log_can_be_judged(lines: list[str]) -> None:
    """Numbers that no machine has, tables without rows, kills without tables."""
    log = KernelLog()
    for number, line in enumerate(lines, 1):
        log.feed(number, line)
    told = judge_kernel(log.reports)
    assert (told is None) == (not log.reports)
    for report in log.reports:
        assert report.page_kib in (4, 16, 64)


@given(LINES, st.integers(20, 200))
def test_any_message_of_a_gpu_has_a_verdict(lines: list[str], width: int) -> None:
    """Sizes without digits, cards of nothing: a page comes out of it, and no line moves the cursor."""
    found = decode(" ".join(lines), 1, lines)
    if found is not None:
        verdict = judge_gpu(found)
        assert verdict.verdict == "gpu-oom"
        page = explain_page("x", verdict, lines=1, width=width)
        assert all(char.isprintable() for line in page for char in line.plain)


@given(st.text(max_size=300))
def test_small_parsers_take_any_text(text: str) -> None:
    """A row, a command, the head of a file."""
    size = size_mib(text)
    assert size is None or size >= 0
    assert isinstance(source_of(text), str)
    assert isinstance(what_document(text), str)


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(1, 9), st.integers(0, 9))
def test_growth_is_never_claimed_of_what_came_down(first: float, last: float, points: int, falls: int) -> None:
    """A compiler that gave memory back has an end."""
    quote = Quote(line=1, text="x")
    grown = Growth(tool="cicc", first_mib=first, last_mib=last, points=points, falls=falls, first=quote, last=quote)
    assert not (grown.grew and (falls or last < first))
