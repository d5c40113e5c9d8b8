"""The toolchain that a build chooses after it began: by ``module load``, ``conda activate`` or variables of its script.

A build starts with the gates of the nvcc and the gcc that were there at that moment (``gates.environment``). A script
that loads a module then puts other folders before them. What a plain build would take from there has to be taken, and
be gated: seen where a program that runs a build starts (``settings``), and where an nvcc is called through a gate of
the first toolkit, which a variable of ours named to it (``instead``).
Does *not* cover: an nvcc that a script calls by its name or path itself, or a clang; no gate is asked then.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from builddoctor.core.errors import BuildDoctorError
from builddoctor.core.toolchain import Toolkit
from builddoctor.gates.environment import ACTIVE, SOCKET, has_net, is_gates_folder
from builddoctor.gates.overlay import host_overlay, toolkit_overlay
from builddoctor.gates.subprocesses import run_captured
from builddoctor.runtime.prepare import Prepared
from builddoctor.system.probes import path_folders
from builddoctor.system.source_files import text_of
from builddoctor.toolchain.discover import is_overlay, probe
from builddoctor.toolchain.host_compiler import host_compilers

HOMES = ("CUDA_HOME", "CUDA_PATH")
"""In the order in which torch takes them."""
HOSTS = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN")
OURS = ("CUDACXX", "PYTORCH_NVCC", "DG_JIT_NVCC_COMPILER")
"""Variables that name our nvcc. What the user has set stands."""
_WATCHED = ("PATH", "COMPILER_PATH", *HOMES, *HOSTS, *OURS)
TICK_S = 0.05
"""A file is stamped with the time of the kernel's last tick, up to 10 ms ago: 22 of 300 files that a process wrote at
once were older than it."""

Made = TypeVar("Made")


class Tell(Protocol):
    """A sentence for the user."""

    def __call__(self, text: str, *, warning: bool = False) -> None: ...


def later_nvcc(seen: Mapping[str, str], start: Mapping[str, str], *, given_home: str, by_cmake: bool) -> str:
    """The nvcc, or the gate of one, that a plain build would take in the environment ``seen``; empty: as at ``start``.

    CMake goes by CUDACXX, then PATH; torch by CUDA_HOME or CUDA_PATH, then PATH. ``given_home``: the CUDA_HOME that we
    set; empty where the user had one.
    """
    if start.get("CUDACXX" if by_cmake else "PYTORCH_NVCC"):
        return ""
    home = next((seen[name] for name in HOMES if seen.get(name)), "")
    if by_cmake or not home:
        return _on_path(seen)
    nvcc = Path(home, "bin", "nvcc")
    known = home in (given_home, *(start.get(name) for name in HOMES))
    return str(nvcc) if nvcc.is_file() and not known else ""


def _on_path(seen: Mapping[str, str]) -> str:
    # A folder that is not absolute is another one for each program.
    return shutil.which("nvcc", path=":".join(path_folders(seen))) or ""


class Caller(msgspec.Struct, frozen=True):
    """What calls nvcc in a folder, and since when it goes by what it has written there."""

    name: Literal["CMake", "torch", ""]
    settled_s: float = math.inf
    """since the epoch; infinite: it is choosing"""


def caller_in(cwd: str) -> Caller:
    """By the files of the folder. torch's is a ninja's that no CMake has written; ``""``: a script, or a Makefile."""
    folder = Path(cwd)
    if (folder / "build.ninja").exists() and not (folder / "CMakeCache.txt").exists():
        return Caller("torch", _written_s([folder / "build.ninja"]))
    above = (folder, *folder.parents)
    if configured := next((each for each in above if (each / "CMakeCache.txt").exists()), None):
        return Caller("CMake", _written_s(configured.glob("CMakeFiles/*/CMakeCUDACompiler.cmake")))
    return Caller("CMake" if any((each / "CMakeFiles").is_dir() for each in above) else "")


def _written_s(files: Iterable[Path]) -> float:
    found = math.inf
    for file in files:
        with contextlib.suppress(OSError):
            found = min(found, file.stat().st_mtime)
    return found


def _before_gates(path: str) -> list[str]:
    folders = path_folders({"PATH": path})
    ours = next((place for place, folder in enumerate(folders) if is_gates_folder(folder)), len(folders))
    return folders[:ours]


class LaterToolchain:
    """Of one build. Its methods are called in the event loop; compilers are asked in a thread, and once."""

    def __init__(
        self,
        prepared: Prepared,
        start: Mapping[str, str],
        *,
        fixed: bool,
        began_s: float,
        tell: Tell,
        chosen: Callable[[Toolkit], None],
    ) -> None:
        """``start``: the environment before ours. ``fixed``: the user has named the toolkit. ``began_s``: the build,
        since the epoch. ``chosen``: the next unit takes another toolkit than the last."""
        self._prepared = prepared
        self._start = start
        self._given_home = prepared.toolkit.home if prepared.toolkit is not None and not start.get("CUDA_HOME") else ""
        self._own_gate = f"{prepared.cuda}/bin/nvcc" if prepared.cuda is not None else ""
        self._fixed = fixed
        self._began_s = began_s
        self._tell = tell
        self._chosen = chosen
        self._taken = prepared.toolkit
        """by the latest unit"""
        self._lock = threading.Lock()
        self._toolkits: dict[str, tuple[Path, Toolkit] | None] = {}
        self._settings: dict[tuple[bool | str | None, ...], Mapping[str, str]] = {}
        self._said: set[str] = set()
        self._news: list[Callable[[], None]] = []

    async def gates_of(self, nvcc: str, seen: Mapping[str, str]) -> tuple[Path, Toolkit] | None:
        """The overlay of the toolkit that this nvcc belongs to; None where it does not work.

        It is about to be called by its path. ``seen``: the environment of what calls it.
        """
        return await self._in_thread(lambda: self._called(nvcc, seen))

    async def settings(self, seen: Mapping[str, str], *, decides: bool) -> Mapping[str, str]:
        """What a program with the environment ``seen`` needs further, so that what it starts is gated.

        ``decides``: by that environment it chooses a toolkit. ninja does not: the headers' folders are settled.
        """
        if not seen.get("PATH") or has_net(seen):
            return {}
        key = (decides, *(seen.get(name) for name in _WATCHED))
        if key not in self._settings:
            # A question may come twice; the answer is the same.
            self._settings[key] = await self._in_thread(lambda: self._settings_of(seen, decides))
        return self._settings[key]

    async def instead(self, shown: str, cwd: str, seen: Mapping[str, str]) -> str:
        """The gate to call instead of nvcc's gate ``shown``; empty: it is the right one."""
        if self._fixed or has_net(seen):
            return ""
        return await self._in_thread(lambda: self._noted(shown, self._instead(shown, cwd, seen)))

    async def _in_thread(self, work: Callable[[], Made]) -> Made:
        def alone() -> Made:
            with self._lock:
                return work()

        made = await asyncio.to_thread(alone)
        while self._news:
            self._news.pop(0)()
        return made

    def _called(self, nvcc: str, seen: Mapping[str, str]) -> tuple[Path, Toolkit] | None:
        found = self._gates_of(nvcc, seen)
        if found is not None:
            self._take(found[1])
        return found

    def _instead(self, shown: str, cwd: str, seen: Mapping[str, str]) -> str:
        caller = caller_in(cwd)
        if not caller.name or caller.settled_s < self._began_s - TICK_S:
            # What a script or a Makefile calls is what it means.
            return ""
        by_cmake = caller.name == "CMake"
        nvcc = later_nvcc(seen, self._start, given_home=self._given_home, by_cmake=by_cmake)
        gate = self._gate_of(nvcc, seen) if nvcc else self._own_gate
        if not by_cmake and gate == shown:
            self._warn_of_path(seen)
        if gate == shown or not gate or (not by_cmake and shown not in (text_of(Path(cwd, "build.ninja")) or "")):
            return ""
        if by_cmake and self._prepared.toolkit is not None:
            self._say(
                f"the cmake that was put on PATH notes the nvcc of CUDA {self._prepared.toolkit.version}: without "
                "builddoctor its folder is built with that; load the modules before builddoctor is called",
                warning=True,
            )
        return gate

    def _gate_of(self, nvcc: str, seen: Mapping[str, str]) -> str:
        """Before this nvcc, which may be one; empty where there can be none."""
        if not nvcc or is_overlay(Path(nvcc)):
            return nvcc
        found = self._gates_of(nvcc, seen)
        return f"{found[0]}/bin/nvcc" if found is not None else ""

    def _gates_of(self, nvcc: str, seen: Mapping[str, str]) -> tuple[Path, Toolkit] | None:
        if nvcc not in self._toolkits:
            self._toolkits[nvcc] = None
            # conda's finds no gcc without the variables that come with it. Gates are to ask nobody now.
            env = {name: value for name, value in (seen or self._start).items() if name not in (SOCKET, ACTIVE)}
            toolkit = probe(Path(nvcc), env, run=run_captured)
            if isinstance(toolkit, Toolkit):
                # Where it fails, that is said when the first host compile comes from an nvcc that is not caught.
                with contextlib.suppress(BuildDoctorError):
                    self._toolkits[nvcc] = (toolkit_overlay(self._prepared.cache, toolkit, env), toolkit)
        return self._toolkits[nvcc]

    def _other(self, gate: str) -> Toolkit | None:
        """That the build has chosen since it began, by its gate."""
        found = {f"{each[0]}/bin/nvcc": each[1] for each in self._toolkits.values() if each is not None}.get(gate)
        ours = self._prepared.toolkit
        return found if found is not None and (ours is None or ours.here != found.here) else None

    def _noted(self, shown: str, instead: str) -> str:
        gate = instead or shown
        if (toolkit := self._other(gate) or (self._prepared.toolkit if gate == self._own_gate else None)) is not None:
            self._take(toolkit)
        return instead

    def _take(self, toolkit: Toolkit) -> None:
        if self._taken is None or os.path.realpath(self._taken.here) != os.path.realpath(toolkit.here):
            self._taken = toolkit
            self._news.append(functools.partial(self._chosen, toolkit))

    def _warn_of_path(self, seen: Mapping[str, str]) -> None:
        """Where it goes by a CUDA_HOME that we set, and another toolkit has come onto PATH."""
        goes_by_it = self._given_home != "" and seen.get("CUDA_HOME") == self._given_home
        if goes_by_it and (other := self._other(self._gate_of(_on_path(seen), seen))):
            self._say(
                f"the build has put CUDA {other.version} of {other.home} on PATH since it began, and takes that of "
                f"{self._given_home}: let it set CUDA_HOME as well, or load the module before builddoctor is called",
                warning=True,
            )

    def _say(self, text: str, *, warning: bool = False) -> None:
        if text not in self._said:
            self._said.add(text)
            self._news.append(functools.partial(self._tell, text, warning=warning))

    def _settings_of(self, seen: Mapping[str, str], decides: bool) -> dict[str, str]:
        return ({} if self._fixed else self._nvcc_settings(seen, decides)) | self._host_settings(seen)

    def _nvcc_settings(self, seen: Mapping[str, str], decides: bool) -> dict[str, str]:
        settings: dict[str, str] = {}
        chosen = dict(seen)
        on_path = _on_path(seen)
        gate = self._gate_of(on_path, seen)
        if gate and gate != on_path:
            settings["PATH"] = f"{os.path.dirname(gate)}:{seen['PATH']}"
            other = self._other(gate)
            if decides and other is not None and seen.get("CUDA_HOME") == self._given_home:
                # Ours is not what it chose, and torch would take the headers from there.
                settings["CUDA_HOME"] = chosen["CUDA_HOME"] = other.home
        for name in OURS:
            nvcc = later_nvcc(chosen, self._start, given_home=self._given_home, by_cmake=name == "CUDACXX")
            gate = self._gate_of(nvcc, seen)
            before, _, value = seen.get(name, "").rpartition(" ")
            if gate and gate != value and not self._start.get(name) and (not value or is_overlay(Path(value))):
                settings[name] = f"{before} {gate}".strip()
        return settings

    def _host_settings(self, seen: Mapping[str, str]) -> dict[str, str]:
        """For a gcc that was not there when the build began."""
        tools = self._prepared.tools
        looked_for = {
            name: value for name, value in seen.items() if name not in HOSTS or value != self._start.get(name)
        }
        new = host_compilers(looked_for, run=run_captured, folders=_before_gates(seen["PATH"]))
        found = {(each.machine, each.version): each for each in new}
        known = {(each.machine, each.version): each for each in tools.compilers}
        others = {key for key, each in found.items() if key not in known or known[key].programs != each.programs}
        if not others:
            return {}
        # Two of one name cannot be told apart at a gate: neither has one.
        merged = [each for key, each in (found | known).items() if key not in known or key not in others]
        try:
            host = host_overlay(self._prepared.cache, msgspec.structs.replace(tools, compilers=tuple(merged)))
        except BuildDoctorError:
            return {}
        kept = [each for each in seen.get("COMPILER_PATH", "").split(":") if each and not is_gates_folder(each)]
        return {"COMPILER_PATH": ":".join([f"{host}/gcc", *kept])}
