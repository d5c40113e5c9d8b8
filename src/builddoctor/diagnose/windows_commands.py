"""Commands of a POSIX shell as Windows' own reads them. Pure.

Covers: settings of the environment, CUDA's folder, folders that are removed, environments of Python, quotes, programs
that are looked for, several commands in a line.
Does *not* cover: most of what has a substitution, or programs of Unix, which cmd has not: that stays as it is, for the
bash of Git or MSYS2.
"""

from __future__ import annotations

import re

_PARTS = re.compile(r"""((?:[^'";&]|'[^']*'|"[^"]*"|&(?!&)|;(?! ))+?)( && |; |\Z)""")
"""a command, and what stands between it and the next; not within quotes"""
_BETWEEN = {" && ": " && ", "; ": " & ", "": ""}
_EXPORT = re.compile(r"export((?: [A-Za-z_]\w*=(?:'[^'$]*'|\"[^\"$]*\"|[^\s'\"$;]*))+)\Z")
_SETTING = re.compile(r" ([A-Za-z_]\w*)=('[^']*'|\"[^\"]*\"|\S*)")
_TOOLKIT, _TOOLKITS_NVCC = '"${CUDA_HOME:-/usr/local/cuda}"', '"${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"'
_REMOVED = re.compile(r"rm -rf ([\w.*-]+)\Z")
_CUDA = re.compile(
    r"export CUDA_HOME=/usr/local/cuda(?:-(?P<version>\d{1,2}\.\d))?"
    r"(?: PATH=/usr/local/cuda(?:-\d{1,2}\.\d)?/bin:\$PATH)?\Z"
)
_UNSET = re.compile(r"unset((?: [A-Za-z_]\w*)+)\Z")
_LOOKED_FOR = re.compile(r"(?:type -a|which -a|which|command -v)((?: [\w.+-]+)+)\Z")
_VARIABLES = re.compile(r"env \| grep -(?P<how>E|i) '?(?P<names>[\w|]+)'?\Z")
_VENV = re.compile(r"python(?P<version>3(?:\.\d{1,2})?) -m venv (?P<folder>[\w.-]+)\Z")
_ACTIVATE = re.compile(r"\. (?P<folder>[\w.-]+)/bin/activate\Z")
_BEFORE = re.compile(r"(?P<name>[A-Z_][A-Z0-9_]*)=(?P<value>[\w.-]+) (?P<rest>[a-z].*)\Z")
_ECHO = re.compile(r'echo((?: "?\$\w+"?)+)\Z')
_ASKS_GPU = re.compile(r"export TORCH_CUDA_ARCH_LIST=\"\$\(nvidia-smi [^$]*\)\"\Z")
_LISTED = re.compile(r"ls -ld? (?P<file>'[^'$%]*'|[\w.:\\/-]+)\Z")
_FOUND = re.compile(r"""find \. -name "\$\(basename (?:[^\s'"$]*[/\\])?(?P<name>[^\s'"$/\\]+)\)"\Z""")
_SHOWN = re.compile(r"head -c \d+ (?P<file>'[^'$%]*'|[\w.:\\/-]+)\Z")
_GREPPED = re.compile(
    r"grep -(?P<how>rnE|rn|n|rnF) (?:-e )?(?P<quote>['\"]?)(?P<text>[^'\"$|]+)(?P=quote)"
    r"(?P<globs>(?: --include='?[\w.*-]+'?)*) (?P<where>[\w./\\-]+)\Z"
)
_PIPED = re.compile(r" \| grep (?P<how>-[iFE]+ )?(?P<quote>['\"]?)(?P<text>[\w.+-]+)(?P=quote)\Z")
_QUOTED = re.compile(r""""[^"]*"|'(?P<text>[^'"$%`]*)'""")
"""of both kinds: one within the other is none"""
_OF_UNIX = re.compile(
    r"(?:ls|grep|sed|find|cat|env|head|tail|file|sudo|apt-get|df|free|uname|ulimit|chmod|ldd|export|source)\b"
)
_PLAIN = re.compile(r"""[\w.+/\\-]+(?: (?:[\w.,:;=+@<>%~\\/-]+|"[^"$`]*"))*\Z""")


def for_windows(command: str) -> str:
    """The same for cmd, where all of it that a POSIX shell alone reads is known."""
    given = command.replace(_TOOLKITS_NVCC, r'"%CUDA_PATH%\bin\nvcc.exe"').replace(_TOOLKIT, '"%CUDA_PATH%"')
    pieces = _PARTS.findall(given)
    if "".join(part + between for part, between in pieces) != given:
        return command
    told = [_part(part) for part, _ in pieces]
    if told == [part for part, _ in pieces] and given == command and not all(map(_is_plain, told)):
        return command
    return "".join(part + _BETWEEN[between] for part, (_, between) in zip(told, pieces, strict=True))


def _is_plain(command: str) -> bool:
    """cmd reads it as a POSIX shell does."""
    return _PLAIN.match(command) is not None and _OF_UNIX.match(command) is None


def _part(command: str) -> str:
    if (cuda := _CUDA.match(command)) is not None:
        version = cuda["version"]
        folder = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{version}" if version else "%CUDA_PATH%"
        return f'set "CUDA_HOME={folder}"'
    if (exported := _EXPORT.match(command)) is not None:
        settings = _SETTING.findall(exported[1])
        return " && ".join(f'set "{name}={_unquoted(value)}"' for name, value in settings)
    if (unset := _UNSET.match(command)) is not None:
        return " & ".join(f'set "{name}="' for name in unset[1].split())
    if (before := _BEFORE.match(command)) is not None:
        return f'set "{before["name"]}={before["value"]}" && {_part(before["rest"])}'
    if (removed := _REMOVED.match(command)) is not None:
        return f"rmdir /s /q {removed[1]}"
    if _ASKS_GPU.match(command) is not None:
        return "nvidia-smi --query-gpu=name,compute_cap --format=csv"
    return _of_python(command) or _of_looking(command) or _with_quotes(command)


def _of_python(command: str) -> str:
    if (made := _VENV.match(command)) is not None:
        python = "python" if made["version"] == "3" else f"py -{made['version']}"
        return f"{python} -m venv {made['folder']}"
    if (entered := _ACTIVATE.match(command)) is not None:
        return rf"{entered['folder']}\Scripts\activate"
    return ""


def _of_looking(command: str) -> str:
    """What shows something of the machine."""
    if (looked := _LOOKED_FOR.match(command)) is not None:
        return f"where{looked[1]}"
    if (variables := _VARIABLES.match(command)) is not None:
        return f'set | findstr {"/I " * (variables["how"] == "i")}"{variables["names"].replace("|", " ")}"'
    if (echo := _ECHO.match(command)) is not None:
        return "echo" + re.sub(r'"?\$(\w+)"?', r"%\1%", echo[1])
    if (listed := _LISTED.match(command)) is not None:
        return f'dir "{_unquoted(listed["file"])}"'
    if (found := _FOUND.match(command)) is not None:
        return f"dir /s /b {found['name']}"
    if (shown := _SHOWN.match(command)) is not None:
        return f'type "{_unquoted(shown["file"])}" | more'
    return _of_searching(command)


def _of_searching(command: str) -> str:
    """findstr in the place of grep, where the pattern is a plain text."""
    if (grepped := _GREPPED.match(command)) is not None:
        text = grepped["text"] if grepped["how"] == "rnF" else re.sub(r"\\(\W)", r"\1", grepped["text"])
        start = " /b" * text.startswith("^")
        text = text.removeprefix("^")
        plain = not re.search(r"(?<!\\)[][*+?(){}^$]", grepped["text"].removeprefix("^"))
        globs = re.findall(r"--include='?([\w.*-]+)", grepped["globs"])
        if plain and (globs or grepped["where"] != "."):
            return f'findstr /n{" /s" * bool(globs)}{start} /c:"{text}" {" ".join(globs) or grepped["where"]}'
    piped = _PIPED.search(command)
    if piped is not None and "$" not in command and not _OF_UNIX.match(command):
        case = "/i " if "i" in (piped["how"] or "") else ""
        return f'{_with_quotes(command[: piped.start()])} | findstr {case}"{piped["text"]}"'
    return ""


def _with_quotes(command: str) -> str:
    command = command.replace('"$CUDA_HOME/bin/nvcc"', r'"%CUDA_HOME%\bin\nvcc"')
    return command if _OF_UNIX.match(command) or "$" in command else _QUOTED.sub(_doubly, command)


def _doubly(quoted: re.Match[str]) -> str:
    return quoted[0] if quoted["text"] is None else f'"{quoted["text"]}"'


def _unquoted(value: str) -> str:
    return value[1:-1] if value[:1] in ("'", '"') else value
