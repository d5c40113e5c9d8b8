"""Run a program to its end: probes, whose output is taken; fixes, whose output is shown; commands that are measured.

Each is in a session of its own, without input: what a script started ends with it, and none can ask at the terminal.
Does *not* cover: builds (``gates.guardian``).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from builddoctor.core.units import escaped
from builddoctor.system.probes import MOST_BYTES, PROBE_TIMEOUT_S, Captured, Deadline
from builddoctor.trace.masking import mask_text

END_GRACE_S = 5.0
LOOK_EVERY_MS = 200
"""How soon the end of a streamed program is noticed, while something that it left behind still holds its output."""
MOST_LINE_BYTES = 8 * 1024

_CHUNK_BYTES = 64 * 1024
_TICK_S = 0.1
"""How soon it is noticed that a deadline was ended early."""

_MEASURE = """
import os, resource, sys, time
most = int(sys.argv[1])
began = time.monotonic()
child = os.fork()
if child == 0:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        sys.stderr.write("%s: %s\\n" % (sys.argv[2], error.strerror))
        os._exit(127)
_, status, usage = os.wait4(child, 0)
print("\\n%s %d %d %.3f" % ("ended", status, usage.ru_maxrss, time.monotonic() - began), flush=True)
"""
"""The process between: what a fork of ours is charged with would be our own size. Its own is some 9 MiB."""


class Streamed(msgspec.Struct, frozen=True):
    """How it ended. ``status`` is None when it could not be started."""

    status: int | None
    problem: str = ""


class MeasuredRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. ``exit_code`` is None for one that died of ``signal``, or did not end in time."""

    exit_code: int | None = None
    signal: int | None = None
    peak_mib: float = 0.0
    wall_s: float = 0.0
    output: str = ""
    """its last lines"""
    problem: str = ""


def run_captured(
    argv: Sequence[str],
    *,
    executable: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    timeout_s: float = PROBE_TIMEOUT_S,
    most_bytes: int = MOST_BYTES,
    deadline: Deadline | None = None,
) -> Captured:
    """Run ``argv`` (or ``executable`` under that argv) without input. Never raises for what the program does.

    One that takes longer than ``timeout_s``, or than ``deadline`` lasts, or prints more than ``most_bytes``, is killed.
    """
    if deadline is not None and not deadline.left_s:
        return Captured(None, "", "not asked: others took all the time there was", silent=True)
    began_s = time.monotonic()
    try:
        process = _start(argv, executable=executable, env=env, cwd=cwd)
    except (OSError, ValueError) as error:
        return Captured(None, "", getattr(error, "strerror", None) or str(error))
    try:
        assert process.stdout is not None
        output = _read(process.stdout.fileno(), began_s + timeout_s, most_bytes, process, deadline)
        if len(output) > most_bytes:
            return Captured(None, "", f"it printed more than {most_bytes // 1024} KiB")
        return Captured(process.returncode, output.decode(errors="replace"))
    except subprocess.TimeoutExpired:
        return Captured(None, "", f"no answer in {time.monotonic() - began_s:.0f} s", silent=True)
    finally:
        _kill(process)


def run_streamed(argv: Sequence[str], *, env: Mapping[str, str], cwd: str, output_fd: int = 2) -> Streamed:
    """Run ``argv`` to its end, its output on ``output_fd`` line by line as it comes. Called from the main thread.

    Credentials in addresses are masked and control characters shown as text: a program repeats what a stranger wrote
    into a .gitmodules. Raises KeyboardInterrupt, after the program has been ended.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with _interrupts_wait():
            # A session of its own: without a terminal ssh and git fail instead of asking for a password.
            process = _start(argv, env=env, cwd=cwd)
        _pass_on(process, output_fd)
        return Streamed(process.wait())
    except (OSError, ValueError) as error:
        if process is not None:
            _end(process)
        return Streamed(None, str(getattr(error, "strerror", None) or error))
    except BaseException:
        if process is not None:
            _end(process)
        raise
    finally:
        if process is not None and process.stdout is not None:
            process.stdout.close()


def run_measured(
    argv: Sequence[str], *, cwd: str, env: Mapping[str, str], memory_mib: float, timeout_s: float
) -> MeasuredRun:
    """Run ``argv`` in ``memory_mib`` of address space. Never raises for what it does."""
    python = os.path.realpath(sys.executable)
    words = [python, "-IS", "-c", _MEASURE, str(int(memory_mib * 1024 * 1024)), *argv]
    done = run_captured(words, env=env, cwd=cwd, timeout_s=timeout_s)
    said, _, last = done.output.rstrip("\n").rpartition("\nended ")
    fields = last.split()
    if done.status != 0 or len(fields) != 3:
        return MeasuredRun(problem=done.problem or "it could not be run", wall_s=timeout_s, output=_tail(done.output))
    status = int(fields[0])
    died = os.WIFSIGNALED(status)
    return MeasuredRun(
        exit_code=None if died else os.WEXITSTATUS(status),
        signal=os.WTERMSIG(status) if died else None,
        peak_mib=round(int(fields[1]) / 1024, 1),
        wall_s=float(fields[2]),
        output=_tail(said),
    )


def shown_line(line: bytes) -> str:
    """One line of a program's output as it may be shown. Of one that is too long, the end is left out."""
    text = line[:MOST_LINE_BYTES].decode(errors="replace")
    if len(line) > MOST_LINE_BYTES:
        # Without the word that was cut: half an address would not be known as one.
        text = text.rpartition(" ")[0] + " …"
    return escaped(mask_text(text.replace("\t", " ")))


def _start(
    argv: Sequence[str], *, executable: str | None = None, env: Mapping[str, str] | None, cwd: str | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        executable=executable,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )


def _read(
    fd: int, until_s: float, most_bytes: int, process: subprocess.Popen[bytes], deadline: Deadline | None
) -> bytes:
    """All that it prints until it has ended, or a little more than ``most_bytes``. Raises TimeoutExpired."""
    output = bytearray()
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    while left_s := _left_s(until_s, deadline):
        if not poller.poll(1000 * min(left_s, _TICK_S)):
            continue
        data = os.read(fd, _CHUNK_BYTES)
        if not data:
            process.wait(_left_s(until_s, deadline))
            return bytes(output)
        output += data
        if len(output) > most_bytes:
            return bytes(output)
    raise subprocess.TimeoutExpired(process.args, 0.0)


def _left_s(until_s: float, deadline: Deadline | None) -> float:
    own_s = max(0.0, until_s - time.monotonic())
    return own_s if deadline is None else min(own_s, deadline.left_s)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.stdout is not None:
        process.stdout.close()
    if process.returncode is None:
        # Not reaped yet, so the session's number is still its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.wait()


def _pass_on(process: subprocess.Popen[bytes], output_fd: int) -> None:
    """Show its output until it has ended."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    unfinished = b""
    while True:
        # Asked first: its last output may come between the two calls.
        ended = process.poll() is not None
        if not poller.poll(0 if ended else LOOK_EVERY_MS):
            if ended:
                # An ssh that stays for later connections keeps the pipe.
                break
            continue
        data = os.read(fd, _CHUNK_BYTES)
        if not data:
            break
        *lines, unfinished = (unfinished + data.replace(b"\r", b"\n")).split(b"\n")
        # The rest of a line without end is dropped as it comes.
        unfinished = unfinished[: MOST_LINE_BYTES + 1]
        _show(lines, output_fd)
    _show([unfinished], output_fd)


def _show(lines: Sequence[bytes], output_fd: int) -> None:
    text = "".join(f"{shown_line(line)}\n" for line in lines if line)
    left = text.encode()
    with contextlib.suppress(OSError):
        # The reader may be gone; the program has to end in order all the same.
        while left:
            left = left[os.write(output_fd, left) :]


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C inside counts at the end: in the middle of a start the process runs, but its number is not known yet."""
    seen: list[int] = []
    usual = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if seen:
        raise KeyboardInterrupt


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to the session that we made, so that git removes its lock files; SIGKILL to what stays."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_GRACE_S)
            return


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-12:])
