"""Put a toolkit together: which packages, is there room, fetch, look through, merge, prove, put in its place.

Whatever ends it before the last step leaves no toolkit and no half of one; wheels that were fetched whole stay in the
cache. What is there already is added to, by making it anew from the cache and exchanging the folders.
Does *not* cover: what is decided before anything is fetched (``toolkits.order``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from builddoctor.errors import PackageDamagedError, ToolkitBrokenError
from builddoctor.intercept.toolkit import Trouble, probe
from builddoctor.model.managed import Installed, Manifest, Package
from builddoctor.sensors.cuda_libraries import machine_name
from builddoctor.toolkits import components as parts
from builddoctor.toolkits import store
from builddoctor.toolkits.fetch import Fetcher
from builddoctor.toolkits.layout import LICENSES
from builddoctor.toolkits.merge import merge
from builddoctor.toolkits.order import Order, fetcher_for, goal, installed, release_of, sizes_mib, spelled
from builddoctor.toolkits.room import check_room, full_disk_said, require
from builddoctor.toolkits.wheel import Wheel, read_wheel
from builddoctor.units import MIB, format_mib


def install(order: Order, env: Mapping[str, str], say: Callable[[str], None]) -> Installed:
    """Make it, or find it made. Raises UsageError for an unknown component,
    PackageUnavailableError, PackageDamagedError, DiskFullError, FolderNotWritableError, ToolkitBrokenError."""
    requirement = parts.release_requirement(order.version)
    store.make_folder(order.folder)
    store.make_folder(order.wheels)
    with full_disk_said(order.folder), store.locked(order.folder, say):
        if not order.force and (found := installed(order)) is not None:
            return Installed(path=str(found[0]), toolkit=found[1], already=True)
        with store.locked(order.wheels, say):
            fetcher = fetcher_for(order, env, say)
            release = release_of(fetcher, requirement)
            home, wanted = goal(order, release)
            pins = parts.requirements(release, wanted, order.arch)
            fetch_mib, disk_mib = sizes_mib(fetcher, pins.values())
            check_room(order.folder, order.wheels, fetch_mib=fetch_mib, disk_mib=disk_mib)
            say(
                f"CUDA {release.version} for {order.arch}: NVIDIA's packages, under NVIDIA's own licence "
                f"(*.dist-info/licenses/License.txt in each wheel; here {home / LICENSES})"
            )
            packages, wheels = _fetch_all(fetcher, release, pins, order.arch)
            manifest = _manifest(home, release, wanted, order.arch, packages)
            say(f"puts together {home.name} from {len(wheels)} packages")
            _build(home, wheels, manifest, env, say)
            return Installed(path=str(home), toolkit=manifest, fetched_mib=round(fetcher.fetched_mib, 1))


def _fetch_all(
    fetcher: Fetcher, release: parts.Release, pins: Mapping[str, str], arch: str
) -> tuple[list[Package], list[Wheel]]:
    """The wheels, and what they need themselves. Raises PackageUnavailableError and others."""
    fetcher.get_small(pins.values())
    waiting = dict(pins)
    packages: dict[str, Package] = {}
    wheels: list[Wheel] = []
    while waiting:
        name = min(waiting)
        path, digest = fetcher.get(waiting.pop(name))
        wheel = read_wheel(path)
        if wheel.name != name:
            raise PackageDamagedError(f"{path.name} is not a wheel of {name}")
        packages[name] = Package(name=name, version=wheel.version, file=path.name, sha256=digest)
        wheels.append(wheel)
        needs = parts.depends_on(release, wheel.metadata, arch)
        waiting |= {each: need for each, need in needs.items() if each not in packages and each not in waiting}
    return list(packages.values()), wheels


def _manifest(
    home: Path,
    release: parts.Release,
    wanted: Mapping[str, str],
    arch: Literal["x86_64", "aarch64"],
    packages: list[Package],
) -> Manifest:
    nvcc = next((each.version for each in packages if each.name == "nvidia-cuda-nvcc"), release.version)
    return Manifest(
        name=home.name,
        version=nvcc,
        release=release.version,
        arch=arch,
        components=spelled(wanted),
        packages=tuple(packages),
    )


def _build(
    home: Path, wheels: list[Wheel], manifest: Manifest, env: Mapping[str, str], say: Callable[[str], None]
) -> None:
    unpacked_mib = sum(wheel.unpacked_bytes for wheel in wheels) / MIB
    require(home.parent, unpacked_mib, f"{format_mib(unpacked_mib)} for it")
    new = home.with_name(f"{store.NEW}{home.name}")
    try:
        new.mkdir()
        merge(wheels, new, manifest)
        if manifest.arch == machine_name():
            _prove(new, home, env, say)
        store.put_in_place(new, home)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _prove(new: Path, home: Path, env: Mapping[str, str], say: Callable[[str], None]) -> None:
    """Its nvcc runs here. Raises ToolkitBrokenError."""
    found = probe(new / "bin" / "nvcc", env)
    if not isinstance(found, Trouble):
        return
    text = found.text.replace(str(new), str(home))
    if found.kind in ("broken", "silent"):
        raise ToolkitBrokenError(
            f"nothing installed: {text}", hint="--into a folder from which programs may run; these need glibc 2.28"
        )
    say(f"{text}; {found.hint}")
