"""CMake files as text: comments taken away, commands with the certainty that they are run, and what follows of them.

Covers: the oldest CMake that a file takes, the project's name, paths that it builds with, CUDA. Line, trailing and
bracket comments; quoted and bracket arguments. Certain is what stands outside of all conditions and blocks (``if``,
``foreach``, ``function`` …) and before a ``return()`` in one. Variables that the file itself sets outside of them are
followed. Takes time in proportion to the text, whatever it holds.
Does *not* cover: evaluating conditions, files that are included, and generator expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

MOST_CHARACTERS = 256 * 1024
"""of a file that is taken apart; PyTorch's is 60 KB"""
MOST_ARGS = 500
"""of one command, with its variables put in"""
MOST_PATHS = 2000

_TOKEN = re.compile(
    r"""
    (?P<open>\#?\[(?P<equals>=*)\[)
    | (?P<comment>\#[^\n]*)
    | (?P<quoted>"(?:[^"\\]+|\\.)*"?)
    | (?P<paren>[()])
    | (?P<word>(?:[^\s()\#"\\]+|\\.)+)
    """,
    re.VERBOSE | re.DOTALL,
)
_SPECIAL = re.compile(r'\#\[(?P<equals>=*)\[|(?P<comment>\#[^\n]*)|"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_OPEN = frozenset(("if", "foreach", "while", "function", "macro"))
_CLOSE = frozenset(f"end{name}" for name in _OPEN)

_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}(?:\.\.\.\d{1,6}(?:\.\d{1,6}){0,3})?")
_NAME = re.compile(r"[\w.+-]+")
_WHOLE_VARIABLE = re.compile(r"\$\{(?P<name>\w+)\}")
_IN_BUILD = re.compile(r"\A\$<BUILD_INTERFACE:(?P<path>[^<>]*)>\Z")
_READ = frozenset(("add_subdirectory", "include", "include_directories", "cuda_include_directories"))
_OF_TARGET = frozenset(
    ("add_library", "add_executable", "target_sources", "target_include_directories", "cuda_add_library")
)
"""Their first argument is a name."""


class CMakeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Empty where it says nothing."""

    project: str = ""
    """its name, of ``project()``"""
    minimum: str = ""
    """the lowest of its ``cmake_minimum_required``; empty where one of them is a variable"""
    minimum_certain: bool = False
    paths: tuple[str, ...] = ()
    """what it reads or builds with; variables of others as they stand there"""
    cuda: bool = False
    """CUDA is a language of the project"""


def read_cmake(text: str) -> CMakeFacts:
    """The facts of one file."""
    listed = list(commands(text))
    minimum, minimum_certain = _minimum(listed)
    variables: dict[str, tuple[str, ...]] = {}
    paths: list[str] = []
    cuda = False
    for number, command in enumerate(listed):
        args = _expanded(command.args, variables)
        if command.name in ("set", "unset", "list", "option"):
            _assign(command, args, variables)
        elif not command.certain or len(paths) > MOST_PATHS:
            continue
        elif command.name in _READ and "OPTIONAL" not in args:
            # A single word is a module's name for include().
            paths += [each for each in args if command.name == "add_subdirectory" or "/" in each]
            if command.name == "add_subdirectory" and args and "/" not in args[0]:
                paths.append(f"./{args[0]}")
        elif command.name in _OF_TARGET and "EXCLUDE_FROM_ALL" not in args:
            paths += [each for each in args[1:] if "/" in each]
        elif command.name == "if" and args[:2] == ("NOT", "EXISTS") and len(args) == 3:
            paths += [args[2]] if _is_fatal(listed[number + 1 : number + 2]) else []
        elif command.name in ("project", "enable_language"):
            cuda = cuda or ("CUDA" in args[command.name == "project" :] and "OPTIONAL" not in args)
    return CMakeFacts(
        project=_project(listed),
        minimum=minimum,
        minimum_certain=minimum_certain,
        paths=tuple(dict.fromkeys(map(_plain, paths))),
        cuda=cuda,
    )


def first_minimum(versions: Iterable[str]) -> str:
    """The lowest of them; of a range, its lower end counts."""
    return min(versions, key=as_numbers, default="")


def as_numbers(version: str) -> tuple[int, ...]:
    """Of ``3.5...3.29``, the first."""
    return tuple(int(part) for part in version.partition("...")[0].split(".") if part.isdigit() and len(part) < 9)


class Command(msgspec.Struct, frozen=True):
    """``add_subdirectory(third_party/a)``."""

    name: str
    """in small letters"""
    args: tuple[str, ...]
    """without quotes; variables as they stand there"""
    certain: bool
    """no condition and no block around it: it is run whenever the file is read"""


def without_comments(text: str) -> str:
    """The same text, comments left out; what stands in quotes stays as it is."""
    kept: list[str] = []
    done = 0
    while (found := _SPECIAL.search(text, done)) is not None:
        if found["equals"] is not None:
            closer = f"]{found['equals']}]"
            kept.append(text[done : found.start()])
            end = text.find(closer, found.end())
            if end < 0:
                return "".join(kept)
            done = end + len(closer)
        else:
            kept.append(text[done : found.start() if found["comment"] is not None else found.end()])
            done = found.end()
    return "".join(kept) + text[done:]


def commands(text: str) -> Iterator[Command]:
    """All commands in their order. A text that is too long gives none: nothing is certain of it."""
    if len(text) > MOST_CHARACTERS:
        return
    blocks, left, in_function = 0, False, 0
    for name, args in _calls(text):
        if name in _CLOSE:
            blocks = max(0, blocks - 1)
            in_function = max(0, in_function - (name in ("endfunction", "endmacro")))
            continue
        yield Command(name=name, args=args, certain=not blocks and not left)
        if name in _OPEN:
            blocks += 1
            in_function += name in ("function", "macro")
        elif name == "return" and not in_function:
            left = True


def _minimum(listed: Iterable[Command]) -> tuple[str, bool]:
    asked = [command for command in listed if command.name == "cmake_minimum_required"]
    said = [command.args[command.args.index("VERSION") + 1 :][:1] for command in asked if "VERSION" in command.args]
    versions = [word[0] for word in said if word and _VERSION.fullmatch(word[0])]
    if not asked or len(versions) < len(asked):
        return "", False
    return first_minimum(versions), all(command.certain for command in asked)


def _project(listed: Iterable[Command]) -> str:
    named = (each.args[0] for each in listed if each.name == "project" and each.args)
    return next((name for name in named if _NAME.fullmatch(name)), "")


def _assign(command: Command, args: tuple[str, ...], variables: dict[str, tuple[str, ...]]) -> None:
    if not args:
        return
    if command.name == "list":
        if len(args) > 1 and args[0] in ("APPEND", "PREPEND") and command.certain:
            variables[args[1]] = (*variables.get(args[1], ()), *args[2:])[:MOST_ARGS]
    elif command.name == "set" and command.certain and not {"CACHE", "ENV"} & set(args):
        variables[args[0]] = args[1:]
    else:
        # What it is set to is decided elsewhere.
        variables.pop(args[0], None)


def _expanded(args: tuple[str, ...], variables: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    found: list[str] = []
    for each in args[:MOST_ARGS]:
        whole = _WHOLE_VARIABLE.fullmatch(each)
        if whole is not None and whole["name"] in variables:
            found += variables[whole["name"]]
        elif "$" in each:
            found += _WHOLE_VARIABLE.sub(lambda match: _one(match, variables), each[:1000])[:2000].split(";")
        else:
            found += each.split(";")
    return tuple(found[:MOST_ARGS])


def _one(match: re.Match[str], variables: dict[str, tuple[str, ...]]) -> str:
    value = variables.get(match["name"], ())
    return value[0][:500] if len(value) == 1 else match[0]


def _plain(path: str) -> str:
    """Without ``$<BUILD_INTERFACE:…>``; another condition of that kind leaves nothing certain."""
    inside = _IN_BUILD.match(path)
    if inside is not None:
        return inside["path"]
    return "" if "$<" in path else path


def _is_fatal(following: Iterable[Command]) -> bool:
    return any(each.name == "message" and each.args[:1] == ("FATAL_ERROR",) for each in following)


def _calls(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    name, args, depth = "", list[str](), 0
    for kind, word in _words(text):
        if kind == "paren":
            depth = depth + 1 if word == "(" else max(0, depth - 1)
            if word == "(" and depth == 1:
                args = []
                continue
            if word == ")" and not depth:
                if name:
                    yield name, tuple(args)
                name = ""
        if depth:
            args.append(word)
        elif kind == "word":
            name = word.lower()


def _words(text: str) -> Iterator[tuple[str, str]]:
    """(kind, text) without comments; a bracket that is never closed ends the file, as for CMake."""
    place = 0
    while (token := _TOKEN.search(text, place)) is not None:
        place = token.end()
        if token["open"] is not None:
            closer = f"]{token['equals']}]"
            end = text.find(closer, place)
            if end < 0:
                return
            if not token["open"].startswith("#"):
                yield "quoted", text[place:end]
            place = end + len(closer)
        elif token["quoted"] is not None:
            yield "quoted", token["quoted"].strip('"')
        elif token["comment"] is None:
            yield ("paren" if token["paren"] is not None else "word"), token[0]
