"""Find out everything about the CUDA toolchain that decides whether nvcc can compile here.

Covers: the toolkit, what its nvcc can compile for, its host compiler, the other nvcc of this machine, and which of them
each build tool takes by itself. Some twenty short processes, most of them side by side: about 0.2 s.
Does *not* cover: judging what was found (``doctor.cuda_checks``), or the memory that these compilers take.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from builddoctor.core.toolchain import HostCompilerChoice, HostLimits, NvccChoice, NvccPlace, Toolchain, Toolkit
from builddoctor.system.probes import Deadline, RunProbe, first_program, job_pool, programs
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain import cuda_libraries, host_compiler
from builddoctor.toolchain.discover import Search, Trouble, candidates, is_overlay, lost_homes, search
from builddoctor.toolchain.nvcc import FLAG_VARIABLES, PROBE_S, ask_place

ALLOW_UNSUPPORTED = "-allow-unsupported-compiler"
MOST_NVCCS = 16
PROBES_S = 8.0
"""for all programs together"""
_ALLOWED_IN = (*FLAG_VARIABLES, "CUDAFLAGS", "CMAKE_ARGS")


def examine_toolchain(
    root: SystemRoot,
    env: Mapping[str, str],
    *,
    run: RunProbe,
    wanted: str,
    site_folders: Sequence[Path],
    known: Toolkit | None = None,
    deadline: Deadline | None = None,
) -> Toolchain:
    """Facts of the toolchain that ``env`` leads to. Never raises for what is, or is not, on the machine.

    ``wanted``: what ``--toolkit`` says, or empty. ``known``: a toolkit that was found before, to not find it twice.
    """
    deadline = deadline or Deadline(PROBES_S)
    machine = cuda_libraries.machine_name()
    found = Search(toolkit=known)
    if known is None:
        nvccs = candidates(root, env, wanted=wanted, site_folders=site_folders)
        found = search(nvccs, env, wanted=wanted, run=run, timeout_s=PROBE_S, deadline=deadline)
    toolkit = found.toolkit
    trouble = found.trouble or Trouble(kind="none", text="", hint="")
    with job_pool(deadline) as pool:
        # Started first what takes longest: nvcc preprocesses a file to know its host compiler.
        own_host = pool.submit(partial(host_compiler.nvcc_host, toolkit, env, deadline, run=run)) if toolkit else None
        ask_host = partial(host_compiler.ask_host, env=env, deadline=deadline, run=run)
        handed = [
            pool.submit(partial(ask_host, driver, because=because, taken_by=taken_by))
            for driver, because, taken_by in host_compiler.handed_over(env)
        ]
        numbered = [
            pool.submit(partial(ask_host, driver, because="PATH", taken_by="")) for driver in host_compiler.spares(env)
        ]
        asked = [
            pool.submit(partial(ask_place, nvcc, env, run=run, deadline=deadline))
            for nvcc in _nvccs(root, env, wanted, site_folders, toolkit)
            if nvcc not in found.silent
        ]
        libraries = cuda_libraries.library_copies(
            root, env, toolkit=toolkit, site_folders=site_folders, machine=machine
        )
        host = own_host.result() if own_host is not None else None
        hosts = [host] if isinstance(host, HostCompilerChoice) else []
        hosts += [choice for job in handed if (choice := job.result()).driver not in {h.driver for h in hosts}]
        spare_hosts = tuple(choice for job in numbered if (choice := job.result()).version)
        answers = [job.result() for job in asked]
    places = [place for place, _ in answers]
    silent = [*found.silent, *(place.nvcc for place, is_silent in answers if is_silent)]
    no_host = host if isinstance(host, host_compiler.NoHost) else host_compiler.NoHost(text="")
    own = next((place for place in places if toolkit is not None and place.nvcc == toolkit.nvcc), None)
    crt = cuda_libraries.toolkit_facts(root, env, toolkit=toolkit, machine=machine) if toolkit is not None else None
    return Toolchain(
        wanted=wanted,
        toolkit=toolkit,
        problem=trouble.text,
        trouble=trouble.kind,
        hint=trouble.hint,
        archs=own.archs if own is not None else (),
        choices=tuple(_choices(env, toolkit, {place.nvcc: place for place in places})),
        others=tuple(sorted((place for place in places if place is not own and place.version), key=_oddness)),
        hosts=tuple(hosts),
        host_problem=no_host.text,
        host_silent=no_host.silent,
        broken_variables=no_host.variables,
        silent=tuple(dict.fromkeys(silent)),
        lost_homes=tuple(lost_homes(env)),
        spare_hosts=spare_hosts,
        limits=crt.limits if crt is not None else HostLimits(),
        unsupported_allowed_by=host_compiler.first_flag(env, _ALLOWED_IN, lambda value: ALLOW_UNSUPPORTED in value),
        bare_functions=crt.bare_functions if crt is not None else None,
        links=crt.links if crt is not None else None,
        library_folder=crt.library_folder if crt is not None else "",
        wheels_without_nvcc=cuda_libraries.wheels_without_nvcc(root, site_folders),
        libraries=libraries,
    )


def _nvccs(
    root: SystemRoot, env: Mapping[str, str], wanted: str, site_folders: Sequence[Path], toolkit: Toolkit | None
) -> list[str]:
    """Every nvcc of this machine: the toolkit's own first, each program once, whatever it is called."""
    paths = [Path(toolkit.nvcc)] if toolkit is not None else []
    for name in dict.fromkeys((wanted, "")):
        paths += candidates(root, env, wanted=name, site_folders=site_folders)
    found: dict[str, str] = {}
    own = toolkit.nvcc if toolkit is not None else ""
    for path in paths:
        real = os.path.realpath(path)
        if real not in found or (found[real] != own and not _in_toolkit(found[real]) and _in_toolkit(str(path))):
            found[real] = str(path)
    return list(found.values())[:MOST_NVCCS]


def _in_toolkit(nvcc: str) -> bool:
    """Its folder is a toolkit's, and not one that only links to it: what a person wants to be shown."""
    return os.path.exists(os.path.join(os.path.dirname(nvcc), "cudafe++"))


def _oddness(place: NvccPlace) -> tuple[bool, bool]:
    """Last: a script such as /usr/bin/nvcc, whose toolkit is elsewhere."""
    real = os.path.realpath(place.nvcc)
    return not _in_toolkit(real), not os.path.exists(f"{os.path.dirname(real)}/nvcc.profile")


def _choices(env: Mapping[str, str], toolkit: Toolkit | None, places: Mapping[str, NvccPlace]) -> Iterator[NvccChoice]:
    """Which nvcc each takes without builddoctor; under it, all of them take its own.

    CMake: CUDACXX, PATH, CUDA_PATH (CMakeDetermineCUDACompiler). torch: PYTORCH_NVCC, CUDA_HOME, CUDA_PATH, PATH,
    /usr/local/cuda (torch.utils.cpp_extension).
    """
    by_program = {os.path.realpath(nvcc): place.version for nvcc, place in places.items()}
    on_path = ("PATH", next((nvcc for nvcc in programs("nvcc", env) if not is_overlay(Path(nvcc))), ""))
    named = {name: f"{env[name]}/bin/nvcc" for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)}
    program = env.get("CUDACXX", "").split(" ")[0]
    cuda_cxx = first_program(program, env) if program else ""
    cmake = (("CUDACXX", cuda_cxx), on_path, ("CUDA_PATH", named.get("CUDA_PATH", "")))
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
