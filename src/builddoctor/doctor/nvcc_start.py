"""The doctor on what keeps an nvcc from being asked at all, and on variables that lead it astray. Pure.

Does *not* cover: what an nvcc that answers knows (``doctor.toolkit``), whether it accepts its host compiler
(``doctor.host_compiler``), TMPDIR itself (``doctor.storage``).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from builddoctor.doctor.host_compiler import TOPIC as HOST_TOPIC
from builddoctor.model.check import Check, Status
from builddoctor.model.toolchain import Toolchain

TOPIC = "nvcc"


def no_toolkit(toolchain: Toolchain, *, needs_nvcc: bool) -> list[Check]:
    """Why there is none: one diagnosis, in the words of the part that is to blame."""
    text = toolchain.problem or "no CUDA compiler (nvcc) found on this machine"
    status = Status.PROBLEM if needs_nvcc else Status.WARNING
    if toolchain.trouble in ("host-compiler", "host-silent"):
        # What does not answer now may just be slow: that stops no build.
        stops = needs_nvcc and toolchain.trouble == "host-compiler"
        name = "host-compiler"
        return [
            Check(name=name, topic=HOST_TOPIC, status=status, text=text, hint=toolchain.hint, stops_build=stops),
            *_silent(toolchain),
            *_lost_homes(toolchain),
        ]
    if toolchain.trouble == "temporary":
        # The disk's own line has the hint, and stops the build.
        text = f"{text}; what it knows cannot be asked until that is put right"
        return [Check(name="nvcc", topic=TOPIC, status=Status.WARNING, text=text), *_lost_homes(toolchain)]
    if toolchain.wheels_without_nvcc:
        text += f"; CUDA 12's python packages ({toolchain.wheels_without_nvcc}) have ptxas, but no nvcc and no cudafe++"
    # Without a wish all of them were tried before.
    others = toolchain.others if toolchain.wanted else ()
    hint = toolchain.hint
    if others:
        hint = f"builddoctor doctor --toolkit {shlex.quote(others[0].folder)}    # and `build` likewise"
    stops = needs_nvcc and toolchain.trouble != "silent"
    return [
        Check(name="nvcc", topic=TOPIC, status=status, text=text, hint=hint, stops_build=stops),
        *_lost_homes(toolchain),
    ]


def start_checks(toolchain: Toolchain) -> list[Check]:
    """With a toolkit that works: what else is in the way of other programs that look for one."""
    return [*_silent(toolchain), *_lost_homes(toolchain)]


def broken_variables(toolchain: Toolchain, *, stops: bool) -> Check:
    """nvcc reads flags from variables, and with these it does not even name its host compiler."""
    names = toolchain.broken_variables
    verb = "keeps" if len(names) == 1 else "keep"
    return Check(
        name="nvcc-variables",
        topic=TOPIC,
        status=Status.PROBLEM,
        text=f"{' and '.join(names)} {verb} nvcc from running: `{toolchain.host_problem}`; without, it runs",
        hint=f"unset {' '.join(names)}",
        stops_build=stops,
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
    yield Check(name="nvcc-silent", topic=TOPIC, status=Status.WARNING, text=text, hint=hint)


def _lost_homes(toolchain: Toolchain) -> Iterator[Check]:
    """torch.utils.cpp_extension takes CUDA_HOME, else CUDA_PATH, without a look (hooks.md 1.1)."""
    names = toolchain.lost_homes
    if not names:
        return
    toolkit = toolchain.toolkit
    text = f"no CUDA toolkit is where {' and '.join(names)} point{'s' * (len(names) == 1)}: torch takes it as it is"
    hint = f"unset {' '.join(names)}"
    if toolkit is not None:
        text += "; `builddoctor build` sets its own"
        hint = "export " + " ".join(f"{name}={shlex.quote(toolkit.home)}" for name in names)
    yield Check(name="cuda-home", topic=TOPIC, status=Status.WARNING, text=text, hint=hint)
