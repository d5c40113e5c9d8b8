"""Fixes of `doctor --fix`: planned, applied, remembered, and honoured by later builds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.errors import FolderNotWritableError
from builddoctor.core.machine import Place
from builddoctor.doctor.fixes import FETCH_SUBMODULES, Fix, plan_fixes, tmpdir_candidates
from builddoctor.runtime import fixing
from builddoctor.runtime.tmpdir import (
    LARGEST_BYTES,
    Settings,
    read_settings,
    remembered_tmpdir,
    settings_file,
    write_settings,
)
from builddoctor.system.root import SystemRoot

GIB = 1024.0
DISK = Place(role="/var/tmp", path="/var/tmp/builddoctor-7", filesystem="ext4", free_mib=50 * GIB, missing=True)


class Machine(SystemRoot):
    """This machine with another table of mounts: everything is on disk, but for the folders named."""

    def __init__(self, *in_memory: Path) -> None:
        super().__init__()
        lines = [f"{30 + i} 24 0:{30 + i} / {path} rw - tmpfs none rw\n" for i, path in enumerate(in_memory)]
        self._table = "24 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "".join(lines)

    def path_text(self, absolute: str) -> str | None:
        return self._table if absolute == "/proc/self/mountinfo" else super().text(absolute)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """An environment whose TMPDIR and folders of ours are below the test's own."""
    (tmp_path / "ram").mkdir()
    return {
        "TMPDIR": str(tmp_path / "ram"),
        "BUILDDOCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "BUILDDOCTOR_STATE_DIR": str(tmp_path / "state"),
    }


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """TMPDIR is a tmpfs, and so is /var/tmp, so that no test ever chooses that."""
    return Machine(tmp_path / "ram", Path("/var/tmp"))


def check(fix: str) -> Check:
    return Check(name="x", topic=Topic.DISK, status=Status.WARNING, text="x", fix=fix)


def settle(tmp_path: Path, env: Mapping[str, str], folder: str = "disk") -> Path:
    """A folder moved to and remembered."""
    path = tmp_path / folder
    applied = fixing.apply(Fix(name="tmpdir", what="", folder=str(path)), env)
    assert applied.done, applied.text
    return path


def test_only_what_checks_ask_for_is_planned() -> None:
    """No fix, no plan; unknown names are somebody else's; each is planned once, in order."""
    assert plan_fixes([check("")], [DISK]) == []
    assert plan_fixes([check("defragment")], [DISK]) == []
    planned = plan_fixes([check("submodules"), check("tmpdir"), check("submodules")], [DISK], project="/p")
    assert [fix.name for fix in planned] == ["submodules", "tmpdir"]


def test_the_preview_says_what_will_be_done() -> None:
    """Folder, file system and room; the command with its folder."""
    moved, fetched = plan_fixes([check("tmpdir"), check("submodules")], [DISK], project="/my project")
    assert moved.possible
    assert "/var/tmp/builddoctor-7 (ext4, 50.0 GiB free)" in moved.preview
    assert "$ cd '/my project' && git submodule update --init --recursive" in fetched.preview


def test_what_cannot_be_done_says_why() -> None:
    """No disk, no checkout: planned with an obstacle, so that the user hears of it."""
    moved, fetched = plan_fixes([check("tmpdir"), check("submodules")], [], project="/p", is_git=False)
    assert not moved.possible
    assert "TMPDIR=" in moved.obstacle
    assert not fetched.possible
    assert "no git checkout" in fetched.preview


def test_candidates_follow_the_environment() -> None:
    """Scratch folders first, then /var/tmp, the cache, the build folder last; relative ones and odd bytes never."""
    full = {"SCRATCH": "/s/", "SLURM_TMPDIR": "/job", "USER": "me"}
    found = [path for _, path in tmpdir_candidates(full, user=7, build_folder="/p/build", cache="/c")]
    assert found == [
        "/s/builddoctor-7",
        "/job/builddoctor-7",
        "/scratch/me/builddoctor-7",
        "/var/tmp/builddoctor-7",
        "/c/tmp",
        "/p/build/.tmp",
    ]
    bare = tmpdir_candidates(
        {"SCRATCH": "s", "SLURM_TMPDIR": "/j\udcff", "USER": "../etc"}, user=7, build_folder="b", cache="/c"
    )
    assert [path for _, path in bare] == ["/var/tmp/builddoctor-7", "/c/tmp"]


def test_a_plan_against_a_machine_writes_nothing(tmp_path: Path, env: dict[str, str], machine: Machine) -> None:
    """The cache folder's tmp is chosen where /var/tmp is memory, and nothing exists yet."""
    project = tmp_path / "ram" / "project"
    project.mkdir()
    (planned,) = fixing.plan([check("tmpdir")], env, machine, project=project)
    assert planned.folder == str(tmp_path / "cache" / "tmp")
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "state").exists()


def test_scratch_that_nobody_made_is_not_made_up(tmp_path: Path, env: dict[str, str], machine: Machine) -> None:
    """SCRATCH names a folder that does not exist: it is no candidate; where it exists it is."""
    env |= {"SCRATCH": str(tmp_path / "scratch")}
    build = tmp_path / "ram"
    (before,) = fixing.plan([check("tmpdir")], env, machine, project=build)
    (tmp_path / "scratch").mkdir()
    (after,) = fixing.plan([check("tmpdir")], env, machine, project=build)
    assert before.folder == str(tmp_path / "cache" / "tmp")
    assert after.folder == str(tmp_path / "scratch" / f"builddoctor-{os.geteuid()}")


def test_a_checkout_is_found_from_below(tmp_path: Path, env: dict[str, str], machine: Machine) -> None:
    """`.git` above the project folder, as a folder or a file, makes it a checkout."""
    (tmp_path / "checkout/.git").mkdir(parents=True)
    (tmp_path / "checkout/python").mkdir()
    (tmp_path / "sdist").mkdir()
    (inside,) = fixing.plan([check("submodules")], env, machine, project=tmp_path / "checkout/python")
    assert (inside.possible, inside.command) == (True, FETCH_SUBMODULES)
    (outside,) = fixing.plan([check("submodules")], env, machine, project=tmp_path / "sdist")
    assert not outside.possible


def test_an_archive_in_a_home_folder_kept_in_git_is_no_checkout(
    tmp_path: Path, env: dict[str, str], machine: Machine
) -> None:
    """It has a .gitmodules and no .git: git would take the home folder's, and its settings."""
    (tmp_path / ".git").mkdir()
    archive = tmp_path / "downloads/archive"
    (archive / "python").mkdir(parents=True)
    (archive / ".gitmodules").write_text("")
    for project in (archive, archive / "python"):
        (planned,) = fixing.plan([check("submodules")], env, machine, project=project)
        assert "no git checkout" in planned.obstacle


def test_a_checkout_lies_at_most_eight_levels_up(tmp_path: Path, env: dict[str, str], machine: Machine) -> None:
    """As everywhere: beyond that, it is somebody else's."""
    (tmp_path / ".git").mkdir()
    deep = tmp_path.joinpath(*"abcdefgh")
    (deep / "i").mkdir(parents=True)
    (within,) = fixing.plan([check("submodules")], env, machine, project=deep)
    (beyond,) = fixing.plan([check("submodules")], env, machine, project=deep / "i")
    assert (within.possible, beyond.possible) == (True, False)


def test_a_checkout_whose_settings_start_programs_is_left_to_its_user(
    tmp_path: Path, env: dict[str, str], machine: Machine
) -> None:
    """They may have come in an archive with a .git in it: named, with the command to run by hand."""
    (tmp_path / "p/.git").mkdir(parents=True)
    (tmp_path / "p/.git/config").write_text("[core]\n\tsshCommand = ./ssh\n")
    (planned,) = fixing.plan([check("submodules")], env, machine, project=tmp_path / "p")
    assert "sshcommand in .git/config" in planned.obstacle
    assert f"`cd {tmp_path}/p && git submodule update" in planned.obstacle


def test_a_preview_cannot_move_the_cursor() -> None:
    """Nor has it more lines than it needs."""
    project = "/p\x1b]0;x\x07\n\u2028$ rm"
    (possible,) = plan_fixes([check("submodules")], [], project=project)
    (not_possible,) = plan_fixes([check("submodules")], [], project=project, is_git=False)
    assert all(line.isprintable() for line in possible.preview.split("\n"))
    assert possible.preview.count("\n") == 1
    assert not_possible.preview.isprintable()


def test_a_moved_tmpdir_is_private_and_remembered(tmp_path: Path, env: dict[str, str], machine: Machine) -> None:
    """The folder is 0700, the settings name it, and a build whose TMPDIR is a tmpfs gets it."""
    folder = settle(tmp_path, env)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert read_settings(env) == Settings(tmpdir=str(folder))
    assert remembered_tmpdir(env, machine) == str(folder)


def test_applying_twice_is_the_same(tmp_path: Path, env: dict[str, str]) -> None:
    """A folder that is ours already is taken as it is."""
    assert settle(tmp_path, env) == settle(tmp_path, env)


def test_a_fit_tmpdir_of_the_users_own_wins(tmp_path: Path, env: dict[str, str]) -> None:
    """Once TMPDIR is on disk, what was remembered is left aside."""
    settle(tmp_path, env)
    assert remembered_tmpdir(env, Machine()) == ""


def test_nothing_is_remembered_of_a_new_user(env: dict[str, str], machine: Machine) -> None:
    """Without settings TMPDIR stays as it is."""
    assert remembered_tmpdir(env, machine) == ""


def test_a_folder_that_was_cleaned_up_is_made_again(tmp_path: Path, env: dict[str, str], machine: Machine) -> None:
    """/var/tmp is swept now and then: the folder comes back, as private as before."""
    folder = settle(tmp_path, env)
    folder.rmdir()
    assert remembered_tmpdir(env, machine) == str(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_disk_that_is_gone_is_left_aside(tmp_path: Path, env: dict[str, str], machine: Machine) -> None:
    """The folder above is gone (a job's scratch): nothing is made in its place."""
    (tmp_path / "job").mkdir()
    folder = settle(tmp_path, env, "job/tmp")
    folder.rmdir()
    folder.parent.rmdir()
    assert remembered_tmpdir(env, machine) == ""
    assert not folder.parent.exists()


def test_a_remembered_folder_that_became_memory_is_left_aside(tmp_path: Path, env: dict[str, str]) -> None:
    """What was a disk is a tmpfs now: no gain, no change."""
    folder = settle(tmp_path, env)
    assert remembered_tmpdir(env, Machine(tmp_path / "ram", folder)) == ""


@pytest.mark.parametrize("trick", ["link", "open", "file"])
def test_a_folder_that_others_could_have_made_is_refused(
    tmp_path: Path, env: dict[str, str], machine: Machine, trick: str
) -> None:
    """In /var/tmp anybody may be first: a link, an open folder or a file in its place is not used, now or later."""
    folder = tmp_path / "disk"
    if trick == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif trick == "open":
        folder.mkdir()
        folder.chmod(0o777)
    else:
        folder.write_text("")
    applied = fixing.apply(Fix(name="tmpdir", what="", folder=str(folder)), env)
    assert not applied.done
    assert "for you alone" in applied.text
    assert not settings_file(env).exists()
    write_settings(env, Settings(tmpdir=str(folder)))
    assert remembered_tmpdir(env, machine) == ""


def test_a_folder_of_somebody_elses_is_refused(
    tmp_path: Path, env: dict[str, str], machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that another user made, 0700 as it may be, is not used."""
    settle(tmp_path, env)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert remembered_tmpdir(env, machine) == ""
    assert not fixing.apply(Fix(name="tmpdir", what="", folder=str(tmp_path / "disk")), env).done


def test_a_fix_that_cannot_be_done_is_said(tmp_path: Path, env: dict[str, str]) -> None:
    """An obstacle, a file in the way: told, not raised."""
    (tmp_path / "file").write_text("")
    in_the_way = fixing.apply(Fix(name="tmpdir", what="", folder=str(tmp_path / "file/tmp")), env)
    assert not in_the_way.done
    assert fixing.apply(Fix(name="x", what="", obstacle="no disk"), env).text == "no disk"


def test_settings_are_written_whole(tmp_path: Path, env: dict[str, str]) -> None:
    """Written over, the file holds the new ones alone, and no temporary file stays."""
    write_settings(env, Settings(tmpdir="/" + "x" * 500))
    path = write_settings(env, Settings(tmpdir="/y"))
    assert read_settings(env) == Settings(tmpdir="/y")
    assert [each.name for each in path.parent.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"[]",
        b'{"tmpdir": 5}',
        b'{"tmpdir": "relative"}',
        b'{"tmpdir": "/a\\nb"}',
        b'{"tmpdir": "/a\\u0000b"}',
        b'{"tmpdir": "/' + b"x" * LARGEST_BYTES + b'"}',
    ],
)
def test_settings_that_cannot_be_read_are_none(env: dict[str, str], content: bytes) -> None:
    """A cut, foreign or huge file settles nothing."""
    settings_file(env).parent.mkdir()
    settings_file(env).write_bytes(content)
    assert read_settings(env) == Settings()


def test_settings_of_a_newer_version_are_understood(env: dict[str, str]) -> None:
    """What is not known yet is left out."""
    settings_file(env).parent.mkdir()
    settings_file(env).write_bytes(b'{"tmpdir": "/t", "colour": "blue"}')
    assert read_settings(env) == Settings(tmpdir="/t")


def test_a_folder_that_is_no_utf_8_is_not_remembered(env: dict[str, str]) -> None:
    """Said as an error of ours; no file, no half of one."""
    with pytest.raises(FolderNotWritableError, match="no UTF-8"):
        write_settings(env, Settings(tmpdir="/scratch/\udcff"))
    assert not settings_file(env).exists()


def test_settings_that_cannot_be_written_name_the_variable(tmp_path: Path, env: dict[str, str]) -> None:
    """A file where the folder should be: the error says which variable names another."""
    (tmp_path / "state").write_text("")
    with pytest.raises(FolderNotWritableError) as caught:
        write_settings(env, Settings(tmpdir="/t"))
    assert "BUILDDOCTOR_STATE_DIR" in caught.value.hint
