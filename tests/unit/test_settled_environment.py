"""What a build's environment loses before it starts."""

from __future__ import annotations

from pathlib import Path

from builddoctor.sensors.root import SystemRoot
from builddoctor.supervise.foresight import settle_environment


def test_variables_that_name_no_toolkit_go_where_the_build_gets_one(tmp_path: Path) -> None:
    """And that is said; one that names a toolkit stays."""
    (tmp_path / "cuda/bin").mkdir(parents=True)
    (tmp_path / "cuda/bin/nvcc").touch()
    state = {"BUILDDOCTOR_STATE_DIR": str(tmp_path)}
    env = {**state, "CUDA_HOME": "/nowhere", "CUDA_PATH": f"{tmp_path}/cuda"}
    seen = settle_environment(env, SystemRoot(), own_homes=True)
    assert seen.env == {**state, "CUDA_PATH": f"{tmp_path}/cuda"}
    assert ["CUDA_HOME=/nowhere" in note for note in seen.notes] == [True]
    assert settle_environment(env, SystemRoot()).env == env
