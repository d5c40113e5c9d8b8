"""The keeper: lets stopped processes go on when whoever stopped them is dead.

Stand-alone, standard library only, run as ``python -IS``. It reads lines ``PID START_TICKS`` from its standard input,
one for each process that is about to be stopped, and sends SIGCONT to all that still live when the other end is closed.
To a process that runs, that is nothing.
"""

import os
import signal
import sys


def start_ticks(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    stopped = {tuple(int(word) for word in line.split()) for line in sys.stdin}
    for pid, ticks in stopped:
        if start_ticks(pid) == ticks:
            try:
                os.kill(pid, signal.SIGCONT)
            except OSError:
                continue
    return 0


if __name__ == "__main__":
    sys.exit(main())
