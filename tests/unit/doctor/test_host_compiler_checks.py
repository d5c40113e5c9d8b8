"""What the doctor says of nvcc's host compiler and its C library."""

from __future__ import annotations

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.toolchain import HostLimits, Toolchain
from builddoctor.doctor.cuda_checks import toolkit_checks
from builddoctor.projects.archs import parse_archs
from unit.toolchains import host, toolchain

TEN = HostLimits(gnu_newest=14, clang_newest=19, clang_oldest=3)


def checked(facts: Toolchain, archs: str = "", **more: object) -> dict[str, Check]:
    """Checks by name; a name that comes twice keeps its first."""
    found: dict[str, Check] = {}
    for check in toolkit_checks(facts, parse_archs(archs) if archs else (), **more):  # type: ignore[arg-type]
        found.setdefault(check.name, check)
    return found


def test_a_refused_host_compiler_stops_only_what_is_compiled_with_it_for_certain() -> None:
    """A project may leave CUDA out, or name another compiler; its architectures are another matter."""
    bad = toolchain(hosts=(host("99.0.0"),))
    for compiles in (True, False):
        check = checked(bad, compiles_cuda=compiles)["host-compiler"]
        assert (check.status, check.stops_build) == (Status.PROBLEM, compiles)
    assert checked(bad, "50", compiles_cuda=False)["nvcc-arch"].stops_build


def test_a_host_compiler_that_is_too_new_stops_the_build() -> None:
    """With a g++ of this machine that is accepted: the newest such one."""
    spares = (host("15.1.0", "/usr/bin/g++-15"), host("13.3.0", "/usr/bin/g++-13"), host("11.4.0", "/usr/bin/g++-11"))
    facts = toolchain("12.8.93", hosts=(host("15.1.0"),), limits=TEN, spare_hosts=spares)
    check = checked(facts)["host-compiler"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)
    assert check.text == (
        "nvcc 12.8.93 does not accept gcc 15.1.0 (/usr/bin/gcc): `unsupported GNU version`, 14 is its newest"
    )
    assert check.hint == 'export NVCC_PREPEND_FLAGS="$NVCC_PREPEND_FLAGS -ccbin /usr/bin/g++-13"'


@pytest.mark.parametrize(
    ("because", "hint"),
    [
        ("PATH", 'install g++-14 or older, then: export NVCC_PREPEND_FLAGS="$NVCC_PREPEND_FLAGS -ccbin g++-14"'),
        ("NVCC_CCBIN", "install g++-14 or older, then: export NVCC_CCBIN=g++-14"),
        (
            "NVCC_APPEND_FLAGS",
            'install g++-14 or older, then: export NVCC_APPEND_FLAGS="$NVCC_APPEND_FLAGS -ccbin g++-14"',
        ),
    ],
)
def test_the_way_out_is_the_variable_that_led_in(because: str, hint: str) -> None:
    """A -ccbin in APPEND beats one in PREPEND, and both beat NVCC_CCBIN."""
    facts = toolchain("12.8.93", hosts=(host("15.1.0", because=because),), limits=TEN)
    assert checked(facts)["host-compiler"].hint == hint


def test_clang_has_limits_of_its_own() -> None:
    """Too old is refused like too new."""
    for version, status in (("19.1.0", Status.OK), ("20.1.0", Status.PROBLEM), ("2.9", Status.PROBLEM)):
        facts = toolchain(hosts=(host(version, "/usr/bin/clang++", kind="clang"),), limits=TEN)
        assert checked(facts)["host-compiler"].status is status


def test_who_overrides_the_check_is_warned_and_not_stopped() -> None:
    """NVIDIA's own words: at your own risk."""
    facts = toolchain(hosts=(host("16.1.0"),), unsupported_allowed_by="NVCC_APPEND_FLAGS")
    check = checked(facts)["host-compiler"]
    assert (check.status, check.stops_build) == (Status.WARNING, False)
    assert "-allow-unsupported-compiler in NVCC_APPEND_FLAGS" in check.text


def test_a_build_tool_that_hands_over_another_compiler_is_judged_too() -> None:
    """A build stops only when no tool's choice is accepted: CMake's is fine in one case, nvcc's own in the other."""
    cmake = {"driver": "/opt/g++", "because": "CUDAHOSTCXX", "taken_by": "CMake"}
    bad_own = toolkit_checks(toolchain(hosts=(host("16.1.0"), host("12.2.0", **cmake))), ())
    assert [(check.status, check.stops_build) for check in bad_own if check.name == "host-compiler"] == [
        (Status.PROBLEM, False),
        (Status.OK, False),
    ]
    bad_handed = toolkit_checks(toolchain(hosts=(host(), host("16.1.0", **cmake))), ())
    warning = next(check for check in bad_handed if check.status is Status.WARNING)
    assert warning.hint == "unset CUDAHOSTCXX"
    assert warning.text.startswith("CMake hands it gcc 16.1.0 (/opt/g++, from CUDAHOSTCXX)")


def test_what_is_not_known_of_a_compiler_is_not_held_against_it() -> None:
    """No limits, no version: no problem, though one that says nothing is worth a warning."""
    assert checked(toolchain(hosts=(host("99.0.0"),), limits=HostLimits()))["host-compiler"].status is Status.OK
    silent = checked(toolchain(hosts=(host("", kind=""),)))["host-compiler"]
    assert (silent.status, silent.stops_build) == (Status.WARNING, False)


@pytest.mark.parametrize(
    ("bare", "glibc", "function", "needed"),
    [
        (("cospi", "sinpi", "rsqrt"), "2.41", "cospi", "13.0"),
        (("cospi", "sinpi", "rsqrt"), "2.42", "cospi", "13.2"),
        (("rsqrt",), "2.42", "rsqrt", "13.2"),
        (("rsqrt",), "2.43", "rsqrt", "13.2"),
    ],
)
def test_a_c_library_that_clashes_with_cuda_s_headers_stops_the_build(
    bare: tuple[str, ...], glibc: str, function: str, needed: str
) -> None:
    """cospi and sinpi from glibc 2.41 on, rsqrt from 2.42: the error's words, and the toolkit that has them right."""
    check = checked(toolchain(bare_functions=bare, hosts=(host(glibc=glibc),)))["glibc"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)
    assert f'previous function "{function}"' in check.text
    assert check.hint == f"builddoctor toolkit install {needed} && builddoctor doctor --toolkit {needed}"


@pytest.mark.parametrize(
    ("bare", "glibc"),
    [(("rsqrt",), "2.41"), ((), "2.43"), (None, "2.43"), (("cospi", "rsqrt"), "2.36"), (("cospi",), "")],
)
def test_headers_that_are_right_or_unread_do_not_clash(bare: tuple[str, ...] | None, glibc: str) -> None:
    """Also with an older C library, such as the one that a conda compiler brings."""
    assert "glibc" not in checked(toolchain(bare_functions=bare, hosts=(host(glibc=glibc),)))
