"""Find the CUDA toolkit and prove that it runs.

Covers: asking a candidate nvcc for its own settings (``--dryrun``) and version; taking the real tools from the answer.
Does *not* cover: where candidates are (``sensors.toolkits``) or gating them (``intercept.overlay``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from builddoctor.errors import ToolkitBrokenError, ToolkitNotFoundError
from builddoctor.intercept.captured import run_captured
from builddoctor.model.toolkit import Toolkit
from builddoctor.sensors.nvcc_dryrun import NvccSettings, parse_settings, parse_version

FETCH_HINT = (
    "with a toolkit on this machine: `--toolkit /path/to/cuda`; without one, no root needed: "
    '`pip install "cuda-toolkit[nvcc,cudart,cccl]==13.0.*"`'
)


def find_toolkit(candidates: Iterable[Path], env: Mapping[str, str], *, wanted: str) -> Toolkit:
    """The first candidate that works.

    Raises ToolkitNotFoundError when there is none at all, ToolkitBrokenError when those there are do not run.
    """
    problems: list[str] = []
    tried: set[Path] = set()
    for nvcc in candidates:
        real = Path(os.path.realpath(nvcc))
        if real in tried:
            continue
        tried.add(real)
        found = probe(nvcc, env)
        if isinstance(found, str):
            problems.append(f"{nvcc}: {found}")
        elif _is_version(wanted) and not (found.version + ".").startswith(wanted + "."):
            problems.append(f"{nvcc} is {found.version}")
        else:
            return found
    if any(" is " not in problem for problem in problems) or (problems and not _is_version(wanted)):
        raise ToolkitBrokenError(f"the CUDA compiler does not run: {problems[0]}", hint=FETCH_HINT)
    if wanted:
        seen = f" ({'; '.join(problems)})" if problems else ""
        raise ToolkitNotFoundError(f"no CUDA toolkit {wanted} here{seen}", hint=FETCH_HINT)
    raise ToolkitNotFoundError("no CUDA compiler (nvcc) found on this machine", hint=FETCH_HINT)


def probe(nvcc: Path, env: Mapping[str, str]) -> Toolkit | str:
    """Ask one nvcc for its settings; why it does not work, as text, otherwise."""
    clean = {name: value for name, value in env.items() if not name.startswith("NVCC_")}
    dry = run_captured([str(nvcc), "--dryrun", "-c", "builddoctor-probe.cu"], env=clean, cwd="/")
    settings = parse_settings(dry.output)
    if settings is None and env.get("NVCC_CCBIN", "") + env.get("NVCC_PREPEND_FLAGS", ""):
        # Without gcc on PATH it needs the host compiler that the user names there, as conda does on activation.
        dry = run_captured([str(nvcc), "--dryrun", "-c", "builddoctor-probe.cu"], env=env, cwd="/")
        settings = parse_settings(dry.output)
    if settings is None and "Could not open output file" in dry.output:
        # nvcc makes and removes a file of its own for any question.
        return f"it cannot write to TMPDIR ({env.get('TMPDIR') or '/tmp'})"  # noqa: S108
    if settings is None:
        said = dry.output.strip().splitlines()
        return dry.problem or (said[-1] if said else f"`nvcc --dryrun` ended with status {dry.status} and no settings")
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
        return f"its {', '.join(missing) or 'nvcc'} is not there"
    version = parse_version(run_captured([str(nvcc), "--version"], env=clean, cwd="/").output)
    return _toolkit(settings, real_nvcc, here, version, cicc, tools)


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
