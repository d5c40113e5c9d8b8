"""The harmless fixes of ``doctor --fix``, planned: what would be done, in words, before anything is. Pure.

Covers: ``tmpdir`` (another folder for temporary files, remembered) and ``submodules`` (fetched by git).
Does *not* cover: doing it (``runtime.fixing``).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from builddoctor.core.check import Check, FixName
from builddoctor.core.machine import Place
from builddoctor.core.units import escaped, format_mib
from builddoctor.doctor.storage_checks import best

FETCH_SUBMODULES = ("git", "submodule", "update", "--init", "--recursive")


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that this user can do alone. Just one of ``folder`` and ``command`` is set."""

    name: FixName
    what: str
    """what will be done, in one line"""
    folder: str = ""
    """a folder that is made for this user alone, and remembered as TMPDIR"""
    command: tuple[str, ...] = ()
    cwd: str = ""
    """where the command runs"""
    obstacle: str = ""
    """why it cannot be done; empty when it can"""

    @property
    def possible(self) -> bool:
        return not self.obstacle

    @property
    def preview(self) -> str:
        """What it would do, and the command for it where there is one."""
        if self.obstacle:
            return escaped(f"{self.name}: {self.what}: not possible, {self.obstacle}")
        shown = f"    $ cd {shlex.quote(self.cwd)} && {shlex.join(self.command)}" if self.command else ""
        return "\n".join(escaped(line) for line in (f"{self.name}: {self.what}", shown) if line)


def tmpdir_candidates(env: Mapping[str, str], *, user: int, build_folder: str, cache: str) -> list[tuple[str, str]]:
    """Folders that may become TMPDIR, as role and path, best guess first. ``user``: numeric id.

    Names below folders that everybody writes to carry the user's id. A folder of a Slurm job lives as long as that job;
    what is remembered and gone is left aside later.
    """
    own = f"builddoctor-{user}"
    name = env.get("USER") or env.get("LOGNAME") or ""
    guesses = [
        ("SCRATCH", env.get("SCRATCH", ""), own),
        ("SLURM_TMPDIR", env.get("SLURM_TMPDIR", ""), own),
        ("scratch", f"/scratch/{name}" if name and "/" not in name else "", own),
        ("/var/tmp", "/var/tmp", own),  # noqa: S108 - kept across reboots, so on disk
        ("cache", cache, "tmp"),
        # Last, since it is remembered for other projects' builds, too.
        ("build folder", build_folder, ".tmp"),
    ]
    return [
        (role, f"{parent.rstrip('/')}/{leaf}")
        for role, parent, leaf in guesses
        # No UTF-8, a control character: not to be remembered, and no build takes it well.
        if parent.startswith("/") and parent.isprintable()
    ]


def plan_fixes(
    checks: Sequence[Check],
    candidates: Sequence[Place],
    *,
    build_device: str = "",
    project: str = "",
    is_git: bool = True,
    starts: Sequence[str] = (),
) -> list[Fix]:
    """The fixes that these checks ask for, each once, in the order of the checks; impossible ones say why.

    ``candidates``: ``tmpdir_candidates`` as they were found; ``project``: the folder of the sources; ``is_git``: it is
    a git checkout; ``starts``: settings of that checkout's own that make git start programs.
    """
    asked = dict.fromkeys(check.fix for check in checks if check.fix)
    plans = {
        FixName.TMPDIR: lambda: _move_tmpdir(candidates, build_device),
        FixName.SUBMODULES: lambda: _fetch_submodules(project, is_git=is_git, starts=starts),
    }
    return [plans[name]() for name in asked if name in plans]


def _move_tmpdir(candidates: Sequence[Place], build_device: str) -> Fix:
    place = best(candidates, build_device=build_device)
    if place is None:
        what = "put temporary files on a disk"
        obstacle = "no folder on a disk with 1 GiB free was found; name one: `export TMPDIR=/some/folder`"
        return Fix(name=FixName.TMPDIR, what=what, obstacle=obstacle)
    room = "" if place.free_mib is None else f", {format_mib(place.free_mib)} free"
    what = (
        f"temporary files of later `builddoctor build` and `run` go to {place.path} "
        f"({place.filesystem or 'unknown file system'}{room}), as long as your own TMPDIR is unfit"
    )
    return Fix(name=FixName.TMPDIR, what=what, folder=place.path)


def _fetch_submodules(project: str, *, is_git: bool, starts: Sequence[str]) -> Fix:
    obstacle = "" if is_git else f"{project or 'the project'} is no git checkout"
    if starts:
        obstacle = (
            f"the checkout's own git settings start programs ({', '.join(starts[:3])}); if you trust them: "
            f"`cd {shlex.quote(project)} && {shlex.join(FETCH_SUBMODULES)}`"
        )
    return Fix(
        name=FixName.SUBMODULES,
        what="fetch the submodules that are missing, without any hooks of the checkout's own",
        command=FETCH_SUBMODULES,
        cwd=project,
        obstacle=obstacle,
    )
