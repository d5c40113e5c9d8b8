"""Why a build command cannot be started: the sentence names the cause, and the hint is what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from builddoctor.core.errors import BuildDoctorError, CommandNotExecutableError, CommandNotFoundError
from builddoctor.gates.start_error import start_error

PATH = os.defpath


def script(folder: Path, text: str) -> None:
    (folder / "build.sh").write_text(text)
    (folder / "build.sh").chmod(0o755)


def of(*command: str, folder: Path, number: int = errno.ENOENT, path: str = PATH) -> BuildDoctorError:
    return start_error(command, number, cwd=str(folder), path=path)


def test_a_mistyped_program_is_named_with_its_arguments(tmp_path: Path) -> None:
    for name in ("sh", "make"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    error = of("mkae", "-j8", "a b", folder=tmp_path, path=str(tmp_path))
    assert isinstance(error, CommandNotFoundError)
    assert error.hint == "did you mean `builddoctor run -- make -j8 'a b'`?"
    assert "goes after" in (of("nijna", folder=tmp_path, path=str(tmp_path)).hint or "")


def test_a_mistyped_script_is_looked_for_beside(tmp_path: Path) -> None:
    script(tmp_path, "#!/bin/sh\n")
    (tmp_path / "biuld.txt").write_text("")
    assert of("./biuld.sh", folder=tmp_path).hint == "did you mean `builddoctor run -- ./build.sh`?"
    assert "goes after" in (of("nothing/biuld.sh", folder=tmp_path).hint or "")
    assert "goes after" in (of("build.sh/x", folder=tmp_path, number=errno.ENOTDIR).hint or "")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("#!/bin/bash\r\nmake\r\n", "lines end as on Windows", "sed -i 's/\\r$//' ./build.sh"),
        ("#!/opt/gone/sh -e\nmake\n", "asks for /opt/gone/sh -e, which", "`builddoctor run -- sh ./build.sh`"),
        ("#!/opt/gone/ksh99\nmake\n", "asks for /opt/gone/ksh99, which", "`builddoctor run -- sh ./build.sh`"),
        ("\x7fELF", "loader is not there", "take one that was built for this one; `ldd ./build.sh` says what it needs"),
    ],
)
def test_a_script_that_is_there_lacks_its_interpreter(tmp_path: Path, text: str, said: str, hint: str) -> None:
    """The kernel says *No such file or directory* all the same."""
    script(tmp_path, text)
    error = of("./build.sh", folder=tmp_path)
    assert isinstance(error, CommandNotExecutableError)
    assert said in str(error)
    assert error.hint == hint
