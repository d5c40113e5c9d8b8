"""Commands of a POSIX shell as Windows' own reads them."""

from __future__ import annotations

import pytest

from builddoctor.diagnose.windows_commands import for_windows
from support.told import explain


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("export PYTHONUTF8=1", 'set "PYTHONUTF8=1"'),
        ("export A=1 B='two words'", 'set "A=1" && set "B=two words"'),
        ("rm -rf build && cmake -B build", "rmdir /s /q build && cmake -B build"),
        ("git status --short; rm -rf build", "git status --short & rmdir /s /q build"),
        (
            "export CUDA_HOME=/usr/local/cuda-10.2 PATH=/usr/local/cuda-10.2/bin:$PATH",
            r'set "CUDA_HOME=C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v10.2"',
        ),
        ("export CUDA_HOME=/usr/local/cuda", 'set "CUDA_HOME=%CUDA_PATH%"'),
        ('export CFLAGS="$CFLAGS -w"', 'export CFLAGS="$CFLAGS -w"'),
        ("pip install a; pip install b", "pip install a; pip install b"),
        ("", ""),
    ],
)
def test_a_command_is_told_for_cmd(command: str, told: str) -> None:
    """What needs a POSIX shell's substitutions stays as it is."""
    assert for_windows(command) == told


@pytest.mark.parametrize(("path", "told"), [(r"C:\Users\x\setup.py", 'set "PYTHONUTF8=1"'), ("/x/setup.py", "export")])
def test_advice_is_told_for_the_system_of_the_log(path: str, told: str) -> None:
    """By its paths."""
    log = (
        f"""  File "{path}", line 3\nUnicodeDecodeError: 'gbk' codec can't decode byte 0x9d in position 2: illegal\n"""
    )
    log += "ERROR: Command errored out with exit status 1: python setup.py egg_info\n"
    fixes = explain([log.encode()]).diagnosis.fixes
    assert any(told in fix.command for fix in fixes), fixes
