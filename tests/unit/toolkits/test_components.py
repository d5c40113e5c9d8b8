"""Which packages a toolkit is made of."""

from __future__ import annotations

import pytest

from builddoctor.core.errors import PackageUnavailableError, UsageError
from builddoctor.toolkits.components import (
    depends_on,
    parse_components,
    pinned,
    read_release,
    release_requirement,
    requirements,
)
from support.made_wheels import metadata, toolkit_metadata

RELEASE = read_release("13.0.3.0", toolkit_metadata())


@pytest.mark.parametrize("version", ["13", "13.0", "13.0.2", "14.1"])
def test_a_version_is_a_prefix(version: str) -> None:
    """13.0 takes the newest 13.0.x."""
    assert release_requirement(version) == f"cuda-toolkit=={version}.*"


@pytest.mark.parametrize("version", ["12.8", "12", "11.8"])
def test_cuda_12_has_no_nvcc_in_packages(version: str) -> None:
    """Said before anything is fetched, with conda, NVIDIA's installer and CUDA 13 as ways on."""
    with pytest.raises(PackageUnavailableError, match="hold ptxas, but no nvcc") as raised:
        release_requirement(version)
    assert all(way in raised.value.hint for way in ("conda create", "_linux.run", "toolkit install 13.0"))


@pytest.mark.parametrize("version", ["x", "", "13.", "13.0; rm", "13.0.*", "-1", "13.0.0.0.0", "13 ", "\uff11\uff13"])
def test_what_is_no_version_is_refused(version: str) -> None:
    """It becomes an argument of pip's."""
    with pytest.raises(UsageError):
        release_requirement(version)


def test_components_may_be_listed_in_any_way() -> None:
    """Commas, several ``--with``, capitals; cuDNN and its like with a version."""
    assert parse_components(["cublas, NCCL", "cudnn==9.13"]) == {"cublas": "", "nccl": "", "cudnn": "9.13"}


@pytest.mark.parametrize("word", ["cublas==13", "--index-url=x", "a b", "cudnn>=9", "cudnn==latest"])
def test_a_component_that_cannot_be_is_refused(word: str) -> None:
    """Versions of the release's own parts are the release's."""
    with pytest.raises(UsageError):
        parse_components([word])


def test_a_release_pins_its_packages() -> None:
    """nvcc, runtime and CCCL always; what else, by its extra."""
    found = requirements(RELEASE, {}, "x86_64")
    assert found["nvidia-cuda-nvcc"] == "nvidia-cuda-nvcc==13.0.88.*"
    assert "nvidia-cublas" not in found
    assert requirements(RELEASE, {"cublas": ""}, "x86_64")["nvidia-cublas"] == "nvidia-cublas==13.1.1.3.*"


def test_what_has_versions_of_its_own_is_named_for_the_release() -> None:
    """nvidia-cudnn-cu13, and cuBLAS with it, which it needs."""
    found = requirements(RELEASE, {"cudnn": "9.13", "nccl": ""}, "x86_64")
    assert found["nvidia-cudnn-cu13"] == "nvidia-cudnn-cu13==9.13.*"
    assert found["nvidia-nccl-cu13"] == "nvidia-nccl-cu13"
    assert "nvidia-cublas" in found


def test_what_a_processor_has_not_is_left_out() -> None:
    """Markers are those of the processor that the toolkit is for, not of this machine."""
    assert "nvidia-cuda-opencl" in requirements(RELEASE, {"opencl": ""}, "x86_64")
    assert "nvidia-cuda-opencl" not in requirements(RELEASE, {"opencl": ""}, "aarch64")


def test_an_unknown_component_says_which_there_are() -> None:
    """From the release itself."""
    with pytest.raises(UsageError, match="no component cubals") as raised:
        requirements(RELEASE, {"cubals": ""}, "x86_64")
    assert "cublas" in raised.value.hint


def test_what_a_package_needs_is_taken_as_the_release_pins_it() -> None:
    """cuDNN asks for any cuBLAS; what is not NVIDIA's is python's and left out."""
    about = metadata("nvidia-cudnn-cu13", "9.13", requires=["nvidia-cublas", "numpy", "nvidia-new>=1", "broken ==="])
    found = depends_on(RELEASE, about, "x86_64")
    assert found == {"nvidia-cublas": "nvidia-cublas==13.1.1.3.*", "nvidia-new": "nvidia-new>=1"}


def test_a_requirement_with_an_address_is_not_followed() -> None:
    """Metadata does not say where from."""
    assert pinned(["nvidia-x @ https://example.org/x.whl"], [""], "x86_64") == {}
