"""What is refused before a build starts, what its environment loses, and what is known of the build before it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import MemoryBudgetError, PlatformError, ToolkitBrokenError, ToolkitNotFoundError
from builddoctor.core.request import RunRequest
from builddoctor.gates.subprocesses import run_captured
from builddoctor.runtime import prepare as module
from builddoctor.runtime.folders import traces_folder
from builddoctor.runtime.prepare import forget_other_settings, prepare, settle_environment
from builddoctor.system.memory_sensor import MemorySensor
from builddoctor.system.root import SystemRoot
from builddoctor.system.shortage import SECOND_LOOK_S
from builddoctor.toolchain.discover import find_toolkit
from support import trace_events as tr
from unit.builders import header
from unit.trees import GIB, plant

REQUEST = RunRequest(command=("true",), cwd="/")


def test_other_systems_than_linux_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not Linux: said at once, with where it can run."""
    monkeypatch.setattr(sys, "platform", "darwin")
    root = SystemRoot(tmp_path)
    with pytest.raises(PlatformError, match="needs Linux; this is darwin") as caught:
        prepare(REQUEST, {}, root, MemorySensor(root))
    assert "container" in caught.value.hint


def test_a_full_machine_is_refused_after_a_second_look(tmp_path: Path) -> None:
    """Nothing free to build in, and no more three seconds later: the level that says so is named, and what holds it."""
    files = {
        "/proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 102400 kB\nShmem: 1048576 kB\n",
        "/proc/77/statm": f"2000000 {6 * GIB // os.sysconf('SC_PAGESIZE')} 0 1 0 1 0\n",
        "/proc/77/comm": "vllm\n",
    }
    root, slept = plant(tmp_path, files), list[float]()
    with pytest.raises(MemoryBudgetError) as caught:
        prepare(REQUEST, {}, root, MemorySensor(root), sleep=slept.append)
    assert str(caught.value) == (
        "no memory to build in: 100 MiB free of 8.0 GiB (/proc/meminfo MemAvailable), and no more after 3 s; "
        "held by vllm (pid 77) 6.0 GiB, files in memory (tmpfs) and shared memory 1.0 GiB"
    )
    assert slept == [SECOND_LOOK_S]


def test_no_candidate_at_all_is_no_toolkit() -> None:
    """With no nvcc anywhere the hint says how to get one without root."""
    with pytest.raises(ToolkitNotFoundError) as caught:
        find_toolkit([], {}, wanted="", run=run_captured)
    assert "toolkit install 13.0" in caught.value.hint


def test_a_candidate_that_cannot_be_started_is_a_broken_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands where nvcc should, but is none, is named with the system's reason."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    nvcc = tmp_path / "nvcc"
    nvcc.write_text("")
    monkeypatch.setattr("builddoctor.gates.subprocesses.subprocess.Popen", refuse)
    with pytest.raises(ToolkitBrokenError, match="Permission denied"):
        find_toolkit([nvcc], {}, wanted="", run=run_captured)


# -- the environment ---------------------------------------------------------------------------------------


def test_variables_that_name_no_toolkit_go_where_the_build_gets_one(tmp_path: Path) -> None:
    """And that is said; one that names a toolkit stays."""
    (tmp_path / "cuda/bin").mkdir(parents=True)
    (tmp_path / "cuda/bin/nvcc").touch()
    state = {"BUILDDOCTOR_STATE_DIR": str(tmp_path)}
    env = {**state, "CUDA_HOME": "/nowhere", "CUDA_PATH": f"{tmp_path}/cuda"}
    seen = settle_environment(env, SystemRoot(), own_homes=True)
    assert seen.env == {**state, "CUDA_PATH": f"{tmp_path}/cuda"}
    assert ["CUDA_HOME=/nowhere" in note for note in seen.notes] == [True]
    assert settle_environment(env, SystemRoot()).env == env


# -- what distutils built before with other settings -------------------------------------------------------


def test_an_extension_built_for_other_architectures_is_built_again(tmp_path: Path) -> None:
    """One of the same settings stays, and so does what is no extension; a first build of ours trusts none."""
    extension = tmp_path / "build" / "lib.linux-x86_64-cpython-311" / "ops" / "adam.so"
    kept = extension.with_name("adam.py")
    extension.parent.mkdir(parents=True)
    kept.write_text("")
    for archs, env, expected in (
        ("9.0", {}, 1),
        ("9.0", {"HOME": "/x"}, 0),
        ("8.0", {}, 1),
        ("8.0", {"CFLAGS": "-g"}, 1),
        ("8.0", {"CFLAGS": "-g"}, 0),
    ):
        extension.write_text("")
        assert forget_other_settings(tmp_path, (("TORCH_CUDA_ARCH_LIST", archs),), env) == expected
        assert extension.exists() == (expected == 0)
    assert kept.exists()


def test_a_folder_that_was_never_built_needs_nothing(tmp_path: Path) -> None:
    """Nor does one that may not be written to stop a build."""
    assert forget_other_settings(tmp_path, (), {}) == 0
    (tmp_path / "file").write_text("")
    assert forget_other_settings(tmp_path / "file", (), {}) == 0


# -- what the last traced build of a folder took -----------------------------------------------------------


FINISHED = b"\n".join(
    msgspec.json.encode(event)
    for event in tr.events(
        tr.phase_asked(1.0, 1, "u1", "cicc", "cicc", "a.cu", estimate_mib=1.0, reserve_mib=1.0),
        tr.admitted(1.0, 1, 1.0),
        tr.phase_ended(2.0, 1, peak_mib=1234.0, exit_code=0),
    )
)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    env = {"BUILDDOCTOR_STATE_DIR": str(tmp_path / "state")}
    traces_folder(env).mkdir(parents=True)
    return env


def trace(env: dict[str, str], number: int, cwd: str, *more: bytes) -> Path:
    """A trace of a build in ``cwd``; a higher number is newer."""
    path = traces_folder(env) / f"2026010{number}-000000-abc.jsonl"
    first = msgspec.json.encode(msgspec.structs.replace(header(), cwd=cwd))
    path.write_bytes(b"\n".join([first, *more, b""]))
    return path


def test_the_newest_build_of_this_folder_counts(env: dict[str, str]) -> None:
    """Or below it; not of another one, and not a file that is no trace."""
    trace(env, 1, "/p", FINISHED.replace(b"1234", b"99"))
    trace(env, 2, "/p/sub", FINISHED)
    trace(env, 3, "/q", FINISHED.replace(b"1234", b"77"))
    trace(env, 4, "/p")
    (traces_folder(env) / "20260105-no.jsonl").write_bytes(b"\xff\n")
    (traces_folder(env) / "20260106-no.jsonl").mkdir()
    assert module.last_peak_mib(env, Path("/p")) == 1234.0
    assert module.last_peak_mib(env, Path("/nowhere")) is None


def test_of_other_folders_only_the_first_line_is_read(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long their traces are: this one is within what is read in all."""
    size = trace(env, 1, "/p", FINISHED).stat().st_size
    for number in (2, 3, 4):
        trace(env, number, "/q", *[FINISHED] * 5000)
    monkeypatch.setattr(module, "MOST_BYTES", size * 4)
    assert module.last_peak_mib(env, Path("/p")) == 1234.0


def test_no_more_is_read_than_in_all(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of this folder that failed before any phase had ended, one after the other."""
    size = trace(env, 1, "/p", FINISHED).stat().st_size
    junk = b'{"t":"note","at_s":1,"text":"' + b"x" * size + b'"}'
    for number in range(2, 9):
        trace(env, number, "/p", junk)
    assert module.last_peak_mib(env, Path("/p")) == 1234.0
    monkeypatch.setattr(module, "MOST_BYTES", size * 5)
    assert module.last_peak_mib(env, Path("/p")) is None


def test_a_trace_that_is_too_large_is_passed_over(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For an older, smaller one."""
    size = trace(env, 1, "/p", FINISHED).stat().st_size
    trace(env, 2, "/p", *[FINISHED.replace(b"1234", b"77")] * 50)
    monkeypatch.setattr(module, "MOST_BYTES", size * 4)
    assert module.last_peak_mib(env, Path("/p")) == 1234.0


def test_without_a_wheel_of_ninja_the_machines_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """conda's package of that name has no module; ours is a folder with the program."""
    assert (Path(module.own_ninja()) / "ninja").exists()
    monkeypatch.setitem(sys.modules, "ninja", None)
    assert module.own_ninja() == ""
