"""Why the build command cannot be started, in words: the kernel has one number for several causes.

Covers: a name that is nearly one that is there; a script without its interpreter, or with the line ends of Windows; a
program without its loader; a file that may not be run. Does *not* cover: starting it (``gates.guardian_program``).
"""

from __future__ import annotations

import difflib
import errno
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path

from builddoctor.core.errors import CommandNotExecutableError, CommandNotFoundError
from builddoctor.system.source_files import text_of

_BUILD_COMMANDS = (
    *("ninja", "make", "gmake", "cmake", "meson", "bazel", "bash", "sh"),
    *("pip", "pip3", "python", "python3", "uv", "nvcc", "scons", "cargo", "colcon", "conda"),
)
"""One of these was meant by a name that is nearly it."""
_SHEBANG_BYTES = 256
"""The kernel reads so much of a script (execve(2))."""


def start_error(
    command: Sequence[str], number: int, *, cwd: str, path: str
) -> CommandNotFoundError | CommandNotExecutableError:
    """Why the build command cannot be started (``number``: errno), and what was meant."""
    name = command[0]
    file = Path(cwd, name)
    if number == errno.ENOENT and "/" in name and file.is_file():
        return _interpreter_error(name, (text_of(file, _SHEBANG_BYTES) or "").partition("\n")[0], path)
    if number in (errno.ENOENT, errno.ENOTDIR):
        if "/" in name:
            there = [each.name for each in file.parent.glob("*") if os.access(each, os.X_OK)]
        else:
            there = [each for each in _BUILD_COMMANDS if shutil.which(each, path=path)]
        close = difflib.get_close_matches(file.name, there, n=1, cutoff=0.7)
        meant = shlex.join([os.path.join(os.path.dirname(name), close[0]), *command[1:]]) if close else ""
        return CommandNotFoundError(
            f"the build command does not exist: {name}",
            hint=f"did you mean `builddoctor run -- {meant}`?"
            if meant
            else "the command goes after `--`, as in `builddoctor run -- ninja -C build`",
        )
    return CommandNotExecutableError(
        f"the build command cannot be started: {name}: {os.strerror(number)}",
        hint=f"is it meant to be run by a shell? `builddoctor run -- sh {shlex.quote(name)}`",
    )


def _interpreter_error(name: str, first_line: str, path: str) -> CommandNotExecutableError:
    """The kernel says *No such file* of what the script's first line asks for, or of a program's loader."""
    begun, quoted = f"the build command cannot be started: {name}", shlex.quote(name)
    if not first_line.startswith("#!"):
        return CommandNotExecutableError(
            f"{begun}: its loader is not there: it was built for another system",
            hint=f"take one that was built for this one; `ldd {quoted}` says what it needs",
        )
    if first_line.endswith("\r"):
        return CommandNotExecutableError(
            f"{begun}: its lines end as on Windows, so its first line asks for a program that no system has",
            hint=f"sed -i 's/\\r$//' {quoted}",
        )
    words = first_line.removeprefix("#!").split()
    program = os.path.basename(words[0]) if words else "sh"
    found = program if shutil.which(program, path=path) else "sh"
    return CommandNotExecutableError(
        f"{begun}: its first line asks for {' '.join(words)}, which is not there",
        hint=f"`builddoctor run -- {shlex.quote(found)} {quoted}`",
    )
