"""Checks of torch: is it there where the project needs it, and was it made with this toolkit's CUDA.

Pure; torch was not imported. Does *not* cover: the environment variables that torch reads (``doctor.variables``).
"""

from __future__ import annotations

import shlex

from builddoctor.doctor.versions import numbers, short
from builddoctor.model.build_tools import BuildPython, Torch
from builddoctor.model.check import Check, Status
from builddoctor.model.known_project import KnownProject
from builddoctor.model.source import Source
from builddoctor.model.toolkit import Toolkit

TOPIC = "torch"


def torch_checks(
    python: BuildPython | None, source: Source | None, known: KnownProject | None, toolkit: Toolkit | None
) -> list[Check]:
    """Nothing for a project without torch, and for no project when there is no torch."""
    if python is None or python.problem or (known is not None and known.name == "pytorch"):
        return []
    needed = known is not None and known.needs_torch
    used = source is not None and bool(source.files.uses_torch)
    if python.torch is None:
        return _missing(python, source, known) if needed or used else []
    if source is not None and not needed and not used:
        return []
    return [_against_toolkit(python.torch, needed=needed, toolkit=toolkit)]


def _missing(python: BuildPython, source: Source | None, known: KnownProject | None) -> list[Check]:
    hint = f"{shlex.quote(python.path)} -m pip install torch"
    if known is not None and known.needs_torch:
        text = f"{python.path} has no torch, and {known.title} does not build without (pip fetches nothing here)"
        return [_check("torch", Status.PROBLEM, text, hint, stops=True)]
    where = source.files.uses_torch if source is not None else ""
    if source is not None and source.files.imports_torch:
        return [_check("torch", Status.PROBLEM, f"{python.path} has no torch, and {where} imports it", hint)]
    text = f"{python.path} has no torch: what {where} builds for it is left out, or fails"
    return [_check("torch", Status.WARNING, text, hint)]


def _against_toolkit(torch: Torch, *, needed: bool, toolkit: Toolkit | None) -> Check:
    trouble = Status.PROBLEM if needed else Status.WARNING
    if torch.rocm:
        return _check("torch-cuda", trouble, f"torch {torch.version} is made for AMD GPUs, not for CUDA")
    if not torch.cuda:
        text = f"torch {torch.version} is made without CUDA: its extensions have nothing to link with"
        return _check("torch-cuda", trouble, text)
    mine, theirs = numbers(torch.cuda), numbers(toolkit.version) if toolkit is not None else ()
    if toolkit is None or not theirs or not mine:
        return _check("torch", Status.OK, f"{torch.version}, made with CUDA {torch.cuda}")
    if mine[0] != theirs[0]:
        made = f"torch {torch.version} is made with CUDA {torch.cuda}"
        text = f"{made}, and nvcc is {short(toolkit.version)}: torch refuses to build with another major version"
        return _check("torch-cuda", Status.PROBLEM, text, f"--toolkit {torch.cuda}, or a torch for CUDA {theirs[0]}")
    note = f"; nvcc {short(toolkit.version)} will do" if mine[:2] != theirs[:2] else ""
    return _check("torch", Status.OK, f"{torch.version}, made with CUDA {torch.cuda}{note}")


def _check(name: str, status: Status, text: str, hint: str = "", *, stops: bool = False) -> Check:
    return Check(name=name, topic=TOPIC, status=status, text=text, hint=hint, stops_build=stops)
