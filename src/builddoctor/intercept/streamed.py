"""Run a program that a user waits for, its output on our stderr line by line as it comes: fixes, never builds.

It gets no input and no terminal, so that it cannot ask; Ctrl-C ends it with us. Of its output, credentials in addresses
are masked and control characters shown as text: it repeats what a stranger wrote into a .gitmodules.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from builddoctor.trace.masking import mask_text
from builddoctor.units import escaped

END_GRACE_S = 5.0
LOOK_EVERY_MS = 200
"""whether it has ended, while something that it left behind still holds its output"""
MOST_LINE_BYTES = 8 * 1024


class Streamed(msgspec.Struct, frozen=True):
    """How it ended. ``status`` is None when it could not be started."""

    status: int | None
    problem: str = ""


def run_streamed(argv: Sequence[str], *, env: Mapping[str, str], cwd: str, output_fd: int = 2) -> Streamed:
    """Run ``argv`` to its end, from the main thread. Raises KeyboardInterrupt, after it has been ended."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with _interrupts_wait():
            # A session of its own: without a terminal ssh and git fail instead of asking for a password.
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
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


def shown_line(line: bytes) -> str:
    """One line of a program's output as it may be shown. Of one that is too long, the end is left out."""
    text = line[:MOST_LINE_BYTES].decode(errors="replace")
    if len(line) > MOST_LINE_BYTES:
        # Without the word that was cut: half an address would not be known as one.
        text = text.rpartition(" ")[0] + " …"
    return escaped(mask_text(text.replace("\t", " ")))


def _pass_on(process: subprocess.Popen[bytes], output_fd: int) -> None:
    """Until it has ended, and all of its own output was shown."""
    assert process.stdout is not None
    fd = process.stdout.fileno()
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    unfinished = b""
    while True:
        # Asked first: what it said last may come between the two.
        ended = process.poll() is not None
        if not poller.poll(0 if ended else LOOK_EVERY_MS):
            if ended:
                # An ssh that stays for later connections keeps the pipe.
                break
            continue
        data = os.read(fd, 65536)
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
        # Who read it may be gone; what runs has to end in order all the same.
        while left:
            left = left[os.write(output_fd, left) :]


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C inside counts at the end: in the midst of starting, the process runs but nobody knows of it yet."""
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
