"""Failures of the real nvcc, made here, and what is said of them: alone with a log, and supervised.

Covers: the toolchain's own refusals, limits of the process in cudafe++ and cicc, a crash, and nvcc's ``--threads``,
with which a kernel kill and a full disk look the same: exit code 255 and not a word.
Does *not* cover: what needs no nvcc (``tests/system/test_real_failures.py``).

``-fatbin`` leaves out cudafe++, which takes twice the memory of a small kernel's cicc: so it is cicc that dies.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence

import psutil
import pytest

from builddoctor.core.events import PhaseAsked, PhaseStarted
from support.capabilities import find_nvcc
from support.failures import Told, explained, going, on_disk, run, told, with_bash_as_sh
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc]

MIB = 1024**2
KERNEL = "__global__ void scale(float *x) { x[threadIdx.x] *= 2; }\n"
FOUR_ARCHS = " ".join(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in (80, 90, 100, 120))
SILENT = f"{FOUR_ARCHS} --threads 4 scale.cu"
MEMORY_VERDICTS = {"parallel", "too-big"}


@pytest.fixture
def kernel(program: Program) -> Program:
    (program.folder / "scale.cu").write_text(KERNEL)
    return program


def compiled(program: Program, flags: str, *, options: Sequence[str] = ()) -> Told:
    """What is said of one supervised nvcc."""
    return run(program, program.supervised("nvcc", *flags.split(), options=options))


def alone(program: Program, command: Sequence[str], *, group: MemoryCgroup | None = None, tries: int = 1) -> str:
    """What CI would keep of the build without builddoctor: its command and its output. It must fail with 255.

    ``tries``: where it hangs on the order of nvcc's threads whether it says something.
    """
    argv = list(command) if group is None else group.wrapped(command)

    def run_it() -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False)

    done = run_it()
    for _ in range(1, tries):
        done = run_it() if done.stdout or done.stderr else done
    assert done.returncode == 255, done.stderr
    assert (done.stdout, done.stderr) == ("", ""), "nvcc said something: without its silence the test shows nothing"
    words = f"nvcc {SILENT} -c -o scale.o"
    return f"[1/1] {words}\nFAILED: [code=255] scale.o\n{words}\nninja: build stopped: subcommand failed.\n"


def room_for_preprocessed(program: Program) -> int:
    """KiB of a disk that holds the five preprocessed files of ``SILENT``, and not what cudafe++ makes of one of them.

    With less, cc1plus fails, which speaks: if several meet the full disk, of an `Invalid argument`.
    """
    nvcc = [str(find_nvcc()), "-E", "scale.cu"]
    one = subprocess.run(nvcc, cwd=program.folder, env=program.env, capture_output=True, check=True).stdout
    return 5 * len(one) // 1024 + 500


# -- the silence of --threads ------------------------------------------------------------------------------------


@pytest.mark.needs_memcg
@pytest.mark.needs_unshare
def test_a_kernel_kill_under_threads_is_silent_and_a_log_alone_does_not_tell_it(kernel: Program) -> None:
    """cicc is killed for memory, nvcc ends with 255 and no text: the log fits a full disk as well, and both are named.

    Where sh is dash it says `Killed`; where it is bash, as on most clusters, nothing.
    """
    with memory_cgroup(100 * MIB) as group:
        log = alone(kernel, with_bash_as_sh([str(find_nvcc()), *SILENT.split(), "-fatbin"]), group=group)
        assert group.kernel_kills >= 1
    said = explained(kernel, log)
    assert said["verdict"] == "unknown"
    text = str(said).lower()
    assert "memory" in text
    assert "disk" in text or "tmpdir" in text


@pytest.mark.needs_memcg
@pytest.mark.needs_unshare
def test_a_kernel_kill_under_threads_is_known_to_the_supervisor(kernel: Program) -> None:
    """The same, where one cicc does not fit by itself: the gates saw it die, and the counters say of what."""
    with memory_cgroup(2000 * MIB) as ours, memory_cgroup(60 * MIB, parent=ours.folder) as small:
        command = with_bash_as_sh(small.wrapped(["nvcc", *SILENT.split(), "-fatbin"]))
        said = run(kernel, kernel.supervised(*command), group=ours)
        assert small.kernel_kills >= 1
    assert said.returncode == 255
    assert said.verdict in MEMORY_VERDICTS, said.output
    assert said.summary["verdict"] == said.verdict
    assert "cicc" in said.died
    assert ("killed-by-kernel", "cgroup") in said.ends


@pytest.mark.needs_memcg
@pytest.mark.needs_unshare
def test_threads_that_do_not_fit_at_once_are_redone_one_by_one(kernel: Program) -> None:
    """A hidden group holds one cicc and not four: the kernel kills some, all are made in the end, and it is said."""
    with memory_cgroup(2000 * MIB) as ours, memory_cgroup(100 * MIB, parent=ours.folder) as small:
        command = with_bash_as_sh(small.wrapped(["nvcc", *SILENT.split(), "-fatbin"]))
        said = run(kernel, kernel.supervised(*command, options=["--cores", "4"]), group=ours)
        assert small.kernel_kills >= 1
    assert (said.returncode, said.verdict) == (0, None), said.output
    assert said.summary["kernel_oom_kills"] >= 1
    assert said.summary["requeued"] >= 1
    assert "scale.cu: ended by the kernel" in said.words
    assert (kernel.folder / "scale.fatbin").exists()


@pytest.mark.needs_loop
def test_a_full_disk_under_threads_is_silent_and_a_log_alone_does_not_tell_it(kernel: Program) -> None:
    """TMPDIR is full, and nvcc writes there what it would have said: 255, no text. Both candidates are named."""
    disk, kib = kernel.folder / "disk", room_for_preprocessed(kernel)
    kernel.env["TMPDIR"] = str(disk)
    log = alone(kernel, on_disk(disk, [str(find_nvcc()), *SILENT.split(), "-c"], kib=kib), tries=5)
    said = explained(kernel, log)
    assert said["verdict"] == "unknown"
    text = str(said).lower()
    assert "memory" in text
    assert "disk" in text or "tmpdir" in text


@pytest.mark.needs_loop
def test_a_full_disk_under_threads_is_known_to_the_supervisor(kernel: Program) -> None:
    """Looked at while the gate of the phase that failed still waits: nvcc deletes its files only after that."""
    disk, kib = kernel.folder / "disk", room_for_preprocessed(kernel)
    kernel.env["TMPDIR"] = str(disk)
    command = kernel.supervised("nvcc", *SILENT.split(), "-c", options=["--no-doctor"])
    said = run(kernel, on_disk(disk, command, kib=kib))
    assert said.returncode == 255
    assert "No space left" not in said.output.partition("✗")[0]
    assert said.verdict == "disk-full", said.output
    assert said.summary["verdict"] == "disk-full"
    assert str(disk) in f"{said.why} {said.grounds}"
    assert "TMPDIR" in said.advice
    assert said.summary["kernel_oom_kills"] == 0


@pytest.mark.needs_loop
def test_a_full_disk_without_threads_says_so_itself(kernel: Program) -> None:
    """One arch, one thread: the compiler's line, with the same verdict."""
    disk = kernel.folder / "disk"
    kernel.env["TMPDIR"] = str(disk)
    said = run(kernel, on_disk(disk, kernel.supervised("nvcc", "-arch=sm_90", "-c", "scale.cu"), kib=1000))
    assert "No space left on device" in said.output
    assert said.verdict == "disk-full", said.output
    assert "TMPDIR" in said.advice


# -- limits of the process ---------------------------------------------------------------------------------------


@pytest.mark.trap(38)
@pytest.mark.parametrize(
    ("flags", "tool", "code"),
    [("-arch=sm_90 -c", "cudafe++", 4), ("-arch=sm_90 -cubin", "cicc", 1), (f"{FOUR_ARCHS} -t4 -fatbin", "cicc", 255)],
)
def test_an_allocation_that_a_limit_of_the_process_refuses(kernel: Program, flags: str, tool: str, code: int) -> None:
    """`ulimit -v 120000` is too little for either front end: `catastrophic error: out of memory`, and nobody killed."""
    script = f"ulimit -c 0; ulimit -v 120000; exec nvcc {flags} scale.cu"
    said = run(kernel, kernel.supervised("sh", "-c", script))
    assert said.returncode == code
    assert "catastrophic error: out of memory" in said.output
    assert said.verdict == "rlimit", said.output
    assert tool in said.died
    assert "117 MiB" in said.grounds
    assert "ulimit -v" in said.advice
    assert said.summary["kernel_oom_kills"] == 0
    assert explained(kernel, said.printed)["verdict"] == "rlimit"


# -- the toolchain -----------------------------------------------------------------------------------------------


def test_an_architecture_that_nvcc_does_not_have(kernel: Program) -> None:
    """sm_51 never was one: nvcc refuses before any phase; the architecture is named, and not a word about memory."""
    said = compiled(kernel, "-arch=sm_51 -c scale.cu", options=["--no-doctor"])
    assert "Unsupported gpu architecture 'sm_51'" in said.output
    assert said.verdict == "toolchain", said.output
    assert said.summary["verdict"] == "toolchain"
    assert "arch" in said.cause
    assert "sm_51" in f"{said.why} {said.grounds}"
    assert explained(kernel, said.printed)["verdict"] == "toolchain"


def test_a_host_compiler_that_is_too_new(kernel: Program) -> None:
    """A g++ that says it is 99: crt/host_config.h has its own #error, and the catalogue knows it."""
    newer = kernel.folder / "g++-99"
    newer.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=99 "$@"\n')
    newer.chmod(0o755)
    said = compiled(kernel, f"-ccbin {newer} -arch=sm_90 -c scale.cu", options=["--no-doctor"])
    assert "unsupported GNU version" in said.output
    assert said.verdict == "toolchain", said.output
    assert "gcc" in said.cause or "host" in said.cause
    assert "-ccbin" in said.advice or "NVCC_CCBIN" in said.advice
    assert explained(kernel, said.printed)["verdict"] == "toolchain"


def test_a_header_that_a_kernel_needs_and_nobody_installed(kernel: Program) -> None:
    """cudnn.h from a .cu: found missing while it is preprocessed, once for each pass; the first line counts."""
    (kernel.folder / "scale.cu").write_text(f"#include <cudnn.h>\n{KERNEL}")
    said = compiled(kernel, f"{FOUR_ARCHS} -c scale.cu")
    assert "cudnn.h: No such file or directory" in said.output
    assert said.verdict in ("toolchain", "source"), said.output
    assert "cudnn" in said.cause
    assert "cudnn.h" in f"{said.why} {said.grounds}"


def test_a_mistake_in_a_kernel(kernel: Program) -> None:
    """cudafe++'s own error, rc 2: the source's, and the line is shown."""
    (kernel.folder / "scale.cu").write_text("__global__ void scale(float *x) { x[0] = nothing; }\n")
    said = compiled(kernel, "-arch=sm_90 -c scale.cu")
    assert 'identifier "nothing" is undefined' in said.output
    assert said.verdict == "source", said.output
    assert 'identifier "nothing" is undefined' in f"{said.why} {said.grounds}"
    assert explained(kernel, said.printed)["verdict"] == "source"


def test_a_tmpdir_that_is_not_there(kernel: Program) -> None:
    """nvcc cannot open its first temporary file: no phase ran, and the folder is named."""
    script = "TMPDIR=$PWD/nowhere exec nvcc -arch=sm_90 -c scale.cu"
    said = run(kernel, kernel.supervised("sh", "-c", script))
    assert "Could not open output file" in said.output
    assert said.cause, said.output
    assert "TMPDIR" in said.advice


def test_a_cicc_that_aborts(kernel: Program) -> None:
    """The real cicc dies of SIGABRT, as it does where LLVM finds a fault of its own: it is the toolchain's.

    It may catch the first one that somebody sends, and goes on: only its own faults end it at once.
    """
    # Long enough at work to be met there.
    statements = "".join(f"x[{number}] = x[{number + 7}] * {number}.f;\n" for number in range(3000))
    (kernel.folder / "scale.cu").write_text(f"__global__ void scale(float *x) {{\n{statements}}}\n")
    command = kernel.supervised("sh", "-c", "ulimit -c 0; exec nvcc -arch=sm_90 -cubin scale.cu")
    with going(kernel, command) as process:
        asked = kernel.await_record(PhaseAsked, process, tool="cicc")
        assert isinstance(asked, PhaseAsked)
        started = kernel.await_record(PhaseStarted, process, phase_id=asked.phase.phase_id)
        assert isinstance(started, PhaseStarted)
        cicc = psutil.Process(started.pid)
        while psutil.wait_procs([cicc], timeout=0.5)[1]:
            cicc.send_signal(signal.SIGABRT)
        output, _ = process.communicate()
    said = told(kernel, process.returncode, "", output)
    assert said.returncode == 128 + signal.SIGABRT
    assert said.verdict == "toolchain", output
    assert "cicc" in said.died
    assert "signal 6" in f"{said.died} {said.grounds}"
    assert "minor version" in said.advice


def test_a_host_compiler_that_really_crashes_under_nvcc(kernel: Program) -> None:
    """A hundred thousand nested ifs in a .cu: cc1plus uses up its stack, gcc calls it its own error."""
    deep = "int f(int x) { " + "if (x) " * 100_000 + "return 1; return 2; }\n"
    (kernel.folder / "scale.cu").write_text(deep + KERNEL)
    said = run(kernel, kernel.supervised("sh", "-c", "ulimit -c 0; exec nvcc -arch=sm_90 -c scale.cu"))
    assert "Segmentation fault signal terminated program cc1plus" in said.output
    assert said.verdict == "toolchain", said.output
    assert "signal 11" in said.died
