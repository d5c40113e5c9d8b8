"""Folders of builddoctor's own, and where they lie when HOME cannot be written."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path

import pytest

from builddoctor.runtime.folders import cache_folder, history_file, site_folders, standing_in, traces_folder


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """A HOME below a file, where nobody can make a folder, and temporary files that can be written."""
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir()
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "file" / "home"))
    return {"TMPDIR": str(tmp_path / "tmp")}


def test_a_home_that_can_be_written_is_used(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As the platform has it, also when nothing of it is there yet; and there is nothing to say."""
    home = Path(env["TMPDIR"]).parent / "home"
    monkeypatch.setenv("HOME", str(home))
    assert cache_folder(env) == home / ".cache" / "builddoctor"
    assert history_file(env).parent == home / ".local" / "state" / "builddoctor"
    assert standing_in(env) == ""


def test_else_the_users_own_folder_among_the_temporary_files(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For this user alone, and said; root, who may write anywhere, sees a read-only file system the same way."""
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith("file"))
    ours = Path(env["TMPDIR"]) / f"builddoctor-of-{os.geteuid()}"
    assert cache_folder(env) == ours / "cache"
    assert traces_folder(env) == ours / "state" / "traces"
    assert ours.stat().st_mode & 0o777 == 0o700
    assert standing_in(env) == (
        f"HOME cannot be written: cache and traces go to {ours} "
        "(BUILDDOCTOR_CACHE_DIR and BUILDDOCTOR_STATE_DIR name another)"
    )


def test_what_is_named_is_taken_as_it_is(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it can be written or not: whoever named it is told when it cannot."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cache_folder({**env, "BUILDDOCTOR_CACHE_DIR": "/named"}) == Path("/named")
    assert traces_folder({**env, "BUILDDOCTOR_STATE_DIR": "/named"}) == Path("/named/traces")


@pytest.mark.parametrize("squatter", ["open", "link", "file"])
def test_a_folder_that_somebody_else_prepared_is_not_trusted(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch, squatter: str
) -> None:
    """Open to others, a link, no folder: the usual place is named, and its error is what is said."""
    monkeypatch.setattr(os, "access", lambda path, _: not str(path).endswith("file"))
    ours = Path(env["TMPDIR"]) / f"builddoctor-of-{os.geteuid()}"
    if squatter == "open":
        ours.mkdir()
        ours.chmod(0o777)
    elif squatter == "link":
        ours.symlink_to(env["TMPDIR"])
    else:
        ours.write_text("")
    assert cache_folder(env).name == "builddoctor"
    assert cache_folder(env).parent.name == ".cache"


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
