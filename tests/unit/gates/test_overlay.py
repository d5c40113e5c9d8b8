"""Overlays: gates, links and nvcc.profile."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from builddoctor.core.errors import FolderNotWritableError
from builddoctor.core.toolchain import HostCompiler, Toolkit
from builddoctor.gates.overlay import (
    Gate,
    HostTools,
    default_profile,
    host_overlay,
    interpreter,
    overlay_profile,
    replace_link,
    replace_text,
    stamp,
    write_gate,
)
from builddoctor.toolchain.discover import OVERLAY_MARK


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    path = tmp_path / "real tools" / "it's cicc"
    path.parent.mkdir()
    path.write_text("")
    os.utime(path, ns=(1_000_000_000, 1_234_567_890_123_456_789))
    return path


def words(gate: Path) -> list[list[str]]:
    """The words of the gate's two ``exec`` lines."""
    lines = [line.strip() for line in gate.read_text().splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("exec ")]


def test_a_gate_runs_its_program_with_a_supervisor_and_the_tool_without(tmp_path: Path, tool: Path) -> None:
    """Paths with blanks and quotes come through the shell as they are, arguments too."""
    folder = tmp_path / "over lay"
    write_gate(folder, Gate("nvvm/bin/cicc", "phase", str(tool)))
    gate = folder / "nvvm/bin/cicc"
    supervised, alone = words(gate)
    program = str(folder / ".gate" / "gate.py")
    assert supervised == ["exec", interpreter(), "-IS", program, "phase", str(tool), str(gate), "$@"]
    assert alone == ["exec", str(tool), "$@"]
    assert '-S "$BUILDDOCTOR_SOCKET"' in gate.read_text()


def test_a_gate_can_be_run_and_has_its_tools_time(tmp_path: Path, tool: Path) -> None:
    """ccache sees a changed compiler when the real one changes."""
    write_gate(tmp_path / "o", Gate("bin/nvcc", "unit", str(tool)))
    gate = tmp_path / "o" / "bin" / "nvcc"
    assert os.access(gate, os.X_OK)
    assert gate.read_text().startswith("#!/bin/sh\n")
    assert gate.stat().st_mtime_ns == tool.stat().st_mtime_ns == stamp(str(tool))[1]


def test_a_folder_or_link_in_a_gates_place_makes_way(tmp_path: Path, tool: Path) -> None:
    """An overlay is brought up to date in place, and what a link points to is left alone."""
    (tmp_path / "o" / "bin" / "nvcc" / "x").mkdir(parents=True)
    (tmp_path / "o" / "bin" / "ptxas").symlink_to(tool)
    for place in ("bin/nvcc", "bin/ptxas"):
        write_gate(tmp_path / "o", Gate(place, "unit", str(tool)))
        assert (tmp_path / "o" / place).is_file()
        assert not (tmp_path / "o" / place).is_symlink()
    assert tool.read_text() == ""


def test_a_missing_file_has_no_stamp(tmp_path: Path) -> None:
    """Zeros stand for what is not there."""
    assert stamp(str(tmp_path / "missing")) == (0, 0)


def test_text_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    """Written beside and renamed; an error leaves the old text and no other file."""
    replace_text(tmp_path / "f", "old", mode=0o755)
    old = (tmp_path / "f").open()
    replace_text(tmp_path / "f", "new")
    with old:
        assert old.read() == "old"
    with pytest.raises(UnicodeEncodeError):
        replace_text(tmp_path / "f", "\ud800")
    assert (tmp_path / "f").read_text() == "new"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("before", ["nothing", "same", "other", "file"])
def test_a_link_is_made_or_changed_in_one_step(tmp_path: Path, before: str) -> None:
    """Whatever was there, it points to the target afterwards."""
    link = tmp_path / "link"
    if before == "file":
        link.write_text("x")
    elif before != "nothing":
        link.symlink_to("/same" if before == "same" else "/other")
    replace_link(link, Path("/same"))
    assert os.readlink(link) == "/same"
    assert os.listdir(tmp_path) == ["link"]


def host_tools(tool: Path) -> HostTools:
    gcc = HostCompiler(
        driver="/usr/bin/gcc", machine="x86_64-linux-gnu", version="12", programs=(("cc1plus", str(tool)),)
    )
    return HostTools(compilers=(gcc,), fronts=(("ninja", str(tool)),), clangs=(("clang++", str(tool)),))


def test_the_host_overlay_has_a_gate_for_every_tool(tmp_path: Path, tool: Path) -> None:
    """gcc's programs lie under machine and version, where COMPILER_PATH is searched first."""
    folder = host_overlay(tmp_path / "cache", host_tools(tool))
    roles = {
        place: words(folder / place)[0][4] for place in ("bin/ninja", "bin/clang++", "gcc/x86_64-linux-gnu/12/cc1plus")
    }
    assert list(roles.values()) == ["front", "phase", "phase"]
    assert (folder / OVERLAY_MARK).exists()
    assert (folder / ".gate" / "gate_program.py").exists()


def test_an_overlay_keeps_its_path_and_is_written_once(tmp_path: Path, tool: Path) -> None:
    """A second build finds what the first one made; other tools have a folder of their own."""
    folder = host_overlay(tmp_path / "cache", host_tools(tool))
    (folder / "bin" / "ninja").write_text("kept")
    assert host_overlay(tmp_path / "cache", host_tools(tool)) == folder
    assert (folder / "bin" / "ninja").read_text() == "kept"
    other = HostTools(compilers=(), fronts=(("ninja", str(tool)),), clangs=())
    assert host_overlay(tmp_path / "cache", other) != folder


def test_an_overlay_is_brought_up_to_date_when_a_tool_changes(tmp_path: Path, tool: Path) -> None:
    """Size and time of the real programs are part of what it was made for."""
    folder = host_overlay(tmp_path / "cache", host_tools(tool))
    (folder / "bin" / "ninja").write_text("stale")
    tool.write_text("new version")
    assert host_overlay(tmp_path / "cache", host_tools(tool)) == folder
    assert words(folder / "bin" / "ninja")[1] == ["exec", str(tool), "$@"]


def test_a_cache_folder_that_cannot_be_made_is_an_error_with_a_way_out(tmp_path: Path, tool: Path) -> None:
    """The variable that names another one is in the hint."""
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(FolderNotWritableError, match="Not a directory") as error:
        host_overlay(tmp_path / "cache", host_tools(tool))
    assert "BUILDDOCTOR_CACHE_DIR" in error.value.hint


TOOLKIT = Toolkit(
    nvcc="/opt/cuda/bin/nvcc",
    version="13.0.88",
    here="/opt/cuda/bin",
    top="/opt/cuda/bin/..",
    cicc="/opt/cuda/nvvm/bin/cicc",
    tools=(),
)
REAL = """
TOP              = $(_HERE_)/..

CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice

LD_LIBRARY_PATH += $(TOP)/lib:
PATH            += $(CICC_PATH):$(_HERE_):

INCLUDES        +=  "-I$(TOP)/$(_TARGET_DIR_)/include" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)"

CUDAFE_FLAGS    +=
"""


def settings(text: str) -> dict[str, str]:
    """Name to the rest of its line."""
    return {
        line.split()[0]: line.split(maxsplit=2)[2] for line in text.splitlines() if len(line.split(maxsplit=2)) == 3
    }


def test_only_the_search_for_tools_changes() -> None:
    """CICC_PATH and PATH lead to the gates, then to the real tools; TOP is the real toolkit's."""
    lines = overlay_profile(REAL, TOOLKIT, "/cache/o").splitlines()
    changed = [line for line in lines if line not in REAL.splitlines()]
    assert changed == [
        "TOP              = /opt/cuda/bin/..",
        "CICC_PATH = /cache/o/nvvm/bin",
        "PATH += /cache/o/nvvm/bin:/cache/o/bin:/opt/cuda/nvvm/bin:/opt/cuda/bin:",
    ]
    assert len(lines) == len(REAL.splitlines())


def test_no_folder_of_nvccs_own_is_left_to_guess() -> None:
    """``$(_HERE_)`` would be the overlay's folder, wherever it stands."""
    text = overlay_profile(REAL + 'LIBRARIES += "-L$(_HERE_)/../x"\n', TOOLKIT, "/cache/o")
    assert "$(_HERE_)" not in text
    assert '"-L/opt/cuda/bin/../x"' in text


@pytest.mark.parametrize("real", ["", "TOP = /usr/lib/nvidia-cuda-toolkit\nPATH += $(TOP)/bin:\n", "CICC_PATH = x\n"])
def test_a_profile_that_does_not_name_its_tools_still_leads_to_the_gates(real: str) -> None:
    """Debian's has no CICC_PATH; ours always has both."""
    found = settings(overlay_profile(real, TOOLKIT, "/cache/o"))
    assert found["CICC_PATH"] == "/cache/o/nvvm/bin"
    assert found["PATH"].startswith("/cache/o/nvvm/bin:/cache/o/bin:")


def test_a_toolkit_without_a_profile_gets_one() -> None:
    """Its root is what nvcc itself said."""
    found = settings(overlay_profile(default_profile(TOOLKIT), TOOLKIT, "/cache/o"))
    assert found["TOP"] == "/opt/cuda/bin/.."
    assert found["PATH"].startswith("/cache/o/nvvm/bin:")


def test_other_lines_are_kept_as_they_are() -> None:
    """Comments and what is no setting stay."""
    assert overlay_profile("# PATH here\n  no setting\n", TOOLKIT, "/o").startswith("# PATH here\n  no setting\n")
