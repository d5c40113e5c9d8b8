"""The keeper: lets stopped processes go on when whoever stopped them is dead, stopped itself, or hangs.

Stand-alone, standard library only, run as ``python -IS``, with the seconds of silence that it bears as its argument.
It reads lines from its standard input: ``+PID START_TICKS`` for a process that is about to be stopped, ``-PID
START_TICKS`` for one that goes on, anything else as a sign of life. When the other end is closed, or says nothing for
so long, it sends SIGCONT to all that are stopped. To a process that runs, that is nothing.
"""

import os
import select
import signal
import sys


def start_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def let_go(stopped):
    for pid, ticks in stopped:
        if start_ticks(pid) == ticks:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                continue


def heard(line, stopped):
    """The set after this line."""
    if line[:1] not in b"+-" or not line:
        return stopped
    pid, ticks = line[1:].split()
    process = {(int(pid), int(ticks))}
    return stopped | process if line.startswith(b"+") else stopped - process


def main(silence_s):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    stopped, rest = frozenset(), b""
    while True:
        if not select.select([0], [], [], silence_s if stopped else None)[0]:
            let_go(stopped)
            stopped = frozenset()
            continue
        text = os.read(0, 65536)
        if not text:
            break
        *lines, rest = (rest + text).split(b"\n")
        for line in lines:
            stopped = heard(line, stopped)
    let_go(stopped)
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
