"""What a build prints into files and pipes goes by us: nothing of it is changed, lost, held back or put out of order.

What the catalogue knows of it is in the trace.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from builddoctor.core.events import BuildEnded, OutputFinding, OutputTail
from support.program import Program

EVERYTHING = bytes(range(256)) * 4096
QUIET = ["--no-doctor"]
"""Nothing of ours among the build's words, whatever machine this is."""

SIGPIPE_CODE = 128 + signal.SIGPIPE


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def test_every_byte_comes_through_on_its_own_stream(program: Program) -> None:
    """A mebibyte of all bytes on each, the last without an end of line."""
    (program.folder / "bytes").write_bytes(EVERYTHING)
    done = subprocess.run(
        program.supervised("sh", "-c", "cat bytes; printf end; cat bytes >&2", options=QUIET),
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        check=True,
    )
    assert done.stdout == EVERYTHING + b"end"
    assert done.stderr.startswith(EVERYTHING)


def test_the_order_is_kept_where_both_are_one(program: Program) -> None:
    """`2>&1` into a file and into a pipe: a line on stdout, a line on stderr, two thousand times."""
    code = "import os\nfor n in range(2000):\n    os.write(1 + n % 2, b'%d\\n' % n)"
    wanted = "".join(f"{n}\n" for n in range(2000))
    with (program.folder / "log").open("wb") as log:
        argv = program.supervised(*python(code), options=QUIET)
        subprocess.run(argv, cwd=program.folder, env=program.env, stdout=log, stderr=log, check=True)
    assert (program.folder / "log").read_text().startswith(wanted)
    piped = program.start(argv)
    assert piped.communicate()[0].startswith(wanted)


def test_a_file_that_is_added_to_is_added_to(program: Program) -> None:
    """`>>`: what was there stays."""
    log = program.folder / "log"
    log.write_text("before\n")
    with log.open("ab") as file:
        argv = program.supervised("echo", "built", options=QUIET)
        subprocess.run(argv, cwd=program.folder, env=program.env, stdout=file, stderr=file, check=True)
    assert log.read_text().startswith("before\nbuilt\n")


def test_a_line_comes_as_soon_as_it_is_written(program: Program) -> None:
    """The build waits for an answer to its first words, which have no end of line: they are not held back."""
    fifo = program.folder / "answer"
    os.mkfifo(fifo)
    process = program.start(
        program.supervised("sh", "-c", "printf question; read answer < answer; echo $answer", options=QUIET)
    )
    assert process.stdout is not None
    said = b""
    while not said.endswith(b"question"):
        said += os.read(process.stdout.fileno(), 4096)
    fifo.write_text("42\n")
    assert process.communicate()[0].startswith("42\n")
    assert process.returncode == 0


def test_a_reader_that_goes_away_ends_the_build_as_it_would_without_us(program: Program) -> None:
    """`builddoctor run -- yes | head -1`: yes dies of SIGPIPE."""
    process = subprocess.Popen(
        program.supervised("yes"), cwd=program.folder, env=program.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(2) == b"y\n"
    process.stdout.close()
    process.stdout = None
    process.communicate()
    assert process.returncode == SIGPIPE_CODE


def test_a_build_that_is_silent_hears_of_its_reader_at_its_next_word(program: Program) -> None:
    """The reader went while nothing was printed: the next write fails, although nobody had written to it since."""
    go = program.folder / "go"
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"
    code += "os.write(1, b'x' * 65536)\nos.write(1, b'x' * 65536 * 4)\n"
    process = subprocess.Popen(
        program.supervised(
            "sh",
            "-c",
            'echo ready; exec "$@"',
            "sh",
            *python("import signal\nsignal.signal(13, signal.SIG_DFL)\n" + code),
        ),
        cwd=program.folder,
        env=program.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.stdout.close()
    process.stdout = None
    go.touch()
    process.communicate()
    assert process.returncode == SIGPIPE_CODE


def test_a_slow_reader_makes_the_build_wait_and_loses_nothing(program: Program) -> None:
    """A build that prints 4 MiB goes no further than pipes are deep, until somebody reads; then all of it is there."""
    code = "import os\nfor n in range(4096):\n    os.write(1, b'%1023d\\n' % n)\n    open('done', 'a').write('.')"
    process = subprocess.Popen(
        program.supervised(*python(code)),
        cwd=program.folder,
        env=program.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    with process.stdout:
        first = process.stdout.read(1024)
        # Its first words are here before it has noted them.
        assert not (program.folder / "done").exists() or (program.folder / "done").stat().st_size < 4096
        rest = process.stdout.read()
    assert process.wait() == 0
    assert [int(line) for line in (first + rest).split()] == list(range(4096))


@pytest.mark.parametrize("stderr", [subprocess.DEVNULL, subprocess.STDOUT], ids=["alone", "with stderr"])
def test_ctrl_c_does_not_wait_for_a_reader_who_does_not_read(program: Program, stderr: int) -> None:
    """Every pipe is full and nobody reads: the build cannot go on to its trap until its words are dropped. What it says
    when somebody reads again is there."""
    reader, writer = os.pipe()
    fifo = program.folder / "go"
    os.mkfifo(fifo)
    trap = "touch trapped; read word < go; echo $word; exit 3"
    process = subprocess.Popen(
        program.supervised("sh", "-c", f"trap '{trap}' INT; echo $$ > pid; while :; do echo y; done"),
        cwd=program.folder,
        env=program.env,
        stdout=writer,
        stderr=stderr,
    )
    noted = program.folder / "pid"
    while not (noted.exists() and noted.read_text().endswith("\n")):
        select.select([], [], [], 0.05)
    builds = os.open(f"/proc/{noted.read_text().strip()}/fd/1", os.O_WRONLY)
    while select.select([], [writer], [], 0)[1] or select.select([], [builds], [], 0)[1]:
        select.select([], [], [], 0.05)
    os.close(builds)
    process.send_signal(signal.SIGINT)
    while not (program.folder / "trapped").exists():
        select.select([], [], [], 0.05)
    os.close(writer)
    with os.fdopen(reader, "rb") as rest:
        os.read(rest.fileno(), 65536)
        fifo.write_text("late\n")
        assert b"late\n" in rest.read()
    assert process.wait() == 128 + signal.SIGINT
    assert isinstance(program.records()[-1], BuildEnded)


def test_a_full_disk_behind_stdout_does_not_stop_the_build(program: Program) -> None:
    """/dev/full: what it prints is dropped, as a build's own writes would fail; it goes on to its end."""
    with open("/dev/full", "wb", buffering=0) as full:
        argv = program.supervised("sh", "-c", "echo lost; echo lost again; touch made; exit 4")
        done = subprocess.run(
            argv, cwd=program.folder, env=program.env, stdout=full, stderr=subprocess.DEVNULL, check=False
        )
    assert done.returncode == 4
    assert (program.folder / "made").exists()


def test_a_socket_in_the_place_of_stdout(program: Program) -> None:
    """As sshd and some CI agents have it; one that does not block, too."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    with ours:
        with theirs:
            (program.folder / "bytes").write_bytes(EVERYTHING)
            process = subprocess.Popen(
                program.supervised("cat", "bytes"),
                cwd=program.folder,
                env=program.env,
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
            )
        received = b""
        while piece := ours.recv(65536):
            received += piece
    assert process.wait() == 0
    assert received == EVERYTHING


def test_a_terminal_is_not_replaced_where_there_is_no_board(program: Program) -> None:
    """In CI with a terminal the build has that terminal; a stderr that is a file goes by us all the same."""
    ours, theirs = pty.openpty()
    with (program.folder / "err").open("wb") as err:
        done = subprocess.run(
            program.supervised("sh", "-c", "test -t 1 && test ! -t 2 && echo yes; echo no >&2", options=QUIET),
            cwd=program.folder,
            env={**program.env, "CI": "true"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=err,
            check=False,
        )
    os.close(theirs)
    assert done.returncode == 0
    assert os.read(ours, 100) == b"yes\r\n"
    os.close(ours)
    assert (program.folder / "err").read_text().startswith("no\n")


def test_what_got_away_is_not_waited_for(program: Program) -> None:
    """A descriptor of the build's stdout that lives on elsewhere (handed over a socket) does not keep us."""
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.bind(str(program.folder / "away"))
    code = "import socket\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    code += "socket.send_fds(s, [b'x'], [1], 0, 'away') if False else "
    code += "(s.connect('away'), socket.send_fds(s, [b'x'], [1]))\nprint('built')"
    done = program.run("run", "--", *python(code))
    _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    assert (done.returncode, done.stdout) == (0, "built\n")
    for fd in fds:
        os.close(fd)


TEXT = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"


def findings(program: Program) -> list[OutputFinding]:
    return [record for record in program.records() if isinstance(record, OutputFinding)]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_lines_that_the_catalogue_knows_are_in_the_trace(program: Program, stream: str) -> None:
    """With their stream and their number; and the last lines of a build that failed."""
    to = "" if stream == "stdout" else " >&2"
    argv = program.supervised("sh", "-c", f'(echo first; echo "{TEXT}"; echo last){to}; exit 9')
    done = subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, check=False)
    assert done.returncode == 9
    (said,) = findings(program)
    assert (said.entry, said.line, said.text, said.stream) == ("nvcc-phase-killed", 2, TEXT, stream)
    (tail,) = [record for record in program.records() if isinstance(record, OutputTail)]
    assert (tail.lines, tail.stream, tail.read) == (["first", TEXT, "last"], stream, 3)


def test_a_build_that_goes_well_leaves_no_last_lines(program: Program) -> None:
    """Nobody asks for them."""
    subprocess.run(
        program.supervised("echo", "fine"), cwd=program.folder, env=program.env, capture_output=True, check=True
    )
    assert not [record for record in program.records() if isinstance(record, OutputTail)]


def test_no_credential_gets_into_the_trace(program: Program) -> None:
    """pip prints addresses with passwords in them."""
    line = "ERROR: Could not fetch https://me:hunter2@example.org/simple --token=hunter2"
    argv = program.supervised("sh", "-c", 'cat "$0" >&2; exit 1', str(program.folder / "text"))
    (program.folder / "text").write_text(f"{line}\n{TEXT} https://me:hunter2@example.org/\n")
    done = subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False)
    assert "hunter2" in done.stderr
    assert "hunter2" not in program.trace_file.read_text()


def test_findings_are_of_a_bounded_number(program: Program) -> None:
    """A log in which everything fails makes no large trace."""
    lines = [TEXT, "g++: fatal error: Killed signal terminated program cc1plus"]
    (program.folder / "text").write_text("".join(f"{line}\n" for line in lines * 5000))
    argv = program.supervised("sh", "-c", "cat text; exit 1")
    subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, check=False)
    assert 2 <= len(findings(program)) <= 40
    assert program.trace_file.stat().st_size < 100_000


def test_a_board_listens_as_well(program: Program) -> None:
    """On a terminal: stderr by the board's way; stdout into a file by its own pipe."""
    ours, theirs = pty.openpty()
    with (program.folder / "out").open("wb") as out:
        process = subprocess.Popen(
            program.supervised("sh", "-c", f'echo "{TEXT}"; echo "{TEXT}" >&2; exit 9'),
            cwd=program.folder,
            env={**program.env, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=theirs,
        )
    os.close(theirs)
    while True:
        try:
            os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert process.wait() == 9
    assert (program.folder / "out").read_text() == f"{TEXT}\n"
    assert sorted(said.stream for said in findings(program)) == ["stderr", "stdout"]
    shown = json.loads(program.run("trace", "show", str(Path(program.trace_file)), "--json").stdout)
    assert any(TEXT in line for line in shown["evidence"])
