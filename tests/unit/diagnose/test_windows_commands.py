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
        ("pip install a; pip install b", "pip install a & pip install b"),
        ("pip install 'numpy<2'", 'pip install "numpy<2"'),
        (
            "python -c 'import torch; print(torch.version.cuda)'; nvcc --version",
            'python -c "import torch; print(torch.version.cuda)" & nvcc --version',
        ),
        ("unset CUB_HOME; env | grep -E 'CPATH|INCLUDE'", 'set "CUB_HOME=" & set | findstr "CPATH INCLUDE"'),
        ('find . -name "$(basename ../a/b.h)"; git status', "dir /s /b b.h & git status"),
        (
            'export CUDACXX="${CUDA_HOME:-/usr/local/cuda}/bin/nvcc"; rm -rf build',
            r'set "CUDACXX=%CUDA_PATH%\bin\nvcc.exe" & rmdir /s /q build',
        ),
        (
            'rm -rf build && cmake -B build -DCUDAToolkit_ROOT="${CUDA_HOME:-/usr/local/cuda}"',
            'rmdir /s /q build && cmake -B build -DCUDAToolkit_ROOT="%CUDA_PATH%"',
        ),
        ("go version; grep -n '^go ' go.mod", 'go version & findstr /n /b /c:"go " go.mod'),
        (
            r"grep -rnE '\.type\(\)' --include='*.cu' --include='*.h' .",
            'findstr /n /s /c:".type()" *.cu *.h',
        ),
        ("grep -rnE '(sm|compute)_[12]' --include=setup.py .", "grep -rnE '(sm|compute)_[12]' --include=setup.py ."),
        (
            "pip show torch | grep -i requires; pip install triton",
            'pip show torch | findstr /i "requires" & pip install triton',
        ),
        ("env | grep -i _proxy", 'set | findstr /I "_proxy"'),
        ('type -a nvcc; echo "$CUDA_HOME"', "where nvcc & echo %CUDA_HOME%"),
        ("python3 -m venv .venv && . .venv/bin/activate", r"python -m venv .venv && .venv\Scripts\activate"),
        ("python3.13 -m venv e && . e/bin/activate", r"py -3.13 -m venv e && e\Scripts\activate"),
        (
            "command -v gcc clang; CGO_ENABLED=1 go build ./...",
            'where gcc clang & set "CGO_ENABLED=1" && go build ./...',
        ),
        (r"ls -l 'C:\a b\c.whl'; head -c 200 'C:\a b\c.whl'", r'dir "C:\a b\c.whl" & type "C:\a b\c.whl" | more'),
        ("grep -rn 'a; b' .", "grep -rn 'a; b' ."),
        ('mkdir C:\\Temp & set "TEMP=C:\\Temp"', 'mkdir C:\\Temp & set "TEMP=C:\\Temp"'),
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
