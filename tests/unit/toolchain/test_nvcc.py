"""What nvcc says of its own toolkit."""

from __future__ import annotations

import pytest

from builddoctor.toolchain.nvcc import parse_settings, parse_version

REAL = """#$ _NVVM_BRANCH_=nvvm
#$ _SPACE_=
#$ _CUDART_=cudart
#$ _HERE_=/usr/local/cuda/bin
#$ _THERE_=/usr/local/cuda/bin
#$ _TARGET_SIZE_=
#$ _TARGET_DIR_=
#$ _TARGET_DIR_=targets/x86_64-linux
#$ TOP=/usr/local/cuda/bin/..
#$ CICC_PATH=/usr/local/cuda/bin/../nvvm/bin
#$ NVVMIR_LIBRARY_DIR=/usr/local/cuda/bin/../nvvm/libdevice
#$ LD_LIBRARY_PATH=/usr/local/cuda/bin/../lib:
#$ PATH=/usr/local/cuda/bin/../nvvm/bin:/usr/local/cuda/bin::/usr/bin:/bin
#$ INCLUDES="-I/usr/local/cuda/bin/../targets/x86_64-linux/include"
#$ SYSTEM_INCLUDES="-isystem" "/usr/local/cuda/bin/../targets/x86_64-linux/include/cccl"
#$ LIBRARIES=  "-L/usr/local/cuda/bin/../targets/x86_64-linux/lib/stubs" "-L/usr/local/cuda/bin/../targets/x86_64-linux/lib"
#$ CUDAFE_FLAGS=
#$ PTXAS_FLAGS=
#$ gcc -D__CUDA_ARCH_LIST__=750 -E -x c++ -D__CUDACC__ "a.cu" -o "/tmp/tmpxft_00004e95_00000000-5_a.cpp4.ii"
#$ cudafe++ --c++17 --orig_src_file_name "a.cu" "/tmp/tmpxft_00004e95_00000000-5_a.cpp4.ii"
"""  # noqa: E501
LEAST = "#$ _HERE_=/usr/bin\n#$ TOP=/usr\n"


def test_the_settings_of_a_real_nvcc_are_read() -> None:
    """Folders are spelled as nvcc spells them, flags are words."""
    settings = parse_settings(REAL)
    assert settings is not None
    assert (settings.here, settings.top) == ("/usr/local/cuda/bin", "/usr/local/cuda/bin/..")
    assert settings.cicc_folder == "/usr/local/cuda/bin/../nvvm/bin"
    assert settings.libdevice_folder == "/usr/local/cuda/bin/../nvvm/libdevice"
    assert settings.search_path == ("/usr/local/cuda/bin/../nvvm/bin", "/usr/local/cuda/bin", "/usr/bin", "/bin")
    target = "/usr/local/cuda/bin/../targets/x86_64-linux"
    assert settings.include_flags == (f"-I{target}/include", "-isystem", f"{target}/include/cccl")
    assert settings.library_flags == (f"-L{target}/lib/stubs", f"-L{target}/lib")


def test_an_older_nvcc_without_a_cicc_path_has_it_below_its_top() -> None:
    """What is not said has the usual place, or is empty."""
    settings = parse_settings(LEAST)
    assert settings is not None
    assert settings.cicc_folder == "/usr/nvvm/bin"
    assert (settings.search_path, settings.include_flags, settings.libdevice_folder) == ((), (), "")


def test_flags_with_quotes_that_do_not_close_are_none() -> None:
    """Half a word is not passed on."""
    settings = parse_settings(LEAST + '#$ INCLUDES="-I/a b" "-I/c\n#$ LIBRARIES="-L/a b"\n')
    assert settings is not None
    assert (settings.include_flags, settings.library_flags) == ((), ("-L/a b",))


@pytest.mark.parametrize(
    "text", ["", "nvcc fatal : No input files specified\n", "#$ _HERE_=/x\n", "#$ TOP=/x\n", "_HERE_=/x\nTOP=/y\n"]
)
def test_what_is_no_dry_run_has_no_settings(text: str) -> None:
    """A shell's error, an nvcc's complaint, half an answer."""
    assert parse_settings(text) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("nvcc: NVIDIA (R)\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13\n", "13.0.88"),
        ("Cuda compilation tools, release 12.8, V12.8.61\n", "12.8.61"),
        ("", ""),
        ("release thirteen\n", ""),
    ],
)
def test_the_version_is_read(text: str, version: str) -> None:
    """Empty when nvcc did not say."""
    assert parse_version(text) == version
