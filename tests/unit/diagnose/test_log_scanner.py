"""A log read once, in a stream."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from builddoctor.diagnose.catalogue import load_catalogue
from builddoctor.diagnose.log_lines import LONGEST_LINE
from builddoctor.diagnose.log_scanner import MOST_COUNTED, MOST_KEPT, TAIL, Reading, Scanner

CATALOGUE = load_catalogue()
KILLED = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"


def read(text: str | bytes) -> Reading:
    scanner = Scanner(CATALOGUE)
    scanner.feed(text.encode() if isinstance(text, str) else text)
    return scanner.finish()


def names(reading: Reading) -> list[str]:
    return [finding.entry for finding in reading.findings]


def test_findings_come_with_their_line_their_text_and_what_was_captured() -> None:
    """Lines are counted from 1; the text is the tool's own."""
    reading = read(f"one\n#7 1.234 two\n#7 1.240 {KILLED}\r\nninja: build stopped: subcommand failed.")
    first, last = reading.findings
    assert (first.entry, first.line, first.text) == ("nvcc-phase-killed", 3, KILLED)
    assert (first.verdict, first.weight, first.captured) == ("parallel", "says", (("tool", "cicc"),))
    assert (last.entry, last.line, last.verdict, last.weight) == ("ninja-stopped", 4, None, "trails")
    assert reading.lines == 4
    assert not reading.ok


def test_findings_are_given_back_as_soon_as_their_line_is_whole() -> None:
    """A build that runs is followed."""
    scanner = Scanner(CATALOGUE)
    assert scanner.feed(KILLED.encode()) == []
    (found,) = scanner.feed(b"\nnext")
    assert found.line == 1
    assert scanner.finish().findings == (found,)


@pytest.mark.parametrize(
    ("quoted", "entry"), [("<frob/a.h>", "library-header-missing"), ('"frob/a.h"', "header-missing")]
)
def test_what_a_compiler_quotes_tells_a_librarys_header_from_the_projects_own(quoted: str, entry: str) -> None:
    """Angle brackets: of a library, whose package is missing; quotes: of the source, that is not whole."""
    reading = read(
        f"x.cpp:3:10: fatal error: frob/a.h: No such file or directory\n    3 | #include {quoted}\n      |   ^~~\n"
    )
    assert names(reading)[0] == entry


def test_errors_of_what_was_compiled_to_try_something_out_are_told_apart() -> None:
    said = "cc1plus: error: unrecognized command line option '-std=c++14'\n"
    tried = read(f"gcc -std=c++14 -c /tmp/tmp1ab2cd3e.cpp -o tmp1ab2cd3e.o\n{said}gcc -std=c++14 -c src/x.cpp\n{said}")
    assert tried.tried == {2}
    assert {finding.line for finding in tried.findings} == {2, 4}


def test_a_line_of_source_that_raises_is_not_what_was_raised() -> None:
    """A traceback quotes it before the exception itself, whose line is the one to show."""
    reading = read(
        '  File "setup.py", line 49, in get_extensions\n'
        "    raise NotImplementedError('CUDA_HOME is None. Please set environment variable CUDA_HOME.')\n"
        "NotImplementedError: CUDA_HOME is None. Please set environment variable CUDA_HOME.\n"
    )
    assert [(each.entry, each.line) for each in reading.findings] == [("cuda-home-not-set", 3)]


def test_of_many_lines_the_first_few_and_the_last_are_kept_and_all_are_counted() -> None:
    """The first failure is the cause, the last one may be of another try."""
    reading = read(f"{KILLED}\n" * 12)
    assert [finding.line for finding in reading.findings] == [1, 2, 3, 4, 12]
    assert len(reading.findings) == MOST_KEPT
    assert reading.count("nvcc-phase-killed") == 12
    assert reading.count("gcc-phase-killed") == 0


def test_after_a_thousand_lines_an_entry_is_not_looked_for_any_longer() -> None:
    """A log that says one thing in every line is read as fast as another; others are still found."""
    text = f"{KILLED}\n" * (MOST_COUNTED + 5) + "virtual memory exhausted: Cannot allocate memory\n"
    reading = read(text)
    assert reading.count("nvcc-phase-killed") == MOST_COUNTED
    assert names(reading)[-1] == "gcc-memory-exhausted"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[1/2] a\nFAILED: x.o\nFAILED: y.o\n", 2),
        ("[1/2] a\n\x1b[31mFAILED: \x1b[0m[code=137] x.o\n", 2),
        ("gcc -c x.c\nmake[2]: *** [x.o] Error 1\nmake: *** [all] Error 2\n", 2),
        ("all went well\n", None),
        ("It FAILED: see below\n", None),
    ],
)
def test_the_first_step_that_failed_is_told(text: str, line: int | None) -> None:
    """ninja's and make's own lines; later ones are often only in the way."""
    assert read(text).failing == line


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ("[1/2] nvcc\n[2/2] Linking CUDA shared library x.so\n", True),
        ("[1/2] nvcc -c x.cu\n[2/2] c++ x.o -shared -o x.so\n", True),
        ("[1/3] nvcc -c x.cu\n[2/3] nvcc -c y.cu\n", False),
        ("Successfully built flash-attn\nSuccessfully installed flash-attn-2.8.3\n", True),
        ("[100%] Built target te\n", True),
        ("Successfully built a\nERROR: Failed building wheel for b\n", False),
        ("[2/2] Linking x\nFAILED: y\n", False),
        ("FAILED: x\nninja: build stopped: subcommand failed.\n[2/2] Linking CXX x\n", True),
        ("Successfully installed a\nTraceback (most recent call last):\n", False),
        ("Successfully installed a\nProcess completed with exit code 1.\n", False),
        ("a log of something else\n", False),
        ("", False),
    ],
)
def test_a_build_that_went_well_is_told_from_one_that_failed(text: str, ok: bool) -> None:
    """A success counts where nothing failed after it, a repaired failure before it does not."""
    assert read(text).ok is ok


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (r"""raised: RuntimeError("[1/1] c++ -o x.so\nFAILED: x.so \n/usr/bin/ld: cannot find -lcudart\n")""", True),
        (r"""echo "\n\n/usr/bin/ld: cannot find -lcudart\n" """, False),
    ],
)
def test_an_error_is_told_from_the_lines_of_a_literal(line: str, said: bool) -> None:
    """A program may print an exception's message as it would write it in its source: the line counts, not all of it."""
    texts = [each.text for each in read(f"{line}\n").findings]
    assert ("/usr/bin/ld: cannot find -lcudart" in texts) is said


def test_the_last_lines_are_kept_without_empty_ones() -> None:
    """Cleaned and masked."""
    reading = read("".join(f"#3 1.0 line {number}\n" for number in range(100)) + "\n\nHF_TOKEN=hunter2\n")
    assert len(reading.tail) == TAIL - 2
    assert reading.tail[-1] == "HF_TOKEN=****"
    assert reading.tail[-2] == "line 99"


def test_what_is_shown_of_a_line_is_short_and_holds_no_credential() -> None:
    """A finding's text goes to a screen, and to others."""
    reading = read(
        f"HF_TOKEN=hunter2 https://me:hunter2@x.example DefaultCPUAllocator: can't allocate memory: {'x' * 900}"
    )
    assert reading.findings == ()
    reading = read(
        "CalledProcessError: Command '['git', 'clone', 'https://me:hunter2@x.example', '" + "y" * 200 + "']' returned "
        "non-zero exit status 1."
    )
    (finding,) = reading.findings
    assert "hunter2" not in finding.text
    assert len(finding.text) <= 400


def test_a_line_without_an_end_takes_bounded_memory() -> None:
    """64 KiB of it are looked at, however long it is."""
    scanner = Scanner(CATALOGUE)
    tracemalloc.start()
    try:
        for _ in range(64):
            scanner.feed(b"x" * (1 << 20))
        scanner.feed(f"\n{KILLED}\n".encode())
        reading = scanner.finish()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert reading.lines == 2
    assert names(reading) == ["nvcc-phase-killed"]
    assert peak < 16 << 20


def test_what_stands_behind_the_part_that_is_looked_at_is_not_found() -> None:
    """The same whether the line came at once or in pieces."""
    late = b"x" * LONGEST_LINE + KILLED.encode() + b"\n"
    assert names(read(late)) == []
    scanner = Scanner(CATALOGUE)
    for start in range(0, len(late), 1000):
        scanner.feed(late[start : start + 1000])
    assert names(scanner.finish()) == []


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_logs_with_a_byte_order_mark_are_read(encoding: str) -> None:
    """PowerShell writes UTF-16; GitHub's logs begin with a mark."""
    assert names(read(f"one\r\n{KILLED}\r\n".encode(encoding))) == ["nvcc-phase-killed"]


def test_a_reading_can_be_written_as_json() -> None:
    """What a trace keeps of it."""
    reading = read(KILLED)
    assert msgspec.json.decode(msgspec.json.encode(reading), type=Reading) == reading
