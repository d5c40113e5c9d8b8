"""The overlay's nvcc.profile."""

from __future__ import annotations

import pytest

from builddoctor.intercept.nvcc_profile import default_profile, overlay_profile
from builddoctor.model.toolkit import Toolkit

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
