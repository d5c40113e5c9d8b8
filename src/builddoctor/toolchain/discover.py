"""CUDA toolkits of this machine: where an nvcc may be, and the first one that proves to run.

Candidates, in order: what the user named (``--toolkit``), CUDACXX, CUDA_HOME and CUDA_PATH, the nvcc on PATH, conda's
prefix, the pip wheels of this Python (``nvidia/cu13``), /usr/local/cuda, /usr/local/cuda-X (newest first), managed ones
(``builddoctor toolkit install``), Debian's split layout. Each is asked for its own settings (``nvcc --dryrun``), and
the real tools are taken from the answer.
Does *not* cover: gating the tools (``gates.overlay``), judging them (``doctor.cuda_checks``).
"""

from __future__ import annotations

import glob
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.version import InvalidVersion, Version

from builddoctor.core.errors import FolderNotWritableError, ToolkitBrokenError, ToolkitNotFoundError
from builddoctor.core.toolchain import NvccTrouble, Toolkit
from builddoctor.system.probes import PROBE_TIMEOUT_S, Captured, Deadline, RunProbe, first_program, path_folders
from builddoctor.system.root import SystemRoot
from builddoctor.system.storage import read_place
from builddoctor.toolchain.nvcc import ask_dryrun, ask_version, parse_settings, without_flags

OVERLAY_MARK = ".builddoctor-overlay"
"""A folder with this file in it is an overlay of ours, not a toolkit."""

FETCH_HINT = (
    "with a toolkit on this machine: `--toolkit /path/to/cuda`; without one, no root needed: "
    "`builddoctor toolkit install 13.0`"
)

HOST_HINT = "install g++; in conda: conda install -y -c conda-forge gxx"

FULL_MIB = 1.0
"""Below this gcc cannot even write what it preprocessed."""

_NO_HOST = "preprocess host compiler properties"
"""what nvcc says when it cannot call gcc, or gcc cannot write"""

_GCC_PROBE_S = 2.0
_VERSION = re.compile(r"\A\d+(\.\d+)*\Z")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why an nvcc cannot be used."""

    kind: NvccTrouble
    text: str
    hint: str = FETCH_HINT


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """What a search for a toolkit came to."""

    toolkit: Toolkit | None = None
    trouble: Trouble | None = None
    """why there is none"""
    silent: tuple[str, ...] = ()
    """every nvcc on the way that did not answer"""


def candidates(
    root: SystemRoot, env: Mapping[str, str], *, wanted: str, site_folders: Sequence[Path]
) -> Iterator[Path]:
    """Paths of nvcc programs that exist, best first, without our own overlays. May repeat."""
    for path in _guesses(root, env, wanted=wanted, site_folders=site_folders):
        if os.path.isfile(path) and not is_overlay(path):
            yield path


def is_overlay(nvcc: Path) -> bool:
    """This nvcc is a gate of ours."""
    return os.path.exists(nvcc.parent.parent / OVERLAY_MARK)


def lost_homes(env: Mapping[str, str]) -> list[str]:
    """Those of CUDA_HOME and CUDA_PATH that name no toolkit, nor anything of one: torch takes them as they are."""
    parts = ("bin/nvcc", "include/cuda.h", "include/cuda_runtime.h", "include/cuda_runtime_api.h")
    return [
        name
        for name in ("CUDA_HOME", "CUDA_PATH")
        if env.get(name) and not any(os.path.exists(os.path.join(env[name], part)) for part in parts)
    ]


def managed_folder(root: SystemRoot, env: Mapping[str, str]) -> Path | None:
    """Where ``toolkit install`` keeps toolkits. None without a HOME."""
    named = env.get("BUILDDOCTOR_DATA_DIR")
    if named:
        return Path(os.path.abspath(named), "toolkits")
    base = env.get("XDG_DATA_HOME", "")
    if not base.startswith("/"):
        base = f"{env['HOME']}/.local/share" if env.get("HOME", "").startswith("/") else ""
    return root.at(f"{base}/builddoctor/toolkits") if base else None


def find_toolkit(candidates: Iterable[Path], env: Mapping[str, str], *, wanted: str, run: RunProbe) -> Toolkit:
    """The first candidate that works.

    Raises ToolkitNotFoundError when there is none at all, ToolkitBrokenError when those there are do not run,
    FolderNotWritableError when they cannot write to TMPDIR.
    """
    found = search(candidates, env, wanted=wanted, run=run)
    if found.toolkit is not None:
        return found.toolkit
    trouble = found.trouble or Trouble(kind="none", text="no CUDA compiler (nvcc) found on this machine")
    errors = {"none": ToolkitNotFoundError, "temporary": FolderNotWritableError}
    raise errors.get(trouble.kind, ToolkitBrokenError)(trouble.text, hint=trouble.hint)


def search(
    candidates: Iterable[Path],
    env: Mapping[str, str],
    *,
    wanted: str,
    run: RunProbe,
    timeout_s: float = PROBE_TIMEOUT_S,
    deadline: Deadline | None = None,
) -> Search:
    """The first candidate that works, or what is the matter with the first that does not. Never raises."""
    troubles: list[Trouble] = []
    others: list[str] = []
    silent: list[str] = []
    tried: set[Path] = set()
    for nvcc in candidates:
        real = Path(os.path.realpath(nvcc))
        if real in tried:
            continue
        tried.add(real)
        found = probe(nvcc, env, run=run, timeout_s=timeout_s, deadline=deadline)
        if isinstance(found, Trouble):
            troubles.append(found)
            silent += [str(nvcc)] if found.kind == "silent" else []
            if found.kind == "host-silent":
                # The next one would wait for the same gcc.
                break
        elif _is_version(wanted) and not (found.version + ".").startswith(wanted + "."):
            others.append(f"{nvcc} is {found.version}")
        else:
            return Search(toolkit=found, silent=tuple(silent))
    if troubles:
        return Search(trouble=troubles[0], silent=tuple(silent))
    what = f"no CUDA toolkit {wanted} here" if wanted else "no CUDA compiler (nvcc) found on this machine"
    seen = f" ({'; '.join(others)})" if others else ""
    return Search(trouble=Trouble(kind="none", text=what + seen, hint=FETCH_HINT))


def probe(
    nvcc: Path,
    env: Mapping[str, str],
    *,
    run: RunProbe,
    timeout_s: float = PROBE_TIMEOUT_S,
    deadline: Deadline | None = None,
) -> Toolkit | Trouble:
    """Ask one nvcc for its settings; why it does not work otherwise."""
    clean = without_flags(env)
    dry = ask_dryrun(str(nvcc), clean, run=run, timeout_s=timeout_s, deadline=deadline)
    settings = parse_settings(dry.output)
    if settings is None and not dry.silent and env.get("NVCC_CCBIN", "") + env.get("NVCC_PREPEND_FLAGS", ""):
        # Without gcc on PATH it needs the host compiler that the user names there, as conda does on activation.
        settings = parse_settings(ask_dryrun(str(nvcc), env, run=run, timeout_s=timeout_s, deadline=deadline).output)
    if settings is None:
        return _trouble(nvcc, env, dry, run, deadline)
    here = os.path.abspath(settings.here)
    real_nvcc = f"{here}/nvcc"
    tools = tuple(
        (name, path) for name in ("cudafe++", "ptxas", "nvlink") if (path := _on_path(name, settings.search_path))
    )
    cicc = f"{settings.cicc_folder}/cicc"
    if not os.access(cicc, os.X_OK):
        cicc = _on_path("cicc", settings.search_path)
    missing = sorted({"cudafe++", "ptxas"} - {name for name, _ in tools}) + ([] if cicc else ["cicc"])
    if missing or not os.access(real_nvcc, os.X_OK):
        text = f"the CUDA compiler does not run: {nvcc}: its {', '.join(missing) or 'nvcc'} is not there"
        return Trouble(kind="broken", text=text)
    return Toolkit(
        nvcc=real_nvcc,
        version=ask_version(str(nvcc), clean, run=run, timeout_s=timeout_s, deadline=deadline),
        here=here,
        top=settings.top,
        cicc=os.path.abspath(cicc),
        tools=tools,
        libdevice_folder=settings.libdevice_folder,
        include_flags=settings.include_flags,
        library_flags=settings.library_flags,
    )


def _guesses(root: SystemRoot, env: Mapping[str, str], *, wanted: str, site_folders: Sequence[Path]) -> Iterator[Path]:
    if wanted and not _VERSION.match(wanted):
        # Absolute: nvcc is asked from another folder.
        named = Path(os.path.abspath(os.path.expanduser(wanted)))
        yield named if named.name == "nvcc" else named / "bin" / "nvcc"
        return
    installed = _installed(root)
    managed = _managed(root, env)
    if wanted:
        yield from (nvcc for version, nvcc in managed + installed if _matches(version, wanted))
    if env.get("CUDACXX"):
        program = env["CUDACXX"]
        if found := program if "/" in program else first_program(program, env):
            yield Path(found)
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            yield Path(env[name]) / "bin" / "nvcc"
    if env.get("PATH"):
        yield from (Path(folder) / "nvcc" for folder in path_folders(env))
    if env.get("CONDA_PREFIX"):
        yield Path(env["CONDA_PREFIX"]) / "bin" / "nvcc"
    for site in site_folders:
        yield from sorted(_matches_in(site, "nvidia/cu[0-9]*/bin/nvcc"), reverse=True)
        yield site / "nvidia" / "cuda_nvcc" / "bin" / "nvcc"
    yield root.at("/usr/local/cuda/bin/nvcc")
    yield from (nvcc for _, nvcc in installed + managed)
    yield root.at("/usr/lib/nvidia-cuda-toolkit/bin/nvcc")


def _matches_in(folder: Path, pattern: str) -> list[Path]:
    """As ``folder.glob``; a folder that may not be read holds nothing, where pathlib would raise."""
    return [Path(path) for path in glob.glob(f"{glob.escape(str(folder))}/{pattern}")]


def _installed(root: SystemRoot) -> list[tuple[Version, Path]]:
    """Toolkits in /usr/local/cuda-X and /opt/cuda-X, newest first."""
    return _by_version(home for parent in ("/usr/local", "/opt") for home in _matches_in(root.at(parent), "cuda-*"))


def _managed(root: SystemRoot, env: Mapping[str, str]) -> list[tuple[Version, Path]]:
    """Managed toolkits for this machine's processor, newest first."""
    folder = managed_folder(root, env)
    suffix = f"-{os.uname().machine}"
    return _by_version(_matches_in(folder, f"cuda-*{suffix}") if folder is not None else (), suffix=suffix)


def _by_version(homes: Iterable[Path], *, suffix: str = "") -> list[tuple[Version, Path]]:
    """(version, nvcc) of folders called ``cuda-VERSION``, newest first."""
    found: list[tuple[Version, Path]] = []
    for home in homes:
        try:
            version = Version(home.name.removeprefix("cuda-").removesuffix(suffix))
        except InvalidVersion:
            continue
        found.append((version, home / "bin" / "nvcc"))
    return sorted(found, reverse=True)


def _matches(version: Version, wanted: str) -> bool:
    parts = [int(part) for part in wanted.split(".")]
    return list(version.release[: len(parts)]) == parts


def _trouble(nvcc: Path, env: Mapping[str, str], dry: Captured, run: RunProbe, deadline: Deadline | None) -> Trouble:
    """Why ``nvcc --dryrun`` gave no settings."""
    if dry.silent:
        gcc = first_program("gcc", env)
        if gcc and run([gcc, "-dumpversion"], env=env, timeout_s=_GCC_PROBE_S, deadline=deadline).silent:
            text = f"{gcc} does not answer, nor does the nvcc that calls it ({nvcc})"
            return Trouble(kind="host-silent", text=text, hint=f"{shlex.quote(gcc)} --version")
        text = f"the CUDA compiler does not answer: {nvcc}: {dry.problem}"
        return Trouble(kind="silent", text=text, hint="--toolkit /path/to/cuda names another one")
    said = dry.output.strip().splitlines()
    no_host = any(_NO_HOST in line for line in said)
    if any("Could not open output file" in line for line in said) or (no_host and _is_full(env)):
        where = env.get("TMPDIR") or "/tmp"  # noqa: S108
        text = f"nvcc ({nvcc}) cannot write its temporary files: TMPDIR is {where}"
        return Trouble(kind="temporary", text=text, hint=f"export TMPDIR=$(mktemp -d {_elsewhere(where)}/build.XXXXXX)")
    if no_host:
        words = "; ".join(line for line in said[-2:] if not line.startswith("#$"))
        return Trouble(kind="host-compiler", text=f"nvcc ({nvcc}) finds no host compiler: {words}", hint=HOST_HINT)
    words = dry.problem or (said[-1] if said else f"`nvcc --dryrun` ended with status {dry.status} and no settings")
    return Trouble(kind="broken", text=f"the CUDA compiler does not run: {nvcc}: {words}")


def _is_full(env: Mapping[str, str]) -> bool:
    place = read_place(SystemRoot(), env.get("TMPDIR") or "/tmp", role="TMPDIR")  # noqa: S108
    return place.free_mib is not None and place.free_mib < FULL_MIB


def _elsewhere(where: str) -> str:
    """Where temporary files may go instead."""
    return "/var/tmp" if where != "/var/tmp" else '"$HOME"'  # noqa: S108


def _on_path(name: str, folders: tuple[str, ...]) -> str:
    for folder in folders:
        path = os.path.abspath(f"{folder}/{name}")
        if os.access(path, os.X_OK) and Path(path).is_file():
            return path
    return ""


def _is_version(wanted: str) -> bool:
    return wanted.replace(".", "").isdigit()
