"""Every variable that a supervised build is started with.

Does *not* cover: where each comes from (``intercept.environment``, ``intercept.knobs``, ``intercept.object_caches``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builddoctor.intercept.environment import build_environment, net
from builddoctor.intercept.object_caches import cache_settings, chosen, programs_of
from builddoctor.model.request import RunRequest
from builddoctor.supervise.fronts import Fronts
from builddoctor.supervise.prepare import Prepared
from builddoctor.supervise.staged import staged_environment


def build_variables(
    request: RunRequest, prepared: Prepared, base: Mapping[str, str], fronts: Fronts, *, socket: Path, run_folder: Path
) -> dict[str, str]:
    """``base`` with the project's settings, overlays, knobs and object cache in it. ``fronts`` hears of a net."""
    wanted = {**base, **dict(request.extra_env)}
    if request.stages:
        env = staged_environment(wanted, request, prepared, run_folder=run_folder)
    else:
        env = build_environment(
            wanted,
            socket=str(socket),
            host=prepared.host,
            cuda=prepared.cuda,
            toolkit=prepared.toolkit,
            fallback_folder=prepared.fallback_folder,
        )
    if prepared.toolkit is not None:
        env |= library_homes(Path(prepared.toolkit.home), env)
    env |= prepared.knobs.exports
    if request.nvcc_by_path and prepared.cuda is not None and prepared.toolkit is not None:
        caught = net(cuda=prepared.cuda, toolkit=prepared.toolkit)
        fronts.plain = {name: env.get(name) for name in caught}
        env |= {name: value.replace(f"@{name}@", env.get(name, "")) for name, value in caught.items()}
    cache = chosen(request.cache, base)
    if cache:
        programs = programs_of(prepared.toolkit, prepared.tools.compilers)
        nvcc = Path(env["CUDACXX"]) if prepared.toolkit is not None else None
        settings = cache_settings(cache, programs, nvcc=nvcc, run_folder=run_folder)
        # What the user has set stands, but for the way to nvcc, which is ours.
        env |= {name: value for name, value in settings.items() if name == "PYTORCH_NVCC" or name not in base}
    return env


def library_homes(home: Path, env: Mapping[str, str]) -> dict[str, str]:
    """Where cuDNN and NCCL are, if they lie in the toolkit itself and nobody has said where.

    TransformerEngine and torch look there by these names; CMake's ``find_path(nccl.h)`` does not look into CUDA_HOME.
    """
    found: dict[str, str] = {}
    for header, names in (("cudnn.h", ("CUDNN_PATH", "CUDNN_HOME")), ("nccl.h", ("NCCL_HOME",))):
        if (home / "include" / header).exists() and not any(env.get(name) for name in names):
            found[names[0]] = str(home)
    if found:
        folders = [each for each in env.get("CMAKE_PREFIX_PATH", "").split(":") if each]
        found["CMAKE_PREFIX_PATH"] = ":".join(dict.fromkeys([*folders, str(home)]))
    return found
