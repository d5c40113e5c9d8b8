"""``builddoctor explain`` as a user runs it: files, stdin, packed logs, traces, and what is no text."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.made_traces import Made, usual_units, write_trace
from support.program import Program

KILLED = (
    "[41/66 r7] Building CUDA object gelu.cu.o\n"
    "FAILED: gelu.cu.o\n"
    "/usr/local/cuda/bin/nvcc -c /src/gelu.cu -o gelu.cu.o\n"
    "nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
    "ninja: build stopped: subcommand failed.\n"
)
KEYS = {"verdict", "confidence", "evidence", "fixes", "root", "died", "why", "cause", "lines", "file"}


def log(program: Program, text: str | bytes = KILLED, name: str = "build.log") -> str:
    (program.folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def asked(program: Program, *arguments: str) -> dict[str, Any]:
    done = program.run("explain", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def piped(program: Program, data: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        program.argv("explain", *arguments, "-"),
        input=data,
        env=program.env,
        cwd=program.folder,
        capture_output=True,
        check=False,
    )


def test_the_exit_code_says_whether_something_failed(program: Program) -> None:
    """Only where that was asked for: scripts that show a verdict go on."""
    assert program.run("explain", "--exit-code", log(program)).returncode == 1
    assert program.run("explain", "--exit-code", log(program, "all is well\n")).returncode == 0
    assert program.run("explain", log(program)).returncode == 0


def test_an_annotation_of_github_is_one_line(program: Program) -> None:
    done = program.run("explain", "--format", "github", log(program, "csrc/a.cpp:7:3: error: it's 100% wrong\n"))
    assert done.stdout.startswith("::error file=csrc/a.cpp,line=7,title=")
    assert done.stdout.count("\n") == 1
    assert "100%25 wrong%0A- " in done.stdout


def test_page_says_what_died_why_and_what_to_do(program: Program) -> None:
    """Verdict in a sentence, fixes numbered, each with its mark and its command on a line of its own; exit code 0."""
    done = program.run("explain", log(program))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("✗ cicc was killed (SIGKILL), most likely for memory")
    assert "  died    cicc of /src/gelu.cu" in lines
    assert "  cause   too many at once (parallel, medium confidence), by build.log" in lines
    assert "what to do, cheapest first" in lines
    assert any(line.startswith("  1. ") for line in lines)
    assert "changes nothing in the binary" in done.stdout
    assert "  - line 4: nvcc error   : 'cicc' died due to signal 9 (Kill signal)" in lines
    assert any(line.strip().startswith("builddoctor run ") for line in lines)


def test_json_has_the_keys_that_others_rely_on(program: Program) -> None:
    """verdict, confidence, evidence, fixes; beside them what died, why, the cause's name, lines, file."""
    told = asked(program, log(program))
    assert set(told) == KEYS
    assert (told["verdict"], told["lines"], told["file"]) == ("parallel", 5, "build.log")
    assert set(told["fixes"][0]) == {"text", "command", "changes_binary", "effect"}


def test_a_log_without_a_failure_is_no_error(program: Program) -> None:
    """Exit code 0, JSON null, and a page of a line or two; an empty one as well."""
    name = log(program, "[2/2] Linking CXX shared library k.so\nSuccessfully built k\n")
    assert asked(program, name)["verdict"] is None
    assert program.run("explain", name).stdout.startswith("· build.log: nothing to explain in 2 lines")
    assert asked(program, log(program, ""))["lines"] == 0


def test_stdin_streams(program: Program) -> None:
    """``-``: a pipe is read to its end, and an empty one is no error."""
    done = piped(program, KILLED.encode())
    assert done.returncode == 0
    assert "too many at once (parallel, medium confidence), by stdin" in done.stdout.decode()
    assert piped(program, b"").returncode == 0


def test_what_comes_in_pieces_is_read_as_one(program: Program) -> None:
    """A line is whole when it ends, not when a write does."""
    process = subprocess.Popen(
        program.argv("explain", "--json", "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=program.env
    )
    assert process.stdin is not None
    for at in range(0, len(KILLED), 7):
        process.stdin.write(KILLED[at : at + 7].encode())
        process.stdin.flush()
    told = json.loads(process.communicate()[0])
    assert (told["verdict"], told["lines"], process.returncode) == ("parallel", 5, 0)


@pytest.mark.parametrize(
    ("name", "pack"), [("b.log.gz", gzip.compress), ("b.log.bz2", bz2.compress), ("b.log.xz", lzma.compress)]
)
def test_packed_logs_are_read_as_they_are(program: Program, name: str, pack: Any) -> None:
    """By their first bytes, from a file and from a pipe; one that was cut off is read as far as it goes."""
    packed: bytes = pack(KILLED.encode())
    assert asked(program, log(program, packed, name))["verdict"] == "parallel"
    assert json.loads(piped(program, packed, "--json").stdout)["verdict"] == "parallel"
    cut = program.run("explain", log(program, packed[: len(packed) // 2], name))
    assert cut.returncode == 0
    assert f"{name} is cut off or torn" in cut.stderr


def test_members_of_a_packed_log_are_read_one_after_the_other(program: Program) -> None:
    """Rotated logs that were put together."""
    packed = gzip.compress(b"first\n") + gzip.compress(KILLED.encode())
    assert asked(program, log(program, packed, "b.gz"))["lines"] == 6


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(range(32)) * 50, "is binary"),
        (b"PK\x03\x04rest of an archive", "a zip archive"),
        (b"LPKSHHRH" + bytes(200), "systemd's journal"),
        (bytes(5000), "is binary"),
    ],
)
def test_what_is_no_text_is_refused(program: Program, content: bytes, words: str) -> None:
    """Its own exit code, what it is, and a line that gets at the text."""
    done = program.run("explain", log(program, content, "odd file"))
    assert (done.returncode, done.stdout) == (88, "")
    assert words in done.stderr
    assert "'odd file' | builddoctor explain -" in done.stderr or "--file 'odd file'" in done.stderr


def test_a_log_with_zeroes_at_its_end_is_a_text(program: Program) -> None:
    """A machine that died while it was written leaves them."""
    assert asked(program, log(program, KILLED.encode() + bytes(100_000)))["verdict"] == "parallel"


def test_what_cannot_be_read_is_said(program: Program) -> None:
    """A missing file, a folder, an unreadable one: 88, and never a stack trace."""
    (program.folder / "folder").mkdir()
    for name, words in (("missing.log", "No such file"), ("folder", "is a folder"), ("/proc/self/mem", "cannot read")):
        done = program.run("explain", name)
        assert (done.returncode, done.stdout) == (88, ""), name
        assert words in done.stderr
        assert "hint: " in done.stderr


def test_a_trace_is_told_by_its_content(program: Program) -> None:
    """Whatever its name is, and by ``last``: the same verdict as ``trace show`` gives."""
    traces = program.folder / "state" / "traces"
    traces.mkdir(parents=True)
    path = write_trace(traces / "20260101T000000-3f2a.jsonl", Made(units=usual_units(), stop_at_s=30.0))
    shown = json.loads(program.run("trace", "show", "--json", str(path)).stdout)
    named = path.rename(program.folder / "some.log")
    told = asked(program, str(named))
    assert (told["verdict"], told["why"], told["evidence"]) == (shown["verdict"], shown["why"], shown["evidence"])
    named.rename(path)
    assert asked(program, "last")["why"] == shown["why"]
    refused = piped(program, path.read_bytes())
    assert (refused.returncode, b"is a trace" in refused.stderr) == (88, True)


def test_a_line_of_many_megabytes_does_no_harm(program: Program) -> None:
    """No line end for 64 MiB: what follows it is found."""
    told = asked(program, log(program, b"x" * (64 << 20) + b"\n" + KILLED.encode()))
    assert (told["verdict"], told["lines"]) == ("parallel", 6)


def test_nothing_in_a_log_moves_the_cursor(program: Program) -> None:
    """Colours, a bell, a title, a carriage return: what is shown of it is plain."""
    text = "make: *** [x] Error 1\n\x1b]0;title\x07\x1b[31merror: \x1b[2Jodd \x08thing\x1b[0m\x07\n"
    done = program.run("explain", log(program, text))
    assert done.returncode == 0
    assert not any(char in done.stdout for char in "\x1b\x07\x08\r")


def test_a_reader_that_goes_away_is_no_error_of_ours(program: Program) -> None:
    """``explain … | head -1``: not a word about it."""
    log(program)
    read, write = os.pipe()
    process = subprocess.Popen(
        program.argv("explain", "build.log"), cwd=program.folder, env=program.env, stdout=write, stderr=subprocess.PIPE
    )
    os.close(write)
    os.close(read)
    assert process.communicate()[1] == b""


def test_closed_stdin_is_an_empty_log(program: Program) -> None:
    """``explain - <&-`` reads nothing, and says so."""
    done = subprocess.run(
        ["sh", "-c", f"{' '.join(program.argv('explain', '-'))} <&-"], env=program.env, capture_output=True, check=False
    )
    assert (done.returncode, b"it is empty" in done.stdout) == (0, True)


def test_a_name_that_is_odd_is_shown_plain(program: Program) -> None:
    """A file's name may hold an escape character."""
    name = "lo\x1b[31mg"
    Path(program.folder / name).write_text(KILLED)
    assert "\x1b" not in program.run("explain", name).stdout
