"""``--arch native``: what nvidia-smi says."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.projects.archs import visible_archs
from support.program import Program


def nvidia_smi(folder: Path, script: str) -> dict[str, str]:
    """An environment whose only nvidia-smi is this script."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("script", "archs"),
    [
        ('[ "$1" = --query-gpu=compute_cap ] && printf "9.0\\n9.0\\n10.3\\n"', ("9.0", "10.3")),
        ("echo NVIDIA-SMI has failed: no driver; exit 9", ()),
        ("echo No devices were found", ()),
    ],
)
def test_gpus_are_asked_for_their_capabilities(tmp_path: Path, script: str, archs: tuple[str, ...]) -> None:
    """Each once; none where there is no driver."""
    assert visible_archs(nvidia_smi(tmp_path / "bin", script)) == archs


def test_a_machine_without_nvidia_smi_has_none(tmp_path: Path) -> None:
    """Nobody is asked."""
    assert visible_archs({"PATH": str(tmp_path)}) == ()


def test_a_build_for_native_is_for_the_gpus_here(program: Program) -> None:
    """In the project's own spelling."""
    project = program.folder / "project"
    project.mkdir()
    (project / "setup.py").touch()
    path = nvidia_smi(program.folder / "bin", "echo 10.0")["PATH"]
    done = program.run("build", str(project), "--arch", "native", "--dry-run", env={"PATH": path})
    assert done.returncode == 0, done.stderr
    assert "TORCH_CUDA_ARCH_LIST=10.0" in done.stdout
