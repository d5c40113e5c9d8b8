"""Put a toolkit together: which packages, is there room, fetch, look through, merge, prove, put in its place.

Whatever ends it before the last step leaves no toolkit and no half of one; wheels that were fetched whole stay in the
cache. What is there already is added to, by making it anew from the cache and exchanging the folders. ``plan`` fetches
only the few KB that name the packages.
Does *not* cover: which packages there are (``toolkits.components``), or how one folder is made of them
(``toolkits.layout``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from builddoctor.core.errors import (
    FolderNotWritableError,
    PackageDamagedError,
    PackageUnavailableError,
    ToolkitBrokenError,
)
from builddoctor.core.units import MIB, format_mib
from builddoctor.gates.pip import OtherVersionsError, usable_platforms
from builddoctor.gates.subprocesses import run_captured
from builddoctor.toolchain.cuda_libraries import machine_name
from builddoctor.toolchain.discover import Trouble, probe
from builddoctor.toolkits import components as parts
from builddoctor.toolkits import managed
from builddoctor.toolkits.layout import LICENSES, merge
from builddoctor.toolkits.managed import Arch, Manifest, Package
from builddoctor.toolkits.wheels import Fetcher, Wheel, read_wheel

Say = Callable[[str], None]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What ``toolkit install`` was asked for."""

    version: str
    components: dict[str, str]
    """component to version; empty: the release's own"""
    arch: Arch
    folder: Path
    """of the toolkits"""
    wheels: Path
    """the cache"""
    offline: bool = False
    force: bool = False


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What ``toolkit install`` came to."""

    path: str
    """CUDA_HOME"""
    toolkit: Manifest
    already: bool = False
    """it was there as asked for: nothing was done"""
    fetched_mib: float = 0.0


class PlannedPackage(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation would take."""

    requirement: str
    cached: bool
    """the wheel is in the cache"""


class InstallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What ``toolkit install`` would do. Sizes are those of release 13.0: what will come is known when it has come."""

    release: str
    arch: str
    components: tuple[str, ...]
    packages: tuple[PlannedPackage, ...]
    folder: str
    """where the toolkit's own folder would be made"""
    fetch_mib: float
    disk_mib: float
    free_mib: float | None


def install(order: Order, env: Mapping[str, str], say: Say) -> Installed:
    """Make it, or find it made. Raises UsageError for an unknown component,
    PackageUnavailableError, PackageDamagedError, DiskFullError, FolderNotWritableError, ToolkitBrokenError."""
    requirement = parts.release_requirement(order.version)
    managed.make_folder(order.folder)
    managed.make_folder(order.wheels)
    with managed.full_disk_said(order.folder), managed.locked(order.folder, say):
        if not order.force and (found := _installed(order)) is not None:
            return Installed(path=str(found[0]), toolkit=found[1], already=True)
        with managed.locked(order.wheels, say):
            fetcher = _fetcher_for(order, env, say)
            release = _release_of(fetcher, requirement)
            home, wanted = _goal(order, release)
            pins = parts.requirements(release, wanted, order.arch)
            fetch_mib, disk_mib = _sizes_mib(fetcher, pins.values())
            managed.check_room(order.folder, order.wheels, fetch_mib=fetch_mib, disk_mib=disk_mib)
            say(
                f"CUDA {release.version} for {order.arch}: NVIDIA's packages, under NVIDIA's own licence "
                f"(*.dist-info/licenses/License.txt in each wheel; here {home / LICENSES})"
            )
            packages, wheels = _fetch_all(fetcher, release, pins, order.arch)
            manifest = _manifest(home, release, wanted, order.arch, packages)
            say(f"puts together {home.name} from {len(wheels)} packages")
            _build(home, wheels, manifest, env, say)
            return Installed(path=str(home), toolkit=manifest, fetched_mib=round(fetcher.fetched_mib, 1))


def plan(order: Order, env: Mapping[str, str], say: Say) -> InstallPlan:
    """What ``install`` would do; fetches only the few KB that name the packages. Raises what it raises."""
    requirement = parts.release_requirement(order.version)
    managed.make_folder(order.wheels)
    with managed.full_disk_said(order.folder), managed.locked(order.wheels, say):
        fetcher = _fetcher_for(order, env, say)
        release = _release_of(fetcher, requirement)
        home, wanted = _goal(order, release)
        needs = list(parts.requirements(release, wanted, order.arch).values())
        fetch_mib, disk_mib = _sizes_mib(fetcher, needs)
        return InstallPlan(
            release=release.version,
            arch=order.arch,
            components=_spelled(wanted),
            packages=tuple(PlannedPackage(requirement=need, cached=fetcher.cached(need)) for need in needs),
            folder=str(home),
            fetch_mib=fetch_mib,
            disk_mib=disk_mib,
            free_mib=managed.free_mib(order.folder),
        )


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
    arch: Arch,
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


def _build(home: Path, wheels: list[Wheel], manifest: Manifest, env: Mapping[str, str], say: Say) -> None:
    unpacked_mib = sum(wheel.unpacked_bytes for wheel in wheels) / MIB
    managed.require(home.parent, unpacked_mib, f"{format_mib(unpacked_mib)} for it")
    new = home.with_name(f"{managed.NEW}{home.name}")
    try:
        new.mkdir()
        merge(wheels, new, manifest)
        if manifest.arch == machine_name():
            _prove(new, home, env, say)
        managed.put_in_place(new, home)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _prove(new: Path, home: Path, env: Mapping[str, str], say: Say) -> None:
    """Its nvcc runs here. Raises ToolkitBrokenError."""
    found = probe(new / "bin" / "nvcc", env, run=run_captured)
    if not isinstance(found, Trouble):
        return
    text = found.text.replace(str(new), str(home))
    if found.kind in ("broken", "silent"):
        raise ToolkitBrokenError(
            f"nothing installed: {text}", hint="--into a folder from which programs may run; these need glibc 2.28"
        )
    say(f"{text}; {found.hint}")


def _installed(order: Order) -> tuple[Path, Manifest] | None:
    """One that is here, of this version, with all that is asked for."""
    for home, manifest in managed.manifests(order.folder):
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


def _fetcher_for(order: Order, env: Mapping[str, str], say: Say) -> Fetcher:
    """Wheels for the order's processor, in its cache."""
    platforms = usable_platforms(order.arch)
    return Fetcher(order.wheels, platforms, env=env, offline=order.offline, fresh=order.force, say=say)


def _release_of(fetcher: Fetcher, requirement: str) -> parts.Release:
    """Raises PackageUnavailableError, with the versions that the index has."""
    try:
        path, _ = fetcher.get(requirement)
    except OtherVersionsError as error:
        majors = [(one, one.split(".")[0]) for one in error.versions]
        known = [one for one, major in majors if major.isdigit() and int(major) >= parts.FIRST_WITH_NVCC]
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
    there = managed.read_manifest(home)
    if there is None and home.exists():
        raise FolderNotWritableError(f"{home} is there, and no toolkit of ours", hint="--into another folder")
    return home, {**parts.parse_components(there.components if there is not None else ()), **order.components}


def _sizes_mib(fetcher: Fetcher, needs: Iterable[str]) -> tuple[float, float]:
    """To fetch, and on disk: estimates."""
    names = {need: Requirement(need).name for need in needs}
    fetch = sum(parts.size_mib(name)[0] for need, name in names.items() if not fetcher.cached(need))
    return float(fetch), float(sum(parts.size_mib(name)[1] for name in names.values()))


def _spelled(wanted: Mapping[str, str]) -> tuple[str, ...]:
    """As ``--with`` takes them."""
    return tuple(f"{name}=={version}" if version else name for name, version in sorted(wanted.items()))
