"""What is refused before a build starts."""

from __future__ import annotations

import site
import sys
import sysconfig
from pathlib import Path

import pytest

from builddoctor.errors import MemoryBudgetError, PlatformError, ToolkitBrokenError, ToolkitNotFoundError
from builddoctor.intercept.toolkit import find_toolkit
from builddoctor.model.request import RunRequest
from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.root import SystemRoot
from builddoctor.supervise.prepare import prepare, site_folders

REQUEST = RunRequest(command=("true",), cwd="/")


def test_other_systems_than_linux_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not Linux: said at once, with where it can run."""
    monkeypatch.setattr(sys, "platform", "darwin")
    root = SystemRoot(tmp_path)
    with pytest.raises(PlatformError, match="needs Linux; this is darwin") as caught:
        prepare(REQUEST, {}, root, MemorySensor(root))
    assert "container" in caught.value.hint


def test_a_full_machine_is_refused(tmp_path: Path) -> None:
    """Nothing free to build in: the level that says so is named."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 8388608 kB\nMemAvailable: 102400 kB\n")
    root = SystemRoot(tmp_path)
    with pytest.raises(MemoryBudgetError, match=r"100 MiB free of 8\.0 GiB"):
        prepare(REQUEST, {}, root, MemorySensor(root))


def test_no_candidate_at_all_is_no_toolkit() -> None:
    """With no nvcc anywhere the hint says how to get one without root."""
    with pytest.raises(ToolkitNotFoundError) as caught:
        find_toolkit([], {}, wanted="")
    assert "toolkit install 13.0" in caught.value.hint


def test_a_candidate_that_cannot_be_started_is_a_broken_toolkit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands where nvcc should, but is none, is named with the system's reason."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    nvcc = tmp_path / "nvcc"
    nvcc.write_text("")
    monkeypatch.setattr("builddoctor.intercept.captured.subprocess.Popen", refuse)
    with pytest.raises(ToolkitBrokenError, match="Permission denied"):
        find_toolkit([nvcc], {}, wanted="")


def test_pips_packages_are_looked_for_in_site_packages_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m builddoctor` has the current folder on sys.path: its nvidia/cu13/bin/nvcc is none of pip's."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", ["", ".", "lib", *sys.path])
    folders = site_folders({"PATH": "/nowhere"})
    assert folders[0] == Path(sysconfig.get_path("purelib"))
    assert {Path(sysconfig.get_path("platlib")), Path(site.getusersitepackages())} <= set(folders)
    assert tmp_path not in folders
    assert all(folder.is_absolute() and folder.name.endswith("-packages") for folder in folders)


def test_a_relative_user_site_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """PYTHONUSERBASE=. would make it the current folder's."""
    monkeypatch.setattr(site, "getusersitepackages", lambda: "./lib/python3.12/site-packages")
    assert all(folder.is_absolute() for folder in site_folders({"PATH": "./bin"}))


def test_the_builds_own_python_comes_first(tmp_path: Path) -> None:
    """builddoctor may be installed elsewhere (pipx): torch and its headers lie beside the python that builds."""
    packages = tmp_path / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("")
    python.chmod(0o755)
    assert site_folders({"PATH": str(python.parent)})[0] == packages
