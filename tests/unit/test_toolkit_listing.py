"""What a toolkit lacks, and how toolkits are shown."""

from __future__ import annotations

import os
from pathlib import Path

from builddoctor.model.managed import FoundToolkit, Plan, PlannedPackage
from builddoctor.model.toolkit import Toolkit
from builddoctor.render.toolkits import plan_rows, toolkit_rows
from builddoctor.sensors.root import SystemRoot
from builddoctor.toolkits.listing import missing
from builddoctor.toolkits.merge import merge
from builddoctor.toolkits.wheel import read_wheel
from support.made_wheels import toolkit_wheels
from unit.test_toolkit_merge import MANIFEST


def lacking(home: Path) -> tuple[str, ...]:
    toolkit = Toolkit(nvcc=f"{home}/bin/nvcc", version="13.0.88", here=f"{home}/bin", top=str(home), cicc="", tools=())
    return missing(SystemRoot(), toolkit, os.uname().machine)


def test_what_a_build_would_not_find_is_named(tmp_path: Path) -> None:
    """A library that is not there by its name; one that ``-lX`` does not find by its file. NVML's is the driver's."""
    wheels = [read_wheel(path) for path in toolkit_wheels(tmp_path / "wheels") if "cuda_toolkit" not in path.name]
    (tmp_path / "home").mkdir()
    merge(wheels, tmp_path / "home", MANIFEST)
    assert lacking(tmp_path / "home") == (
        *("cudnn", "nccl", "nvrtc", "curand", "cusparse", "cusolver", "nvtx", "profiler"),
    )
    (tmp_path / "home" / "lib64" / "libcublas.so").unlink()
    assert "libcublas.so" in lacking(tmp_path / "home")


def test_toolkits_are_shown_one_a_line_with_what_they_lack() -> None:
    """Another processor's, and one that cannot be used, are told apart."""
    rows = toolkit_rows(
        [
            FoundToolkit(path="/usr/local/cuda", version="13.0.88", kind="system", arch="x86_64", lacks=("cudnn",)),
            FoundToolkit(path="/data/cuda-13.0.88-aarch64", version="13.0.88", kind="managed", arch="aarch64"),
            FoundToolkit(path="/opt/x", kind="named", arch="x86_64", problem="it does not run"),
        ],
        here="x86_64",
    )
    assert rows[1] == "13.0.88    system   /usr/local/cuda"
    assert rows[2].strip() == "without cudnn"
    assert rows[3].endswith("/data/cuda-13.0.88-aarch64 (aarch64)")
    assert rows[5].strip() == "cannot be used: it does not run"
    assert toolkit_rows([], here="x86_64") == ["no CUDA toolkit on this machine"]


def test_a_plan_tells_packages_sizes_and_place() -> None:
    """What is in the cache is told; free space only where it is known."""
    package = PlannedPackage(requirement="nvidia-nvvm==13.0.88.*", cached=True)
    plan = Plan(
        release="13.0.3.0", arch="x86_64", components=(), packages=(package,), folder="/data/x", fetch_mib=100.0,
        disk_mib=270.0, free_mib=None,
    )  # fmt: skip
    rows = plan_rows(plan)
    assert rows[0] == "CUDA 13.0.3.0 for x86_64 in /data/x"
    assert rows[1].endswith("in the cache")
    assert rows[-1] == "about 100 MiB to fetch, 270 MiB on disk"
