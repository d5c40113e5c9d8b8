"""``--auto-remedy`` for real: a cc1plus that does not fit in its memory cgroup, and fits with earlier collection."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from builddoctor.core.events import BuildEvent, GiveUp, Header, PhaseEnded, Requeue, Warn, WarningKind
from builddoctor.gates.gate_program import THRIFT
from support.memcg import memory_cgroup
from support.program import Program

pytestmark = pytest.mark.slow

MIB = 1024**2
LIMIT_MIB = 215
"""cc1plus needs 205 MiB of its own for the source below, or 90 with earlier collection; builddoctor takes some 55."""


def garbage_for_gcc(folder: Path, *, functions: int = 160) -> Path:
    """A source whose functions leave much behind that gcc does not collect before it has 256 MiB."""
    loop = ' for (auto& p : v) {{ p.text += "x{0}"; m[p.number + {0}] = p.text; r += p.number * {0}; }}'
    body = "\n".join(loop.format(number) for number in range(20))
    signature = "int f{}(std::vector<P>& v, std::map<int, std::string>& m)"
    bodies = "\n".join(
        f"{signature.format(number)} {{ int r = 0;\n{body}\n return r; }}" for number in range(functions)
    )
    head = "#include <map>\n#include <string>\n#include <vector>\nstruct P { int number; std::string text; };\n"
    (folder / "garbage.cpp").write_text(head + bodies)
    return folder / "garbage.cpp"


def compiled(source: Path, output: str) -> list[str]:
    return ["g++", "-std=c++17", "-O0", "-c", source.name, "-o", output]


def thrift_warnings(records: list[BuildEvent]) -> int:
    return sum(isinstance(record, Warn) and record.kind is WarningKind.THRIFT for record in records)


@pytest.mark.needs_memcg
def test_a_compiler_that_does_not_fit_alone_is_tried_with_less_memory(program: Program) -> None:
    """Without the flag it is given up as too big; with it the build goes well, says why, and the object is the same."""
    source = garbage_for_gcc(program.folder)
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        done = group.run(program.supervised(*compiled(source, "a.o")), env=program.env, cwd=program.folder)
        assert done.returncode != 0, done.stderr
        assert program.summary()["verdict"] == "too-big"
        assert program.summary()["remedied"] == 0
        command = program.supervised(*compiled(source, "a.o"), options=["--auto-remedy"])
        done = group.run(command, env=program.env, cwd=program.folder)
        assert done.returncode == 0, done.stderr
    assert program.summary()["remedied"] == 1
    assert program.summary()["verdict"] is None
    assert "with less memory" in done.stderr
    assert THRIFT[0] in done.stderr
    records = program.records()
    assert thrift_warnings(records) == 1
    assert not any(isinstance(record, GiveUp) for record in records)
    assert [each.outcome for each in records if isinstance(each, PhaseEnded)][-1] == "ok"
    subprocess.run(compiled(source, "plain.o"), cwd=program.folder, check=True)
    assert (program.folder / "a.o").read_bytes() == (program.folder / "plain.o").read_bytes()


@pytest.mark.needs_memcg
def test_a_compiler_that_was_killed_alone_runs_again_with_less_memory(program: Program) -> None:
    """Nobody expected 1.3 GiB of it: the kernel ends it once, and the second run, with 110 MiB less, fits."""
    example = Path(__file__).parents[2] / "examples" / "attention_kernels"
    flags = ["-std=c++17", "-O2", "-I", str(example / "include"), "-c", str(example / "src" / "planner.cpp")]
    with memory_cgroup(1300 * MIB) as group:
        command = program.supervised("g++", *flags, "-o", "planner.o", options=["--auto-remedy"])
        done = group.run(command, env=program.env, cwd=program.folder)
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 1
    summary = program.summary()
    assert (summary["remedied"], summary["requeued"], summary["verdict"]) == (1, 1, None)
    records = program.records()
    assert [each.outcome for each in records if isinstance(each, PhaseEnded)][-2:] == ["killed-by-kernel", "ok"]
    assert any(isinstance(each, Requeue) and each.solo for each in records)
    assert not any(isinstance(each, GiveUp) for each in records)


@pytest.mark.needs_memcg
def test_what_does_not_fit_even_so_is_given_up_after_one_more_try(program: Program) -> None:
    """Where nothing helps: one try with less memory, then the verdict."""
    source = garbage_for_gcc(program.folder, functions=320)
    with memory_cgroup(180 * MIB) as group:
        command = program.supervised(*compiled(source, "a.o"), options=["--auto-remedy"])
        done = group.run(command, env=program.env, cwd=program.folder)
        assert done.returncode != 0
    assert program.summary()["verdict"] == "too-big"
    assert program.summary()["remedied"] == 1
    assert thrift_warnings(program.records()) == 1


def test_temporary_files_leave_memory(program: Program) -> None:
    """TMPDIR in a tmpfs: with the flag the build gets one on disk, for this user alone, and is told."""
    shared = Path(tempfile.mkdtemp(prefix="bd-test-", dir="/dev/shm"))
    try:
        program.env["TMPDIR"] = str(shared)
        script = 'echo "$TMPDIR" > tmpdir'
        plain = subprocess.run(
            program.supervised("sh", "-c", script), cwd=program.folder, env=program.env, check=True, capture_output=True
        )
        assert (program.folder / "tmpdir").read_text() == f"{shared}\n"
        assert b"--auto-remedy" not in plain.stderr
        command = program.supervised("sh", "-c", script, options=["--auto-remedy"])
        done = subprocess.run(command, cwd=program.folder, env=program.env, check=True, capture_output=True, text=True)
    finally:
        shutil.rmtree(shared)
    moved = Path((program.folder / "tmpdir").read_text().strip())
    assert not moved.is_relative_to("/dev/shm")
    assert moved.stat().st_mode & 0o077 == 0
    assert f"temporary files go to {moved}" in " ".join(done.stderr.split())
    assert any(isinstance(record, Header) for record in program.records())
