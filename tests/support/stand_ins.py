"""Scripts in the place of a compiler, for tests of what happens to one.

A ``clang++`` on PATH is gated as a whole, so a script of that name is a phase that does whatever a test needs.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.program import Program

STEADY_HOG = f"{sys.executable} -IS {Path(__file__).with_name('steady_hog.py')}"
HOG = f"{sys.executable} -IS {Path(__file__).with_name('hog.py')}"
"""``HOG MIB MIB_PER_S FILE``"""


def hogcc(folder: Path) -> Path:
    """``hogcc MIB MIB_PER_S FILE``, a compiler that no gate knows, in ``folder``."""
    path = folder / "hogcc"
    subprocess.run(["cc", "-o", str(path), str(Path(__file__).with_name("hogcc.c"))], check=True)
    return path


def stand_in(program: Program, script: str, *, name: str = "clang++") -> Path:
    """Put a shell script on the program's PATH under a compiler's name; its path, which is not gated."""
    folder = program.folder / "tools"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    if not program.env["PATH"].startswith(f"{folder}:"):
        program.env["PATH"] = f"{folder}:{program.env['PATH']}"
    return path
