"""Examining a toolchain that is odd, missing or broken: programs made for the purpose, no CUDA needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.doctor.toolkit import toolkit_checks
from builddoctor.intercept.toolchain import examine_toolchain
from builddoctor.model.toolchain import Toolchain
from builddoctor.projects.archs import parse_archs
from builddoctor.sensors.root import SystemRoot

NVCC = """#!/bin/sh
case "$1" in
--version) echo "Cuda compilation tools, release {release}, V{version}";;
--list-gpu-code) printf 'sm_80\\nsm_90\\n';;
--help) echo "Allowed values: 'sm_80','sm_90','sm_90a'.";;
--dryrun)
  echo "#$ _HERE_={home}/bin"
  echo "#$ TOP={home}/bin/.."
  echo "#$ PATH={home}/bin:$PATH"
  echo "#$ gcc -D__CUDA_ARCH_LIST__=800 -E -x c++ a.cu -o a.ii";;
esac
"""
GCC = """#!/bin/sh
echo '#define __GNUC__ 11'
echo '#define __GNUC_MINOR__ 4'
echo '#define __GNUC_PATCHLEVEL__ 0'
"""


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def install(home: Path, version: str) -> Path:
    """A toolkit whose nvcc answers; its other tools are there."""
    for name in ("bin/cudafe++", "bin/ptxas", "nvvm/bin/cicc"):
        program(home / name, "#!/bin/sh\n")
    return program(home / "bin/nvcc", NVCC.format(home=home, version=version, release=version.rpartition(".")[0]))


def examined(root: Path, wanted: str = "", **env: str) -> Toolchain:
    return examine_toolchain(SystemRoot(root), env, wanted=wanted, site_folders=[root / "site"])


def test_two_toolkits_are_told_apart_with_who_takes_which(tmp_path: Path) -> None:
    """CUDA_HOME for builddoctor and torch, PATH for CMake; the other one is advice."""
    install(tmp_path / "a", "12.6.85")
    install(tmp_path / "b", "12.8.93")
    program(tmp_path / "bin/gcc", GCC)
    facts = examined(tmp_path, CUDA_HOME=str(tmp_path / "a"), PATH=f"{tmp_path}/b/bin:{tmp_path}/bin")
    assert facts.toolkit is not None
    assert facts.toolkit.version == "12.6.85"
    assert facts.archs == ("sm_80", "sm_90", "sm_90a")
    assert [(one.taken_by, one.because, one.version) for one in facts.choices] == [
        ("builddoctor", "", "12.6.85"),
        ("CMake", "PATH", "12.8.93"),
        ("torch", "CUDA_HOME", "12.6.85"),
    ]
    assert [(other.folder, other.version) for other in facts.others] == [(str(tmp_path / "b"), "12.8.93")]
    assert [(one.driver, one.kind, one.version) for one in facts.hosts] == [(f"{tmp_path}/bin/gcc", "gnu", "11.4.0")]
    checks = {check.name: check for check in toolkit_checks(facts, parse_archs("100"))}
    assert checks["nvcc-arch"].text == "nvcc 12.6.85 does not know sm_100; it needs 12.8 or newer"
    assert "CMake takes 12.8.93 (PATH:" in checks["nvcc-copies"].text


def test_an_active_compiler_variable_is_asked_too(tmp_path: Path) -> None:
    """CUDAHOSTCXX is CMake's, CC is torch's unless it holds more than a program; each once."""
    install(tmp_path / "a", "12.6.85")
    gcc = program(tmp_path / "bin/gcc", GCC)
    other = program(tmp_path / "other/g++", GCC.replace("11", "9"))
    path = f"{tmp_path}/a/bin:{tmp_path}/bin"
    facts = examined(tmp_path, PATH=path, CUDAHOSTCXX=str(other), CC=str(gcc))
    assert [(host.taken_by, host.because, host.version) for host in facts.hosts] == [
        ("nvcc", "PATH", "11.4.0"),
        ("CMake", "CUDAHOSTCXX", "9.4.0"),
    ]
    assert len(examined(tmp_path, PATH=path, CC="gcc -m64", CUDAHOSTCXX="/none 'x").hosts) == 1


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\nprintf '\\377\\000#$ TOP='\n", "#!/no/such/interpreter\n", "\x7fELF"]
)
def test_an_nvcc_that_does_not_work_is_a_problem_in_words(tmp_path: Path, text: str) -> None:
    """Whatever it prints, however it fails to start."""
    program(tmp_path / "bin/nvcc", text)
    facts = examined(tmp_path, PATH=f"{tmp_path}/bin")
    assert facts.toolkit is None
    assert facts.problem
    assert [check.stops_build for check in toolkit_checks(facts, ())] == [True]


def test_nothing_at_all_is_examined_without_a_word_from_any_program(tmp_path: Path) -> None:
    """No toolkit, no compiler, no library: a problem with the way to get one, and CUDA 12's packages named."""
    program(tmp_path / "site/nvidia/cuda_nvcc/bin/ptxas", "")
    facts = examine_toolchain(SystemRoot(tmp_path), {"PATH": ""}, wanted="", site_folders=[Path("/site")])
    assert (facts.toolkit, facts.hosts, facts.others, facts.libraries) == (None, (), (), ())
    check = toolkit_checks(facts, ())[0]
    assert "no nvcc and no cudafe++" in check.text
    assert "pip install" in check.hint


def test_a_wrapper_is_the_last_advice(tmp_path: Path) -> None:
    """A script such as /usr/local/bin/nvcc runs, and its folder is no toolkit."""
    nvcc = install(tmp_path / "usr/local/cuda", "13.0.88")
    program(tmp_path / "wrapped/bin/nvcc", f'#!/bin/sh\nexec {nvcc} "$@"\n')
    facts = examined(tmp_path, wanted="12.8", PATH=f"{tmp_path}/wrapped/bin")
    assert facts.toolkit is None
    assert [other.folder for other in facts.others] == [str(tmp_path / "usr/local/cuda"), str(tmp_path / "wrapped")]
