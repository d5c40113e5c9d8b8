"""The CUDA_HOME that FindCUDAToolkit, torch's cpp_extension and TransformerEngine's CMake take for NVIDIA's own.

``targets/<triple>/{include,lib}`` hold the files; ``include``, ``lib64`` and ``lib`` are links to them; beside each
``libX.so.N`` stands ``libX.so``, which python packages leave out and ``-lX`` asks for.
Does *not* cover: the driver's libraries (``toolkits.stubs``), or where files come from (``toolkits.merge``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from builddoctor.model.managed import Manifest

TRIPLES = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}
"""NVIDIA's name of the folder; on ARM that of servers."""

MANIFEST = "builddoctor-toolkit.json"
LICENSES = "licenses"

_VERSIONED = re.compile(r"\A(?P<stem>lib[\w+.-]+?\.so)\.(?P<version>\d+(?:\.\d+)*)\Z")
_COMMON = {"lib": "lib", "lib64": "lib", "include": "include"}


class _Version(msgspec.Struct, frozen=True):
    name: str
    version: str


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
    return PurePosixPath("targets", triple, _COMMON[head], *rest) if head in _COMMON else PurePosixPath(head, *rest)


def add_links(home: Path, triple: str) -> None:
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


def write_manifest(home: Path, manifest: Manifest) -> None:
    """NVIDIA's ``version.json``, which some build systems read, and ours. Raises OSError."""
    release = ".".join(manifest.release.split(".")[:3])
    versions = {"cuda": _Version("CUDA SDK", release)}
    for package in manifest.packages:
        key = package.name.removeprefix("nvidia-").replace("-", "_")
        title = package.name.removeprefix("nvidia-").replace("-", " ")
        versions[key] = _Version(title, package.version)
    (home / "version.json").write_bytes(msgspec.json.format(msgspec.json.encode(versions), indent=3) + b"\n")
    (home / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def read_manifest(home: Path) -> Manifest | None:
    """None for a folder that is no toolkit of ours, or one whose manifest cannot be read."""
    try:
        return msgspec.json.decode((home / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
