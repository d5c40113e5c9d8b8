"""The doctor on CUDA's toolchain: nvcc, its architectures, and several nvcc that differ. Pure.

Does *not* cover: finding anything out (``intercept.toolchain``), host compilers (``doctor.host_compiler``), libraries
(``doctor.libraries``), or known bugs of compilers (``doctor.hazards``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from builddoctor.doctor.arch_table import Version, knows, span, spelled, version_parts
from builddoctor.doctor.host_compiler import INSTALL_HINT as HOST_HINT
from builddoctor.doctor.host_compiler import TOPIC as HOST_TOPIC
from builddoctor.doctor.host_compiler import host_checks
from builddoctor.doctor.libraries import library_checks
from builddoctor.model.check import Check, Status
from builddoctor.model.toolchain import Toolchain
from builddoctor.model.toolkit import Toolkit
from builddoctor.projects.archs import Arch

TOPIC = "nvcc"
PIP_FIRST: Version = (13, 0)
"""the first toolkit whose python packages hold an nvcc"""
_NO_HOST = "preprocess host compiler properties"
"""what nvcc says when it cannot call gcc"""


def toolkit_checks(
    toolchain: Toolchain,
    archs: tuple[Arch, ...],
    *,
    needed: tuple[str, ...] = (),
    needs_nvcc: bool = True,
) -> list[Check]:
    """Everything that can be said of nvcc, its host compiler and CUDA's libraries.

    ``archs``: what was asked for; none leaves them unjudged. ``needed``: the libraries that the project looks for
    (names of ``model.toolchain.LIBRARIES``); none when no project is known. ``needs_nvcc``: the project has CUDA code.
    """
    toolkit = toolchain.toolkit
    if toolkit is None:
        return [_none(toolchain, needs_nvcc)]
    return [
        *_nvcc(toolchain, toolkit, archs, needs_nvcc),
        *_copies(toolchain, toolkit),
        *_links(toolchain, toolkit),
        *host_checks(toolchain, toolkit, stops=needs_nvcc),
        *library_checks(toolchain, toolkit, needed),
    ]


def _none(toolchain: Toolchain, needs_nvcc: bool) -> Check:
    text = toolchain.problem or "no CUDA compiler (nvcc) found on this machine"
    status = Status.PROBLEM if needs_nvcc else Status.WARNING
    if _NO_HOST in text:
        text += " It found no host compiler"
        return Check(
            name="host-compiler", topic=HOST_TOPIC, status=status, text=text, hint=HOST_HINT, stops_build=needs_nvcc
        )
    if toolchain.wheels_without_nvcc:
        text += f"; CUDA 12's python packages ({toolchain.wheels_without_nvcc}) have ptxas, but no nvcc and no cudafe++"
    # Without a wish all of them were tried before.
    others = toolchain.others if toolchain.wanted else ()
    hint = f"--toolkit {shlex.quote(others[0].folder)}" if others else toolchain.hint
    return Check(name="nvcc", topic=TOPIC, status=status, text=text, hint=hint, stops_build=needs_nvcc)


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
            return f"--toolkit {shlex.quote(place.folder)}"
    spans = [(arch, known) for arch in archs if (known := span(arch)) is not None]
    since = max((known.since for _, known in spans), default=PIP_FIRST)
    before = min((known.before for _, known in spans if known.before is not None), default=None)
    if before is None:
        return pip_hint(since)
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


def pip_hint(since: Version) -> str:
    """The python packages of a toolkit that is at least ``since``."""
    version = spelled(max(since, PIP_FIRST))
    return f'pip install "cuda-toolkit[nvcc,cudart,cccl]=={version}.*"'


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
