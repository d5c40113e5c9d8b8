"""Folders of builddoctor's own, and where they lie when HOME cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.supervise.folders import cache_folder, history_file, standing_in, traces_folder


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
