"""The gate itself, against a supervisor that does what it should not: goes away, says again, says nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from builddoctor.gates import gate_program
from builddoctor.gates.overlay import LIBRARY, Gate, write_gate
from support.fake_toolkit import fake_toolkit
from support.program import Program


class FakeSupervisor:
    """A socket whose every connection is served by ``serve`` in a thread of its own."""

    def __init__(self, path: Path, serve: Callable[[socket.socket], None]) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(16)
        self._serve = serve
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._one, args=(connection,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _one(self, connection: socket.socket) -> None:
        with connection:
            self._serve(connection)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()
        for thread in self._threads:
            thread.join(timeout=60)


def receive(connection: socket.socket) -> list[str]:
    """Fields of one frame; nothing at the end, nor from a gate that left with our answer unread."""
    try:
        head = connection.recv(4, socket.MSG_WAITALL)
    except ConnectionResetError:
        return []
    body = connection.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL) if len(head) == 4 else b""
    return body.decode().split("\0") if body else []


def send(connection: socket.socket, *fields: str) -> None:
    """One frame; nothing where the gate has left, which after a success waits for no answer."""
    body = "\0".join(fields).encode()
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(len(body).to_bytes(4, "little") + body)


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[[Callable[[socket.socket], None]], dict[str, str]]]:
    """Start a fake supervisor; gives the environment that leads to it."""
    running: list[FakeSupervisor] = []

    def start(serve: Callable[[socket.socket], None]) -> dict[str, str]:
        path = tmp_path / "socket"
        running.append(FakeSupervisor(path, serve))
        return {**os.environ, "BUILDDOCTOR_SOCKET": str(path)}

    yield start
    for each in running:
        each.close()


def gate_before(folder: Path, script: str, *, name: str = "tool", role: str = "phase") -> str:
    """A gate in front of a tool of our own."""
    tool = folder / "tool"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    library = folder / LIBRARY
    library.mkdir()
    (library / "gate_program.py").write_text(Path(gate_program.__file__).read_text())
    (library / "gate.py").write_text(
        f"import sys\nsys.path.insert(0, {str(library)!r})\nimport gate_program\ngate_program.main(sys.argv)\n"
    )
    write_gate(folder, Gate(f"gates/{name}", role, str(tool)))
    return str(folder / "gates" / name)


@pytest.mark.parametrize("role", ["phase", "unit"])
def test_after_the_loss_of_the_supervisor_waiting_gates_go_one_at_a_time(
    tmp_path: Path, supervise: Callable, role: str
) -> None:
    """Eight gates wait when the supervisor dies: never do two of their tools run together."""
    script = f"mkdir {tmp_path}/alone || exit 9; echo ran >> {tmp_path}/log; rmdir {tmp_path}/alone"
    gate = gate_before(tmp_path, script, role=role)
    all_wait = threading.Barrier(8)

    def die_when_all_wait(connection: socket.socket) -> None:
        receive(connection)
        all_wait.wait(timeout=60)

    env = supervise(die_when_all_wait)
    gates = [subprocess.Popen([gate], env=env) for _ in range(8)]
    assert [each.wait() for each in gates] == [0] * 8
    assert (tmp_path / "log").read_text() == "ran\n" * 8


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_a_tool_that_dies_of_a_signal_takes_its_gate_along_by_the_same(
    tmp_path: Path, supervise: Callable, number: signal.Signals
) -> None:
    """Whoever called the tool sees what the tool would have shown."""

    def give_it_back(connection: socket.socket) -> None:
        while fields := receive(connection):
            if fields[0] in ("ask", "end"):
                send(connection, "go" if fields[0] == "ask" else "return")

    gate = gate_before(tmp_path, f"kill -{number.name.removeprefix('SIG')} $$")
    assert subprocess.run([gate], env=supervise(give_it_back), check=False).returncode == -number


def test_a_tool_runs_again_as_often_as_it_is_told(tmp_path: Path, supervise: Callable) -> None:
    """Killed twice, well the third time: the caller sees success, and the arguments are the same each time."""

    def say_again(connection: socket.socket) -> None:
        while fields := receive(connection):
            if fields[0] in ("ask", "end"):
                send(connection, "go" if fields[0] == "ask" else "again")

    script = f'echo "$@" >> {tmp_path}/log; [ $(wc -l < {tmp_path}/log) -lt 3 ] && kill -KILL $$; exit 0'
    gate = gate_before(tmp_path, script)
    assert subprocess.run([gate, "-c", "two words"], env=supervise(say_again), check=False).returncode == 0
    assert (tmp_path / "log").read_text() == "-c two words\n" * 3


THRIFT = " ".join(gate_program.THRIFT)


@pytest.mark.parametrize(("name", "added"), [("cc1plus", f" {THRIFT}"), ("cc1", f" {THRIFT}"), ("cicc", "")])
def test_only_what_the_gate_knows_is_added_to_a_tools_arguments(
    tmp_path: Path, supervise: Callable, name: str, added: str
) -> None:
    """Told to add arguments, the gate adds those of its own list, once, to gcc's compilers alone; nothing else ever."""
    answers = iter([("go",), ("again", *gate_program.THRIFT, "-fplugin=evil.so"), ("again", *gate_program.THRIFT)])

    def add_more(connection: socket.socket) -> None:
        while fields := receive(connection):
            # After a success the gate is gone.
            if fields[0] == "ask" or (fields[0] == "end" and fields[1] != "0"):
                send(connection, *next(answers, ("return",)))

    script = f'echo "$@" >> {tmp_path}/log; [ $(wc -l < {tmp_path}/log) -lt 3 ] && kill -KILL $$; exit 0'
    gate = gate_before(tmp_path, script, name=name)
    args = ["-quiet", "in.cpp", "-o", "out.s"]
    assert subprocess.run([gate, *args], env=supervise(add_more), check=False).returncode == 0
    plain = " ".join(args)
    assert (tmp_path / "log").read_text() == f"{plain}\n{plain}{added}\n{plain}{added}\n"


def test_a_tool_that_gives_way_works_at_a_lower_priority(tmp_path: Path, supervise: Callable) -> None:
    """As long as it is told to: run again without that it is as all others are."""
    answers = iter([("go", gate_program.GIVES_WAY), ("again",), ("return",)])

    def give_way_once(connection: socket.socket) -> None:
        while fields := receive(connection):
            if fields[0] in ("ask", "end"):
                send(connection, *next(answers))

    gate = gate_before(tmp_path, f"nice >> {tmp_path}/log; exit 1")
    assert subprocess.run([gate, "in.ii", "-o", "out"], env=supervise(give_way_once), check=False).returncode == 1
    ours = os.nice(0)
    assert (tmp_path / "log").read_text() == f"{ours + gate_program.NICE}\n{ours}\n"


def test_arguments_may_come_with_the_first_answer(tmp_path: Path, supervise: Callable) -> None:
    """A compiler that is expected to be too big starts thriftily at once."""

    def go_thriftily(connection: socket.socket) -> None:
        while fields := receive(connection):
            if fields[0] == "ask":
                send(connection, "go", *gate_program.THRIFT)

    gate = gate_before(tmp_path, f'echo "$@" >> {tmp_path}/log', name="cc1plus")
    args = ["-quiet", "in.cpp", "-o", "out.s"]
    assert subprocess.run([gate, *args], env=supervise(go_thriftily), check=False).returncode == 0
    assert (tmp_path / "log").read_text() == f"{' '.join(args)} {THRIFT}\n"


@pytest.mark.parametrize("args", [["-E", "in.cpp"], ["-quiet", "-", "-o", "out.s"], ["-quiet", "in.cpp", "-o", "-"]])
def test_what_reads_or_writes_a_pipe_is_not_run_again(tmp_path: Path, supervise: Callable, args: list[str]) -> None:
    """What was read is gone and what was written stands: told to run again, the gate gives the death back."""
    told: list[str] = []

    def say_again(connection: socket.socket) -> None:
        while fields := receive(connection):
            if fields[0] == "ask":
                told.append(fields[8])
            if fields[0] in ("ask", "end"):
                send(connection, "go" if fields[0] == "ask" else "again")

    gate = gate_before(tmp_path, f"echo ran >> {tmp_path}/log; kill -KILL $$", name="cc1plus")
    assert subprocess.run([gate, *args], env=supervise(say_again), check=False).returncode == -signal.SIGKILL
    assert (tmp_path / "log").read_text() == "ran\n"
    assert told == ["0"]


def test_signals_that_python_ignores_are_not_ignored_below_a_gate(tmp_path: Path, supervise: Callable) -> None:
    """SIGPIPE and SIGXFSZ do in the tool what they do without us."""

    def let_go(connection: socket.socket) -> None:
        while fields := receive(connection):
            if fields[0] == "ask":
                send(connection, "go")

    gate = gate_before(tmp_path, "grep SigIgn /proc/self/status")
    shown = subprocess.run(
        [gate], env=supervise(let_go), capture_output=True, text=True, check=True, restore_signals=True
    )
    ignored = int(shown.stdout.split()[1], 16)
    assert not ignored & (1 << (signal.SIGPIPE - 1))
    assert not ignored & (1 << (signal.SIGXFSZ - 1))


@pytest.mark.parametrize("role", ["phase", "unit"])
def test_ctrl_c_ends_a_gate_that_waits(tmp_path: Path, supervise: Callable, role: str) -> None:
    """A waiting gate dies of SIGINT at once, without a traceback, and its tool never runs."""
    asked = threading.Event()

    def never_answer(connection: socket.socket) -> None:
        receive(connection)
        asked.set()
        receive(connection)

    gate = gate_before(tmp_path, f"touch {tmp_path}/ran", role=role)
    process = subprocess.Popen([gate], env=supervise(never_answer), stderr=subprocess.PIPE)
    assert asked.wait(timeout=60)
    process.send_signal(signal.SIGINT)
    assert process.communicate()[1] == b""
    assert process.returncode == -signal.SIGINT
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("given", "variable", "told", "seen"),
    [
        ("-c a.cu", "", "0", "-c a.cu"),
        ("-c a.cu", "", "3", "-c a.cu --threads 3"),
        ("--threads 8 -c a.cu", "", "3", "--threads 3 -c a.cu"),
        ("--threads=8 -c a.cu -t 2", "", "3", "--threads=3 -c a.cu -t 3"),
        ("-t4 -c a.cu", "", "1", "-t1 -c a.cu"),
        ("-t=0 -c a.cu", "", "1", "-t=1 -c a.cu"),
        ("-Xlinker -t -c a.cu", "", "2", "-Xlinker -t -c a.cu --threads 2"),
        ("-c a.cu", "-DX  --threads 4", "2", "-c a.cu --threads 2 | -DX  --threads 2"),
        ("-c a.cu", "--threads 4", "0", "-c a.cu | --threads 4"),
        ("-c a.cu --threads", "", "2", "-c a.cu --threads --threads 2"),
    ],
)
def test_nvcc_gets_the_threads_that_its_gate_was_told(
    tmp_path: Path, supervise: Callable, given: str, variable: str, told: str, seen: str
) -> None:
    """In whatever form the build wrote them, in nvcc's own variables too; 0 leaves all as it is."""

    def tell(connection: socket.socket) -> None:
        receive(connection)
        send(connection, "go", "u7", told)

    gate = gate_before(tmp_path, 'echo "$BUILDDOCTOR_UNIT $@${NVCC_APPEND_FLAGS:+ | $NVCC_APPEND_FLAGS}"', role="unit")
    env = {**supervise(tell), **({"NVCC_APPEND_FLAGS": variable} if variable else {})}
    shown = subprocess.run([gate, *given.split()], env=env, capture_output=True, text=True, check=True)
    assert shown.stdout == f"u7 {seen}\n"


def test_an_nvcc_that_lost_its_supervisor_takes_one_phase_at_a_time(tmp_path: Path, supervise: Callable) -> None:
    """Nobody answers its phases any more: one thread, and its tools do not wait for anybody."""
    gate = gate_before(tmp_path, 'echo "$@ $BUILDDOCTOR_HELD"; exit 3', role="unit")
    args = [gate, "--threads", "8", "-c", "a.cu"]
    done = subprocess.run(args, env=supervise(receive), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("--threads 1 -c a.cu 1\n", 3)


@pytest.mark.parametrize("question", ["--version", "--dryrun", "--list-gpu-arch", "--help"])
def test_questions_to_nvcc_are_not_held(tmp_path: Path, supervise: Callable, question: str) -> None:
    """A supervisor that never answers does not keep ``nvcc --version`` waiting: it is not asked."""
    asked: list[list[str]] = []
    gate = gate_before(tmp_path, "echo answer", role="unit")
    env = supervise(lambda connection: asked.append(receive(connection)))
    shown = subprocess.run([gate, "-c", "a.cu", question], env=env, capture_output=True, text=True, check=True)
    assert (shown.stdout, asked) == ("answer\n", [])


def test_sizes_of_inputs_are_sent_and_contents_are_not(tmp_path: Path, supervise: Callable) -> None:
    """The gate tells argv, cwd, pids and sizes; no environment, no file contents."""
    told: list[list[str]] = []

    def listen(connection: socket.socket) -> None:
        told.append(receive(connection))
        send(connection, "go")
        while receive(connection):
            pass

    (tmp_path / "in.ptx").write_text("secret contents")
    gate = gate_before(tmp_path, "exit 0")
    env = {**supervise(listen), "PASSWORD": "hunter2"}
    assert subprocess.run([gate, "-v", "in.ptx"], cwd=tmp_path, env=env, check=False).returncode == 0
    (ask,) = told
    assert ask[0] == "ask"
    assert ask[5:] == [gate, str(tmp_path), "1=15", "1", "-v", "in.ptx"]
    assert "secret" not in "".join(ask)
    assert "hunter2" not in "".join(ask)


@pytest.mark.trap(44)
@pytest.mark.parametrize("score", [0, 400, 500, 900, 1000])
def test_the_kernel_is_told_to_take_the_tool_first(tmp_path: Path, supervise: Callable, score: int) -> None:
    """Before all others, however large they are; the gate itself stays as it was (in Kubernetes at 900)."""

    def let_go(connection: socket.socket) -> None:
        while fields := receive(connection):
            if fields[0] == "ask":
                send(connection, "go")

    # Nobody may lower it without privilege: it may be above these scores already.
    score = max(score, int(Path("/proc/self/oom_score_adj").read_text()))
    gate = gate_before(tmp_path, "cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj")
    started = f"echo {score} > /proc/self/oom_score_adj && exec {gate}"
    shown = subprocess.run(["sh", "-c", started], env=supervise(let_go), capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["1000", str(score)]


@pytest.mark.trap(44)
def test_without_a_supervisor_the_kernels_choice_is_left_alone(tmp_path: Path) -> None:
    """Then nobody would run the tool again."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("BUILDDOCTOR_")}
    gate = gate_before(tmp_path, "cat /proc/self/oom_score_adj")
    shown = subprocess.run([gate], env=env, capture_output=True, text=True, check=True)
    assert shown.stdout == Path("/proc/self/oom_score_adj").read_text()


@pytest.mark.trap(44)
def test_builddoctor_itself_is_taken_no_sooner_than_before(program: Program) -> None:
    """Of a whole build only the compilers are: not builddoctor, not the shell that runs them."""
    toolkit = fake_toolkit(program.folder / "cuda", "print(open('/proc/self/oom_score_adj').read())")
    script = "cat /proc/$PPID/oom_score_adj /proc/self/oom_score_adj; nvcc -c a.cu"
    done = subprocess.run(
        program.supervised("sh", "-c", script, options=["--toolkit", str(toolkit)]),
        env=program.env,
        capture_output=True,
        text=True,
        check=True,
    )
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert [int(word) for word in done.stdout.split()] == [own, own, 1000]
