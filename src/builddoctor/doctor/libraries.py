"""The doctor on CUDA's libraries: what a project needs and is not there, and copies that do not agree. Pure.

Does *not* cover: finding the copies (``sensors.cuda_libraries``), or torch's own (``doctor`` of python packages).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import combinations

from builddoctor.doctor.arch_table import spelled, version_parts
from builddoctor.model.check import Check, Status
from builddoctor.model.toolchain import HEADER_ONLY, LIBRARIES, WHEEL_NAMES, LibraryCopy, Toolchain
from builddoctor.model.toolkit import Toolkit
from builddoctor.sensors.cuda_headers import agree

TOPIC = "libraries"
TITLES = {
    "cudart": "cudart",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "nvrtc": "NVRTC",
    "curand": "cuRAND",
    "cusparse": "cuSPARSE",
    "cusolver": "cuSOLVER",
    "nvml": "NVML",
    "nvtx": "NVTX",
    "profiler": "profiler API",
}
_HOMES = {"cudnn": "CUDNN_PATH", "nccl": "NCCL_HOME"}
"""libraries that are no part of the toolkit, and the variable that build systems read for each"""


def library_checks(toolchain: Toolchain, toolkit: Toolkit, needed: tuple[str, ...]) -> Iterator[Check]:
    """One line for each library that is in the way, and one for all that are well.

    With ``needed`` only those are spoken of; without, everything found. Nothing here stops a build: modules and
    settings of a project may lead to places that are not searched.
    """
    spoken_of = dict.fromkeys(("cudart", *needed)) if needed else dict.fromkeys(LIBRARIES)
    well: list[str] = []
    absent = [name for name in needed if not any(copy.name == name for copy in toolchain.libraries)]
    if len(absent) > 1:
        yield _absent(absent, toolkit)
        spoken_of = {name: None for name in spoken_of if name not in absent}
    for name in spoken_of:
        copies = [copy for copy in toolchain.libraries if copy.name == name]
        checks = list(_one(name, copies, toolkit, is_needed=name in needed))
        yield from checks
        if copies and not checks:
            well.append(f"{TITLES.get(name, name)} {_version(_first(copies))}".strip())
    if well:
        yield Check(name="libraries", topic=TOPIC, status=Status.OK, text=", ".join(well))


def _absent(names: list[str], toolkit: Toolkit) -> Check:
    """Several that are nowhere to be seen, in one line with one command."""
    titles = [TITLES.get(name, name) for name in names]
    text = f"{', '.join(titles[:-1])} and {titles[-1]} are needed and were not found"
    return Check(name="libraries-missing", topic=TOPIC, status=Status.PROBLEM, text=text, hint=_fetch(names, toolkit))


def _one(name: str, copies: list[LibraryCopy], toolkit: Toolkit, *, is_needed: bool) -> Iterator[Check]:
    title = TITLES.get(name, name)
    reachable = [copy for copy in copies if copy.kind != "python"]
    if is_needed:
        check = _missing(name, title, copies, reachable, toolkit)
        if check is not None:
            yield check
            return
        yield from _halves(name, title, reachable)
    yield from _disagreeing(name, title, copies, reachable)
    yield from _mixed_toolkit(name, reachable, toolkit)


def _missing(
    name: str, title: str, copies: list[LibraryCopy], reachable: list[LibraryCopy], toolkit: Toolkit
) -> Check | None:
    if any(copy.header for copy in reachable):
        return None
    packaged = next((copy for copy in copies if copy.kind == "python" and copy.header), None)
    if packaged is not None:
        text = f"{title} {_version(packaged)} is only in python packages ({packaged.place}): nvcc does not look there"
        return _check(name, Status.WARNING, text, _export(name, packaged.place))
    without = next((copy for copy in copies if copy.library), None)
    text = f"{title} is needed and was not found"
    if without is not None:
        text = f"{title} is needed: {without.library} is there, its header is not"
    return _check(name, Status.PROBLEM, text, _fetch([name], toolkit))


def _halves(name: str, title: str, reachable: list[LibraryCopy]) -> Iterator[Check]:
    """Header without library, or a library that ``-l`` does not find."""
    if name in HEADER_ONLY:
        return
    libraries = [copy for copy in reachable if copy.library]
    header = next(copy for copy in reachable if copy.header)
    if not libraries:
        yield _check(
            name, Status.WARNING, f"{title}: {header.header} is there, but no library: links against it will fail"
        )
    elif not any(copy.linkable for copy in libraries):
        folder, _, file = libraries[0].library.rpartition("/")
        short = file.partition(".so")[0] + ".so"
        yield _check(
            name,
            Status.WARNING,
            f"{title}: there is {file} and no {short} in {folder}: the linker does not find it by name",
            f"ln -s {shlex.quote(file)} {shlex.quote(f'{folder}/{short}')}",
        )


def _disagreeing(name: str, title: str, copies: list[LibraryCopy], reachable: list[LibraryCopy]) -> Iterator[Check]:
    for copy in copies:
        if not agree(copy.header_version, copy.library_version):
            yield _check(
                name,
                Status.WARNING,
                f"{title} in {copy.place}: the header says {copy.header_version}, the library {copy.library_version}",
            )
            return
    # Python packages of another toolkit are what torch runs with, and no trouble for a compile.
    compared = copies if name in _HOMES else reachable
    for one, other in combinations(compared, 2):
        if not agree(_version(one), _version(other)):
            hint = f"export {_HOMES[name]}={shlex.quote(_folder(one))}" if name in _HOMES else ""
            text = f"{title} twice, and they differ: {_version(one)} in {one.place}, {_version(other)} in {other.place}"
            yield _check(name, Status.WARNING, text, hint)
            return


def _mixed_toolkit(name: str, reachable: list[LibraryCopy], toolkit: Toolkit) -> Iterator[Check]:
    own = next((copy for copy in reachable if copy.kind == "toolkit" and copy.header_version), None)
    if name == "cudart" and own is not None and not agree(own.header_version, toolkit.version):
        text = f"nvcc is {toolkit.version}, but its cuda_runtime_api.h is of {own.header_version} ({own.header})"
        yield _check(name, Status.WARNING, text)


def _fetch(names: list[str], toolkit: Toolkit) -> str:
    """The python packages that bring them, and the variables that lead a build there; one line for the shell."""
    version = version_parts(toolkit.version) or (13, 0)
    major = version[0]
    extras = [name for name in names if name not in _HOMES]
    packages = [f'"cuda-toolkit[{",".join(extras)}]=={spelled(version[:2])}.*"'] if extras else []
    packages += [f"nvidia-{name}-cu{major}" for name in names if name in _HOMES]
    folders = dict.fromkeys(_folder_in_python(name, major) for name in extras)
    exports = [_export_module("CPATH", folder, "/include${CPATH:+:$CPATH}") for folder in folders]
    exports += [_export_module(_HOMES[name], f"nvidia.{name}") for name in names if name in _HOMES]
    return " && ".join([f"pip install {' '.join(packages)}", *exports])


def _folder_in_python(name: str, major: int) -> str:
    """The module of the wheel that holds its header: one for all from CUDA 13 on."""
    if major >= 13:
        return f"nvidia.cu{major}"
    return f"nvidia.{WHEEL_NAMES.get(name, name)}"


def _export_module(variable: str, module: str, below: str = "") -> str:
    script = f"import {module} as m; print(m.__path__[0])"
    return f"export {variable}=$(python -c '{script}'){below}"


def _export(name: str, place: str) -> str:
    if name in _HOMES:
        return f"export {_HOMES[name]}={shlex.quote(place)}"
    return f"export CPATH={shlex.quote(place + '/include')}"


def _first(copies: list[LibraryCopy]) -> LibraryCopy:
    return next((copy for copy in copies if copy.kind != "python"), copies[0])


def _version(copy: LibraryCopy) -> str:
    return copy.header_version or copy.library_version


def _folder(copy: LibraryCopy) -> str:
    """The folder above a copy's ``include`` or ``lib``."""
    path = copy.header.rpartition("/include/")[0] or copy.library.rpartition("/lib")[0]
    return path or "/usr"


def _check(name: str, status: Status, text: str, hint: str = "") -> Check:
    return Check(name=f"library-{name}", topic=TOPIC, status=status, text=text, hint=hint)
