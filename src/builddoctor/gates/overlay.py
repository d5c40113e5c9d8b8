"""The overlays: folders in which the programs that take memory are gates.

Covers: the toolkit overlay, which looks like the CUDA toolkit (links, gates, nvcc.profile), one a toolkit; the host
overlay, with gates for the programs inside gcc, for clang, ninja, cmake and make, one a set of them; and gates before
Triton's own ptxas. All lie under a stable path in the user's cache folder, so that a second supervised build is
incremental, and are made or brought up to date in place, safely for builds that share them: files are written beside
and renamed.
Does *not* cover: telling a build about them (``gates.environment``).

A gate is a shell script of a few lines around ``gate_program``: without a supervisor, in a shell that is not activated,
it execs the real tool, without any Python, so that an overlay path left in a CMakeCache never breaks a build. Its time
stamp is the real tool's, so that ccache sees a changed compiler when that changes.

nvcc reads ``nvcc.profile`` from the folder of its argv[0] and takes its root, search path and flags from it (13.0,
measured). Ours differs in CICC_PATH and PATH alone; ``$(_HERE_)`` becomes the real folder, so that TOP and every
include and library flag come out letter for letter as in a plain build. ``_prove`` checks that they do.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import py_compile
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.errors import FolderNotWritableError, ToolkitBrokenError
from builddoctor.core.toolchain import HostCompiler, Toolkit
from builddoctor.gates import gate_program
from builddoctor.gates.subprocesses import run_captured
from builddoctor.system.probes import PROBE_TIMEOUT_S
from builddoctor.toolchain.discover import OVERLAY_MARK
from builddoctor.toolchain.nvcc import ask_dryrun, parse_settings, without_flags
from builddoctor.toolchain.triton import TritonTool

LAYOUT = 3
"""Version of what an overlay holds; part of its digest."""

FRONTS = ("ninja", "ninja-build", "samu", "cmake", "make", "gmake")
"""Programs that run a build; CMake takes the first ninja of these three names."""

_CUDA_PROGRAM = re.compile(r"\A(nv\w*|__nv\w*|bin2c|crt|cu\w*\+*\w*|cuda\S*|fatbinary|ptxas|compute-sanitizer)\Z")

LIBRARY = ".gate"
"""Folder of the gate's program in the overlay; not ``lib``, which is the toolkit's."""

_PROFILE_LINE = re.compile(r"^\s*(?P<name>\w+)\s*(?P<op>\+=|=\+|=)\s*(?P<value>.*)$")


class Gate(msgspec.Struct, frozen=True):
    """One gate: its place in the overlay, what it does (``gate_program``), and the real program's path."""

    place: str
    role: str
    real: str


class HostTools(msgspec.Struct, frozen=True, kw_only=True):
    """What of the host a build may call, by real paths."""

    compilers: tuple[HostCompiler, ...]
    fronts: tuple[tuple[str, str], ...]
    """(name, path) of ninja, cmake, make"""
    clangs: tuple[tuple[str, str], ...]


def toolkit_overlay(cache_folder: Path, toolkit: Toolkit, env: Mapping[str, str]) -> Path:
    """The overlay of a toolkit, made or brought up to date.

    Raises FolderNotWritableError when the cache folder cannot be written, ToolkitBrokenError when nvcc does not work
    through it.
    """
    key = hashlib.sha256(os.fsencode(toolkit.nvcc)).hexdigest()[:8]
    folder = cache_folder / "overlays" / f"cuda-{toolkit.version or 'unknown'}-{key}"
    gates = [Gate("bin/nvcc", "unit", toolkit.nvcc), Gate("nvvm/bin/cicc", "phase", toolkit.cicc)]
    gates += [Gate(f"bin/{name}", "phase", path) for name, path in toolkit.tools]
    _ensure(folder, gates, toolkit, env)
    return folder


def host_overlay(cache_folder: Path, tools: HostTools) -> Path:
    """Gates for ninja and its kin and clang (``bin``), and for the programs inside gcc (``gcc``).

    The folder's name comes from the real paths: builds with other compilers or another ninja have one of their own.
    """
    gates = [Gate(f"bin/{name}", "front", path) for name, path in tools.fronts]
    gates += [Gate(f"bin/{name}", "phase", path) for name, path in tools.clangs]
    for compiler in tools.compilers:
        for name, path in compiler.programs:
            gates.append(Gate(f"gcc/{compiler.machine}/{compiler.version}/{name}", "phase", path))
    key = hashlib.sha256(msgspec.json.encode(gates)).hexdigest()[:8]
    folder = cache_folder / "overlays" / f"host-{key}"
    _ensure(folder, gates, None, {})
    return folder


def triton_overlay(cache_folder: Path, tools: Sequence[TritonTool]) -> tuple[TritonTool, ...]:
    """Gates before Triton's own programs, each by the variable that names it.

    In folders of their own: what a phase is, is read from the last part of its path, which is ``ptxas`` for all.
    """
    gated = [(each, Gate(f"{number}/ptxas", "phase", each.path)) for number, each in enumerate(tools)]
    if not gated:
        return ()
    gates = [gate for _, gate in gated]
    key = hashlib.sha256(msgspec.json.encode(gates)).hexdigest()[:8]
    folder = cache_folder / "overlays" / f"triton-{key}"
    _ensure(folder, gates, None, {})
    return tuple(TritonTool(variable=each.variable, path=str(folder / gate.place)) for each, gate in gated)


def interpreter() -> str:
    """The real Python: a version manager's shim would take 200 ms at each gate."""
    return os.path.realpath(sys.executable)


def default_profile(toolkit: Toolkit) -> str:
    """For a toolkit without a profile of its own."""
    return f"TOP = {toolkit.top}\nCICC_PATH = \nPATH += \n"


def overlay_profile(real_text: str, toolkit: Toolkit, folder: str) -> str:
    """The overlay's nvcc.profile: the real one, but for CICC_PATH and PATH, with the real folder for ``_HERE_``."""
    ours = {
        "CICC_PATH": f"CICC_PATH = {folder}/nvvm/bin",
        "PATH": f"PATH += {folder}/nvvm/bin:{folder}/bin:{os.path.dirname(toolkit.cicc)}:{toolkit.here}:",
    }
    missing = dict(ours)
    lines: list[str] = []
    for line in real_text.splitlines():
        match = _PROFILE_LINE.match(line)
        name = match["name"] if match else ""
        missing.pop(name, None)
        lines.append(ours.get(name) or line.replace("$(_HERE_)", toolkit.here))
    return "\n".join([*lines, *missing.values()]) + "\n"


def _ensure(folder: Path, gates: Sequence[Gate], toolkit: Toolkit | None, env: Mapping[str, str]) -> None:
    digest = _digest(toolkit, gates)
    mark = folder / OVERLAY_MARK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            if mark.exists() and mark.read_text(encoding="utf-8") == digest:
                return
            _fill(folder, toolkit, gates)
            if toolkit is not None:
                _prove(folder, toolkit, env)
            replace_text(mark, digest)
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot write the cache folder {folder.parent.parent}: {error.strerror}",
            hint="name another one: `export BUILDDOCTOR_CACHE_DIR=/some/folder`",
        ) from error


def _digest(toolkit: Toolkit | None, gates: Sequence[Gate]) -> str:
    source = Path(gate_program.__file__).read_bytes()
    stamps = [stamp(gate.real) for gate in gates]
    parts = msgspec.json.encode([LAYOUT, interpreter(), toolkit, gates, stamps])
    return hashlib.sha256(parts + source).hexdigest() + "\n"


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time fills an overlay; the kernel gives the lock back if it dies."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, toolkit: Toolkit | None, gates: Sequence[Gate]) -> None:
    gated = {gate.place for gate in gates}
    for name in ("bin", LIBRARY):
        (folder / name).mkdir(exist_ok=True)
    library = folder / LIBRARY
    source = Path(gate_program.__file__).read_text(encoding="utf-8")
    replace_text(library / "gate_program.py", source)
    replace_text(
        library / "gate.py",
        f"import sys\nsys.path.insert(0, {str(library)!r})\nimport gate_program\ngate_program.main(sys.argv)\n",
    )
    with contextlib.suppress(py_compile.PyCompileError):
        py_compile.compile(str(library / "gate_program.py"), doraise=True)
    if toolkit is not None:
        _link_toolkit(folder, toolkit, gated)
        replace_text(folder / "bin" / "nvcc.profile", overlay_profile(_real_profile(toolkit), toolkit, str(folder)))
    for gate in gates:
        write_gate(folder, gate)


def _link_toolkit(folder: Path, toolkit: Toolkit, gated: set[str]) -> None:
    """Links to everything in the toolkit, so that the overlay also serves as a CUDA_HOME."""
    here, home = Path(toolkit.here), Path(toolkit.home)
    shared = (here / "python3").exists() or (here / "sh").exists()
    for entry in here.iterdir():
        # A conda prefix or /usr/bin: the overlay's bin comes first on PATH and must not bring their python along.
        if not shared or _CUDA_PROGRAM.match(entry.name):
            _link(folder / "bin" / entry.name, entry, gated, folder)
    nvvm_real = Path(toolkit.cicc).parent.parent
    (folder / "nvvm" / "bin").mkdir(parents=True, exist_ok=True)
    for entry in [*nvvm_real.iterdir(), *(nvvm_real / "bin").glob("*")]:
        if nvvm_real.name == "nvvm" and entry.name != "bin":
            _link(folder / "nvvm" / entry.relative_to(nvvm_real), entry, gated, folder)
    for entry in home.iterdir():
        if entry.name not in ("bin", "nvvm", "gcc") and not entry.name.startswith("."):
            _link(folder / entry.name, entry, gated, folder)
    if not (folder / "lib64").exists() and (home / "lib").is_dir():
        _link(folder / "lib64", home / "lib", gated, folder)


def _link(link: Path, target: Path, gated: set[str], folder: Path) -> None:
    if str(link.relative_to(folder)) not in gated and link.name != "nvcc.profile":
        replace_link(link, target)


def _real_profile(toolkit: Toolkit) -> str:
    try:
        return Path(toolkit.here, "nvcc.profile").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return default_profile(toolkit)


def _prove(folder: Path, toolkit: Toolkit, env: Mapping[str, str]) -> None:
    """nvcc in the overlay must have the real toolkit's flags and our tools: better known before a build than in it."""
    shown = f"{folder}/bin/nvcc"
    seen = None
    # Flags of the user's must not be mistaken for the overlay's; without gcc on PATH the user's are needed.
    for environment in (without_flags(env), env):
        if seen is None:
            dry = ask_dryrun(toolkit.nvcc, environment, run=run_captured, shown=shown, timeout_s=PROBE_TIMEOUT_S)
            seen = parse_settings(dry.output)
    if seen is None or (
        seen.include_flags != toolkit.include_flags
        or seen.library_flags != toolkit.library_flags
        or seen.cicc_folder != f"{folder}/nvvm/bin"
        or seen.search_path[1] != f"{folder}/bin"
    ):
        raise ToolkitBrokenError(
            f"the nvcc of {toolkit.home} does not work through the overlay {folder}",
            hint="take another toolkit with `--toolkit /path/to/cuda`, and please report this one's layout",
        )


def write_gate(folder: Path, gate: Gate) -> None:
    """Make one gate in the overlay ``folder``."""
    place = folder / gate.place
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    python, program = shlex.quote(interpreter()), shlex.quote(str(folder / LIBRARY / "gate.py"))
    real = shlex.quote(gate.real)
    replace_text(
        place,
        "#!/bin/sh\n"
        f"# builddoctor's gate before {gate.real}: it waits for memory; without a supervisor it is that program.\n"
        'if { [ -S "$BUILDDOCTOR_SOCKET" ] || [ -x "$BUILDDOCTOR_ACTIVE" ]; } && '
        f'[ -z "$BUILDDOCTOR_HELD" ] && [ -x {python} ]; then\n'
        f'  exec {python} -IS {program} {gate.role} {real} {shlex.quote(str(place))} "$@"\n'
        "fi\n"
        f'exec {real} "$@"\n',
        mode=0o755,
    )
    _, mtime_ns = stamp(gate.real)
    os.utime(place, ns=(mtime_ns, mtime_ns))


def command_at_gate(argv: Sequence[str]) -> tuple[str, ...]:
    """The command line of a process as it will be when its gate has become the real program."""
    if len(argv) > 5 and argv[1] == "-IS" and argv[2].endswith(f"/{LIBRARY}/gate.py"):
        return (argv[4], *argv[6:])
    return tuple(argv)


def stamp(path: str) -> tuple[int, int]:
    """Size and modification time (ns); zeros for a file that is not there."""
    try:
        info = os.stat(path)
    except OSError:
        return (0, 0)
    return (info.st_size, info.st_mtime_ns)


def replace_link(link: Path, target: Path) -> None:
    """Make or change a symbolic link in one step."""
    if link.is_symlink() and os.readlink(link) == str(target):
        return
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    temporary.symlink_to(target)
    temporary.replace(link)


def replace_text(path: Path, text: str, *, mode: int = 0o644) -> None:
    """Write beside and rename: a process that runs the old file keeps it whole."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
