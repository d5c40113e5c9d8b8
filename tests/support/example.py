"""The embedded example as a project of a user's: copied away, configured and built there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.capabilities import find_nvcc
from support.program import clean_environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "attention_kernels"


class Example:
    """The example's sources at one fixed place, and build folders at another, so that objects can be compared."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "attention_kernels"
        self.build = self.source / "build"
        self.env = clean_environment()
        shutil.copytree(EXAMPLE, self.source, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info"))

    def configure_plainly(self, *extra: str, prefix: Sequence[str] = ()) -> None:
        """CMake as a user calls it, with nvcc by its own absolute path; ``prefix``: what starts it."""
        shutil.rmtree(self.build, ignore_errors=True)
        subprocess.run(
            [
                *(*prefix, "cmake", "-S", str(self.source), "-B", str(self.build), "-G", "Ninja"),
                *("-DCMAKE_CUDA_ARCHITECTURES=90", f"-DCMAKE_CUDA_COMPILER={find_nvcc()}", *extra),
            ],
            env=self.env,
            check=True,
            capture_output=True,
        )
