"""Find the CUDA toolkit and prove that it runs.

Covers: asking a candidate nvcc for its own settings (``--dryrun``) and version; taking the real tools from the answer.
Does *not* cover: where candidates are (``sensors.toolkits``) or gating them (``intercept.overlay``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from builddoctor.errors import FolderNotWritableError, ToolkitBrokenError, ToolkitNotFoundError
from builddoctor.intercept.captured import PROBE_TIMEOUT_S, Captured, run_captured
from builddoctor.intercept.side_by_side import Patience
from builddoctor.model.toolchain import NvccTrouble
from builddoctor.model.toolkit import Toolkit
from builddoctor.sensors.nvcc_dryrun import NvccSettings, parse_settings, parse_version
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.search_path import first_program
from builddoctor.sensors.storage import read_place

FETCH_HINT = (
    "with a toolkit on this machine: `--toolkit /path/to/cuda`; without one, no root needed: "
    "`builddoctor toolkit install 13.0`"
)


HOST_HINT = "install g++; in conda: conda install -y -c conda-forge gxx"
_TRIED = "builddoctor-probe.cu"
_NO_HOST = "preprocess host compiler properties"
"""what nvcc says when it cannot call gcc, or gcc cannot write"""
_GCC_PROBE_S = 2.0
FULL_MIB = 1.0
"""Below this gcc cannot even write what it preprocessed."""


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


def find_toolkit(candidates: Iterable[Path], env: Mapping[str, str], *, wanted: str) -> Toolkit:
    """The first candidate that works.

    Raises ToolkitNotFoundError when there is none at all, ToolkitBrokenError when those there are do not run,
    FolderNotWritableError when they cannot write to TMPDIR.
    """
    found = search(candidates, env, wanted=wanted)
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
    timeout_s: float = PROBE_TIMEOUT_S,
    patience: Patience | None = None,
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
        found = probe(nvcc, env, timeout_s=timeout_s, patience=patience)
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
    nvcc: Path, env: Mapping[str, str], *, timeout_s: float = PROBE_TIMEOUT_S, patience: Patience | None = None
) -> Toolkit | Trouble:
    """Ask one nvcc for its settings; why it does not work otherwise."""
    clean = without_flags(env)
    argv = [str(nvcc), "--dryrun", "-c", _TRIED]
    dry = run_captured(argv, env=clean, cwd="/", timeout_s=timeout_s, patience=patience)
    settings = parse_settings(dry.output)
    if settings is None and not dry.silent and env.get("NVCC_CCBIN", "") + env.get("NVCC_PREPEND_FLAGS", ""):
        # Without gcc on PATH it needs the host compiler that the user names there, as conda does on activation.
        with_flags = run_captured(argv, env=env, cwd="/", timeout_s=timeout_s, patience=patience)
        settings = parse_settings(with_flags.output)
    if settings is None:
        return _trouble(nvcc, env, dry, patience)
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
    said = run_captured([str(nvcc), "--version"], env=clean, cwd="/", timeout_s=timeout_s, patience=patience)
    return _toolkit(settings, real_nvcc, here, parse_version(said.output), cicc, tools)


def without_flags(env: Mapping[str, str]) -> dict[str, str]:
    """Without what nvcc reads from variables of its own."""
    return {name: value for name, value in env.items() if not name.startswith("NVCC_")}


def _trouble(nvcc: Path, env: Mapping[str, str], dry: Captured, patience: Patience | None) -> Trouble:
    """Why ``nvcc --dryrun`` gave no settings. It calls gcc, and makes files in TMPDIR, for any question."""
    if dry.silent:
        gcc = first_program("gcc", env)
        if gcc and run_captured([gcc, "-dumpversion"], env=env, timeout_s=_GCC_PROBE_S, patience=patience).silent:
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


def _toolkit(
    settings: NvccSettings, nvcc: str, here: str, version: str, cicc: str, tools: tuple[tuple[str, str], ...]
) -> Toolkit:
    return Toolkit(
        nvcc=nvcc,
        version=version,
        here=here,
        top=settings.top,
        cicc=os.path.abspath(cicc),
        tools=tools,
        libdevice_folder=settings.libdevice_folder,
        include_flags=settings.include_flags,
        library_flags=settings.library_flags,
    )


def _on_path(name: str, folders: tuple[str, ...]) -> str:
    for folder in folders:
        path = os.path.abspath(f"{folder}/{name}")
        if os.access(path, os.X_OK) and Path(path).is_file():
            return path
    return ""


def _is_version(wanted: str) -> bool:
    return wanted.replace(".", "").isdigit()
