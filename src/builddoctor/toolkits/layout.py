"""The CUDA_HOME that FindCUDAToolkit, torch's cpp_extension and TransformerEngine's CMake take for NVIDIA's own.

Several wheels become one folder. ``targets/<triple>/{include,lib}`` hold the files; ``include``, ``lib64`` and ``lib``
are links to them; beside each ``libX.so.N`` stands ``libX.so``, which python packages leave out and ``-lX`` asks for.
Two packages may bring the same file; where they bring different ones under one name, nothing is made.
Does *not* cover: the driver's libraries (``toolkits.driver_stubs``), or putting the folder in its place
(``toolkits.install``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from builddoctor.core.errors import PackageDamagedError
from builddoctor.toolkits.driver_stubs import add_stubs
from builddoctor.toolkits.managed import Manifest, write_manifest
from builddoctor.toolkits.wheels import Wheel, write_entries

TRIPLES = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}
"""NVIDIA's name of the folder; on ARM that of servers."""

LICENSES = "licenses"

_VERSIONED = re.compile(r"\A(?P<stem>lib[\w+.-]+?\.so)\.(?P<version>\d+(?:\.\d+)*)\Z")
_OWN_HEADERS = {"nvidia-cuda-sanitizer-api": "compute-sanitizer"}
"""Packages whose headers NVIDIA's installer keeps apart: of CUPTI's some have the same names (13.0)."""

_COMMON = {"lib": "lib", "lib64": "lib", "include": "include"}


def merge(wheels: Sequence[Wheel], home: Path, manifest: Manifest) -> None:
    """Fill the new folder ``home``. Raises PackageDamagedError, or OSError; what is there then is for the caller."""
    triple = TRIPLES[manifest.arch]
    plans = placed(wheels, triple)
    for wheel, targets in zip(wheels, plans, strict=True):
        write_entries(wheel, {name: home / place for name, place in targets.items()})
    for program in (*home.glob("bin/*"), *home.glob("nvvm/bin/*")):
        if program.is_file() and program.suffix != ".profile":
            # Some wheels were packed without.
            program.chmod(0o755)
    _add_links(home, triple)
    add_stubs(home / "targets" / triple, manifest.arch)
    write_manifest(home, manifest)


def placed(wheels: Sequence[Wheel], triple: str) -> list[dict[str, PurePosixPath]]:
    """For each wheel, its files and where they go; each place once. Raises PackageDamagedError for a contradiction."""
    taken: dict[PurePosixPath, tuple[str, str]] = {}
    plans: list[dict[str, PurePosixPath]] = []
    for wheel in wheels:
        targets: dict[str, PurePosixPath] = {}
        for entry in wheel.entries:
            place = place_of(entry.name, wheel.name, triple)
            if place is None:
                continue
            if place not in taken:
                taken[place] = (entry.sha256, wheel.name)
                targets[entry.name] = place
                continue
            digest, owner = taken[place]
            if digest != entry.sha256 and place.parts[0] != LICENSES:
                raise PackageDamagedError(
                    f"{owner} and {wheel.name} have different files for {place}",
                    hint="they do not belong together: leave one out of --with, or name another release",
                )
        plans.append(targets)
    for place in taken:
        if above := next((parent for parent in place.parents if parent in taken), None):
            raise PackageDamagedError(f"{above} is a file in one package and a folder in another")
    return plans


def place_of(entry: str, package: str, triple: str) -> PurePosixPath | None:
    """Where a wheel's file goes below CUDA_HOME; None for what a toolkit has no use for.

    ``nvidia/cu13/…``, ``nvidia/cudnn/…`` and ``nvidia/nccl/…`` are one tree here; licences keep their package's name.
    """
    parts = entry.split("/")
    if len(parts) >= 2 and parts[0].endswith(".dist-info"):
        is_license = parts[1] == "licenses" or parts[1].lower().startswith(("license", "notice"))
        return PurePosixPath(LICENSES, package, parts[-1]) if is_license else None
    if len(parts) < 4 or parts[0] != "nvidia":
        return None
    head, rest = parts[2], parts[3:]
    if head.startswith((".", "__")) or rest[-1] == "__init__.py":
        # `.metadata` holds NVIDIA's notes on its own packing, other ones in each package under the same names.
        return None
    if head == "include" and package in _OWN_HEADERS:
        return PurePosixPath(_OWN_HEADERS[package], head, *rest)
    return PurePosixPath("targets", triple, _COMMON[head], *rest) if head in _COMMON else PurePosixPath(head, *rest)


def _add_links(home: Path, triple: str) -> None:
    """The links that make a toolkit of the files. Raises OSError."""
    for part in ("include", "lib"):
        (home / "targets" / triple / part).mkdir(parents=True, exist_ok=True)
    for name, part in (("include", "include"), ("lib64", "lib"), ("lib", "lib")):
        (home / name).symlink_to(f"targets/{triple}/{part}")
    libraries = home / "targets" / triple / "lib"
    for link, file in plain_links(os.listdir(libraries)):
        (libraries / link).symlink_to(file)
    nvvm = libraries / "libnvvm.so"
    if nvvm.exists() and not (home / "nvvm" / "lib64").exists():
        # Where NVIDIA's installer has it, and where numba looks.
        (home / "nvvm" / "lib64").mkdir(parents=True)
        for name in (nvvm.name, os.readlink(nvvm) if nvvm.is_symlink() else ""):
            if name:
                (home / "nvvm" / "lib64" / name).symlink_to(f"../../targets/{triple}/lib/{name}")


def plain_links(names: Iterable[str]) -> list[tuple[str, str]]:
    """(``libX.so``, ``libX.so.N``) for those that have no plain name yet; of several the newest."""
    there = set(names)
    best: dict[str, tuple[tuple[int, ...], str]] = {}
    for name in there:
        match = _VERSIONED.match(name)
        if match and match["stem"] not in there:
            numbers = tuple(int(part) for part in match["version"].split("."))
            best[match["stem"]] = max(best.get(match["stem"], ((), "")), (numbers, name))
    return sorted((stem, name) for stem, (_, name) in best.items())
