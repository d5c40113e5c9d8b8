"""Variables of a supervised build: libraries that lie in the toolkit itself."""

from __future__ import annotations

from pathlib import Path

from builddoctor.runtime.build_environment import library_homes


def test_libraries_in_the_toolkit_are_named(tmp_path: Path) -> None:
    """As `toolkit install --with cudnn,nccl` puts them; behind what CMake was told already."""
    assert library_homes(tmp_path, {}) == {}
    (tmp_path / "include").mkdir()
    for header in ("cudnn.h", "nccl.h"):
        (tmp_path / "include" / header).write_text("")
    home = str(tmp_path)
    assert library_homes(tmp_path, {"CMAKE_PREFIX_PATH": f"/mine:{home}"}) == {
        "CUDNN_PATH": home,
        "NCCL_HOME": home,
        "CMAKE_PREFIX_PATH": f"/mine:{home}",
    }


def test_what_the_user_has_said_stands(tmp_path: Path) -> None:
    """One of a library's names is enough."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "cudnn.h").write_text("")
    assert library_homes(tmp_path, {"CUDNN_HOME": "/mine"}) == {}
