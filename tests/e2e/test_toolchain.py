"""The doctor on the real nvcc: what it says is what nvcc then does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.toolchain import Toolchain
from builddoctor.doctor.cuda_checks import toolkit_checks
from builddoctor.gates.overlay import toolkit_overlay
from builddoctor.gates.subprocesses import run_captured
from builddoctor.projects.archs import parse_archs
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.inventory import examine_toolchain
from builddoctor.toolchain.nvcc import parse_dryrun
from support.capabilities import find_nvcc

pytestmark = pytest.mark.needs_nvcc

KERNEL = "__global__ void add(float *out) { out[threadIdx.x] += 1.0f; }\n"


@pytest.fixture
def env() -> dict[str, str]:
    """The environment without what could name a compiler."""
    named = ("CC", "CXX", "CUDAHOSTCXX", "CUDAFLAGS", "CMAKE_ARGS")
    return {name: value for name, value in os.environ.items() if name not in named and not name.startswith("NVCC_")}


def examined(env: dict[str, str]) -> Toolchain:
    return examine_toolchain(SystemRoot(), env, wanted=str(find_nvcc()), run=run_captured, site_folders=[])


def compiled(source: Path, env: dict[str, str], *flags: str) -> subprocess.CompletedProcess[str]:
    command = [str(find_nvcc()), *flags, "-c", str(source), "-o", str(source.with_suffix(".o"))]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def named(checks: list[Check], name: str) -> Check:
    return next(check for check in checks if check.name == name)


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    source = tmp_path / "add.cu"
    source.write_text(KERNEL)
    return source


@pytest.fixture
def too_new(tmp_path: Path) -> str:
    """A g++ that claims to be 99, as crt/host_config.h asks it."""
    program = tmp_path / "g++-of-tomorrow"
    program.write_text('#!/bin/sh\nexec g++ -U__GNUC__ -D__GNUC__=99 "$@"\n')
    program.chmod(0o755)
    return str(program)


def test_architectures_that_are_said_to_be_known_compile_and_others_do_not(env: dict[str, str], kernel: Path) -> None:
    """The newest one compiles; one that nvcc never had is a problem, and nvcc refuses it."""
    facts = examined(env)
    newest = facts.archs[-1]
    assert named(toolkit_checks(facts, parse_archs(newest)), "nvcc").status is Status.OK
    assert compiled(kernel, env, f"-arch={newest}").returncode == 0
    assert "sm_51" not in facts.archs
    check = named(toolkit_checks(facts, parse_archs("51")), "nvcc-arch")
    assert check.stops_build
    refused = compiled(kernel, env, "-arch=sm_51")
    assert refused.returncode != 0
    assert "sm_51" in refused.stderr


def test_an_architecture_that_13_dropped_is_a_problem(env: dict[str, str], kernel: Path) -> None:
    """sm_50 on a toolkit of 13 or later, with the reason; on an older one it is known."""
    facts = examined(env)
    assert facts.toolkit is not None
    checks = toolkit_checks(facts, parse_archs("sm_50"))
    works = compiled(kernel, env, "-arch=sm_50").returncode == 0
    assert works == (int(facts.toolkit.version.split(".")[0]) < 13)
    assert any(check.stops_build for check in checks) is not works
    assert works or "13.0 dropped it" in named(checks, "nvcc-arch").text


def test_the_host_compiler_is_the_one_that_nvcc_calls(env: dict[str, str]) -> None:
    """The name is nvcc's own; the path is where its PATH leads; the version is what that compiler says."""
    facts = examined(env)
    dry = subprocess.run(
        [str(find_nvcc()), "--dryrun", "-c", "a.cu"], env=env, capture_output=True, text=True, check=True, cwd="/"
    )
    called = parse_dryrun(dry.stderr).host_driver
    assert Path(facts.hosts[0].driver).name == Path(called).name
    said = subprocess.run([facts.hosts[0].driver, "-dumpfullversion"], capture_output=True, text=True, check=True)
    assert facts.hosts[0].version == said.stdout.strip()
    assert facts.hosts[0].because == "PATH"
    assert facts.hosts[0].glibc == os.confstr("CS_GNU_LIBC_VERSION").split()[-1]  # type: ignore[union-attr]


def test_a_host_compiler_that_is_refused_is_told_before_nvcc_refuses_it(
    env: dict[str, str], kernel: Path, too_new: str
) -> None:
    """Named by NVCC_CCBIN; with -allow-unsupported-compiler neither stops."""
    env |= {"NVCC_CCBIN": too_new}
    facts = examined(env)
    assert (facts.hosts[0].driver, facts.hosts[0].because) == (too_new, "NVCC_CCBIN")
    check = named(toolkit_checks(facts, ()), "host-compiler")
    assert check.stops_build
    refused = compiled(kernel, env)
    assert refused.returncode != 0
    assert "unsupported GNU version" in refused.stderr
    assert f"later than {facts.limits.gnu_newest} are" in refused.stderr
    allowed = examined(env | {"NVCC_APPEND_FLAGS": "-allow-unsupported-compiler"})
    assert named(toolkit_checks(allowed, ()), "host-compiler").status is Status.WARNING


@pytest.mark.parametrize("variable", ["NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"])
def test_a_ccbin_flag_beats_the_variable_and_the_doctor_knows_it(
    env: dict[str, str], kernel: Path, too_new: str, variable: str
) -> None:
    """The advice ``export NVCC_PREPEND_FLAGS="… -ccbin …"`` helps, and the compile proves it."""
    env |= {"NVCC_CCBIN": too_new, variable: "-ccbin g++"}
    facts = examined(env)
    assert facts.hosts[0].because == variable
    assert Path(facts.hosts[0].driver).name == "g++"
    assert named(toolkit_checks(facts, ()), "host-compiler").status is Status.OK
    assert compiled(kernel, env).returncode == 0


def test_an_nvcc_without_gcc_on_path_is_a_host_compiler_problem(env: dict[str, str], tmp_path: Path) -> None:
    """Until a variable names one: then it is a toolkit like any other, as in a conda environment."""
    gxx = subprocess.run(["sh", "-c", "command -v g++"], env=env, capture_output=True, text=True, check=True)
    bare = env | {"PATH": str(tmp_path)}
    checks = toolkit_checks(examined(bare), ())
    assert [(check.name, check.stops_build) for check in checks] == [("host-compiler", True)]
    facts = examined(bare | {"NVCC_PREPEND_FLAGS": f"-ccbin {gxx.stdout.strip()}"})
    assert facts.toolkit is not None
    assert facts.hosts[0].kind == "gnu"


def test_the_runtime_s_header_and_library_are_the_toolkit_s(env: dict[str, str]) -> None:
    """cudart is found with the version of nvcc, and nvcc finds it to link."""
    facts = examined(env)
    assert facts.toolkit is not None
    cudart = next(copy for copy in facts.libraries if copy.name == "cudart" and copy.kind == "toolkit")
    assert cudart.header_version == ".".join(facts.toolkit.version.split(".")[:2])
    assert cudart.linkable
    assert facts.links is True
    assert facts.bare_functions is not None
    assert facts.limits.gnu_newest is not None


def test_flags_of_the_users_that_nvcc_refuses_are_not_put_down_to_the_overlay(
    env: dict[str, str], tmp_path: Path
) -> None:
    """The overlay is made all the same; the page names the variable."""
    broken = {**env, "NVCC_APPEND_FLAGS": "--bogusflag"}
    facts = examined(broken)
    assert facts.toolkit is not None
    assert facts.broken_variables == ("NVCC_APPEND_FLAGS",)
    assert (toolkit_overlay(tmp_path, facts.toolkit, broken) / "bin/nvcc").exists()
