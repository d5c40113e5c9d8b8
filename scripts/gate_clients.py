"""Processes that speak the gates' protocol, for ``scripts/bench gate`` and ``scripts/bench soak``.

Started as the build command of a real ``builddoctor run``. One process here stands for many gates, so that a thousand
wait without a thousand Pythons; each tool is a real child process. Results go to a file as JSON.

    gate_clients.py wait OUT WAITING PHASES      phases that can start at once, first alone, then beside gates that wait
    gate_clients.py soak OUT PHASES AT_ONCE      units of eight phases, AT_ONCE of them at a time
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import signal
import socket
import sys
import time
from pathlib import Path

from builddoctor.gates.gate_program import PROTOCOL, connect, receive, send

HOLDING = 100
"""Phases that run all the time, beside those that wait and those that are measured."""

ASKERS = 8
ASKS_PER_S = 100.0
"""All askers together: 10,000 units of eight phases in 13 minutes."""

WARM_UP = 20
"""First asks of each asker that are not counted."""

UNIT = ("cc1plus -E", "cudafe++", "cc1plus -E", "cicc", "ptxas", "cc1plus -E", "cicc", "ptxas")
FOLDERS = [word for each in range(60) for word in ("-isystem", f"/usr/src/project/third_party/library{each}/include")]
"""Command lines of some 4 KiB, as projects have them."""

ROWS = 10


def ask(tool: str, words: list[str], size: int, *, unit_id: str = ""):
    """Connect and ask for a phase whose first word is an input of ``size`` bytes, as its gate does."""
    connection = connect("phase")
    assert connection is not None, "no supervisor"
    # Without a unit, the parent's number is that of nobody.
    parent = os.getppid() if unit_id else 0
    head = ["ask", PROTOCOL, str(os.getpid()), str(parent), unit_id, f"/usr/bin/{tool}", "/usr/src/project"]
    assert send(connection, [*head, f"0={size}", "1", *words, *FOLDERS])
    return connection


def register(source: str) -> str:
    """An nvcc of this process's number; gives the unit's name."""
    connection = connect("unit")
    assert connection is not None, "no supervisor"
    head = ["unit", PROTOCOL, str(os.getpid()), "/usr/bin/nvcc", "/usr/src/project", "0.010000", "8192"]
    send(connection, [*head, "-c", source, "-o", source + ".o", "-gencode", "arch=compute_90,code=sm_90", *FOLDERS])
    answer = receive(connection)
    connection.close()
    return answer[1]


def run_tool(connection, peak_mib: float) -> None:
    """Start a tool, wait for its end and tell it, with a peak of our own making."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    send(connection, ["start", str(pid)])
    _, status, usage = os.wait4(pid, 0)
    spent_s = usage.ru_utime + usage.ru_stime
    send(connection, ["end", str(status), str(int(1024 * peak_mib)), f"{spent_s:.3f}", "0.010000", "8192"])
    # The supervisor closes when it has dealt with it.
    receive(connection)
    connection.close()


# -- gates that wait ---------------------------------------------------------------------------------------


def wait(out: Path, waiting: int, phases: int) -> None:
    askers = [_Asker(seed, phases // ASKERS) for seed in range(ASKERS)]
    held = []
    for _ in range(HOLDING):
        connection = ask("cc1plus", ["small.cpp", "-E"], 0)
        assert receive(connection) == ["go"]
        held.append((connection, os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})))
        send(connection, ["start", str(held[-1][1])])
    alone = _round(askers)
    bare = _Bare(out.with_name("bare.socket"))
    machine = _round(askers, bare.path)
    bare.end()
    # 2 GiB of preprocessed source: no machine has memory for its front end beside others.
    waiters = [ask("cudafe++", ["large.ii"], 2 << 30) for _ in range(waiting)]
    for _ in range(3):
        # Answered after all that asked before: they wait now.
        connection = ask("cc1plus", ["small.cpp", "-E"], 0)
        assert receive(connection) == ["go"]
        run_tool(connection, 40.0)
    beside = _round(askers)
    poll = select.poll()
    for connection in waiters:
        poll.register(connection.fileno(), select.POLLIN)
    result = {"bare": machine, "alone": alone, "beside": beside, "waiting": waiting - len(poll.poll(0))}
    out.write_text(json.dumps({**result, "memory": _memory(_supervisor(), 0)}))
    # Later ones hold the ends of earlier ones' pipes.
    for asker in reversed(askers):
        asker.end()
    for _, pid in held:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    # All connections close at once now, as at Ctrl-C.


class _Bare:
    """A server in Python that answers at once and knows nothing: what of an answer's time is the machine's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen(100)
        self._pid = os.fork()
        if self._pid == 0:
            asyncio.run(self._serve(listening))
        listening.close()

    async def _serve(self, listening: socket.socket) -> None:
        server = await asyncio.start_unix_server(self._answer, sock=listening)
        await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for kind in (b"ask", b"start", b"end"):
            body = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "little"))
            assert body.split(b"\0")[0] == kind, body
            if kind == b"ask":
                writer.write(b"\2\0\0\0go")
        writer.close()

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


class _Asker:
    """A process of its own that asks at an even rate when it is told to; made before any connection."""

    def __init__(self, seed: int, count: int) -> None:
        read_go, self._go = os.pipe()
        found, write_found = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._go)
            os.close(found)
            unit_id = register(f"src/asked{seed}.cu")
            with os.fdopen(write_found, "w") as pipe:
                while to := os.read(read_go, 1000):
                    os.environ["BUILDDOCTOR_SOCKET"] = os.fsdecode(to)
                    print(json.dumps(_ask_evenly(unit_id, count, seed)), file=pipe, flush=True)
            os._exit(0)
        os.close(read_go)
        os.close(write_found)
        self._found = os.fdopen(found)

    def begin(self, to: Path) -> None:
        os.write(self._go, os.fsencode(to))

    def found(self) -> list[float]:
        return json.loads(self._found.readline())

    def end(self) -> None:
        os.close(self._go)
        self._found.close()
        os.waitpid(self.pid, 0)


def _round(askers: list[_Asker], to: Path | None = None) -> dict[str, object]:
    """All of them ask at the same time: milliseconds up to each answer, and the supervisor's own for each phase."""
    before_s = _memory(_supervisor(), 0)["cpu_s"]
    for asker in askers:
        asker.begin(to or Path(os.environ["BUILDDOCTOR_SOCKET"]))
    found = [each_ms for asker in askers for each_ms in asker.found()]
    spent_s = _memory(_supervisor(), 0)["cpu_s"] - before_s
    return {"took_ms": found, "spent_ms": 1000 * spent_s / (len(found) + WARM_UP * len(askers))}


def _ask_evenly(unit_id: str, count: int, seed: int) -> list[float]:
    """Milliseconds from connecting to the answer, for each phase."""
    chance = random.Random(seed)
    found = []
    for number in range(WARM_UP + count):
        time.sleep(chance.expovariate(ASKS_PER_S / ASKERS))
        tool = chance.choice(("cudafe++", "ptxas"))
        began = time.perf_counter()
        connection = ask(tool, [f"small{number}.{'ptx' if tool == 'ptxas' else 'ii'}"], 1 << 16, unit_id=unit_id)
        answer = receive(connection)
        took_s = time.perf_counter() - began
        assert answer == ["go"], answer
        run_tool(connection, 40 + 20 * chance.random())
        if number >= WARM_UP:
            found.append(1000 * took_s)
    return found


# -- many phases --------------------------------------------------------------------------------------------


def soak(out: Path, phases: int, at_once: int) -> None:
    units = -(-phases // len(UNIT))
    supervisor = _supervisor()
    rows = [_memory(supervisor, 0)]
    running: set[int] = set()
    for number in range(units):
        if len(running) >= at_once:
            running.remove(os.wait()[0])
        if number and number % max(1, units // ROWS) == 0:
            rows.append(_memory(supervisor, (number - len(running)) * len(UNIT)))
        pid = os.fork()
        if pid == 0:
            _unit(number)
            os._exit(0)
        running.add(pid)
    while running:
        running.remove(os.wait()[0])
    rows.append(_memory(supervisor, units * len(UNIT)))
    out.write_text(json.dumps(rows))


def _unit(number: int) -> None:
    """An nvcc that registers, and its phases one after the other; sizes as those of real ones."""
    chance = random.Random(number)
    unit_id = register(f"src/folder{number % 97}/kernel{number}.cu")
    size = chance.lognormvariate(1.0, 0.5)
    for phase in UNIT:
        tool, *more = phase.split()
        suffix = "ptx" if tool == "ptxas" else "cu" if more else "ii"
        words = [f"kernel{number}.{suffix}", *more, "-quiet", "-arch", "sm_90"]
        asked = ask(tool, words, int(size * (1 << 20)), unit_id=unit_id)
        assert receive(asked) == ["go"]
        run_tool(asked, 20 + 30 * size * chance.lognormvariate(0.0, 0.2))


def _supervisor() -> int:
    """The process above the guardian, which is our parent."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


def _memory(pid: int, phases: int) -> dict[str, float]:
    """What the supervisor holds and has spent after so many phases; sizes in MiB."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    sizes = {name: int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}
    return {"phases": phases, "cpu_s": cpu_s, "at_s": time.monotonic(), **sizes}


if __name__ == "__main__":
    {"wait": wait, "soak": soak}[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))
