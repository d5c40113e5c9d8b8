"""Device architectures as people type them, and as build systems want them."""

from __future__ import annotations

import pytest

from builddoctor.core.errors import UsageError
from builddoctor.machines.named import profiles
from builddoctor.projects.archs import Arch, arch_environment, archs_of_gpus, parse_archs


@pytest.mark.parametrize(
    ("text", "sm"),
    [
        ("sm_90", ["sm_90"]),
        ("90", ["sm_90"]),
        ("9.0", ["sm_90"]),
        ("compute_90", ["sm_90"]),
        ("100", ["sm_100"]),
        ("10.0", ["sm_100"]),
        ("10.0a", ["sm_100a"]),
        ("sm_100f", ["sm_100f"]),
        ("121", ["sm_121"]),
        ("sm_103", ["sm_103"]),
        ("Blackwell", ["sm_100"]),
        ("gb300,h100", ["sm_103", "sm_90"]),
        ("sm_100,sm_90a", ["sm_100", "sm_90a"]),
        (" 80; 86  90 ", ["sm_80", "sm_86", "sm_90"]),
        ("90,sm_90,9.0,90a", ["sm_90", "sm_90a"]),
    ],
)
def test_archs_are_read_in_every_usual_form(text: str, sm: list[str]) -> None:
    """Commas, semicolons or blanks between them; each once, in the given order."""
    assert [arch.sm for arch in parse_archs(text)] == sm


def test_makers_name_gpus_in_words() -> None:
    """Of all machines that ship each GPU has an architecture."""
    assert [each.sm for each in archs_of_gpus("8 x NVIDIA H100 80 GB")] == ["sm_90"]
    assert not archs_of_gpus("")
    assert all(archs_of_gpus(each.gpus) for each in profiles() if each.gpus)


def test_native_is_this_machines_gpus() -> None:
    """Each once, beside what else is named."""
    assert [arch.sm for arch in parse_archs("native", native=("9.0", "10.3"))] == ["sm_90", "sm_103"]
    assert [arch.sm for arch in parse_archs("sm_80,NATIVE", native=("9.0",))] == ["sm_80", "sm_90"]


@pytest.mark.parametrize("text", ["", "9", "sm90", "sm_", "sm_90x", "1000", "native", "90,", "-90", "9.0.1", "sm_9_0"])
def test_what_is_no_arch_is_a_usage_error_that_shows_how(text: str) -> None:
    """One example for one, one for several."""
    with pytest.raises(UsageError, match="not a device architecture") as error:
        parse_archs(text)
    assert "--arch sm_90" in error.value.hint


@pytest.mark.parametrize(
    ("text", "why", "hint"),
    [
        ("native", "GPU of this machine", "compute_cap"),
        ("90,ALL", "nvcc's own", "--list-gpu-arch"),
        ("all-major", "nvcc's own", "--list-gpu-arch"),
    ],
)
def test_words_that_nvcc_takes_are_refused_with_a_reason(text: str, why: str, hint: str) -> None:
    """And with what to write instead."""
    with pytest.raises(UsageError) as error:
        parse_archs(text)
    assert why in str(error.value)
    assert hint in error.value.hint


def test_one_arch_has_three_spellings() -> None:
    """nvcc's, CMake's and torch's."""
    arch = Arch(10, 0, "a")
    assert (arch.sm, arch.number, arch.dotted) == ("sm_100a", "100a", "10.0a")


def test_every_build_system_gets_its_own_form() -> None:
    """Numbers for CMake, TransformerEngine and flash-attention; dotted ones for torch and its kin."""
    assert arch_environment(parse_archs("sm_100,sm_90a")) == {
        "CUDAARCHS": "100;90a",
        "NVTE_CUDA_ARCHS": "100;90a",
        "FLASH_ATTN_CUDA_ARCHS": "100;90a",
        "TORCH_CUDA_ARCH_LIST": "10.0;9.0a",
        "FLASHINFER_CUDA_ARCH_LIST": "10.0 9.0a",
        "NATTEN_CUDA_ARCH": "10.0;9.0a",
    }


def test_without_archs_the_projects_own_defaults_stand() -> None:
    """Nothing is exported."""
    assert arch_environment(()) == {}
