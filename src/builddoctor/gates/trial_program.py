"""One trial of a reduction: does this compiler still grow beyond so much memory on the file as it is now?

Stand-alone, standard library only, run as ``python -IS`` in a folder that holds the file:

- ``trial SETTINGS``: settings are JSON, as ``gates.reduction.Trial`` writes them. It runs ``script`` there, in bounded
  memory and time, ends it as soon as it holds more than ``beyond_mib``, and prints what was seen as one line of JSON.
  Exit code 0: it grew beyond that. With ``clean`` also: until then the compiler had nothing to say against the text,
  and its brackets are in pairs: what follows the place where it grows no compiler has ever read.
- ``within ADDRESS_MIB PROGRAM…``: runs the program in so much address space, as the leader of a process group; all of
  that group ends when whoever started it does.

Whatever happens to it, its compiler ends with it.
"""

import ctypes
import fcntl
import json
import os
import re
import resource
import select
import shutil
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
LOOK_EVERY_MS = 10
MOST_WRITTEN_BYTES = 512 * 1024 * 1024
"""By the compiler, a file; it is gone after the trial."""

PAGE_MIB = os.sysconf("SC_PAGE_SIZE") / 2**20
AN_ERROR = re.compile(rb"\b(error|fatal)\b[^\n:]{0,24}:", re.IGNORECASE)
"""``a.cu(3): error #20: …``, ``a.ii:3:1: error: …``, ``catastrophic error: …``, ``ptxas fatal   : …``."""
LITERAL = re.compile(rb"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
CLOSING = {ord(")"): ord("("), ord("]"): ord("["), ord("}"): ord("{")}


def end_with_parent(number: int = signal.SIGKILL) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def limit(kind, most):
    """Lower the bound, where it is not lower already."""
    _, hard = resource.getrlimit(kind)
    most = int(most) if hard == resource.RLIM_INFINITY else min(int(most), hard)
    resource.setrlimit(kind, (most, most))


def become(settings, printed):
    """The compiler, in the child; does not return."""
    try:
        end_with_parent()
        limit(resource.RLIMIT_CORE, 0)
        limit(resource.RLIMIT_FSIZE, MOST_WRITTEN_BYTES)
        limit(resource.RLIMIT_AS, settings["address_mib"] * 2**20)
        limit(resource.RLIMIT_CPU, settings["cpu_s"])
        try:
            with open("/proc/self/oom_score_adj", "w") as score:
                score.write("1000")
        except OSError:
            pass
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        # Its messages are looked at.
        os.execve("/bin/sh", ["sh", settings["script"]], dict(os.environ, LC_ALL="C"))
    finally:
        os._exit(127)


def held_mib(pid):
    try:
        with open("/proc/%d/statm" % pid) as file:
            return int(file.read().split()[1]) * PAGE_MIB
    except (OSError, IndexError, ValueError):
        return 0.0


def in_pairs(name):
    """All brackets of the file are closed, in order."""
    with open(name, "rb") as file:
        text = LITERAL.sub(b"", file.read())
    opened = []
    for char in re.sub(rb"[^()\[\]{}]", b"", text):
        if char not in CLOSING:
            opened.append(char)
        elif not opened or opened.pop() != CLOSING[char]:
            return False
    return not opened


def complains(printed):
    """The compiler has said something against the text."""
    return AN_ERROR.search(os.pread(printed, 1 << 20, 0)) is not None


def watch(child, settings, printed):
    """Until it has ended, or there is no need to wait for that; True: it grew beyond."""
    ended = select.poll()
    fd = os.pidfd_open(child)
    ended.register(fd, select.POLLIN)
    until_s = time.monotonic() + settings["wall_s"]
    beyond = False
    try:
        while not ended.poll(LOOK_EVERY_MS):
            beyond = held_mib(child) > settings["beyond_mib"]
            # After an error it goes on, and grows all the same.
            if beyond or time.monotonic() > until_s or (settings["clean"] and complains(printed)):
                os.kill(child, signal.SIGKILL)
                break
    finally:
        os.close(fd)
    return beyond


def trial(settings):
    paired = in_pairs(settings["input"])
    if settings["clean"] and not paired:
        return 1
    for name in settings["links"]:
        if not os.path.lexists(name):
            os.symlink(os.path.join(settings["folder"], name), name)
    printed = os.open("trial.txt", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    began_s = time.monotonic()
    child = os.fork()
    if child == 0:
        become(settings, printed)
    beyond = watch(child, settings, printed)
    _, status, usage = os.wait4(child, 0)
    # It may have ended between two looks.
    beyond = beyond or usage.ru_maxrss / 1024 > settings["beyond_mib"]
    clean = paired and not complains(printed)
    seen = {
        "beyond": beyond,
        "clean": clean,
        "peak_mib": round(usage.ru_maxrss / 1024, 1),
        "wall_s": round(time.monotonic() - began_s, 3),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
        "exit_code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "output": os.pread(printed, 2000, 0).decode(errors="replace"),
    }
    print(json.dumps(seen))
    interesting = beyond and (clean or not settings["clean"])
    if interesting and settings["best"]:
        keep(settings["input"], settings["best"], seen)
    return 0 if interesting else 1


def keep(name, best, seen):
    """The smallest file so far, always whole: trials run side by side, and may be ended at any time."""
    with open(best + ".lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(best) or os.path.getsize(name) < os.path.getsize(best):
            shutil.copyfile(name, best + ".new")
            os.replace(best + ".new", best)
            with open(best + ".json", "w") as file:
                json.dump(seen, file)


def within(address_mib, words):
    """C-Vise leaves processes behind when it is killed: they are of its group."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: os.killpg(os.getpgrp(), signal.SIGKILL))
    end_with_parent(signal.SIGTERM)
    child = os.fork()
    if child == 0:
        try:
            end_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            limit(resource.RLIMIT_AS, address_mib * 2**20)
            limit(resource.RLIMIT_CORE, 0)
            os.execv(words[0], words)
        finally:
            os._exit(127)
    _, status = os.waitpid(child, 0)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def main(words):
    if words[0] == "within":
        sys.exit(within(float(words[1]), words[2:]))
    end_with_parent()
    with open(words[1]) as file:
        settings = json.load(file)
    sys.exit(trial(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
