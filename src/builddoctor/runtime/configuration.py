"""Settings from files and the environment, each with its source.

One order: a flag, ``BUILDDOCTOR_NAME``, the project's file, the user's own. The project's file is the nearest
``builddoctor.toml``, or ``pyproject.toml`` with ``[tool.builddoctor]``, in the current folder or above; the user's is
``config.toml`` in the configuration folder. Of each name the first value counts.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from builddoctor.core.configuration import EXCLUDING, NOT_BY_PROJECTS, Configuration, Setting
from builddoctor.core.errors import UsageError
from builddoctor.system.user_folders import usual_folder

MOST_PARENTS = 16
_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Configuration)}
_YES, _NO = frozenset(("1", "true", "yes", "on")), frozenset(("0", "false", "no", "off"))


def user_file(env: Mapping[str, str]) -> Path:
    """Of this user, for all projects. BUILDDOCTOR_CONFIG_DIR names another folder."""
    named = env.get("BUILDDOCTOR_CONFIG_DIR")
    return (Path(named) if named else usual_folder("config")) / "config.toml"


def settings(env: Mapping[str, str], cwd: Path) -> list[Setting]:
    """All in force, in the order of their names. Raises UsageError for a name or value that is none."""
    found: dict[str, Setting] = {}
    layers = [_of_environment(env)]
    if (project := _project_file(cwd)) is not None:
        layers.append(_of_file(*project, by_project=True))
    if (own := user_file(env)).is_file():
        layers.append(_of_file(own, own.read_bytes(), by_project=False))
    for layer in layers:
        settled = any(found[name].value for name in EXCLUDING if name in found)
        for setting in layer:
            if not (settled and setting.name in EXCLUDING):
                found.setdefault(setting.name, setting)
    return [found[name] for name in _FIELDS if name in found]


def variable(name: str) -> str:
    """``ignore-caps`` as a variable of the environment."""
    return "BUILDDOCTOR_" + name.upper().replace("-", "_")


def _of_environment(env: Mapping[str, str]) -> list[Setting]:
    found: list[Setting] = []
    for name in _FIELDS:
        text = env.get(variable(name), "")
        if text:
            found += _checked({name: _read(name, text)}, f"${variable(name)}")
    return found


def _read(name: str, text: str) -> object:
    kind = str(_FIELDS[name].type)
    if "bool" in kind and text.lower() in _YES | _NO:
        return text.lower() in _YES
    return int(text) if "int" in kind and text.isascii() and text.isdigit() else text


def _of_file(path: Path, text: bytes, *, by_project: bool) -> list[Setting]:
    try:
        table = msgspec.toml.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    if path.name == "pyproject.toml":
        table = table["tool"]["builddoctor"]
    if by_project and (theirs := [name for name in NOT_BY_PROJECTS if name in table]):
        raise UsageError(
            f"{path} sets {theirs[0]}: what names a program or a place to write to is not taken from a checkout",
            hint=f"set it for yourself: `export {variable(theirs[0])}=…`, or in your own config.toml",
        )
    return _checked(table, str(path))


def _checked(table: object, source: str) -> list[Setting]:
    """Raises UsageError, with the near name for one that is none."""
    names = list(table) if isinstance(table, dict) else []
    for name in names:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name.replace("_", "-"), _FIELDS, 1)
            raise UsageError(
                f"{source}: there is no setting {name}",
                hint=f"did you mean {near[0]}?" if near else "`builddoctor config show --all` lists what there is",
            )
    try:
        checked = msgspec.convert(table, Configuration)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {error}", hint="`builddoctor config show --all` says what each takes") from error
    return [
        Setting(name=name, value=cast("str | int | bool", getattr(checked, field.name)), source=source)
        for name, field in _FIELDS.items()
        if getattr(checked, field.name) is not None
    ]


def _project_file(cwd: Path) -> tuple[Path, bytes] | None:
    for folder in (cwd, *cwd.parents[:MOST_PARENTS]):
        for name, mark in (("builddoctor.toml", b""), ("pyproject.toml", b"[tool.builddoctor]")):
            try:
                text = (folder / name).read_bytes()
            except OSError:
                continue
            if mark in text:
                return folder / name, text
    return None
