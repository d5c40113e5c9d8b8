"""``builddoctor toolkit``: from a package index on loopback, with real pip, locks, signals and full disks."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from builddoctor.toolkits.managed import FETCH, LOCK, read_manifest
from builddoctor.toolkits.wheels import WheelCache
from support.made_wheels import AARCH64, make_wheel, toolkit_wheels
from support.package_index import PackageIndex, serving
from support.program import Program

pytestmark = pytest.mark.slow

NAME = "cuda-13.0.88-x86_64"
ALL = ["cuda-toolkit", *(f"nvidia-{each}" for each in ("cuda-cccl", "cuda-crt", "cuda-nvcc", "cuda-runtime", "nvvm"))]


@pytest.fixture
def index(tmp_path: Path, program: Program) -> Iterator[PackageIndex]:
    """A release 13.0 of small wheels, and a program whose pip asks for it there."""
    toolkit_wheels(tmp_path / "index")
    with serving(tmp_path / "index") as index:
        program.env.update(index.env(), HOME=str(tmp_path / "home"))
        program.env.pop("CUDA_HOME", None)
        yield index


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """The cache."""
    return tmp_path / "cache" / "wheels"


@pytest.fixture
def toolkits(tmp_path: Path) -> Path:
    return tmp_path / "data" / "toolkits"


def keep(index: PackageIndex, folder: Path, *, without: tuple[str, ...] = ()) -> None:
    """The index's wheels in a cache, as if they had been fetched before: tests of other things need no pip then."""
    cache = WheelCache(folder, ())
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as copies:
        for wheel in index.folder.glob("*.whl"):
            if not wheel.name.startswith(without):
                cache.add(Path(shutil.copy2(wheel, copies)))


def visible(folder: Path) -> list[str]:
    """What is in a folder besides its lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK) if folder.exists() else []


def test_a_toolkit_is_put_together_from_the_index(program: Program, index: PackageIndex, toolkits: Path) -> None:
    """CUDA_HOME on stdout, the licence on stderr; bin, include, lib64, stubs, nvvm, version.json as NVIDIA has them."""
    done = program.run("toolkit", "install", "13.0")
    assert done.returncode == 0, done.stderr
    home = toolkits / NAME
    assert done.stdout == f"{home}\n"
    assert "NVIDIA's own licence" in done.stderr
    assert sorted(index.fetched) == ALL
    there = [
        *("bin/nvcc", "include/cuda.h", "include/crt/host_config.h", "lib64/libcudart.so", "lib64/stubs/libcuda.so"),
        *("nvvm/bin/cicc", "nvvm/lib64/libnvvm.so", "version.json", "targets/x86_64-linux/lib/libcudadevrt.a"),
    ]
    assert [name for name in there if not (home / name).is_file()] == []
    assert (home / "bin" / "ptxas").stat().st_mode & 0o111 == 0o111
    assert (home / "licenses" / "nvidia-nvvm" / "License.txt").read_text() == "the licence of nvidia-nvvm\n"
    assert json.loads((home / "version.json").read_text())["cuda_nvcc"]["version"] == "13.0.88"
    assert visible(toolkits) == [NAME]


def test_what_is_there_is_not_made_again(program: Program, index: PackageIndex, wheels: Path) -> None:
    """The second time nothing is asked of the index, and the same path is printed."""
    keep(index, wheels)
    first = program.run("toolkit", "install", "13.0")
    index.fetched.clear()
    again = program.run("toolkit", "install", "13.0.88", "--json", env={"PIP_INDEX_URL": "http://127.0.0.1:1/simple"})
    assert again.returncode == 0, again.stderr
    answer = json.loads(again.stdout)
    assert answer["already"]
    assert answer["path"] == first.stdout.strip()
    assert index.fetched == []


def test_more_is_added_to_what_is_there(program: Program, index: PackageIndex, wheels: Path, toolkits: Path) -> None:
    """``--with`` later fetches that alone; what was asked for before stays, under the same path."""
    keep(index, wheels, without=("nvidia_nvml",))
    program.run("toolkit", "install", "13.0", "--with", "cublas")
    index.fetched.clear()
    done = program.run("toolkit", "install", "13.0", "--with", "nvml")
    assert done.returncode == 0, done.stderr
    assert index.fetched == ["nvidia-nvml-dev"]
    manifest = read_manifest(toolkits / NAME)
    assert manifest is not None
    assert manifest.components == ("cublas", "nvml")
    assert (toolkits / NAME / "lib64" / "libcublas.so").is_file()
    assert (toolkits / NAME / "lib64" / "stubs" / "libnvidia-ml.so").is_file()
    assert visible(toolkits) == [NAME]


def test_the_cache_is_enough_without_network(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path
) -> None:
    """After `remove`, ``--offline`` makes it again of the wheels that were kept."""
    keep(index, wheels)
    program.run("toolkit", "install", "13.0")
    assert program.run("toolkit", "remove", "13.0").returncode == 0
    assert visible(toolkits) == []
    index.fetched.clear()
    done = program.run("toolkit", "install", "13.0", "--offline", env={"PIP_INDEX_URL": "http://127.0.0.1:1/simple"})
    assert done.returncode == 0, done.stderr
    assert index.fetched == []
    assert visible(toolkits) == [NAME]


@pytest.mark.parametrize("options", [(), ("--offline",)])
def test_no_network_and_no_cache_is_said_with_the_ways_on(
    program: Program, index: PackageIndex, toolkits: Path, options: tuple[str, ...]
) -> None:
    """One line, and a mirror, another machine's wheels, or a toolkit that is here as ways on."""
    done = program.run("toolkit", "install", "13.0", *options, env={"PIP_INDEX_URL": "http://127.0.0.1:1/simple"})
    assert done.returncode == 82, done.stderr
    assert "Traceback" not in done.stderr
    assert "cuda-toolkit==13.0.*" in done.stderr
    assert all(way in done.stderr for way in ("PIP_INDEX_URL", "--offline", "toolkit list"))
    assert visible(toolkits) == []


def test_an_unknown_version_says_which_there_are(program: Program, index: PackageIndex, tmp_path: Path) -> None:
    """From the index itself; CUDA 12's, which have no nvcc, are not offered."""
    make_wheel(tmp_path / "index", "cuda-toolkit", "12.8.1", {}, tag="py2.py3-none-any")
    done = program.run("toolkit", "install", "13.9")
    assert done.returncode == 82
    assert "no CUDA 13.9 in the package index: it has 13.0.3.0\n" in done.stderr
    assert "builddoctor toolkit install 13.0" in done.stderr


def test_a_wheel_that_is_not_what_the_index_says_is_refused(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path
) -> None:
    """A wrong sha256: nothing installed, the wheel not kept; the others are, for the next try."""
    wheel = next(path for path in index.folder.glob("nvidia_nvvm*"))
    index.lies[wheel.name] = "0" * 64
    done = program.run("toolkit", "install", "13.0")
    assert done.returncode == 83, done.stderr
    assert "nvidia-nvvm==13.0.88.* is not what the package index says" in done.stderr
    assert visible(toolkits) == []
    kept = visible(wheels)
    assert not [name for name in kept if "nvvm" in name]
    assert [name for name in kept if "nvcc" in name]


def test_a_cached_wheel_that_changed_is_fetched_again(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path
) -> None:
    """Its sha256 was noted when it came; said, and nothing of the damaged one is used."""
    keep(index, wheels)
    wheel = next(wheels.glob("nvidia_nvvm*.whl"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"?")
    index.fetched.clear()
    done = program.run("toolkit", "install", "13.0", "--force")
    assert done.returncode == 0, done.stderr
    assert "in the cache was damaged" in done.stderr
    assert sorted(index.fetched) == ["cuda-toolkit", "nvidia-nvvm"]


def test_a_wheel_that_leads_out_is_refused(program: Program, index: PackageIndex, wheels: Path, toolkits: Path) -> None:
    """``../`` in a package of the index: nothing is written anywhere."""
    keep(index, wheels, without=("nvidia_nvvm",))
    make_wheel(index.folder, "nvidia-nvvm", "13.0.88", {"nvidia/cu13/nvvm/../../../../../escaped": "x"})
    done = program.run("toolkit", "install", "13.0")
    assert done.returncode == 83, done.stderr
    assert visible(toolkits) == []
    assert list(program.folder.rglob("escaped")) == []


def test_a_toolkit_that_does_not_run_is_not_installed(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path
) -> None:
    """Its nvcc is asked before the folder gets its name."""
    for wheel in index.folder.glob("*.whl"):
        wheel.unlink()
    toolkit_wheels(index.folder, nvcc="#!/bin/sh\necho no such glibc >&2; exit 1\n")
    keep(index, wheels)
    done = program.run("toolkit", "install", "13.0")
    assert done.returncode == 69, done.stderr
    assert "no such glibc" in done.stderr
    assert visible(toolkits) == []


def test_the_other_processors_toolkit_is_made_without_running_it(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path
) -> None:
    """``--arch aarch64``: the folder of servers, beside this machine's own, and `--toolkit 13.0` does not take it."""
    toolkit_wheels(index.folder, tag=AARCH64, nvcc="not for this machine")
    keep(index, wheels)
    program.run("toolkit", "install", "13.0")
    done = program.run("toolkit", "install", "13.0", "--arch", "aarch64")
    assert done.returncode == 0, done.stderr
    assert visible(toolkits) == ["cuda-13.0.88-aarch64", NAME]
    assert (toolkits / "cuda-13.0.88-aarch64" / "targets" / "sbsa-linux" / "lib" / "libcudart.so").is_file()
    stub = (toolkits / "cuda-13.0.88-aarch64" / "lib64" / "stubs" / "libcuda.so").read_bytes()
    assert stub[18:20] == b"\xb7\x00"
    assert program.run("toolkit", "path", "13.0").stdout == f"{toolkits / NAME}\n"
    listed = json.loads(program.run("toolkit", "list", "--json").stdout)
    managed = {each["path"]: each for each in listed if each["kind"] == "managed"}
    assert {each["arch"] for each in managed.values()} == {"x86_64", "aarch64"}
    assert managed[str(toolkits / NAME)]["lacks"] == [
        *("cublas", "cudnn", "nccl", "nvrtc", "cufft", "curand", "cusparse", "cusolver", "nvml", "nvtx", "profiler")
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_installation_leaves_nothing_half_and_goes_on(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path, number: signal.Signals
) -> None:
    """No toolkit, no process; the next run fetches only what had not come whole, and tidies up."""
    keep(index, wheels, without=("nvidia_nvvm", "nvidia_cuda_nvcc"))
    index.held = "nvidia_nvvm"
    process = program.start(program.argv("toolkit", "install", "13.0"))
    assert index.reached.wait(60)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode != 0
    # pip ends too, though what it waits for has not come.
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=20)
    assert alive == []
    assert visible(toolkits) == []
    index.held = ""
    index.go.set()
    index.fetched.clear()
    done = program.run("toolkit", "install", "13.0")
    assert done.returncode == 0, done.stderr
    assert index.fetched == ["nvidia-nvvm"]
    assert visible(toolkits) == [NAME]
    assert [name for name in visible(wheels) if not name.endswith((".whl", ".sha256"))] == []


def test_two_at_once_do_it_once(program: Program, index: PackageIndex, wheels: Path, toolkits: Path) -> None:
    """The second waits, says so, and finds it made."""
    keep(index, wheels, without=("nvidia_nvvm",))
    index.held = "nvidia_nvvm"
    first = program.start(program.argv("toolkit", "install", "13.0"))
    assert index.reached.wait(60)
    second = program.start(program.argv("toolkit", "install", "13.0"))
    assert second.stdout is not None
    said = second.stdout.readline()
    index.go.set()
    assert "waits for another installation" in said
    outputs = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert outputs[1].splitlines()[-1] == str(toolkits / NAME)
    assert index.fetched == ["nvidia-nvvm"]
    assert visible(toolkits) == [NAME]


def on_a_disk(program: Program, folder: Path, options: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``builddoctor`` with a tmpfs at ``folder``, then what is left there, on the last line."""
    folder.mkdir(parents=True, exist_ok=True)
    script = (
        'at=$1; mount -t tmpfs -o "$2" none "$at"; shift 2; "$@"; code=$?; '
        'echo "left: $(ls -A "$at" | tr "\\n" " ")"; exit $code'
    )
    argv = ["unshare", "-m", "sh", "-c", script, "sh", str(folder), options, *program.argv(*arguments)]
    return subprocess.run(argv, env=program.env, capture_output=True, text=True, check=False)


@pytest.mark.needs_unshare
def test_a_disk_that_is_too_small_is_said_before_anything_is_fetched(
    program: Program, index: PackageIndex, toolkits: Path
) -> None:
    """How much is needed, and how much there is."""
    done = on_a_disk(program, toolkits, "size=100m", "toolkit", "install", "13.0")
    assert done.returncode == 84, done.stderr
    assert "272 MiB for it, and 100 MiB free" in done.stderr
    assert index.fetched == ["cuda-toolkit"]
    assert done.stdout == f"left: {LOCK} \n"


@pytest.mark.needs_unshare
def test_a_disk_that_fills_up_while_files_are_written_leaves_nothing(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path
) -> None:
    """Out of inodes in the midst of it, which no figure of free space tells."""
    keep(index, wheels)
    done = on_a_disk(program, toolkits, "size=1g,nr_inodes=30", "toolkit", "install", "13.0")
    assert done.returncode == 84, done.stderr
    assert "the disk is full: nothing installed" in done.stderr
    assert done.stdout == f"left: {LOCK} \n"


@pytest.mark.needs_unshare
def test_a_disk_that_fills_up_while_wheels_come_leaves_nothing(
    program: Program, index: PackageIndex, wheels: Path, toolkits: Path
) -> None:
    """pip's own message, as our error; no part of a wheel stays."""
    done = on_a_disk(program, wheels, "size=1g,nr_inodes=7", "toolkit", "install", "13.0")
    assert done.returncode == 84, done.stderr
    assert "the disk is full" in done.stderr
    assert FETCH not in done.stdout
    assert visible(toolkits) == []


@pytest.mark.needs_unshare
def test_where_home_cannot_be_written_another_folder_can_be_named(
    program: Program, index: PackageIndex, wheels: Path, tmp_path: Path
) -> None:
    """A read-only HOME: a clear error with ``--into``, which then is all it takes."""
    for name in ("BUILDDOCTOR_CACHE_DIR", "BUILDDOCTOR_DATA_DIR"):
        del program.env[name]
    home = tmp_path / "home"
    refused = on_a_disk(program, home, "ro", "toolkit", "install", "13.0")
    assert refused.returncode == 76, refused.stderr
    assert "Read-only file system" in refused.stderr
    assert "--into" in refused.stderr
    into = tmp_path / "into"
    keep(index, into / ".builddoctor-wheels")
    done = on_a_disk(program, home, "ro", "toolkit", "install", "13.0", "--into", str(into))
    assert done.returncode == 0, done.stderr
    assert visible(into) == [".builddoctor-wheels", NAME]


def test_a_dry_run_tells_what_would_be_fetched(program: Program, index: PackageIndex, toolkits: Path) -> None:
    """Packages with their pins, sizes, place; nothing but the list of packages is fetched."""
    done = program.run("toolkit", "install", "13.0", "--with", "cublas", "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert {"requirement": "nvidia-cublas==13.1.1.3.*", "cached": False} in plan["packages"]
    assert plan["fetch_mib"] > 400
    assert plan["folder"] == str(toolkits / NAME)
    assert index.fetched == ["cuda-toolkit"]
    assert not toolkits.exists()


def test_only_managed_toolkits_can_be_removed(
    program: Program, index: PackageIndex, wheels: Path, tmp_path: Path
) -> None:
    """By their name there; a path, or another folder's name, is none."""
    keep(index, wheels)
    program.run("toolkit", "install", "13.0")
    (tmp_path / "data" / "toolkits" / "mine").mkdir()
    for name in ("mine", "..", "/usr/local/cuda", "12.8"):
        done = program.run("toolkit", "remove", name)
        assert done.returncode == 74, done.stderr
        assert NAME in done.stderr
    assert visible(tmp_path / "data" / "toolkits") == [NAME, "mine"]
