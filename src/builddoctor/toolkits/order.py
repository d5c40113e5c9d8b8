"""What an installation comes to before anything large is fetched: release, place, packages, sizes.

Does *not* cover: carrying it out (``toolkits.install``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from packaging.requirements import Requirement

from builddoctor.errors import FolderNotWritableError, PackageUnavailableError
from builddoctor.intercept.pip import known_versions, usable_platforms
from builddoctor.model.managed import Manifest, Plan, PlannedPackage
from builddoctor.toolkits import components as parts
from builddoctor.toolkits import store
from builddoctor.toolkits.fetch import Fetcher
from builddoctor.toolkits.layout import read_manifest
from builddoctor.toolkits.room import free_mib, full_disk_said
from builddoctor.toolkits.wheel import read_wheel


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


def plan(order: Order, env: Mapping[str, str], say: Callable[[str], None]) -> Plan:
    """What ``toolkits.install`` would do; fetches only the few KB that name the packages. Raises what it raises."""
    requirement = parts.release_requirement(order.version)
    store.make_folder(order.wheels)
    with full_disk_said(order.folder), store.locked(order.wheels, say):
        fetcher = fetcher_for(order, env, say)
        release = release_of(fetcher, requirement)
        home, wanted = goal(order, release)
        needs = list(parts.requirements(release, wanted, order.arch).values())
        fetch_mib, disk_mib = sizes_mib(fetcher, needs)
        return Plan(
            release=release.version,
            arch=order.arch,
            components=spelled(wanted),
            packages=tuple(PlannedPackage(requirement=need, cached=fetcher.cached(need)) for need in needs),
            folder=str(home),
            fetch_mib=fetch_mib,
            disk_mib=disk_mib,
            free_mib=free_mib(order.folder),
        )


def installed(order: Order) -> tuple[Path, Manifest] | None:
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


def fetcher_for(order: Order, env: Mapping[str, str], say: Callable[[str], None]) -> Fetcher:
    """Wheels for the order's processor, in its cache."""
    platforms = usable_platforms(order.arch)
    return Fetcher(order.wheels, platforms, env=env, offline=order.offline, fresh=order.force, say=say)


def release_of(fetcher: Fetcher, requirement: str) -> parts.Release:
    """Raises PackageUnavailableError, with the versions that the index has."""
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


def goal(order: Order, release: parts.Release) -> tuple[Path, dict[str, str]]:
    """Where it goes, and all components it is to have: with those that it has there already."""
    pin = Requirement(parts.requirements(release, {}, order.arch).get("nvidia-cuda-nvcc", "x")).specifier
    version = next((each.version.removesuffix(".*") for each in pin if each.operator == "=="), release.version)
    home = order.folder / f"cuda-{version}-{order.arch}"
    there = read_manifest(home)
    if there is None and home.exists():
        raise FolderNotWritableError(f"{home} is there, and no toolkit of ours", hint="--into another folder")
    return home, {**parts.parse_components(there.components if there is not None else ()), **order.components}


def sizes_mib(fetcher: Fetcher, needs: Iterable[str]) -> tuple[float, float]:
    """To fetch, and on disk: estimates."""
    names = {need: Requirement(need).name for need in needs}
    fetch = sum(parts.size_mib(name)[0] for need, name in names.items() if not fetcher.cached(need))
    return float(fetch), float(sum(parts.size_mib(name)[1] for name in names.values()))


def spelled(wanted: Mapping[str, str]) -> tuple[str, ...]:
    """As ``--with`` takes them."""
    return tuple(f"{name}=={version}" if version else name for name, version in sorted(wanted.items()))
