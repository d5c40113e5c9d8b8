"""CMake, ninja and nvcc as programs of the machine: the scripts of a virtual environment do not start in another's."""

from __future__ import annotations

import cmake
import ninja

from support.capabilities import find_nvcc


def path_of_real_programs() -> str:
    """As PATH has it."""
    nvcc = find_nvcc()
    assert nvcc is not None
    return ":".join(map(str, (cmake.CMAKE_BIN_DIR, ninja.BIN_DIR, nvcc.parent, "/usr/bin", "/bin")))
