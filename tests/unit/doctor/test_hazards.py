"""Known bugs of compilers, where everything about them fits."""

from __future__ import annotations

import re

import pytest

from builddoctor.core.check import Status
from builddoctor.core.toolchain import Toolchain
from builddoctor.doctor.hazards import HAZARDS, hazard_checks
from builddoctor.projects.archs import parse_archs
from unit.toolchains import host, place, toolchain, toolkit


def names(version: str, archs: str = "", *, machine: str = "x86_64", **more: str) -> list[str]:
    checks = hazard_checks(toolchain(version), parse_archs(archs) if archs else (), machine=machine, **more)
    return [check.name.removeprefix("hazard-") for check in checks]


def test_the_runaway_of_gb200_is_told_only_where_it_was_seen() -> None:
    """12.8, aarch64 and sm_100: each of the three has to hold."""
    assert names("12.8.61", "100a", machine="aarch64") == ["cudafe-aarch64-sm100"]
    assert names("12.8.61", "sm_100") == []
    assert names("12.9.41", "sm_100", machine="aarch64") == []
    assert names("12.8.61", "sm_90", machine="aarch64") == []
    assert names("12.8.61", machine="aarch64") == []


def test_memory_of_cicc_for_sm_120_is_told_for_12_8() -> None:
    """Also for the variants of sm_120."""
    assert names("12.8.93", "90,120a") == ["cicc-sm120"]
    assert names("13.0.88", "120") == []


def test_hazards_of_one_project_are_told_to_that_project() -> None:
    """By its import name, with dashes or in capitals too."""
    assert names("12.6.85", project="CLI11") == ["cudafe-cpp20-cli11"]
    assert names("12.8.93", "120", project="flash-attn") == [
        "cicc-sm120",
        "nvcc-threads-flash-attn",
        "nvcc-crash-flash-attn-sm120",
    ]
    assert names("12.6.85", project="lammps") == ["cicc-hang-grace"]
    assert names("12.4.0", project="cmssw") == []
    assert names("12.3.2", project="cmssw") == ["cudafe-cpp20-cmssw"]
    assert names("12.6.85") == []


def test_a_language_standard_counts_only_where_it_is_known() -> None:
    """Up to 12.6 and C++20."""
    assert names("12.6.85", cpp="c++20") == ["cudafe-cpp20"]
    assert names("12.6.85", cpp="c++17") == []
    assert names("12.8.61", cpp="c++20") == []


def test_conda_s_gcc_on_aarch64_is_told_by_where_the_compiler_is() -> None:
    """A system's gcc in an active conda environment is not conda's."""
    conda = toolchain("12.6.85", hosts=(host(driver="/conda/bin/aarch64-conda-linux-gnu-c++"),))
    found = hazard_checks(conda, (), machine="aarch64", conda_prefix="/conda")
    assert [check.name for check in found] == ["hazard-conda-arm-neon"]
    assert hazard_checks(conda, (), machine="x86_64", conda_prefix="/conda") == []
    assert hazard_checks(conda, (), machine="aarch64") == []
    assert hazard_checks(toolchain("12.6.85"), (), machine="aarch64", conda_prefix="/conda") == []


def test_a_newer_toolkit_of_this_machine_is_the_advice() -> None:
    """The packages otherwise; one that has the bug too is none."""
    archs = parse_archs("120")
    newer = toolchain("12.8.93", others=(place("12.8.61", "/opt/a"), place("13.0.88", "/opt/b")))
    assert hazard_checks(newer, archs, machine="x86_64")[0].hint == "--toolkit /opt/b"
    alone = hazard_checks(toolchain("12.8.93"), archs, machine="x86_64")[0]
    assert alone.hint == "builddoctor toolkit install 13.0 && builddoctor doctor --toolkit 13.0"
    assert "mfem#5363" in alone.text


@pytest.mark.parametrize(
    "facts", [Toolchain(), toolchain(toolkit=toolkit("")), toolchain(toolkit=toolkit("12.8-beta"))]
)
def test_without_a_version_nothing_is_told(facts: Toolchain) -> None:
    """A hazard is told when it is known to hold, never because nothing is known."""
    assert hazard_checks(facts, parse_archs("100,120"), machine="aarch64", cpp="c++20") == []


def test_every_hazard_is_a_warning_with_a_source_and_a_next_step() -> None:
    """A report is no proof: none of them stops a build. Names are stable and different."""
    assert len({hazard.name for hazard in HAZARDS}) == len(HAZARDS)
    for hazard in HAZARDS:
        assert hazard.before, "a hazard without an end would be told for ever"
        assert hazard.archs or hazard.projects or hazard.cpp or hazard.conda_compiler
        assert all(re.fullmatch(r"[\w.-]+(?:/[\w.-]+)?#\d+", source) for source in hazard.sources)
        version = ".".join(map(str, hazard.since or (hazard.before[0], hazard.before[1] - 1)))
        facts = toolchain(version, hosts=(host(driver="/conda/bin/gcc"),))
        told = hazard_checks(
            facts,
            parse_archs(",".join(hazard.archs)) if hazard.archs else (),
            machine=hazard.machine or "x86_64",
            project=hazard.projects[0] if hazard.projects else "",
            cpp=hazard.cpp,
            conda_prefix="/conda",
            hazards=(hazard,),
        )
        assert [check.status for check in told] == [Status.WARNING]
        assert told[0].hint
        assert not told[0].stops_build
