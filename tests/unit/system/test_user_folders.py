"""Where a user's folders lie, with and without a home; and those that end with the process that made them."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from builddoctor.system.root import SystemRoot
from builddoctor.system.user_folders import LOCK, HeldFolder, usual_folder


def test_below_home_as_is_the_custom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert usual_folder("state") == Path("/home/u/.local/state/builddoctor")


def test_below_the_root_for_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME and no entry in passwd: no command may fail for that."""

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in [each for each in os.environ if each == "HOME" or each.startswith("XDG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert usual_folder("cache") == Path("/.cache/builddoctor")
    assert usual_folder("config") == Path("/.config/builddoctor")


# -- held folders ------------------------------------------------------------------------------------------------


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def left_by_the_dead(folder: Path, name: str = "builddoctor-dead", *, held: str | None = None) -> Path:
    """A folder whose lock nobody holds. ``held``: what its lock says in the place of this boot."""
    left = folder / name
    (left / "below").mkdir(parents=True)
    (left / "below" / "file").touch()
    (left / LOCK).write_text(boot() if held is None else held)
    return left


def test_a_held_folder_is_for_this_user_alone_and_goes_with_its_holder(tmp_path: Path) -> None:
    with HeldFolder(str(tmp_path), "builddoctor-x-", SystemRoot()) as folder:
        assert folder.name.startswith("builddoctor-x-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "file").touch()
    assert not list(tmp_path.iterdir())


def test_what_the_dead_left_goes_and_what_is_held_stays(tmp_path: Path) -> None:
    """Whoever it was: builds and nodes remove each other's."""
    dead = left_by_the_dead(tmp_path)
    with (
        HeldFolder(str(tmp_path), "builddoctor-", SystemRoot()) as first,
        HeldFolder(str(tmp_path), "builddoctor-node-", SystemRoot()) as second,
    ):
        assert not dead.exists()
        assert sorted(tmp_path.iterdir()) == sorted((first, second))


@pytest.mark.parametrize("held", ["", "another-boot"])
def test_one_that_is_being_made_or_was_held_on_another_boot_or_machine_stays(tmp_path: Path, held: str) -> None:
    left = left_by_the_dead(tmp_path, held=held)
    with HeldFolder(str(tmp_path), "builddoctor-", SystemRoot()):
        assert (left / "below" / "file").exists()


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    """Neither what has another name, nor what never was held, nor what a link leads to."""
    named = left_by_the_dead(tmp_path, "others-work")
    unheld = tmp_path / "builddoctor-old"
    unheld.mkdir()
    elsewhere = left_by_the_dead(tmp_path / "elsewhere")
    (tmp_path / "builddoctor-link").symlink_to(elsewhere)
    lock_elsewhere = tmp_path / "builddoctor-linked"
    lock_elsewhere.mkdir()
    (lock_elsewhere / LOCK).symlink_to(elsewhere / LOCK)
    with HeldFolder(str(tmp_path), "builddoctor-", SystemRoot()):
        assert named.exists()
        assert unheld.exists()
        assert (elsewhere / "below" / "file").exists()
        assert lock_elsewhere.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_users_is_left_alone(tmp_path: Path) -> None:
    left = left_by_the_dead(tmp_path)
    os.chown(left, 12345, 12345)
    with HeldFolder(str(tmp_path), "builddoctor-", SystemRoot()):
        assert left.exists()
