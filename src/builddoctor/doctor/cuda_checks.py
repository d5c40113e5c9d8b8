"""Checks of CUDA's toolchain: nvcc, its architectures, several nvcc that differ, and CUDA's libraries. Pure.

Covers: what keeps an nvcc from answering, variables that lead it astray, libraries that a project needs and that are
not there, copies that do not agree.
Does *not* cover: finding anything out (``toolchain``), host compilers (``doctor.host_compiler_checks``), TMPDIR
(``doctor.storage_checks``), known bugs of compilers (``doctor.hazards``), torch's own copies of libraries.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import combinations

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.toolchain import HEADER_ONLY, LIBRARIES, WHEEL_NAMES, LibraryCopy, Toolchain, Toolkit
from builddoctor.doctor.host_compiler_checks import host_checks
from builddoctor.projects.archs import Arch
from builddoctor.projects.nvcc_archs import Version, knows, release, span, spelled
from builddoctor.toolchain.cuda_libraries import agree

PIP_FIRST: Version = (13, 0)
"""the first toolkit whose python packages hold an nvcc"""


def toolkit_checks(
    toolchain: Toolchain,
    archs: tuple[Arch, ...],
    *,
    needed: tuple[str, ...] = (),
    needs_nvcc: bool = True,
    compiles_cuda: bool | None = None,
) -> list[Check]:
    """Everything that can be said of nvcc, its host compiler and CUDA's libraries.

    ``archs``: what was asked for; none leaves them unjudged. ``needed``: the libraries that the project looks for
    (names of ``core.toolchain.LIBRARIES``); none when no project is known. ``needs_nvcc``: the project has CUDA code.
    ``compiles_cuda``: it certainly compiles some, with the host compiler that nvcc takes by itself; as ``needs_nvcc``
    when not given.
    """
    toolkit = toolchain.toolkit
    if toolkit is None:
        return no_toolkit(toolchain, needs_nvcc=needs_nvcc)
    certain = needs_nvcc if compiles_cuda is None else compiles_cuda
    flags = [broken_variables(toolchain, stops=certain)] if toolchain.broken_variables else []
    return [
        *flags,
        *_nvcc(toolchain, toolkit, archs, needs_nvcc),
        *start_checks(toolchain),
        *_copies(toolchain, toolkit),
        *_links(toolchain, toolkit),
        *host_checks(toolchain, toolkit, stops=certain),
        *library_checks(toolchain, toolkit, needed),
    ]


def _nvcc(toolchain: Toolchain, toolkit: Toolkit, archs: tuple[Arch, ...], needs_nvcc: bool) -> Iterator[Check]:
    version = toolkit.version or "of unknown version"
    unknown = [arch for arch in archs if knows(toolchain.archs, toolkit.version, arch) is False]
    unsure = [arch for arch in archs if knows(toolchain.archs, toolkit.version, arch) is None]
    if unknown:
        for text, special in _why_not(version, unknown):
            yield Topic.NVCC.check(
                "nvcc-arch", Status.PROBLEM, text, special or _toolkit_hint(toolchain, archs), stops=needs_nvcc
            )
        return
    if unsure:
        names = _list([arch.sm for arch in unsure])
        text = f"{version} ({toolkit.home}) does not say which architectures it knows: {names} may fail"
        yield Topic.NVCC.check("nvcc-arch", Status.WARNING, text)
        return
    if archs:
        text = f"{version} knows {_list([arch.sm for arch in archs])} ({toolkit.home})"
    elif toolchain.archs:
        text = f"{version}, {toolchain.archs[0]} to {toolchain.archs[-1].rstrip('af')} ({toolkit.home})"
    else:
        text = f"{version} ({toolkit.home})"
    also = {place.version: place.folder for place in reversed(toolchain.others) if place.version != toolkit.version}
    if also:
        text += "; also here: " + ", ".join(f"{version} in {folder}" for version, folder in also.items())
    yield Topic.NVCC.check("nvcc", Status.OK, text)


def _why_not(version: str, unknown: list[Arch]) -> Iterator[tuple[str, str]]:
    """(text, hint of its own) for the architectures that this nvcc does not know, one for each reason."""
    have = release(version)
    groups: dict[str, list[Arch]] = {}
    for arch in unknown:
        known = span(arch)
        if known is None:
            reason = ""
        elif have and have < known.since:
            reason = f"it needs {spelled(known.since)} or newer"
        elif known.before is not None and known.now_called:
            reason = f"since {spelled(known.before)} it is called {known.now_called}"
        elif known.before is not None:
            reason = f"{spelled(known.before)} dropped it"
        else:
            reason = ""
        groups.setdefault(reason, []).append(arch)
    for reason, group in groups.items():
        names = _list([arch.sm for arch in group])
        plural = reason.replace("it needs", "they need").replace("dropped it", "dropped them")
        said = (plural if len(group) > 1 else reason) or "no toolkit that we know of does"
        renamed = [known.now_called for arch in group if (known := span(arch)) is not None and known.now_called]
        is_renamed = reason.startswith("since ") and len(renamed) == len(group)
        hint = f"--arch {','.join(renamed)}" if is_renamed else "" if reason else "nvcc --list-gpu-code"
        yield f"nvcc {version} does not know {names}; {said}", hint


def _toolkit_hint(toolchain: Toolchain, archs: tuple[Arch, ...]) -> str:
    """A toolkit that knows all of ``archs``: one that is here, else one to fetch, else what to leave out."""
    for place in toolchain.others:
        if place.version and all(knows(place.archs, place.version, arch) for arch in archs):
            if toolchain.wanted:
                return f"builddoctor doctor --toolkit {shlex.quote(place.folder)}    # and `build` likewise"
            return f"export CUDACXX={shlex.quote(place.nvcc)}"
    spans = [(arch, known) for arch in archs if (known := span(arch)) is not None]
    since = max((known.since for _, known in spans), default=PIP_FIRST)
    before = min((known.before for _, known in spans if known.before is not None), default=None)
    if before is None:
        return install_hint(since)
    if since >= before:
        old = _list([arch.sm for arch, known in spans if known.before == before])
        return f"no toolkit knows all of these: build without {old}, or in two builds"
    if before == PIP_FIRST:
        # The last before 13; python packages have no nvcc before that.
        return (
            'conda create -y -p "$PWD/cuda-12.9" -c conda-forge cuda-nvcc=12.9 cuda-cudart-dev=12.9 '
            '&& builddoctor doctor --toolkit "$PWD/cuda-12.9"'
        )
    return f"--toolkit of a CUDA before {spelled(before)}, or an --arch that this one knows"


def install_hint(since: Version) -> str:
    """A toolkit of our own that is at least ``since``: no root needed, and beside the others."""
    version = spelled(max(since, PIP_FIRST))
    return f"builddoctor toolkit install {version} && builddoctor doctor --toolkit {version}"


def _copies(toolchain: Toolchain, toolkit: Toolkit) -> Iterator[Check]:
    """Without builddoctor, or by an include path from CUDA_HOME, another nvcc's toolkit comes into the build."""
    differing = [choice for choice in toolchain.choices if choice.version != toolkit.version]
    if not differing:
        return
    others = _list([f"{one.taken_by} takes {one.version} ({one.because}: {one.nvcc})" for one in differing])
    home = shlex.quote(toolkit.home)
    yield Topic.NVCC.check(
        "nvcc-copies",
        Status.WARNING,
        f"by itself {others}; builddoctor uses {toolkit.version} ({toolkit.home}), headers may come from both",
        f"export CUDA_HOME={home} CUDA_PATH={home} CUDACXX={shlex.quote(toolkit.nvcc)}",
    )


def _links(toolchain: Toolchain, toolkit: Toolkit) -> Iterator[Check]:
    if toolchain.links is not False:
        return
    where = toolchain.library_folder
    hint = ""
    if where:
        hint = f"ln -s {shlex.quote(where.rsplit('/', 1)[1])} {shlex.quote(toolkit.home + '/lib64')}"
    elif release(toolkit.version) >= PIP_FIRST:
        hint = f'pip install "cuda-toolkit[cudart]=={spelled(release(toolkit.version)[:2])}.*"'
    yield Topic.NVCC.check(
        "nvcc-links",
        Status.PROBLEM,
        "nvcc can compile but not link: libcudart_static.a and libcudadevrt.a are "
        + (f"in {where}, where it does not look" if where else "not in its library folders"),
        hint,
    )


def _list(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)


# -- an nvcc that does not answer ------------------------------------------------------------------------------------


def no_toolkit(toolchain: Toolchain, *, needs_nvcc: bool) -> list[Check]:
    """Why there is none: one diagnosis, in the words of the part that is to blame."""
    text = toolchain.problem or "no CUDA compiler (nvcc) found on this machine"
    status = Status.PROBLEM if needs_nvcc else Status.WARNING
    if toolchain.trouble in ("host-compiler", "host-silent"):
        # What does not answer now may just be slow: that stops no build.
        stops = needs_nvcc and toolchain.trouble == "host-compiler"
        name = "host-compiler"
        return [
            Topic.HOST_COMPILER.check(name, status, text, toolchain.hint, stops=stops),
            *_silent(toolchain),
            *_lost_homes(toolchain),
        ]
    if toolchain.trouble == "temporary":
        # The disk's own line has the hint, and stops the build.
        text = f"{text}; what it knows cannot be asked until that is put right"
        return [Topic.NVCC.check("nvcc", Status.WARNING, text), *_lost_homes(toolchain)]
    if toolchain.wheels_without_nvcc:
        text += f"; CUDA 12's python packages ({toolchain.wheels_without_nvcc}) have ptxas, but no nvcc and no cudafe++"
    # Without a wish all of them were tried before.
    others = toolchain.others if toolchain.wanted else ()
    hint = toolchain.hint
    if others:
        hint = f"builddoctor doctor --toolkit {shlex.quote(others[0].folder)}    # and `build` likewise"
    stops = needs_nvcc and toolchain.trouble != "silent"
    return [
        Topic.NVCC.check("nvcc", status, text, hint, stops=stops),
        *_lost_homes(toolchain),
    ]


def start_checks(toolchain: Toolchain) -> list[Check]:
    """With a toolkit that works: what else is in the way of other programs that look for one."""
    return [*_silent(toolchain), *_lost_homes(toolchain)]


def broken_variables(toolchain: Toolchain, *, stops: bool) -> Check:
    """nvcc reads flags from variables, and with these it does not even name its host compiler."""
    names = toolchain.broken_variables
    verb = "keeps" if len(names) == 1 else "keep"
    return Topic.NVCC.check(
        "nvcc-variables",
        Status.PROBLEM,
        f"{' and '.join(names)} {verb} nvcc from running: `{toolchain.host_problem}`; without, it runs",
        f"unset {' '.join(names)}",
        stops=stops,
    )


def _silent(toolchain: Toolchain) -> Iterator[Check]:
    if not toolchain.silent:
        return
    toolkit = toolchain.toolkit
    hint = ""
    text = f"{', '.join(toolchain.silent)} did not answer in time"
    if toolkit is not None and toolkit.nvcc not in toolchain.silent:
        home = shlex.quote(toolkit.home)
        text += f": builddoctor uses {toolkit.version} ({toolkit.home}), other programs may wait for it"
        hint = f"export CUDA_HOME={home} CUDACXX={shlex.quote(toolkit.nvcc)} PATH={home}/bin:$PATH"
    yield Topic.NVCC.check("nvcc-silent", Status.WARNING, text, hint)


def _lost_homes(toolchain: Toolchain) -> Iterator[Check]:
    """torch.utils.cpp_extension takes CUDA_HOME, else CUDA_PATH, without a look."""
    names = toolchain.lost_homes
    if not names:
        return
    toolkit = toolchain.toolkit
    text = f"no CUDA toolkit is where {' and '.join(names)} point{'s' * (len(names) == 1)}: torch takes it as it is"
    hint = f"unset {' '.join(names)}"
    if toolkit is not None:
        text += "; `builddoctor build` sets its own"
        hint = "export " + " ".join(f"{name}={shlex.quote(toolkit.home)}" for name in names)
    yield Topic.NVCC.check("cuda-home", Status.WARNING, text, hint)


# -- libraries -------------------------------------------------------------------------------------------------------


TITLES = {
    "cudart": "cudart",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "nvrtc": "NVRTC",
    "cufft": "cuFFT",
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
        yield Topic.LIBRARIES.check("libraries", Status.OK, ", ".join(well))


def _absent(names: list[str], toolkit: Toolkit) -> Check:
    """Several that are nowhere to be seen, in one line with one command."""
    titles = [TITLES.get(name, name) for name in names]
    text = f"{', '.join(titles[:-1])} and {titles[-1]} are needed and were not found"
    return Topic.LIBRARIES.check("libraries-missing", Status.PROBLEM, text, _fetch(names, toolkit))


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
        return _library_check(name, Status.WARNING, text, _export(name, packaged.place))
    without = next((copy for copy in copies if copy.library), None)
    text = f"{title} is needed and was not found"
    if without is not None:
        text = f"{title} is needed: {without.library} is there, its header is not"
    return _library_check(name, Status.PROBLEM, text, _fetch([name], toolkit))


def _halves(name: str, title: str, reachable: list[LibraryCopy]) -> Iterator[Check]:
    """Header without library, or a library that ``-l`` does not find."""
    if name in HEADER_ONLY:
        return
    libraries = [copy for copy in reachable if copy.library]
    header = next(copy for copy in reachable if copy.header)
    if not libraries:
        yield _library_check(
            name, Status.WARNING, f"{title}: {header.header} is there, but no library: links against it will fail"
        )
    elif not any(copy.linkable for copy in libraries):
        folder, _, file = libraries[0].library.rpartition("/")
        short = file.partition(".so")[0] + ".so"
        yield _library_check(
            name,
            Status.WARNING,
            f"{title}: there is {file} and no {short} in {folder}: the linker does not find it by name",
            f"ln -s {shlex.quote(file)} {shlex.quote(f'{folder}/{short}')}",
        )


def _disagreeing(name: str, title: str, copies: list[LibraryCopy], reachable: list[LibraryCopy]) -> Iterator[Check]:
    for copy in copies:
        if not agree(copy.header_version, copy.library_version):
            yield _library_check(
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
            yield _library_check(name, Status.WARNING, text, hint)
            return


def _mixed_toolkit(name: str, reachable: list[LibraryCopy], toolkit: Toolkit) -> Iterator[Check]:
    own = next((copy for copy in reachable if copy.kind == "toolkit" and copy.header_version), None)
    if name == "cudart" and own is not None and not agree(own.header_version, toolkit.version):
        text = f"nvcc is {toolkit.version}, but its cuda_runtime_api.h is of {own.header_version} ({own.header})"
        yield _library_check(name, Status.WARNING, text)


def _fetch(names: list[str], toolkit: Toolkit) -> str:
    """The python packages that bring them, and the variables that lead a build there; one line for the shell."""
    version = release(toolkit.version) or (13, 0)
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


def _library_check(name: str, status: Status, text: str, hint: str = "") -> Check:
    return Topic.LIBRARIES.check(f"library-{name}", status, text, hint)
