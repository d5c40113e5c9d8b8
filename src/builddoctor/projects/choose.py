"""What is to be built: a folder, or a project by name with its sources somewhere else.

Covers: a path or a name as typed, a checkout that one stands in, the nearest name to one that is unknown.
Does *not* cover: getting sources (``sources``), or how they are built (``projects.build_plan``).
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from builddoctor.core.errors import ProjectNotFoundError, UsageError
from builddoctor.core.project import KnownProject, SourceWanted
from builddoctor.core.units import shell_word
from builddoctor.projects.catalogue import find_known, known_names, nearest_project, recognise

INDEX = "pypi:"
"""``--source pypi:NAME``: the source distribution of that name, whatever the project is."""


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One project: ``folder`` where its sources are here, else ``wanted``."""

    known: KnownProject | None = None
    folder: Path | None = None
    wanted: SourceWanted | None = None


def choose(named: str, here: Path, *, source: str = "", version: str = "", offline: bool = False) -> Choice:
    """What ``named`` stands for in the folder ``here``. Raises ProjectNotFoundError or UsageError.

    A path that exists goes before a name, but for a folder of that name inside the project's own checkout
    (TransformerEngine's holds a package ``transformer_engine``).
    """
    if not named.strip():
        raise UsageError("the name of the project is empty", hint="builddoctor build .")
    known = find_known(named) if "/" not in named else None
    if source:
        return _from_source(named, known, here, source, version, offline)
    if known is not None and recognise(here) == known and not version:
        return Choice(known=known, folder=here)
    path = Path(here, os.path.expanduser(named))
    if os.path.lexists(path) and (known is None or recognise(path) == known):
        if version:
            raise UsageError(
                f"--version {version}: {named} is a folder, and is built as it is",
                hint=f"check that version out there: git -C {named} checkout v{version}",
            )
        return Choice(known=recognise(path), folder=Path(os.path.expanduser(named)))
    if known is not None:
        return Choice(known=known, wanted=_wanted(known.name, known, "", version, offline))
    name, _, wanted = named.partition("==")
    if wanted and (of_pip := find_known(name)) is not None:
        raise ProjectNotFoundError(
            f"no such path: {named}; a version is named as an option",
            hint=f"`builddoctor build {of_pip.name} --version {shell_word(wanted)}`",
        )
    close = nearest_project(named)
    raise ProjectNotFoundError(
        f"no such path: {named}; nor is it a project that is known by name",
        hint=f"did you mean `builddoctor build {close}`?"
        if close
        else f"give the folder of a checkout, `builddoctor build path/to/it`; the package index's source of any name, "
        f"`--source {INDEX}NAME`; or one of {', '.join(known_names())}",
    )


def _from_source(
    named: str, known: KnownProject | None, here: Path, source: str, version: str, offline: bool
) -> Choice:
    path = Path(here, os.path.expanduser(source))
    if path.is_dir():
        if version:
            raise UsageError(
                f"--version {version}: the sources in {source} are built as they are",
                hint=f"check that version out there: git -C {source} checkout v{version}",
            )
        return Choice(known=known or recognise(path), folder=path)
    if source.startswith(INDEX):
        package = source.removeprefix(INDEX)
        if not package:
            raise UsageError(f"--source {INDEX} names no package", hint=f"--source {INDEX}{named}")
        name = known.name if known is not None else package
        return Choice(known=known, wanted=SourceWanted(name=name, package=package, version=version, offline=offline))
    if "://" not in source and not source.startswith("git@") and not path.exists():
        raise ProjectNotFoundError(
            f"no sources at {source}",
            hint=f"--source takes a folder, an archive, a URL of git or of an archive, or {INDEX}NAME",
        )
    place = source if "://" in source or source.startswith("git@") else str(path)
    name = known.name if known is not None else Path(named).name
    return Choice(known=known, wanted=_wanted(name, known, place, version, offline))


def _wanted(name: str, known: KnownProject | None, place: str, version: str, offline: bool) -> SourceWanted:
    if known is None:
        return SourceWanted(name=name, place=place, version=version, offline=offline)
    return SourceWanted(
        name=name,
        place=place,
        version=version,
        package=known.package,
        no_package=known.no_package,
        repository=known.repository,
        tag=known.tag,
        offline=offline,
    )
