"""The doctor on CUDA's toolchain: nvcc, its architectures, and several nvcc that differ. Pure.

Does *not* cover: finding anything out (``intercept.toolchain``), host compilers (``doctor.host_compiler``), libraries
(``doctor.libraries``), or known bugs of compilers (``doctor.hazards``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from builddoctor.doctor.arch_table import Version, knows, span, spelled, version_parts
from builddoctor.doctor.host_compiler import host_checks
from builddoctor.doctor.libraries import library_checks
from builddoctor.doctor.nvcc_start import broken_variables, no_toolkit, start_checks
from builddoctor.model.check import Check, Status
from builddoctor.model.toolchain import Toolchain
from builddoctor.model.toolkit import Toolkit
from builddoctor.projects.archs import Arch

TOPIC = "nvcc"
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
    (names of ``model.toolchain.LIBRARIES``); none when no project is known. ``needs_nvcc``: the project has CUDA code.
    ``compiles_cuda``: it certainly compiles some, with the host compiler that nvcc takes by itself; as ``needs_nvcc``
    when nobody says.
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
            yield Check(
                name="nvcc-arch",
                topic=TOPIC,
                status=Status.PROBLEM,
                text=text,
                hint=special or _toolkit_hint(toolchain, archs),
                stops_build=needs_nvcc,
            )
        return
    if unsure:
        names = _list([arch.sm for arch in unsure])
        text = f"{version} ({toolkit.home}) does not say which architectures it knows: {names} may fail"
        yield Check(name="nvcc-arch", topic=TOPIC, status=Status.WARNING, text=text)
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
    yield Check(name="nvcc", topic=TOPIC, status=Status.OK, text=text)


def _why_not(version: str, unknown: list[Arch]) -> Iterator[tuple[str, str]]:
    """(text, hint of its own) for the architectures that this nvcc does not know, one for each reason."""
    have = version_parts(version)
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
    yield Check(
        name="nvcc-copies",
        topic=TOPIC,
        status=Status.WARNING,
        text=f"by itself {others}; builddoctor uses {toolkit.version} ({toolkit.home}), headers may come from both",
        hint=f"export CUDA_HOME={home} CUDA_PATH={home} CUDACXX={shlex.quote(toolkit.nvcc)}",
    )


def _links(toolchain: Toolchain, toolkit: Toolkit) -> Iterator[Check]:
    if toolchain.links is not False:
        return
    where = toolchain.library_folder
    hint = ""
    if where:
        hint = f"ln -s {shlex.quote(where.rsplit('/', 1)[1])} {shlex.quote(toolkit.home + '/lib64')}"
    elif version_parts(toolkit.version) >= PIP_FIRST:
        hint = f'pip install "cuda-toolkit[cudart]=={spelled(version_parts(toolkit.version)[:2])}.*"'
    yield Check(
        name="nvcc-links",
        topic=TOPIC,
        status=Status.PROBLEM,
        text="nvcc can compile but not link: libcudart_static.a and libcudadevrt.a are "
        + (f"in {where}, where it does not look" if where else "not in its library folders"),
        hint=hint,
    )


def _list(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
