"""What a toolkit lacks, and how toolkits are shown."""

from __future__ import annotations

import os
from pathlib import Path

from builddoctor.core.toolchain import Toolkit
from builddoctor.system.root import SystemRoot
from builddoctor.toolkits.layout import merge
from builddoctor.toolkits.listing import missing
from builddoctor.toolkits.wheels import read_wheel
from support.made_wheels import toolkit_wheels
from unit.toolkits.test_layout import MANIFEST


def lacking(home: Path) -> tuple[str, ...]:
    toolkit = Toolkit(nvcc=f"{home}/bin/nvcc", version="13.0.88", here=f"{home}/bin", top=str(home), cicc="", tools=())
    return missing(SystemRoot(), toolkit, os.uname().machine)


def test_what_a_build_would_not_find_is_named(tmp_path: Path) -> None:
    """A library that is not there by its name; one that ``-lX`` does not find by its file. NVML's is the driver's."""
    wheels = [read_wheel(path) for path in toolkit_wheels(tmp_path / "wheels") if "cuda_toolkit" not in path.name]
    (tmp_path / "home").mkdir()
    merge(wheels, tmp_path / "home", MANIFEST)
    assert lacking(tmp_path / "home") == (
        *("cudnn", "nccl", "nvrtc", "cufft", "curand", "cusparse", "cusolver", "nvtx", "profiler"),
    )
    (tmp_path / "home" / "lib64" / "libcublas.so").unlink()
    assert "libcublas.so" in lacking(tmp_path / "home")
