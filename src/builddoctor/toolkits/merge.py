"""Several wheels become one CUDA_HOME, in a folder that nobody uses yet.

Two packages may bring the same file; where they bring different ones under one name, nothing is made.
Does *not* cover: fetching them (``toolkits.fetch``), or putting the folder in its place (``toolkits.install``).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from builddoctor.errors import PackageDamagedError
from builddoctor.model.managed import Manifest
from builddoctor.toolkits.layout import LICENSES, TRIPLES, add_links, place_of, write_manifest
from builddoctor.toolkits.stubs import add_stubs
from builddoctor.toolkits.wheel import Wheel, write_entries


def merge(wheels: Sequence[Wheel], home: Path, manifest: Manifest) -> None:
    """Fill the new folder ``home``. Raises PackageDamagedError, or OSError; what is there then is for the caller."""
    triple = TRIPLES[manifest.arch]
    plans = plan(wheels, triple)
    for wheel, targets in zip(wheels, plans, strict=True):
        write_entries(wheel, {name: home / place for name, place in targets.items()})
    for program in (*home.glob("bin/*"), *home.glob("nvvm/bin/*")):
        if program.is_file() and program.suffix != ".profile":
            # Some wheels were packed without.
            program.chmod(0o755)
    add_links(home, triple)
    add_stubs(home / "targets" / triple, manifest.arch)
    write_manifest(home, manifest)


def plan(wheels: Sequence[Wheel], triple: str) -> list[dict[str, PurePosixPath]]:
    """For each wheel, its files and where they go; each place once. Raises PackageDamagedError for a contradiction."""
    taken: dict[PurePosixPath, tuple[bytes, str]] = {}
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
