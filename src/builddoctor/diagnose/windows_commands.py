"""Commands of a POSIX shell as Windows' own reads them. Pure.

Covers: settings of the environment, CUDA's folder, and folders that are removed.
Does *not* cover: anything with a substitution, which cmd has not: that stays as it is, for Git's bash or MSYS2's.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r"( && |; )")
_BETWEEN = {" && ": " && ", "; ": " & "}
_EXPORT = re.compile(r"export((?: [A-Za-z_]\w*=(?:'[^'$]*'|\"[^\"$]*\"|[^\s'\"$;]*))+)\Z")
_SETTING = re.compile(r" ([A-Za-z_]\w*)=('[^']*'|\"[^\"]*\"|\S*)")
_REMOVED = re.compile(r"rm -rf ([\w.*-]+)\Z")
_CUDA = re.compile(
    r"export CUDA_HOME=/usr/local/cuda(?:-(?P<version>\d{1,2}\.\d))?"
    r"(?: PATH=/usr/local/cuda(?:-\d{1,2}\.\d)?/bin:\$PATH)?\Z"
)


def for_windows(command: str) -> str:
    """The same for cmd, where all of it that a POSIX shell alone reads is known."""
    pieces = _PARTS.split(command)
    told = [_part(each) if place % 2 == 0 else _BETWEEN[each] for place, each in enumerate(pieces)]
    return command if told[::2] == pieces[::2] else "".join(told)


def _part(command: str) -> str:
    if (cuda := _CUDA.match(command)) is not None:
        version = cuda["version"]
        folder = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{version}" if version else "%CUDA_PATH%"
        return f'set "CUDA_HOME={folder}"'
    if (exported := _EXPORT.match(command)) is not None:
        settings = _SETTING.findall(exported[1])
        return " && ".join(f'set "{name}={_unquoted(value)}"' for name, value in settings)
    if (removed := _REMOVED.match(command)) is not None:
        return f"rmdir /s /q {removed[1]}"
    return command.replace('"$CUDA_HOME/bin/nvcc"', r'"%CUDA_HOME%\bin\nvcc"')


def _unquoted(value: str) -> str:
    return value[1:-1] if value[:1] in ("'", '"') else value
