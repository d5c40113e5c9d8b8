"""Put a toolkit together: which packages, is there room, fetch, look through, merge, prove, put in its place.

Whatever ends it before the last step leaves no toolkit and no half of one; wheels that were fetched whole stay in the
cache. What is there already is added to, by making it anew from the cache and exchanging the folders.
Does *not* cover: the command line (``cli.toolkit``).
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec
from packaging.requirements import Requirement

from builddoctor.errors import (
    DiskFullError,
    FolderNotWritableError,
    PackageDamagedError,
    PackageUnavailableError,
    ToolkitBrokenError,
)
from builddoctor.intercept.pip import known_versions, usable_platforms
from builddoctor.intercept.toolkit import Trouble, probe
from builddoctor.model.managed import Installed, Manifest, Package, Plan, PlannedPackage
from builddoctor.sensors.cuda_libraries import machine_name
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.storage import read_place
from builddoctor.toolkits import components as parts
from builddoctor.toolkits import store
from builddoctor.toolkits.fetch import Fetcher
from builddoctor.toolkits.layout import LICENSES, read_manifest
from builddoctor.toolkits.merge import merge
from builddoctor.toolkits.wheel import Wheel, read_wheel
from builddoctor.units import MIB, format_mib

SPARE_MIB = 16.0
"""left free for links, folders and blocks that are not full"""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What ``toolkit install`` was asked for."""

    version: str
    components: dict[str, str]
    """component to version; empty: the release's own"""
    arch: Literal["x86_64", "aarch64"]
    folder: Path
    """of the toolkits"""
    wheels: Path
    """the cache"""
    offline: bool = False
    force: bool = False


def install(order: Order, env: Mapping[str, str], say: Callable[[str], None]) -> Installed:
    """Make it, or find it made. Raises any of the errors imported here, UsageError for an unknown component."""
    requirement = parts.release_requirement(order.version)
    store.make_folder(order.folder)
    store.make_folder(order.wheels)
    with _full_disk_said(order), store.locked(order.folder, say):
        if not order.force and (found := _installed(order)) is not None:
            return Installed(path=str(found[0]), toolkit=found[1], already=True)
        with store.locked(order.wheels, say):
            fetcher = _fetcher(order, env, say)
            release = _release(fetcher, requirement)
            home, wanted = _goal(order, release)
            pins = parts.requirements(release, wanted, order.arch)
            _check_room(order, fetcher, pins.values())
            say(
                f"CUDA {release.version} for {order.arch}: NVIDIA's packages, under NVIDIA's own licence "
                f"(*.dist-info/licenses/License.txt in each wheel; here {home / LICENSES})"
            )
            packages, wheels = _fetch_all(fetcher, release, pins, order.arch)
            manifest = _manifest(home, release, wanted, order.arch, packages)
            say(f"puts together {home.name} from {len(wheels)} packages")
            _build(home, wheels, manifest, env, say)
            return Installed(path=str(home), toolkit=manifest, fetched_mib=round(fetcher.fetched_mib, 1))


def plan(order: Order, env: Mapping[str, str], say: Callable[[str], None]) -> Plan:
    """What ``install`` would do; fetches no more than the few KB that name the packages. Raises what it raises."""
    requirement = parts.release_requirement(order.version)
    store.make_folder(order.wheels)
    with _full_disk_said(order), store.locked(order.wheels, say):
        fetcher = _fetcher(order, env, say)
        release = _release(fetcher, requirement)
        home, wanted = _goal(order, release)
        needs = list(parts.requirements(release, wanted, order.arch).values())
        fetch_mib, disk_mib = _sizes_mib(fetcher, needs)
        return Plan(
            release=release.version,
            arch=order.arch,
            components=_spelled(wanted),
            packages=tuple(PlannedPackage(requirement=need, cached=fetcher.cached(need)) for need in needs),
            folder=str(home),
            fetch_mib=fetch_mib,
            disk_mib=disk_mib,
            free_mib=_free_mib(order.folder),
        )


def _installed(order: Order) -> tuple[Path, Manifest] | None:
    """One that is here, of this version, with all that is asked for."""
    for home, manifest in store.manifests(order.folder):
        fits = any(f"{known}.".startswith(f"{order.version}.") for known in (manifest.version, manifest.release))
        if fits and manifest.arch == order.arch and all(_has(manifest, *each) for each in order.components.items()):
            return home, manifest
    return None


def _has(manifest: Manifest, component: str, version: str) -> bool:
    there = {word.partition("==")[0]: word.partition("==")[2] for word in manifest.components}
    if not version or component not in there:
        return component in (*there, *parts.ALWAYS)
    of = f"nvidia-{parts.APART[component]}-cu"
    return any(f"{one.version}.".startswith(f"{version}.") for one in manifest.packages if one.name.startswith(of))


def _fetcher(order: Order, env: Mapping[str, str], say: Callable[[str], None]) -> Fetcher:
    platforms = usable_platforms(order.arch)
    return Fetcher(order.wheels, platforms, env=env, offline=order.offline, fresh=order.force, say=say)


def _release(fetcher: Fetcher, requirement: str) -> parts.Release:
    try:
        path, _ = fetcher.get(requirement)
    except PackageUnavailableError as error:
        known = [one for one in known_versions(error) if one.split(".")[0].isdigit() and int(one.split(".")[0]) >= 13]
        if not known:
            raise
        asked = requirement.rpartition("==")[2].removesuffix(".*")
        newest = ".".join(known[-1].split(".")[:2])
        raise PackageUnavailableError(
            f"there is no CUDA {asked} in the package index: it has {', '.join(known)}",
            hint=f"builddoctor toolkit install {newest}",
        ) from error
    wheel = read_wheel(path)
    return parts.read_release(wheel.version, wheel.metadata)


def _goal(order: Order, release: parts.Release) -> tuple[Path, dict[str, str]]:
    """Where it goes, and all components it is to have: with those that it has there already."""
    pin = Requirement(parts.requirements(release, {}, order.arch).get("nvidia-cuda-nvcc", "x")).specifier
    version = next((each.version.removesuffix(".*") for each in pin if each.operator == "=="), release.version)
    home = order.folder / f"cuda-{version}-{order.arch}"
    there = read_manifest(home)
    if there is None and home.exists():
        raise FolderNotWritableError(f"{home} is there, and no toolkit of ours", hint="--into another folder")
    return home, {**parts.parse_components(there.components if there is not None else ()), **order.components}


def _sizes_mib(fetcher: Fetcher, needs: list[str]) -> tuple[float, float]:
    names = {need: Requirement(need).name for need in needs}
    fetch = sum(parts.size_mib(name)[0] for need, name in names.items() if not fetcher.cached(need))
    return float(fetch), float(sum(parts.size_mib(name)[1] for name in names.values()))


def _check_room(order: Order, fetcher: Fetcher, needs: Iterable[str]) -> None:
    """Before anything large is fetched: by the sizes of another release. Raises DiskFullError."""
    fetch_mib, disk_mib = _sizes_mib(fetcher, list(needs))
    if os.stat(order.folder).st_dev == os.stat(order.wheels).st_dev:
        _require(
            order.folder, fetch_mib + disk_mib, f"{format_mib(fetch_mib)} to fetch and {format_mib(disk_mib)} for it"
        )
    else:
        _require(order.wheels, fetch_mib, f"{format_mib(fetch_mib)} to fetch")
        _require(order.folder, disk_mib, f"{format_mib(disk_mib)} for it")


def _require(folder: Path, need_mib: float, what: str) -> None:
    free_mib = _free_mib(folder)
    if free_mib is not None and free_mib < need_mib + SPARE_MIB:
        raise DiskFullError(
            f"no room for the toolkit: about {what}, and {format_mib(free_mib)} free in {folder}",
            hint="--into a folder on another disk; BUILDDOCTOR_CACHE_DIR says where wheels are kept",
        )


def _free_mib(folder: Path) -> float | None:
    return read_place(SystemRoot(), folder, role="toolkits").free_mib


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
        components=_spelled(wanted),
        packages=tuple(packages),
    )


def _spelled(wanted: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}=={version}" if version else name for name, version in sorted(wanted.items()))


def _build(
    home: Path, wheels: list[Wheel], manifest: Manifest, env: Mapping[str, str], say: Callable[[str], None]
) -> None:
    _require(
        home.parent,
        (unpacked_mib := sum(wheel.unpacked_bytes for wheel in wheels) / MIB),
        f"{format_mib(unpacked_mib)} for it",
    )
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


@contextmanager
def _full_disk_said(order: Order) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise DiskFullError(
                f"the disk is full: nothing installed in {order.folder}", hint="--into a folder on another disk"
            ) from error
        raise FolderNotWritableError(
            f"nothing installed in {order.folder}: {error.strerror or error}", hint=store.INTO_HINT
        ) from error
