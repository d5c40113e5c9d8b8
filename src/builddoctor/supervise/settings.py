"""What ``doctor --fix`` settled for later builds: one small JSON file in the state folder.

Does *not* cover: acting on it (``supervise.fixing``).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from builddoctor.errors import FolderNotWritableError
from builddoctor.supervise.folders import traces_folder
from builddoctor.units import printable

LARGEST_BYTES = 64 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it. A file of a newer version may hold more: that is left out."""

    tmpdir: str = ""
    """absolute path that replaces an unfit TMPDIR; empty for none"""


def settings_file(env: Mapping[str, str]) -> Path:
    """Beside the folder of traces."""
    return traces_folder(env).parent / "settings.json"


def read_settings(env: Mapping[str, str]) -> Settings:
    """The settings; those of a new user where there is no file, or none that can be read."""
    try:
        with settings_file(env).open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
        settings = msgspec.json.decode(content, type=Settings)
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return Settings()
    return settings if settings.tmpdir.startswith("/") and settings.tmpdir.isprintable() else Settings()


def write_settings(env: Mapping[str, str], settings: Settings) -> Path:
    """Write the file whole or not at all; its path. Raises FolderNotWritableError."""
    path = settings_file(env)
    try:
        content = msgspec.json.encode(settings) + b"\n"
    except UnicodeEncodeError as error:
        raise FolderNotWritableError(
            f"cannot remember {printable(settings.tmpdir)}: its name is no UTF-8",
            hint="name another folder: `export TMPDIR=/some/folder`",
        ) from error
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix="settings-", dir=path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise FolderNotWritableError(
            f"cannot write {path}: {error.strerror}",
            hint="name another folder: `export BUILDDOCTOR_STATE_DIR=/some/folder`",
        ) from error
    return path
