"""The doctor as a program: what it prints, what it leaves alone, and the builds that it stops."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from builddoctor.core.events import Note
from builddoctor.doctor.examine import Question, examine, examine_briefly, subject_of
from support.memcg import memory_cgroup
from support.program import Program
from unit.platform_trees import wsl2
from unit.trees import plant

MIB = 1024**2
READ_ONLY = """
mount --make-rprivate / || exit 9
awk '{print $5}' /proc/self/mountinfo | sort -u | while read -r point; do
    mount -o remount,bind,ro "$point" 2>/dev/null
done
if touch "$1/proof" 2>/dev/null; then exit 9; fi
shift
exec "$@"
"""
AS_NOBODY = """
import contextlib, io, os, sys
from builddoctor.cli.app import main
arguments = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    main(arguments)  # all modules are in, wherever Python lives
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(arguments))
"""


def everything_below(folder: Path) -> dict[str, int]:
    """Each file and folder with its time of change."""
    return {str(path): path.lstat().st_mtime_ns for path in [folder, *folder.rglob("*")]}


def checkout(folder: Path, *, fetches: bool = False) -> Path:
    """A git checkout whose setup.py needs a submodule that is not there."""
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "3rdparty" / "cutlass").mkdir(parents=True)
    (folder / ".gitmodules").write_text('[submodule "c"]\n\tpath = 3rdparty/cutlass\n\turl = ../cutlass.git\n')
    (folder / "setup.py").write_text(
        "include = '3rdparty/cutlass/include'\nfrom setuptools import setup\nsetup(name='x')\n"
    )
    return folder


def test_the_page_and_the_json_say_the_same(program: Program) -> None:
    """Keys that others rely on, every check with a status, and the exit code by the worst."""
    done = program.run("doctor", "--json")
    report = json.loads(done.stdout)
    assert {"limit_mib", "headroom_mib", "budget_mib", "limited_by", "checks"} <= set(report)
    assert 0 < report["budget_mib"] < report["headroom_mib"] <= report["limit_mib"] * 1.0001
    assert {check["status"] for check in report["checks"]} <= {"ok", "warning", "problem"}
    assert done.returncode == {"ok": 0, "warning": 1, "problem": 2}[report["status"]]
    page = program.run("doctor")
    assert page.returncode == done.returncode
    assert page.stderr == done.stderr == ""
    for topic in {check["topic"] for check in report["checks"]}:
        assert topic in page.stdout


@pytest.mark.needs_memcg
def test_the_cgroup_that_limits_is_named(program: Program) -> None:
    """Not the machine's memory."""
    with memory_cgroup(1500 * MIB) as group:
        done = group.run(program.argv("doctor", "--json"), env=program.env)
        report = json.loads(done.stdout)
        assert (report["limit_mib"], report["limited_by"]) == (1500, str(group.limit_file))
        assert report["budget_mib"] < 1400


def test_it_writes_nothing(program: Program) -> None:
    """Neither cache nor trace nor anything in the project."""
    project = checkout(program.folder / "project")
    before = everything_below(program.folder)
    for arguments in (["doctor"], ["doctor", str(project), "--arch", "sm_90", "--json"], ["doctor", "--fix"]):
        program.run(*arguments, env={"HOME": str(program.folder), "TMPDIR": "/tmp"})
    assert everything_below(program.folder) == before


@pytest.mark.needs_unshare
def test_it_runs_where_nothing_can_be_written_and_no_network_is(program: Program) -> None:
    """All mounts read-only, an empty network namespace: the whole page, with the folders that will be in the way."""
    command = ["unshare", "-m", "-n", "/bin/sh", "-c", READ_ONLY, "sh", str(program.folder)]
    done = subprocess.run(
        [*command, *program.argv("doctor", "--json")],
        env=program.env,
        capture_output=True,
        text=True,
        cwd=program.folder,
    )
    assert done.returncode == 2, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["memory-limit"]["status"] == "ok"
    assert any("cannot be written" in check["text"] for check in checks.values())


@pytest.mark.needs_unshare
@pytest.mark.trap(28)
def test_nobody_is_told_what_cannot_be_seen(program: Program) -> None:
    """Without root and without rights: the limits all the same, and that the kernel log is closed."""
    program.folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, "doctor", "--json"],
        env={**program.env, "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        cwd="/",
    )
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.stderr == ""
    assert checks["memory-limit"]["status"] == "ok"
    assert "not to be seen from here: the kernel log" in checks["evidence"]["text"]


def test_a_build_that_cannot_succeed_is_stopped_before_anything_starts(program: Program) -> None:
    """A submodule that setup.py needs is missing: `build`, and `run` with a build, say so, and nothing is started."""
    project = checkout(program.folder / "project")
    for arguments in (["build", str(project)], ["run", "--", "env", "A=b", sys.executable, "setup.py", "build"]):
        done = program.run(*arguments, cwd=project)
        assert done.returncode == 80
        assert "3rdparty/cutlass is empty" in done.stderr
        assert "hint: cd " in done.stderr
        assert "git submodule update --init --recursive" in done.stderr
        assert not (project / "build").exists()
    done = program.run("run", "--no-doctor", "--", sys.executable, "setup.py", "build", cwd=project)
    assert "3rdparty/cutlass is empty" not in done.stderr


@pytest.mark.parametrize("command", [["touch", "started"], ["/bin/sh", "-c", "touch started"]])
def test_a_command_that_may_put_it_right_is_not_stopped(program: Program, command: list[str]) -> None:
    """`run -- git submodule update` must run: with `run` nobody knows what a command needs. It is a warning."""
    project = checkout(program.folder / "project")
    done = program.run("run", "--arch", "sm_20", "--", *command, cwd=project)
    assert done.returncode == 0, done.stderr
    assert (project / "started").exists()
    assert "3rdparty/cutlass is empty" in done.stderr


@pytest.mark.needs_nvcc
@pytest.mark.parametrize("command", [["build", "."], ["run", "--", "cmake", "-B", "b"]])
def test_an_architecture_that_nvcc_does_not_know_stops_the_build(program: Program, command: list[str]) -> None:
    """Whatever the toolkit: sm_20 is none that any nvcc of today knows. A project without CUDA never asks it."""
    (program.folder / "CMakeLists.txt").write_text("project(x LANGUAGES CUDA)\n")
    done = program.run(command[0], "--arch", "sm_20", *command[1:])
    assert done.returncode == 80
    assert "does not know sm_20" in done.stderr
    assert not (program.folder / "b").exists()
    (program.folder / "CMakeLists.txt").write_text("project(x LANGUAGES CXX)\n")
    assert program.run(command[0], "--arch", "sm_20", *command[1:]).returncode != 80


@pytest.mark.needs_nvcc
@pytest.mark.parametrize(
    ("lists", "stops"),
    [
        ("project(x CUDA)\n", True),
        ("project(x CXX)\n", False),
        ("project(x CXX)\nif(WITH_CUDA)\n  enable_language(CUDA)\nendif()\n", False),
        ("set(CMAKE_CUDA_HOST_COMPILER /usr/bin/g++)\nproject(x CUDA)\n", False),
    ],
)
def test_a_compiler_that_nvcc_refuses_stops_what_nvcc_compiles_with_it(
    program: Program, lists: str, stops: bool
) -> None:
    """A gcc from the future: not for a project without CUDA, nor for one that chooses another."""
    for name in ("gcc", "g++"):
        future = program.folder / "future" / name
        future.parent.mkdir(exist_ok=True)
        future.write_text(f'#!/bin/sh\nexec /usr/bin/{name} -U__GNUC__ -D__GNUC__=99 "$@"\n')
        future.chmod(0o755)
    project = program.folder / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(lists)
    (project / "k.cu").write_text("")
    path = f"{program.folder}/future:{program.env['PATH']}"
    report = json.loads(program.run("doctor", "--json", cwd=project, env={"PATH": path}).stdout)
    checks = [check for check in report["checks"] if check["name"] == "host-compiler"]
    assert [check["status"] for check in checks] == ["problem"]
    assert any(check["stops_build"] for check in checks) is stops


def test_warnings_stand_at_the_start_of_the_trace(program: Program) -> None:
    """TMPDIR in memory is said once, before anything runs, and kept."""
    shared = Path(tempfile.mkdtemp(prefix="bd-test-", dir="/dev/shm"))
    try:
        done = program.run("run", "--trace", str(program.trace_file), "--", "true", env={"TMPDIR": str(shared)})
        assert done.returncode == 0
        notes = [record.text for record in program.records() if isinstance(record, Note)]
        assert any("TMPDIR" in note and "tmpfs" in note for note in notes)
    finally:
        shutil.rmtree(shared)


@pytest.mark.needs_nvcc
@pytest.mark.parametrize(("command", "is_told"), [(["cmake", "--build", "build"], True), (["sh", "-c", ":"], False)])
def test_that_a_folder_keeps_another_nvcc_is_told_where_the_command_builds_it(
    program: Program, command: list[str], is_told: bool
) -> None:
    """A script may load that very toolkit."""
    project = program.folder / "project"
    compiler = project / "build/CMakeFiles/4.0.0/CMakeCUDACompiler.cmake"
    compiler.parent.mkdir(parents=True)
    compiler.write_text('set(CMAKE_CUDA_COMPILER_VERSION "11.4.120")\n')
    cache = f"CMAKE_CUDA_COMPILER:FILEPATH={sys.executable}\nCMAKE_HOME_DIRECTORY:INTERNAL={project}\n"
    (project / "build/CMakeCache.txt").write_text(cache)
    (project / "CMakeLists.txt").write_text("project(x LANGUAGES CUDA)\n")
    done = program.run("run", "--", *command, cwd=project)
    assert ("was configured with nvcc 11.4.120" in done.stderr) == is_told


def test_fix_moves_tmpdir_for_later_builds(program: Program) -> None:
    """A preview and nothing else without a yes; with one the next build has the new TMPDIR, and says so."""
    shared = Path(tempfile.mkdtemp(prefix="bd-test-", dir="/dev/shm"))
    env = {"TMPDIR": str(shared), "SCRATCH": str(program.folder)}
    try:
        preview = program.run("doctor", "--fix", env=env)
        assert "nothing was changed" in preview.stderr
        assert "temporary files of later" in preview.stderr
        assert not (program.folder / "state").exists()
        program.run("doctor", "--fix", "--yes", env=env)
        done = program.run("run", "--", "/bin/sh", "-c", "echo TMPDIR=$TMPDIR", env=env)
        moved = done.stdout.strip().removeprefix("TMPDIR=")
        assert moved.startswith(str(program.folder))
        assert f"temporary files go to {moved}" in done.stderr
    finally:
        shutil.rmtree(shared)


def test_an_unknown_project_suggests_one(program: Program) -> None:
    """And nothing is examined."""
    done = program.run("doctor", "transformer_engin")
    assert (done.returncode, done.stdout) == (72, "")
    assert "builddoctor doctor transformer_engine" in done.stderr


EVIL = "\x1b]0;owned\x07\x9b2J"


def evil_project(folder: Path) -> Path:
    """A source tree whose names hold control sequences; its CMakeCache.txt was written by hand."""
    project = folder / f"kernels{EVIL}"
    (project / "build").mkdir(parents=True)
    (project / "CMakeLists.txt").write_text("project(x LANGUAGES CXX)\n")
    (project / "build/CMakeCache.txt").write_text(
        f"CMAKE_MAKE_PROGRAM:FILEPATH=/gone{EVIL}/ninja\nCMAKE_CUDA_COMPILER:FILEPATH=/gone{EVIL}/nvcc\n"
    )
    return project


def test_names_from_a_tree_cannot_move_the_cursor(program: Program) -> None:
    """Of the folder and of what its CMakeCache.txt names: on the page, in the preview, and before a build."""
    project = evil_project(program.folder)
    for arguments in (["doctor"], ["doctor", str(project), "--fix"], ["run", "--", "true"], ["build", "."]):
        done = program.run(*arguments, cwd=project)
        said = done.stdout + done.stderr
        assert "owned" in said
        assert all(letter.isprintable() or letter == "\n" for letter in said), arguments


@pytest.mark.parametrize("arguments", [["doctor", "--json"], ["machine", "probe", "--json"], ["doctor"]])
def test_a_folder_that_is_no_utf_8_is_examined_all_the_same(program: Program, arguments: list[str]) -> None:
    """Its name stands there with escapes, on the page and as JSON."""
    project = program.folder / os.fsdecode(b"kernels-\xff")
    (project / "build").mkdir(parents=True)
    (project / "setup.py").write_text("")
    (project / "build/CMakeCache.txt").write_bytes(b"CMAKE_MAKE_PROGRAM:FILEPATH=/gone\xff/ninja\n")
    done = program.run(*arguments, cwd=project, env={"TMPDIR": str(project)})
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1, 2)
    if "--json" in arguments:
        assert json.loads(done.stdout)
        assert "kernels-\\\\udcff" in done.stdout
    else:
        assert "builddoctor doctor  kernels-" in done.stdout


def test_a_scratch_folder_that_is_no_utf_8_is_not_chosen(program: Program) -> None:
    """It could not be remembered; another one is."""
    scratch, shared = program.folder / os.fsdecode(b"\xff"), Path(tempfile.mkdtemp(prefix="bd-test-", dir="/dev/shm"))
    scratch.mkdir()
    try:
        env = {"TMPDIR": str(shared), "SCRATCH": str(scratch), "SLURM_TMPDIR": str(program.folder)}
        done = program.run("doctor", "--fix", "--yes", env=env)
        assert "Traceback" not in done.stderr
        assert f"builddoctor: made {program.folder}/builddoctor-" in done.stderr
        assert not list(scratch.iterdir())
        assert not (program.folder / r"\udcff").exists()
    finally:
        shutil.rmtree(shared)


@pytest.mark.parametrize("env", [{}, {"PYTHONPATH": "."}, {"PATH": ".:bin:tools:"}])
def test_nothing_that_came_with_a_tree_is_run(program: Program, env: dict[str, str]) -> None:
    """Neither as pip's nvcc, nor through PATH, nor because a CMakeCache.txt names it."""
    project = program.folder / "archive/project"
    for place in ("", "bin/", "tools/", "nvidia/cu13/bin/", "nvidia/cuda_nvcc/bin/", "../tools/"):
        for name in (
            "nvcc",
            "ninja",
            "cmake",
            "git",
            "python",
            "python3",
            "gcc",
            "g++",
            "g++-13",
            "cc",
            "make",
            "clang",
        ):
            trap = project / place / name
            trap.parent.mkdir(parents=True, exist_ok=True)
            trap.write_text(f"#!/bin/sh\necho {place}{name} >> {program.folder}/ran\n")
            trap.chmod(0o755)
    (project / "CMakeLists.txt").write_text("project(x LANGUAGES CUDA)\n")
    (project / "setup.py").write_text("")
    (project / "build").mkdir()
    archive = program.folder / "archive"
    (project / "build/CMakeCache.txt").write_text(
        f"CMAKE_MAKE_PROGRAM:FILEPATH={archive}/tools/ninja\nCMAKE_CUDA_COMPILER:FILEPATH={archive}/tools/nvcc\n"
        f"CMAKE_CXX_COMPILER:FILEPATH={archive}/tools/g++\nCMAKE_GENERATOR:INTERNAL=Ninja\n"
    )
    path = env.get("PATH", "") + program.env["PATH"]
    for arguments in (["doctor"], ["doctor", str(project)]):
        done = program.run(*arguments, cwd=project, env={**env, "PATH": path, "CC": "gcc", "CUDACXX": "nvcc"})
        assert done.returncode in (0, 1, 2), done.stderr
    assert not (program.folder / "ran").exists(), (program.folder / "ran").read_text()


def test_sources_on_a_drive_of_windows_are_told_by_the_doctor_and_before_a_build(tmp_path: Path) -> None:
    """WSL2 by its kernel files, with a project on such a drive: the warning is among all the others, once."""
    sources = tmp_path / "drive" / "te"
    sources.mkdir(parents=True)
    (sources / "CMakeLists.txt").write_text("project(te LANGUAGES CXX)\n")
    files = wsl2().files
    mounts = files["/proc/self/mountinfo"].replace("/mnt/c", str(tmp_path / "drive"))
    root = plant(tmp_path / "root", {**files, "/proc/self/mountinfo": mounts})
    root.at(str(sources)).mkdir(parents=True)
    question = Question(subject=subject_of(sources, ()))
    for look in (examine, examine_briefly):
        found = [check.text for check in look(root, os.environ, question).checks if check.name == "windows-drive"]
        assert [text.partition(":")[0] for text in found] == ["sources"]
