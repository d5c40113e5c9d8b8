"""Which ptxas Triton would call, and by which variable it is told of another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.toolchain.discover import OVERLAY_MARK
from builddoctor.toolchain.triton import triton_tools


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return str(path)


def package(prefix: Path, *names: str, folder: str = "lib/python3.12/site-packages") -> list[str]:
    """Programs in a Triton below this prefix."""
    return [program(prefix / folder / "triton/backends/nvidia/bin" / name) for name in names]


def found(command: str, env: dict[str, str]) -> list[tuple[str, str]]:
    return [(each.variable, each.path) for each in triton_tools((command, "serve"), env)]


@pytest.mark.parametrize("folder", ["lib/python3.12/site-packages", "lib/python3.12/dist-packages"])
@pytest.mark.parametrize("linked", [False, True])
def test_those_of_the_commands_own_python_are_found(tmp_path: Path, folder: str, linked: bool) -> None:
    """Beside the command in its environment, or where a link to it leads, as uv's tools have them."""
    old, new = package(tmp_path / "venv", "ptxas", "ptxas-blackwell", folder=folder)
    vllm = program(tmp_path / "venv" / "bin" / "vllm")
    if linked:
        (tmp_path / "home" / "bin").mkdir(parents=True)
        (tmp_path / "home" / "bin" / "vllm").symlink_to(vllm)
    env = {"PATH": str(tmp_path / ("home" if linked else "venv") / "bin")}
    assert found("vllm", env) == [("TRITON_PTXAS_PATH", old), ("TRITON_PTXAS_BLACKWELL_PATH", new)]


def test_what_the_user_has_named_is_taken(tmp_path: Path) -> None:
    """It gets a gate, and the other one of the package too; a gate of ours gets none."""
    _, new = package(tmp_path / "venv", "ptxas", "ptxas-blackwell")
    program(tmp_path / "venv" / "bin" / "vllm")
    named = program(tmp_path / "cuda" / "bin" / "ptxas")
    env = {"PATH": str(tmp_path / "venv" / "bin"), "TRITON_PTXAS_PATH": named}
    assert found("vllm", env) == [("TRITON_PTXAS_PATH", named), ("TRITON_PTXAS_BLACKWELL_PATH", new)]
    (tmp_path / "cuda" / OVERLAY_MARK).write_text("")
    assert found("vllm", env) == [("TRITON_PTXAS_BLACKWELL_PATH", new)]


def test_where_it_is_not_known_which_counts_none_is_found(tmp_path: Path) -> None:
    """Two Pythons in one prefix; a command that is not there; no Triton at all; a file that cannot be run."""
    program(tmp_path / "venv" / "bin" / "vllm")
    env = {"PATH": str(tmp_path / "venv" / "bin")}
    assert found("vllm", env) == []
    (first,) = package(tmp_path / "venv", "ptxas")
    assert found("sglang", env) == []
    os.chmod(first, 0o644)
    assert found("vllm", env) == []
    os.chmod(first, 0o755)
    package(tmp_path / "venv", "ptxas", folder="lib/python3.13/site-packages")
    assert found("vllm", env) == []
