"""Find out everything about the CUDA toolchain that decides whether nvcc can compile here.

Covers: the toolkit, what its nvcc can compile for, its host compiler, the other nvcc of this machine, and which of them
each build tool takes by itself. Some twenty short processes, most of them side by side: about 0.2 s.
Does *not* cover: judging what was found (``doctor.toolkit``), or the memory that these compilers take.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

from builddoctor.errors import BuildDoctorError
from builddoctor.intercept import host_probe
from builddoctor.intercept.captured import run_captured
from builddoctor.intercept.toolkit import find_toolkit
from builddoctor.model.toolchain import HostCompilerChoice, HostLimits, NvccChoice, NvccPlace, Toolchain
from builddoctor.model.toolkit import Toolkit
from builddoctor.sensors import cuda_libraries
from builddoctor.sensors.nvcc_answers import parse_archs
from builddoctor.sensors.nvcc_dryrun import parse_version
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.toolkits import candidates, is_overlay

ALLOW_UNSUPPORTED = "-allow-unsupported-compiler"
MOST_NVCCS = 16
_ALLOWED_IN = (*host_probe.FLAG_VARIABLES, "CUDAFLAGS", "CMAKE_ARGS")


def examine_toolchain(
    root: SystemRoot,
    env: Mapping[str, str],
    *,
    wanted: str,
    site_folders: Sequence[Path],
    known: Toolkit | None = None,
) -> Toolchain:
    """Facts of the toolchain that ``env`` leads to. Never raises for what is, or is not, on the machine.

    ``wanted``: what ``--toolkit`` says, or empty. ``known``: a toolkit that was found before, to not find it twice.
    """
    machine = cuda_libraries.machine_name()
    toolkit, problem, hint = (known, "", "") if known is not None else _find(root, env, wanted, site_folders)
    with ThreadPoolExecutor(max_workers=8) as pool:
        # Started first what takes longest: nvcc preprocesses a file to know its host compiler.
        own_host = pool.submit(host_probe.nvcc_host, toolkit, env) if toolkit is not None else None
        handed = [
            pool.submit(host_probe.ask, driver, env, because=because, taken_by=taken_by)
            for driver, because, taken_by in host_probe.handed_over(env)
        ]
        numbered = [
            pool.submit(host_probe.ask, driver, env, because="PATH", taken_by="") for driver in host_probe.spares(env)
        ]
        places = list(pool.map(lambda nvcc: _place(nvcc, env), _nvccs(root, env, wanted, site_folders, toolkit)))
        libraries = cuda_libraries.library_copies(
            root, env, toolkit=toolkit, site_folders=site_folders, machine=machine
        )
        host = own_host.result() if own_host is not None else ""
        hosts = [host] if isinstance(host, HostCompilerChoice) else []
        hosts += [choice for future in handed if (choice := future.result()).driver not in {h.driver for h in hosts}]
        spare_hosts = tuple(choice for future in numbered if (choice := future.result()).version)
    own = next((place for place in places if toolkit is not None and place.nvcc == toolkit.nvcc), None)
    crt = cuda_libraries.toolkit_facts(root, env, toolkit=toolkit, machine=machine) if toolkit is not None else None
    return Toolchain(
        wanted=wanted,
        toolkit=toolkit,
        problem=problem,
        hint=hint,
        archs=own.archs if own is not None else (),
        choices=tuple(_choices(env, toolkit, {place.nvcc: place for place in places})),
        others=tuple(sorted((place for place in places if place is not own and place.version), key=_is_wrapper)),
        hosts=tuple(hosts),
        host_problem=host if isinstance(host, str) else "",
        spare_hosts=spare_hosts,
        limits=crt.limits if crt is not None else HostLimits(),
        unsupported_allowed_by=host_probe.first_flag(env, _ALLOWED_IN, lambda value: ALLOW_UNSUPPORTED in value),
        bare_functions=crt.bare_functions if crt is not None else None,
        links=crt.links if crt is not None else None,
        library_folder=crt.library_folder if crt is not None else "",
        wheels_without_nvcc=cuda_libraries.wheels_without_nvcc(root, site_folders),
        libraries=libraries,
    )


def _find(
    root: SystemRoot, env: Mapping[str, str], wanted: str, site_folders: Sequence[Path]
) -> tuple[Toolkit | None, str, str]:
    found = candidates(root, env, wanted=wanted, site_folders=site_folders)
    try:
        return find_toolkit(found, env, wanted=wanted), "", ""
    except BuildDoctorError as error:
        return None, str(error), error.hint


def _nvccs(
    root: SystemRoot, env: Mapping[str, str], wanted: str, site_folders: Sequence[Path], toolkit: Toolkit | None
) -> list[str]:
    """Every nvcc of this machine: the toolkit's own first, each program once, whatever it is called."""
    paths = [Path(toolkit.nvcc)] if toolkit is not None else []
    for name in dict.fromkeys((wanted, "")):
        paths += candidates(root, env, wanted=name, site_folders=site_folders)
    found: dict[str, str] = {}
    for path in paths:
        found.setdefault(os.path.realpath(path), str(path))
    return list(found.values())[:MOST_NVCCS]


def _is_wrapper(place: NvccPlace) -> bool:
    """A script such as /usr/bin/nvcc; its toolkit is elsewhere."""
    return not os.path.exists(os.path.join(os.path.dirname(os.path.realpath(place.nvcc)), "cudafe++"))


def _place(nvcc: str, env: Mapping[str, str]) -> NvccPlace:
    clean = {name: value for name, value in env.items() if not name.startswith("NVCC_")}
    version, listed, usage = (
        run_captured([nvcc, option], env=clean, cwd="/", timeout_s=host_probe.PROBE_S).output
        for option in ("--version", "--list-gpu-code", "--help")
    )
    return NvccPlace(nvcc=nvcc, version=parse_version(version), archs=parse_archs(listed, usage))


def _choices(env: Mapping[str, str], toolkit: Toolkit | None, places: Mapping[str, NvccPlace]) -> Iterator[NvccChoice]:
    """Which nvcc each takes without builddoctor; under it, all of them take its own.

    CMake: CUDACXX, PATH, CUDA_PATH (CMakeDetermineCUDACompiler). torch: PYTORCH_NVCC, CUDA_HOME, CUDA_PATH, PATH,
    /usr/local/cuda (torch.utils.cpp_extension).
    """
    by_program = {os.path.realpath(nvcc): place.version for nvcc, place in places.items()}
    on_path = ("PATH", _on_path(env))
    named = {name: f"{env[name]}/bin/nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)}
    program = env.get("CUDACXX", "").split(" ")[0]
    cuda_cxx = shutil.which(program, path=env.get("PATH")) if program else None
    cmake = (("CUDACXX", cuda_cxx or ""), on_path, ("CUDA_PATH", named.get("CUDA_PATH", "")))
    torch = (
        ("PYTORCH_NVCC", env.get("PYTORCH_NVCC", "")),
        *named.items(),
        on_path,
        ("its default", "/usr/local/cuda/bin/nvcc"),
    )
    if toolkit is not None:
        yield NvccChoice(taken_by="builddoctor", because="", nvcc=toolkit.nvcc, version=toolkit.version)
    orders: tuple[tuple[Literal["CMake", "torch"], tuple[tuple[str, str], ...]], ...] = (
        ("CMake", cmake),
        ("torch", torch),
    )
    for taken_by, order in orders:
        for because, nvcc in order:
            version = by_program.get(os.path.realpath(nvcc), "") if nvcc else ""
            if version:
                yield NvccChoice(taken_by=taken_by, because=because, nvcc=nvcc, version=version)
                break


def _on_path(env: Mapping[str, str]) -> str:
    for folder in (env.get("PATH") or os.defpath).split(":"):
        nvcc = shutil.which("nvcc", path=folder) if folder.startswith("/") else None
        if nvcc and not is_overlay(Path(nvcc)):
            return nvcc
    return ""
