"""Examining a toolchain that is odd, missing or broken: programs made for the purpose, no CUDA needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.errors import BuildDoctorError, FolderNotWritableError
from builddoctor.core.toolchain import Toolchain
from builddoctor.doctor.cuda_checks import toolkit_checks
from builddoctor.gates.subprocesses import run_captured
from builddoctor.projects.archs import parse_archs
from builddoctor.system.probes import Deadline
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.discover import find_toolkit
from builddoctor.toolchain.inventory import examine_toolchain

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
    return examine_toolchain(SystemRoot(root), env, wanted=wanted, run=run_captured, site_folders=[root / "site"])


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
    facts = examine_toolchain(
        SystemRoot(tmp_path), {"PATH": ""}, wanted="", run=run_captured, site_folders=[Path("/site")]
    )
    assert (facts.toolkit, facts.hosts, facts.others, facts.libraries) == (None, (), (), ())
    check = toolkit_checks(facts, ())[0]
    assert "no nvcc and no cudafe++" in check.text
    assert "toolkit install" in check.hint


def test_a_wrapper_is_the_last_advice(tmp_path: Path) -> None:
    """A script such as /usr/local/bin/nvcc runs, and its folder is no toolkit."""
    nvcc = install(tmp_path / "usr/local/cuda", "13.0.88")
    program(tmp_path / "wrapped/bin/nvcc", f'#!/bin/sh\nexec {nvcc} "$@"\n')
    facts = examined(tmp_path, wanted="12.8", PATH=f"{tmp_path}/wrapped/bin")
    assert facts.toolkit is None
    assert [other.folder for other in facts.others] == [str(tmp_path / "usr/local/cuda"), str(tmp_path / "wrapped")]


HANGS = "#!/bin/sh\nsleep 1000\n"
PICKY = '#!/bin/sh\ncase "$NVCC_PREPEND_FLAGS$NVCC_APPEND_FLAGS" in *bogus*) echo "Unknown option"; exit 1;; esac\n'


def test_an_nvcc_that_hangs_is_passed_by_and_named(tmp_path: Path) -> None:
    """The next one is taken."""
    program(tmp_path / "slow/nvcc", HANGS)
    install(tmp_path / "cuda", "13.0.88")
    program(tmp_path / "bin/gcc", GCC)
    facts = examined(tmp_path, PATH=f"{tmp_path}/slow:{tmp_path}/cuda/bin:{tmp_path}/bin:/usr/bin:/bin")
    assert facts.toolkit is not None
    assert facts.toolkit.version == "13.0.88"
    assert facts.silent == (f"{tmp_path}/slow/nvcc",)


def test_a_gcc_that_hangs_is_named_and_not_the_nvcc_that_waits_for_it(tmp_path: Path) -> None:
    """And no further nvcc is made to wait."""
    gcc = program(tmp_path / "bin/gcc", HANGS)
    for name in ("a", "b"):
        program(tmp_path / name / "nvcc", f'#!/bin/sh\necho x >>"{tmp_path}/asked"\nexec gcc\n')
    path = f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/bin:/usr/bin:/bin"
    facts = examine_toolchain(
        SystemRoot(tmp_path), {"PATH": path}, wanted="", run=run_captured, site_folders=[], deadline=Deadline(4.5)
    )
    assert (facts.toolkit, facts.trouble) == (None, "host-silent")
    assert str(gcc) in facts.problem


def test_the_variable_that_stops_nvcc_is_found(tmp_path: Path) -> None:
    """Only the one that is to blame; a toolkit is found all the same."""
    nvcc = install(tmp_path / "cuda", "13.0.88")
    nvcc.write_text(PICKY + nvcc.read_text())
    program(tmp_path / "bin/gcc", GCC)
    path = f"{tmp_path}/cuda/bin:{tmp_path}/bin"
    facts = examined(tmp_path, PATH=path, NVCC_PREPEND_FLAGS="-O3", NVCC_APPEND_FLAGS="--bogus")
    assert (facts.host_problem, facts.broken_variables) == ("Unknown option", ("NVCC_APPEND_FLAGS",))
    both = examined(tmp_path, PATH=path, NVCC_PREPEND_FLAGS="--bogus", NVCC_APPEND_FLAGS="--bogus")
    assert both.broken_variables == ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS")
    assert examined(tmp_path, PATH=path, NVCC_PREPEND_FLAGS="-O3").broken_variables == ()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("nvcc fatal   : Could not open output file '/nowhere/tmpxft_0'", "temporary"),
        (
            "gcc: No such file or directory\nnvcc fatal   : Failed to preprocess host compiler properties.",
            "host-compiler",
        ),
        ("Segmentation fault", "broken"),
    ],
)
def test_what_keeps_nvcc_from_running_is_told_apart(tmp_path: Path, said: str, kind: str) -> None:
    """Page and build say the same: the build's error has the text and the hint of the page."""
    nvcc = program(tmp_path / "bin/nvcc", f'#!/bin/sh\necho "{said}"\nexit 1\n')
    facts = examined(tmp_path, PATH=str(tmp_path / "bin"))
    assert facts.trouble == kind
    with pytest.raises(BuildDoctorError) as caught:
        find_toolkit([nvcc], {"PATH": str(tmp_path / "bin")}, wanted="", run=run_captured)
    assert (str(caught.value), caught.value.hint) == (facts.problem, facts.hint)
    assert isinstance(caught.value, FolderNotWritableError) is (kind == "temporary")
    assert ("install g++" in facts.hint) is (kind == "host-compiler")


def test_a_home_without_a_toolkit_is_seen(tmp_path: Path) -> None:
    """One with headers only is somebody's choice."""
    install(tmp_path / "cuda", "13.0.88")
    (tmp_path / "headers/include").mkdir(parents=True)
    (tmp_path / "headers/include/cuda_runtime.h").touch()
    path = f"{tmp_path}/cuda/bin"
    facts = examined(tmp_path, PATH=path, CUDA_HOME=f"{tmp_path}/nowhere", CUDA_PATH=f"{tmp_path}/headers")
    assert facts.lost_homes == ("CUDA_HOME",)
