"""Builds that limits, disks, people and compilers make fail, for real, and what is said of them.

No nvcc is needed: gcc, scripts in the place of compilers, memory cgroups, disks in files. Each test makes the failure
with the kernel's or the compiler's own means; what looks strange about it is said there.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from builddoctor.core.events import PhaseStarted
from builddoctor.core.settings import RunawayRules
from builddoctor.runtime.sampler import Rules
from support.failures import AT_ONCE, Told, explained, going, on_disk, on_tmpfs, run, told
from support.fake_toolkit import fake_toolkit
from support.memcg import memory_cgroup
from support.program import Program
from support.stand_ins import HOG, stand_in

pytestmark = pytest.mark.slow

MIB = 1024**2
EXAMPLE = Path(__file__).parents[2] / "examples" / "attention_kernels"
BIG_UNIT = f"g++ -std=c++17 -O2 -I {EXAMPLE}/include -c {EXAMPLE}/src/planner.cpp -o planner.o"
"""cc1plus takes about 1.3 GiB"""

COMPILE = ("clang++", "-c", "one.cpp")


def advises_fewer_jobs(said: Told) -> bool:
    return any(words in said.advice for words in ("MAX_JOBS", "--cores", "-j", "fewer jobs"))


def tables(path: Path) -> None:
    """A unit whose assembly text and object are some megabytes."""
    numbers = ",".join(str(number * 7919) for number in range(200))
    path.write_text("".join(f"int table{number}[] = {{{numbers}}};\n" for number in range(1500)))


# -- limits of the process ---------------------------------------------------------------------------------------


@pytest.mark.trap(38)
@pytest.mark.parametrize(("letter", "name"), [("v", "RLIMIT_AS"), ("d", "RLIMIT_DATA")])
def test_an_allocation_that_a_limit_of_the_process_refuses(program: Program, letter: str, name: str) -> None:
    """`ulimit -v` and `-d` 200000: nobody is killed, cc1plus says it and exits with 1; the limit is named."""
    said = run(program, program.supervised("sh", "-c", f"ulimit -{letter} 200000; exec {BIG_UNIT}"))
    assert said.returncode == 1
    assert said.verdict == "rlimit", said.output
    assert said.summary["verdict"] == "rlimit"
    assert said.ends == [("failed", "")]
    assert "195 MiB" in said.grounds
    assert name in said.grounds or f"ulimit -{letter}" in said.grounds
    assert f"ulimit -{letter}" in said.advice
    assert not advises_fewer_jobs(said)
    assert explained(program, said.printed)["verdict"] == "rlimit"


def test_a_file_size_that_a_limit_of_the_process_refuses(program: Program) -> None:
    """`ulimit -f`: the kernel ends cc1plus with SIGXFSZ, which nothing else sends; g++ calls it a compiler error."""
    tables(program.folder / "one.cpp")
    said = run(program, program.supervised("sh", "-c", "ulimit -c 0; ulimit -f 100; exec g++ -c one.cpp"))
    assert "internal compiler error: File size limit exceeded signal terminated program cc1plus" in said.output
    assert said.verdict == "rlimit", said.output
    assert "ulimit -f" in said.advice


@pytest.mark.alone
def test_a_second_of_cpu_that_a_limit_of_the_process_allows(program: Program) -> None:
    """`ulimit -t 1`: the kernel sends SIGKILL and counts nothing, as if somebody had typed kill -9."""
    stand_in(program, "while :; do :; done")
    said = run(program, program.supervised("sh", "-c", "ulimit -t 1; exec clang++ -c one.cpp"))
    assert said.verdict == "rlimit", said.output
    assert "ulimit -t" in said.advice


# -- disks -------------------------------------------------------------------------------------------------------


@pytest.mark.needs_loop
@pytest.mark.parametrize("flags", ["-c one.cpp", "-c one.cpp -o disk/one.o", "-pipe -c one.cpp -o disk/one.o"])
def test_a_full_disk(program: Program, flags: str) -> None:
    """TMPDIR, then the folder of the objects: gcc deletes what it could not write, so the disk is empty afterwards.

    Where the object is what does not fit, the assembler fails, which is no phase: all phases have ended well.
    """
    tables(program.folder / "one.cpp")
    where = "" if "disk" in flags else "TMPDIR=$PWD/disk "
    disk = program.folder / "disk"
    said = run(program, on_disk(disk, program.supervised("sh", "-c", f"{where}exec g++ {flags}"), kib=1000))
    assert "No space left on device" in said.output
    assert said.verdict == "disk-full", said.output
    assert said.summary["verdict"] == "disk-full"
    assert f"{disk} (ext4)" in said.grounds or f"{disk}/cc" in said.grounds
    assert "full" in said.words.partition(" why ")[2]
    assert not advises_fewer_jobs(said)
    assert explained(program, said.printed)["verdict"] == "disk-full"


@pytest.mark.needs_loop
@pytest.mark.parametrize(
    ("kib", "fill"),
    [
        (4 << 20, "fallocate -l $(($(df -B1 --output=avail disk | tail -n1) - (10 << 20))) disk/filler"),
        (1000, "cat /dev/zero 2> /dev/null > disk/filler"),
    ],
    ids=["nearly", "wholly"],
)
def test_a_missing_header_on_a_full_disk_is_a_missing_header(program: Program, kib: int, fill: str) -> None:
    """The compiler says what it did not find, and g++ needs no room for that."""
    (program.folder / "one.cpp").write_text('#include "no_such_header.h"\n')
    disk = program.folder / "disk"
    script = f"{fill}; exec g++ -c one.cpp -o disk/one.o"
    said = run(program, on_disk(disk, program.supervised("sh", "-c", script), kib=kib))
    assert said.verdict == said.summary["verdict"] == "source", said.output
    assert "no_such_header.h is missing" in said.why
    assert f"{disk} (ext4)" in said.grounds


@pytest.mark.needs_loop
def test_a_disk_without_inodes(program: Program) -> None:
    """Nearly all of its bytes are free, and no file can be made: `df` shows nothing, `df -i` does.

    g++ aborts by itself: no phase ran at all.
    """
    (program.folder / "one.cpp").write_text("int one() { return 1; }\n")
    fill = "n=0; while touch disk/$n 2> /dev/null; do n=$((n + 1)); done"
    disk = program.folder / "disk"
    program.env["TMPDIR"] = str(disk)
    script = f"ulimit -c 0; {fill}; g++ -c one.cpp"
    said = run(program, on_disk(disk, program.supervised("sh", "-c", script), kib=4000, inodes=16))
    assert "No space left on device" in said.output
    assert said.verdict == "disk-full", said.output
    assert "inode" in said.grounds
    assert str(disk) in said.grounds
    assert explained(program, said.printed)["verdict"] == "disk-full"


@pytest.mark.needs_unshare
def test_a_tmpfs_at_its_own_size_is_a_full_disk(program: Program) -> None:
    """A tmpfs of 1 MiB is full while memory is ample: that it lies in memory is not why."""
    tables(program.folder / "one.cpp")
    folder = program.folder / "tmp"
    program.env["TMPDIR"] = str(folder)
    said = run(program, on_tmpfs(folder, program.supervised("g++", "-c", "one.cpp"), mib=1))
    assert said.verdict == "disk-full", said.output
    assert str(folder) in said.grounds


TEARS = """
import sys
from pathlib import Path
head = b"\\x7fELF\\2\\1\\1" + bytes(33) + (1 << 21).to_bytes(8, "little") + bytes(10) + b"\\x40\\0\\1\\0\\1\\0"
try:
    Path(sys.argv[-1]).write_bytes(head.ljust((1 << 21) + 64, b"x"))
except OSError:
    pass
"""
"""A cubin of 2 MiB: as ptxas 13.0 on a full disk, it writes what fits and ends well."""


@pytest.mark.needs_unshare
def test_a_ptxas_that_writes_a_part_on_a_full_disk_and_ends_well_has_failed(program: Program) -> None:
    """The unit fails, nothing is left of the part, and the disk is named."""
    toolkit = fake_toolkit(program.folder / "cuda", TEARS, tool="ptxas")
    disk = program.folder / "disk"
    script = "nvcc -c one.cu -o disk/one.cubin; code=$?; ls disk; exit $code"
    options = ["--no-doctor", "--toolkit", str(toolkit)]
    said = run(program, on_tmpfs(disk, program.supervised("sh", "-c", script, options=options), mib=1))
    assert said.returncode == 1
    assert said.verdict == said.summary["verdict"] == "disk-full", said.output
    assert said.confidence == "high"
    assert said.ends == [("failed", "")]
    assert f"the end of {disk}/one.cubin is missing: it is removed" in said.output
    assert f"0 MiB are free there: df -h {disk}" in said.output
    assert "one.cubin\n" not in said.printed
    assert str(disk) in f"{said.why} {said.grounds}"
    assert "TMPDIR" in said.advice
    assert explained(program, said.printed)["verdict"] == "disk-full"


# -- somebody ----------------------------------------------------------------------------------------------------


@pytest.mark.trap(23)
def test_a_compiler_that_somebody_kills_twice(program: Program) -> None:
    """kill -9 of the phase and of its second run: no counter rose, so it was a person or a program, not the kernel."""
    stand_in(program, f"exec {HOG} 50 0 /no/such/file")
    seen: set[int] = set()
    with going(program, program.supervised(*COMPILE)) as process:
        for _ in range(2):
            started = program.await_record(PhaseStarted, process, pid=lambda pid: pid not in seen)
            assert isinstance(started, PhaseStarted)
            seen.add(started.pid)
            os.kill(started.pid, signal.SIGKILL)
        output, _ = process.communicate()
    said = told(program, process.returncode, "", output)
    assert said.verdict == "external-kill", output
    assert said.ends == [("killed-outside", "outside")] * 2
    assert said.summary["kernel_oom_kills"] == 0
    assert "no kernel counter rose" in f"{said.why} {said.grounds}"


def test_a_compiler_that_somebody_terminates(program: Program) -> None:
    """SIGTERM to cc1plus, as earlyoom sends it first: g++ says so; no compiler does that to itself."""
    waits = program.folder / "waits.h"
    os.mkfifo(waits)
    with going(program, program.supervised("sh", "-c", f"{BIG_UNIT} -include {waits}")) as process:
        started = program.await_record(PhaseStarted, process, phase_id=1)
        assert isinstance(started, PhaseStarted)
        os.kill(started.pid, signal.SIGTERM)
        output, _ = process.communicate()
    assert "Terminated signal terminated program cc1plus" in output
    said = told(program, process.returncode, "", output)
    assert said.verdict == "external-kill", output
    assert "SIGTERM" in f"{said.died} {said.why} {said.grounds}" or "signal 15" in f"{said.died} {said.grounds}"


@pytest.mark.parametrize(
    ("number", "env", "verdict"),
    [
        (signal.SIGINT, {}, None),
        (signal.SIGTERM, {}, None),
        (signal.SIGTERM, {"SLURM_JOB_ID": "4711", "SLURM_MEM_PER_NODE": "2048"}, "scheduler-kill"),
        (signal.SIGINT, {"SLURM_JOB_ID": "4711"}, None),
    ],
)
def test_a_build_that_is_told_to_end(
    program: Program, number: signal.Signals, env: dict[str, str], verdict: str | None
) -> None:
    """Ctrl-C and a plain SIGTERM interrupt it, without a verdict; in a job of Slurm's SIGTERM is how jobs are ended."""
    stand_in(program, f"exec {HOG} 10 0 /no/such/file")
    program.env |= env
    with going(program, program.supervised(*COMPILE)) as process:
        program.await_record(PhaseStarted, process, phase_id=1)
        process.send_signal(number)
        output, _ = process.communicate()
    said = told(program, process.returncode, "", output)
    assert said.returncode == 128 + number
    assert said.summary["result"] == "interrupted"
    assert said.verdict == verdict, said
    if verdict:
        assert "4711" in f"{said.why} {said.grounds}"
        assert "SIGTERM" in f"{said.why} {said.grounds}"


@pytest.mark.parametrize(("env", "verdict"), [({}, "external-kill"), ({"SLURM_JOB_ID": "4711"}, "scheduler-kill")])
def test_a_build_command_that_somebody_terminates(program: Program, env: dict[str, str], verdict: str) -> None:
    """SIGTERM to the command that builddoctor runs, and not to builddoctor: it fails, and no compiler is to blame."""
    stand_in(program, f"exec {HOG} 10 0 /no/such/file")
    program.env |= env
    script = "echo $$ > pid; clang++ -c one.cpp & wait"
    with going(program, program.supervised("sh", "-c", script)) as process:
        program.await_record(PhaseStarted, process, phase_id=1)
        os.kill(int((program.folder / "pid").read_text()), signal.SIGTERM)
        output, _ = process.communicate()
    said = told(program, process.returncode, "", output)
    assert said.returncode == 128 + signal.SIGTERM
    assert said.summary["result"] == "failed"
    assert said.verdict == verdict, output
    assert "SIGTERM" in f"{said.died} {said.why} {said.grounds}"


@pytest.mark.needs_memcg
def test_the_kernels_own_log_of_a_kill(program: Program) -> None:
    """What dmesg shows of a real kill in a cgroup: whose limit, which program, how large; and so a matter of memory."""
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(log, 0, os.SEEK_END)
        with memory_cgroup(200 * MIB) as group:
            assert group.run(["/bin/sh", "-c", f"exec {AT_ONCE} 1000"]).returncode == -signal.SIGKILL
            name = group.folder.name
        lines = []
        with contextlib.suppress(BlockingIOError):
            while True:
                fields, _, text = os.read(log, 8192).decode().partition(";")
                lines.append(f"[{int(fields.split(',')[2]) / 1e6:12.6f}] {text.splitlines()[0]}\n")
    finally:
        os.close(log)
    assert any("Killed process" in line for line in lines), "the kernel did not log it"
    said = explained(program, "".join(lines))
    assert said["verdict"] in ("too-big", "parallel"), said
    assert name in str(said)
    assert "200 MiB" in str(said)


@pytest.mark.needs_memcg
def test_a_log_of_a_kernel_kill_without_us(program: Program) -> None:
    """Plain g++ whose cc1plus the kernel kills: its one line fits several causes, so nothing is said for sure."""
    with memory_cgroup(150 * MIB) as group:
        done = group.run(BIG_UNIT.split(), cwd=program.folder, env=program.env)
        assert group.kernel_kills == 1
    assert "Killed signal terminated program cc1plus" in done.stderr
    said = explained(program, done.stderr)
    assert said["verdict"] in ("too-big", "parallel", "unknown"), said
    assert said["confidence"] != "high"
    assert "memory" in str(said["why"])


# -- compilers that fail -----------------------------------------------------------------------------------------


def test_a_compiler_that_really_crashes(program: Program) -> None:
    """A hundred thousand nested ifs use up the stack of cc1plus: SIGSEGV, nobody sent it, memory was ample."""
    (program.folder / "deep.cpp").write_text("int f(int x) { " + "if (x) " * 100_000 + "return 1; return 2; }\n")
    said = run(program, program.supervised("sh", "-c", "ulimit -c 0; exec g++ -c deep.cpp"))
    assert "Segmentation fault signal terminated program cc1plus" in said.output
    assert said.verdict == "toolchain", said.output
    assert "signal 11" in said.died
    assert said.ends == [("failed", "")]
    assert not advises_fewer_jobs(said)
    assert explained(program, said.printed)["verdict"] == "toolchain"


def test_a_device_compiler_that_crashes(program: Program) -> None:
    """A program named cicc that dies of SIGSEGV: the toolchain, and another minor version of it is a way."""
    toolkit = fake_toolkit(program.folder / "cuda", "", tool="../nvvm/bin/cicc")
    (toolkit / "nvvm" / "bin" / "cicc").write_text("#!/bin/sh\nulimit -c 0\nkill -SEGV $$\n")
    said = run(program, program.supervised("nvcc", "-c", "one.cu", options=["--toolkit", str(toolkit), "--no-doctor"]))
    assert said.verdict == "toolchain", said.output
    assert "cicc" in said.died
    assert "signal 11" in said.died
    assert "nvcc" in said.advice


SHORT = Rules(
    runaway=RunawayRules(floor_mib=300, growth_factor=1.1, rising_s=1.0, rest_s=1.0, cpu_share=0.3, killed_rising_s=1.0)
)
GROWS = """
import time
held, began = [], time.monotonic()
while True:
    if len(held) < 200 * (time.monotonic() - began):
        held.append(bytearray(b"x") * 1048576)
"""


@pytest.mark.needs_memcg
@pytest.mark.trap(36)
def test_a_front_end_without_end_and_one_job(program: Program) -> None:
    """One unit, cudafe++ grows without a plateau, MAX_JOBS=1 already: fewer jobs cannot help, and that is said.

    The toolchain is the first way, and the phase can be sent to its maker with one command.
    """
    program.env["MAX_JOBS"] = "1"
    toolkit = fake_toolkit(program.folder / "cuda", GROWS)
    with memory_cgroup(3000 * MIB) as group:
        command = program.with_rules(SHORT, "nvcc", "-c", "endless.cu", toolkit=str(toolkit))
        said = run(program, command, group=group)
        assert group.kernel_kills == 0
    assert (said.verdict, said.confidence) == ("runaway", "high")
    assert said.summary["verdict"] == "runaway"
    assert "endless.cu" in said.died
    assert "MAX_JOBS" in said.why or "Fewer jobs cannot help" in said.why
    assert "it grew without end" in said.words
    assert "another minor version of nvcc" in said.fixes[0].text
    assert any("trace repro" in fix.command for fix in said.fixes)
    assert "more memory" not in said.advice
    assert not advises_fewer_jobs(said)


def test_a_header_that_is_missing(program: Program) -> None:
    """cudnn.h: the entry of the catalogue is named, and not a word about memory."""
    (program.folder / "one.cpp").write_text("#include <cudnn.h>\n")
    said = run(program, program.supervised("g++", "-c", "one.cpp"))
    assert "cudnn.h: No such file or directory" in said.output
    assert said.verdict in ("toolchain", "source"), said.output
    assert "cudnn" in said.cause
    assert "cudnn.h" in f"{said.why} {said.grounds}"
    assert explained(program, said.printed)["verdict"] == said.verdict


def test_a_plain_mistake(program: Program) -> None:
    """A name that is not declared is the source's own; the compiler's line is the evidence."""
    (program.folder / "bad.cpp").write_text("int main() { return nothing; }\n")
    said = run(program, program.supervised("g++", "-c", "bad.cpp"))
    assert said.verdict == "source", said.output
    assert "was not declared" in f"{said.why} {said.grounds}"
    assert explained(program, said.printed)["verdict"] == "source"


SUBMODULE = """
cmake_minimum_required(VERSION 3.18)
project(engine LANGUAGES CXX)
set(CUDNN_FRONTEND_INCLUDE_DIR "${CMAKE_CURRENT_SOURCE_DIR}/3rdparty/cudnn-frontend/include")
if(NOT EXISTS "${CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend.h")
    message(FATAL_ERROR
            "Could not find cuDNN frontend API at ${CUDNN_FRONTEND_INCLUDE_DIR}. "
            "Try running 'git submodule update --init --recursive' within the Transformer Engine source.")
endif()
"""


@pytest.mark.needs_cmake
def test_a_submodule_that_was_not_fetched(program: Program) -> None:
    """TransformerEngine's own check in real CMake, which breaks the line where it likes; git's command is the fix."""
    (program.folder / "CMakeLists.txt").write_text(SUBMODULE)
    (program.folder / "3rdparty" / "cudnn-frontend").mkdir(parents=True)
    said = run(program, program.supervised("cmake", "-S", ".", "-B", "build", "-G", "Ninja"))
    assert "CMake Error at" in said.output
    assert said.verdict == "source", said.output
    assert said.cause in ("cudnn-frontend-not-found", "submodule-missing")
    assert "submodule" in said.why
    assert "git submodule update --init --recursive" in said.advice
    assert explained(program, said.printed)["verdict"] == "source"
