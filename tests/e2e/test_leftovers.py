"""What is left of builddoctor when it is gone: nothing that runs, and nothing that breaks a build."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from builddoctor.core.events import PhaseStarted, Status
from builddoctor.trace.reader import TraceReader
from support.capabilities import find_nvcc
from support.example import Example
from support.objects import objects_of
from support.program import Program, clean_environment
from support.told import digest

pytestmark = [pytest.mark.needs_nvcc, pytest.mark.needs_cmake]

GONE_WITHIN_S = 10.0


def test_death_of_the_supervisor_ends_the_build_which_then_finishes_plainly(
    example: Example, plain_objects: dict[str, bytes], program: Program
) -> None:
    """After kill -9 nothing runs within 10 s, the trace reads to the end, and plain ninja finishes the build."""
    configure_supervised(example, program)
    temporary = own_temporary_folder(program)
    process = program.start(program.supervised("ninja", "-C", str(example.build), "-j8"))
    program.await_record(PhaseStarted, process, phase_id=lambda number: number >= 12)
    known = psutil.Process(process.pid).children(recursive=True)
    assert len(known) > 8
    os.kill(process.pid, signal.SIGKILL)
    killed_at = time.monotonic()
    process.communicate()
    _, alive = psutil.wait_procs(known, timeout=GONE_WITHIN_S)
    assert alive == []
    left = [each for each in psutil.Process().children(recursive=True) if each.status() != psutil.STATUS_ZOMBIE]
    assert not left
    assert time.monotonic() - killed_at < GONE_WITHIN_S
    assert os.listdir(temporary) == []
    assert not list(program.folder.glob("builddoctor-*"))

    told = digest(TraceReader(program.trace_file))
    ticks = [record for record in program.records() if isinstance(record, Status)]
    assert not told.whole
    assert told.last_at_s - ticks[-1].at_s < 10.0

    # The folder was configured through the overlay; nobody supervises it now.
    subprocess.run(["ninja", "-C", str(example.build), "-j2"], env=example.env, check=True, capture_output=True)
    assert objects_of(example.build) == plain_objects


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_build_in_order(
    example: Example, program: Program, number: signal.Signals, code: int
) -> None:
    """Ctrl-C, SIGTERM and SIGHUP leave no process and no temporary file, a whole trace, and the shell's exit code."""
    example.configure_plainly()
    temporary = own_temporary_folder(program)
    process = program.start(program.supervised("ninja", "-C", str(example.build), "-j4"))
    program.await_record(PhaseStarted, process, phase_id=6)
    known = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == code, output
    assert psutil.wait_procs(known, timeout=0)[1] == []
    assert os.listdir(temporary) == []
    assert not list(program.folder.glob("builddoctor-*"))
    assert digest(TraceReader(program.trace_file)).whole
    assert program.summary()["result"] == "interrupted"


def test_without_a_supervisor_the_overlay_compiles_as_the_real_toolkit(program: Program) -> None:
    """The overlay's nvcc, called by its path with nobody there, makes the real one's object."""
    source = program.folder / "scale.cu"
    source.write_text("__global__ void scale(float *x) { x[threadIdx.x] *= 2; }\n")
    done = program.run("run", "--", "sh", "-c", "echo $CUDACXX")
    overlay_nvcc = done.stdout.strip()
    assert Path(overlay_nvcc).parent.parent.joinpath(".builddoctor-overlay").exists()
    objects = []
    for nvcc in (overlay_nvcc, str(find_nvcc())):
        command = [nvcc, "-arch=sm_90", "-c", str(source), "-o", "scale.o"]
        subprocess.run(command, cwd=program.folder, env=clean_environment(), check=True)
        objects.append(objects_of(program.folder)["scale.o"])
    assert objects[0] == objects[1]


def test_a_socket_that_nobody_listens_to_does_not_hold_up_a_compiler(program: Program) -> None:
    """With a dead supervisor's socket in the environment the gates run the real tools at once."""
    source = program.folder / "scale.cu"
    source.write_text("__global__ void scale(float *x) { x[threadIdx.x] *= 2; }\n")
    # The run's folder is gone afterwards; a socket of the same name that nobody listens to takes its place.
    done = program.run("run", "--", "sh", "-c", "echo $CUDACXX; echo $COMPILER_PATH; echo $PATH")
    overlay_nvcc, compiler_path, path = done.stdout.split("\n")[:3]
    dead = program.folder / "dead"
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    env = {**clean_environment(), "BUILDDOCTOR_SOCKET": str(dead), "COMPILER_PATH": compiler_path, "PATH": path}
    subprocess.run([overlay_nvcc, "-arch=sm_90", "-c", str(source)], cwd=program.folder, env=env, check=True)
    assert (program.folder / "scale.o").exists()


def configure_supervised(example: Example, program: Program) -> None:
    """Configure the example's folder through the overlay, as a first supervised build does."""
    import shutil

    shutil.rmtree(example.build, ignore_errors=True)
    done = program.run(
        *("run", "--", "cmake", "-S", str(example.source), "-B", str(example.build), "-G", "Ninja"),
        "-DCMAKE_CUDA_ARCHITECTURES=90",
    )
    assert done.returncode == 0, done.stderr
    assert "overlays/" in (example.build / "CMakeCache.txt").read_text()


def own_temporary_folder(program: Program) -> Path:
    """What nvcc and gcc leave there is of this build alone."""
    folder = program.folder / "tmp"
    folder.mkdir()
    program.env["TMPDIR"] = str(folder)
    return folder
