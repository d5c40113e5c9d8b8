"""Peak figures for real: not a parent's memory, not one child's where there are three."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseEnded, Status
from builddoctor.gates import gate_program
from builddoctor.gates.overlay import LIBRARY, Gate, write_gate
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = pytest.mark.machines("v2", "next")

BIG_PARENT = """
import os, subprocess, sys
held = b"\\1" * (300 << 20)
for command in (["/bin/true"], sys.argv[1:]):
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = status
    print(usage.ru_maxrss // 1024, flush=True)
"""
"""Prints the ru_maxrss, in MiB, of /bin/true and of a gate, both started while it holds 300 MiB."""


def reports_of_a_gate(folder: Path) -> tuple[str, list[list[str]]]:
    """Start a gate before /bin/true from a big parent; what the parent printed, and the gate's frames."""
    library = folder / LIBRARY
    library.mkdir()
    (library / "gate_program.py").write_text(Path(gate_program.__file__).read_text())
    (library / "gate.py").write_text(
        f"import sys\nsys.path.insert(0, {str(library)!r})\nimport gate_program\ngate_program.main(sys.argv)\n"
    )
    write_gate(folder, Gate("gates/tool", "phase", "/bin/true"))
    frames: list[list[str]] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                while head := connection.recv(4, socket.MSG_WAITALL):
                    body = connection.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL)
                    frames.append(body.decode().split("\0"))
                    if frames[-1][0] == "ask":
                        connection.sendall((2).to_bytes(4, "little") + b"go")

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        done = subprocess.run(
            [sys.executable, "-c", BIG_PARENT, str(folder / "gates" / "tool"), "-c"],
            env={**os.environ, "BUILDDOCTOR_SOCKET": str(folder / "socket")},
            capture_output=True,
            text=True,
            check=True,
        )
        serving.join()
    return done.stdout, frames


@pytest.mark.trap(19)
def test_a_tool_is_not_charged_with_the_memory_of_who_called_its_gate(tmp_path: Path) -> None:
    """/bin/true started by a 300 MiB process has its ru_maxrss; started by that process's gate it has not."""
    printed, frames = reports_of_a_gate(tmp_path)
    plain_mib, _ = (int(word) for word in printed.split())
    assert plain_mib >= 300, "this is the trap: without it the test shows nothing"
    (end,) = [fields for fields in frames if fields[0] == "end"]
    tool_mib, gate_mib = int(end[2]) / 1024, int(end[5]) / 1024
    assert tool_mib < 50
    assert gate_mib < 50


@pytest.mark.machines("grace", "arm16k")
@pytest.mark.trap(19)
def test_the_peak_of_a_tool_includes_all_its_children_at_once(program: Program) -> None:
    """Three children of 60 MiB, none waited for: ru_maxrss shows none of them, sampling shows the sum."""
    done = program.folder / "done"
    stand_in(program, f"for n in 1 2 3; do {HOG} 60 0 {done} & done; while [ ! -e {done} ]; do sleep 0.05; done")
    process = program.start(program.supervised("clang++", "-c", "one.cpp"))
    program.await_record(Status, process, ours_mib=lambda held_mib: held_mib >= 180)
    done.touch()
    output, _ = process.communicate()
    assert process.returncode == 0, output
    (end,) = [record for record in program.records() if isinstance(record, PhaseEnded)]
    assert 180 <= end.peak_mib < 300
    assert 180 <= program.summary()["peak_mib"] < 300
