"""The environment of a supervised build: overlays, object caches, and the mark that a build is supervised already.

Covers: what every build gets, and what a build gets in a folder that was configured without builddoctor (``net``);
ccache or sccache in front of the compilers; a build inside a supervised build, which has the gates already and only
becomes its command: two schedulers would each think that the memory is theirs; what a shell gets whose builds are
supervised without a word, and what it was before.
Does *not* cover: parallelism knobs (``gates.knobs``); a build folder that was configured with a compiler launcher, or
without: CMake keeps what it was told first.

CXX and CC are left alone: gcc is caught inside, by COMPILER_PATH (docs/adr/0003). CUDA_HOME stays the real toolkit, so
that no include path, library path or RPATH ever names an overlay.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from builddoctor.core.errors import CommandNotFoundError, UsageError
from builddoctor.core.toolchain import HostCompiler, Toolkit
from builddoctor.toolchain.discover import OVERLAY_MARK

SOCKET = "BUILDDOCTOR_SOCKET"
UNIT = "BUILDDOCTOR_UNIT"
ACTIVE = "BUILDDOCTOR_ACTIVE"
"""In an activated environment: the program that a gate starts where its build has no supervisor yet."""
BEFORE = "BUILDDOCTOR_BEFORE"
"""In an activated shell, as JSON: what each variable was set to, and what it was before; null: it was not there."""
FOLDERS = ("PATH", "COMPILER_PATH")
"""Lists of folders: others may be put before ours."""
NVCC_FLAGS = ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
"""What ``net`` sets that an nvcc with its profile reads, too."""
_NET_FLAG = "-noprof"
NET_MARK = f"NVCC_PREPEND_FLAGS={_NET_FLAG}"
"""What the environment of an nvcc has that is caught by ``net``."""

Mode = Literal["auto", "ccache", "sccache", "none"]
LAUNCHERS = ("CMAKE_C_COMPILER_LAUNCHER", "CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER")


def build_environment(
    base: Mapping[str, str],
    *,
    socket: str,
    host: Path,
    cuda: Path | None,
    toolkit: Toolkit | None,
    fallback_folder: str,
) -> dict[str, str]:
    """``base`` with the overlays in it. ``fallback_folder``: last on PATH, for a ninja where there is none."""
    env = dict(base)
    for inner in (UNIT, "BUILDDOCTOR_HELD"):
        env.pop(inner, None)
    env[SOCKET] = socket
    folders = [f"{host}/bin", *([f"{cuda}/bin"] if cuda else []), *_split(base.get("PATH") or os.defpath)]
    if fallback_folder:
        folders.append(fallback_folder)
    env["PATH"] = ":".join(dict.fromkeys(folders))
    env["COMPILER_PATH"] = ":".join([f"{host}/gcc", *_split(base.get("COMPILER_PATH", ""))])
    if cuda is not None and toolkit is not None:
        env["CUDACXX"] = env["PYTORCH_NVCC"] = f"{cuda}/bin/nvcc"
        # torch would otherwise take the folder above the first nvcc on PATH, which is the overlay.
        env.setdefault("CUDA_HOME", toolkit.home)
        # DeepGEMM calls nvcc by its path, from no build tool. What it has cached goes by nvcc's version, not its path.
        env.setdefault("DG_JIT_NVCC_COMPILER", f"{cuda}/bin/nvcc")
    return env


def activation_environment(
    base: Mapping[str, str],
    *,
    start: Path,
    host: Path,
    cuda: Path | None,
    toolkit: Toolkit | None,
    fallback_folder: str,
    exports: Mapping[str, str],
) -> dict[str, str]:
    """What is set in a shell whose builds are supervised without a word: those variables that change.

    ``base``: an environment that is not activated. CUDA_HOME is the overlay here, unlike in ``build_environment``: a
    setup.py that calls ``$CUDA_HOME/bin/nvcc`` is caught by nothing else. ``exports``: further variables.
    """
    env = build_environment(
        base, socket="", host=host, cuda=cuda, toolkit=toolkit, fallback_folder=fallback_folder
    ) | dict(exports)
    del env[SOCKET]
    if cuda is not None:
        env["CUDA_HOME"] = str(cuda)
    changed = {name: value for name, value in env.items() if base.get(name) != value}
    before = {name: (value, base.get(name)) for name, value in changed.items()}
    return {**changed, ACTIVE: str(start), BEFORE: msgspec.json.encode(before).decode()}


def plain_environment(env: Mapping[str, str]) -> dict[str, str]:
    """``env`` as it would be without activation; itself where it is not activated.

    What was changed since by somebody else stays. Folders of overlays go, whoever put others around them.
    """
    plain = dict(env)
    if plain.pop(ACTIVE, None) is None:
        return plain
    try:
        before = msgspec.json.decode(plain.pop(BEFORE, "{}"), type=dict[str, tuple[str, str | None]])
    except msgspec.DecodeError:
        before = {}
    for name, (ours, theirs) in before.items():
        if plain.get(name) == ours:
            plain.pop(name)
            if theirs is not None:
                plain[name] = theirs
    for name in FOLDERS:
        if any(is_gates_folder(folder) for folder in _split(plain.get(name, ""))):
            plain[name] = ":".join(folder for folder in _split(plain[name]) if not is_gates_folder(folder))
    for name in ("COMPILER_PATH", "CUDA_HOME", "CUDACXX", "PYTORCH_NVCC", "DG_JIT_NVCC_COMPILER"):
        # Where an environment was written into a file there is no BEFORE.
        value = plain.get(name)
        if value is not None and (not value or any(is_gates_folder(each) for each in (value, os.path.dirname(value)))):
            del plain[name]
    return plain


def is_gates_folder(folder: str) -> bool:
    """A folder of an overlay."""
    return any(os.path.exists(os.path.join(each, OVERLAY_MARK)) for each in (folder, os.path.dirname(folder)))


def net(*, cuda: Path, toolkit: Toolkit) -> dict[str, str]:
    """Further settings that catch the tools of an nvcc called by its own absolute path.

    Without its profile (``-noprof``) nvcc takes CICC_PATH and PATH from the environment; the profile's other settings
    go back in as flags, behind the user's own, where the profile puts them. No command line changes, so nothing that
    was built before is built again. Measured with 13.0: same flags, same objects (docs/adr/0004).
    ``@NAME@`` stands for the value that NAME has where the settings are used. Empty when a path holds a blank, which
    these variables cannot quote.
    """
    flags = " ".join((*toolkit.include_flags, *toolkit.library_flags))
    if any(" " in flag for flag in (*toolkit.include_flags, *toolkit.library_flags)):
        return {}
    settings = {
        "NVCC_PREPEND_FLAGS": f"{_NET_FLAG} @NVCC_PREPEND_FLAGS@",
        "NVCC_APPEND_FLAGS": f"@NVCC_APPEND_FLAGS@ {flags}",
        "CICC_PATH": f"{cuda}/nvvm/bin",
        "PATH": f"{cuda}/nvvm/bin:{cuda}/bin:@PATH@:{toolkit.here}",
    }
    if toolkit.libdevice_folder:
        settings["NVVMIR_LIBRARY_DIR"] = toolkit.libdevice_folder
    return settings


def has_net(env: Mapping[str, str]) -> bool:
    """What this environment is given to is in a net already."""
    return env.get("NVCC_PREPEND_FLAGS", "").startswith(_NET_FLAG)


def is_supervised(env: Mapping[str, str]) -> bool:
    """A supervisor answers at the socket that this environment names."""
    path = env.get(SOCKET)
    if not path:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def become(command: Sequence[str], env: Mapping[str, str], cwd: str) -> None:
    """Turn into ``command``; does not return. Raises CommandNotFoundError when it cannot be started."""
    os.chdir(cwd)
    try:
        os.execvpe(command[0], list(command), dict(env))  # noqa: S606 - becoming the user's command is the point
    except OSError as error:
        raise CommandNotFoundError(f"the build command cannot be started: {command[0]}: {error.strerror}") from error


def chosen_cache(mode: Mode, env: Mapping[str, str]) -> str:
    """The program's path; empty for none. ``auto``: ccache where it is on PATH; it compiles in place.

    Raises UsageError where one was asked for by name and is not there.
    """
    if mode == "none":
        return ""
    name = "ccache" if mode == "auto" else mode
    found = shutil.which(name, path=env.get("PATH")) or ""
    if not found and mode != "auto":
        raise UsageError(f"--cache {mode}: there is no {mode} on PATH", hint="--cache auto takes what is there")
    return found


def identity(programs: Iterable[str]) -> str:
    """Of compilers: changes with any of their files."""
    digest = hashlib.sha256()
    for program in sorted(set(programs)):
        try:
            real = os.path.realpath(program)
            stamp = os.stat(real)
        except OSError:
            continue
        digest.update(f"{real}\0{stamp.st_size}\0{stamp.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()[:32]


def programs_of(toolkit: Toolkit | None, compilers: Iterable[HostCompiler]) -> list[str]:
    """The files that decide what an object looks like."""
    found = [path for each in compilers for path in (each.driver, *(path for _, path in each.programs))]
    if toolkit is not None:
        found += [toolkit.nvcc, toolkit.cicc, *(path for _, path in toolkit.tools)]
    return found


def cache_settings(cache: str, programs: Iterable[str], *, nvcc: Path | None, run_folder: Path) -> dict[str, str]:
    """Environment for ``cache`` (a path). ``nvcc``: the gate that the build calls; ``run_folder``: gone afterwards.

    Both caches tell compilers apart by the file that they are called by. Here that is a gate, the same for two versions
    of nvcc that lay in the same folder one after the other: so the identity of the real programs is given to them.
    """
    settings = dict.fromkeys(LAUNCHERS, cache)
    if nvcc is not None:
        settings["PYTORCH_NVCC"] = f"{cache} {nvcc}"
    compilers = identity(programs)
    if os.path.basename(cache) == "sccache":
        # A server that runs already knows nothing of gates: ours ends with the build.
        settings["SCCACHE_SERVER_UDS"] = str(run_folder / "sccache")
        settings["SCCACHE_IDLE_TIMEOUT"] = "0"
        settings["SCCACHE_C_CUSTOM_CACHE_BUSTER"] = compilers
    else:
        settings["CCACHE_COMPILERCHECK"] = f"string:{compilers}"
    return settings


def _split(path: str) -> list[str]:
    return [folder for folder in path.split(":") if folder]
