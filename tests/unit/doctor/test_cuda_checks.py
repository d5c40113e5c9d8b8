"""What the doctor says of nvcc, its architectures and CUDA's libraries."""

from __future__ import annotations

import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.toolchain import HEADER_ONLY, NvccChoice, NvccTrouble, Toolchain
from builddoctor.doctor.cuda_checks import toolkit_checks
from builddoctor.projects.archs import parse_archs
from builddoctor.toolchain.discover import HOST_HINT
from unit.toolchains import copy, host, place, toolchain, toolkit

WHEEL = "/venv/site-packages/nvidia"


def checked(facts: Toolchain, archs: str = "", **more: object) -> dict[str, Check]:
    """Checks by name; a name that comes twice keeps its first."""
    found: dict[str, Check] = {}
    for check in toolkit_checks(facts, parse_archs(archs) if archs else (), **more):  # type: ignore[arg-type]
        found.setdefault(check.name, check)
    return found


def test_a_toolchain_in_which_all_is_well_says_so_in_three_lines() -> None:
    """One for nvcc, one for its host compiler, one for the libraries; nothing stops."""
    checks = toolkit_checks(toolchain(), parse_archs("sm_100,sm_90a"))
    assert [(check.topic, check.status) for check in checks] == [
        ("nvcc", Status.OK),
        ("host compiler", Status.OK),
        ("libraries", Status.OK),
    ]
    assert checks[0].text == "13.0.88 knows sm_100 and sm_90a (/usr/local/cuda)"
    assert checks[1].text == "gcc 12.2.0 (/usr/bin/gcc); nvcc 13.0.88 accepts up to 15"
    assert checks[2].text == "cudart 13.0"
    assert not any(check.stops_build for check in checks)


def test_an_architecture_that_is_too_new_stops_the_build() -> None:
    """With the version that knows it, and the packages that bring one."""
    check = checked(toolchain("12.6.85"), "sm_90,sm_100")["nvcc-arch"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)
    assert check.text == "nvcc 12.6.85 does not know sm_100; it needs 12.8 or newer"
    assert check.hint == "builddoctor toolkit install 13.0 && builddoctor doctor --toolkit 13.0"


def test_a_toolkit_of_this_machine_that_knows_them_all_is_the_first_advice() -> None:
    """One that knows only some is none."""
    others = (place("12.6.85", "/opt/cuda-12.6"), place("13.0.88", "/opt/my cuda"))
    check = checked(toolchain("12.6.85", others=others), "100")["nvcc-arch"]
    assert check.hint == "export CUDACXX='/opt/my cuda/bin/nvcc'"
    # CUDACXX has no say where --toolkit names one.
    check = checked(toolchain("12.6.85", others=others, wanted="12.6"), "100")["nvcc-arch"]
    assert check.hint.startswith("builddoctor doctor --toolkit '/opt/my cuda'")


@pytest.mark.parametrize(
    ("archs", "text", "hint"),
    [
        ("50,60", "nvcc 13.0.88 does not know sm_50 and sm_60; 13.0 dropped them", "conda create"),
        ("101a", "nvcc 13.0.88 does not know sm_101a; since 13.0 it is called sm_110a", "--arch sm_110a"),
        ("107", "nvcc 13.0.88 does not know sm_107; it needs 13.4 or newer", "toolkit install 13.4"),
        ("99", "nvcc 13.0.88 does not know sm_99; no toolkit that we know of does", "nvcc --list-gpu-code"),
        ("70,110", "nvcc 13.0.88 does not know sm_70; 13.0 dropped it", "build without sm_70, or in two builds"),
    ],
)
def test_each_reason_has_its_own_words_and_next_step(archs: str, text: str, hint: str) -> None:
    """Dropped, renamed, too new, unheard of, and a pair that no toolkit has."""
    check = checked(toolchain(), archs)["nvcc-arch"]
    assert check.text == text
    assert hint in check.hint


def test_a_project_without_cuda_code_is_not_stopped() -> None:
    """Nor is it a problem then that there is no nvcc."""
    without = checked(Toolchain(problem="no CUDA compiler (nvcc) found on this machine"), needs_nvcc=False)["nvcc"]
    assert (without.status, without.stops_build) == (Status.WARNING, False)
    assert not checked(toolchain(), "50", needs_nvcc=False)["nvcc-arch"].stops_build


def test_no_nvcc_says_what_lies_there_instead() -> None:
    """CUDA 12's python packages look like a toolkit, and are none."""
    facts = Toolchain(problem="no CUDA compiler", hint="get one", wheels_without_nvcc=f"{WHEEL}/cuda_nvcc")
    check = checked(facts)["nvcc"]
    assert (check.status, check.stops_build, check.hint) == (Status.PROBLEM, True, "get one")
    assert f"({WHEEL}/cuda_nvcc) have ptxas, but no nvcc" in check.text


def test_a_toolkit_that_was_asked_for_and_is_not_here_names_those_that_are() -> None:
    """Without such a wish all were tried, and none of them is advice."""
    others = (place("13.0.88", "/usr/local/cuda-13.0"),)
    hint = checked(Toolchain(wanted="12.8", problem="no", others=others))["nvcc"].hint
    assert hint.startswith("builddoctor doctor --toolkit /usr/local/cuda-13.0 ")
    assert checked(Toolchain(problem="it does not run", hint="fetch", others=others))["nvcc"].hint == "fetch"


def test_an_nvcc_without_any_host_compiler_is_told_as_that() -> None:
    """nvcc's own words blame the properties of a compiler that is not there."""
    checks = checked(Toolchain(problem="nvcc finds no host compiler", trouble="host-compiler", hint=HOST_HINT))
    check = checks["host-compiler"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, True)
    assert "install g++" in check.hint
    assert "nvcc" not in checks


@pytest.mark.parametrize("trouble", ["silent", "host-silent"])
def test_what_does_not_answer_is_a_problem_and_stops_no_build(trouble: NvccTrouble) -> None:
    """It may just be slow."""
    (check,) = checked(Toolchain(problem="/opt/bin/gcc does not answer", trouble=trouble)).values()
    assert (check.status, check.stops_build) == (Status.PROBLEM, False)


def test_a_tmpdir_in_the_way_is_not_put_down_to_nvcc() -> None:
    """The disk's own line stops the build and has the hint."""
    (check,) = checked(Toolchain(problem="it cannot write", trouble="temporary", hint="x")).values()
    assert (check.status, check.hint, check.stops_build) == (Status.WARNING, "", False)


def test_variables_that_keep_nvcc_from_running_are_named() -> None:
    """Not as a missing host compiler, and no hint that keeps their value."""
    said = "nvcc fatal   : Unknown option '--bogusflag'"
    facts = toolchain(hosts=(), host_problem=said, broken_variables=("NVCC_PREPEND_FLAGS",))
    checks = checked(facts)
    assert checks["nvcc-variables"].hint == "unset NVCC_PREPEND_FLAGS"
    assert said in checks["nvcc-variables"].text
    assert checks["nvcc-variables"].stops_build
    assert "host-compiler" not in checks


def test_a_host_compiler_that_did_not_answer_stops_no_build() -> None:
    """Neither when nvcc waits for it, nor when it is asked itself."""
    check = checked(toolchain(hosts=(), host_problem="no answer in 5 s", host_silent=True))["host-compiler"]
    assert (check.status, check.stops_build) == (Status.PROBLEM, False)
    check = checked(toolchain(hosts=(host("", kind="", silent=True),)))["host-compiler"]
    assert "did not answer" in check.text


def test_another_nvcc_that_does_not_answer_is_named() -> None:
    """The one in use is put before it."""
    check = checked(toolchain(silent=("/slow/nvcc",)))["nvcc-silent"]
    assert (check.status, check.stops_build) == (Status.WARNING, False)
    assert "/slow/nvcc did not answer" in check.text
    assert "CUDACXX=/usr/local/cuda/bin/nvcc" in check.hint


def test_a_cuda_home_that_leads_nowhere_is_a_warning() -> None:
    """The toolkit that is here is the hint; without one, to unset it."""
    check = checked(toolchain(lost_homes=("CUDA_HOME", "CUDA_PATH")))["cuda-home"]
    assert check.hint == "export CUDA_HOME=/usr/local/cuda CUDA_PATH=/usr/local/cuda"
    assert check.status is Status.WARNING
    assert checked(Toolchain(lost_homes=("CUDA_HOME",)))["cuda-home"].hint == "unset CUDA_HOME"


def test_an_nvcc_that_does_not_say_what_it_knows_is_judged_by_its_version() -> None:
    """And one without a version is not judged at all, but for a warning."""
    assert "nvcc" in checked(toolchain("12.9.86", archs=()), "103")
    assert "nvcc-arch" in checked(toolchain("12.8.93", archs=()), "103")
    unsure = checked(toolchain("12.9.86", archs=(), toolkit=toolkit("")), "103")["nvcc-arch"]
    assert (unsure.status, unsure.stops_build) == (Status.WARNING, False)


def test_two_nvcc_of_different_versions_are_named_with_who_takes_them() -> None:
    """The same version twice is nothing to speak of."""
    same = NvccChoice(taken_by="CMake", because="PATH", nvcc="/usr/bin/nvcc", version="13.0.88")
    other = NvccChoice(taken_by="torch", because="CUDA_HOME", nvcc="/opt/c/bin/nvcc", version="12.6.85")
    assert "nvcc-copies" not in checked(toolchain(choices=(same,)))
    check = checked(toolchain(choices=(same, other)))["nvcc-copies"]
    assert check.status is Status.WARNING
    assert "torch takes 12.6.85 (CUDA_HOME: /opt/c/bin/nvcc)" in check.text
    assert "CMake" not in check.text
    assert check.hint.startswith("export CUDA_HOME=/usr/local/cuda ")


def test_a_toolkit_that_cannot_link_says_where_its_runtime_is() -> None:
    """The link that puts it right can be pasted; what is not known is not spoken of."""
    check = checked(toolchain(links=False, library_folder="/venv/nvidia/cu13/lib"))["nvcc-links"]
    assert check.hint == "ln -s lib /usr/local/cuda/lib64"
    assert check.status is Status.PROBLEM
    assert "nvcc-links" not in checked(toolchain(links=None))


def test_a_needed_library_that_is_nowhere_is_a_problem() -> None:
    """With the package and the variable that lead a build to it; it does not stop one: modules may know better."""
    cudnn = checked(toolchain(), needed=("cudnn",))["library-cudnn"]
    assert (cudnn.status, cudnn.stops_build) == (Status.PROBLEM, False)
    assert cudnn.text == "cuDNN is needed and was not found"
    assert cudnn.hint.startswith("pip install nvidia-cudnn-cu13 && export CUDNN_PATH=")
    cublas = checked(toolchain(), needed=("cublas",))["library-cublas"]
    assert cublas.hint.startswith('pip install "cuda-toolkit[cublas]==13.0.*" && export CPATH=')


def test_several_that_are_nowhere_are_one_line_with_one_command() -> None:
    """Each is named, fetched once, and each variable set once."""
    checks = checked(toolchain(), needed=("cudnn", "cublas", "curand", "nccl"))
    missing = checks["libraries-missing"]
    assert missing.text == "cuDNN, cuBLAS, cuRAND and NCCL are needed and were not found"
    assert '"cuda-toolkit[cublas,curand]==13.0.*" nvidia-cudnn-cu13 nvidia-nccl-cu13 && ' in missing.hint
    assert [missing.hint.count(f"export {name}=") for name in ("CPATH", "CUDNN_PATH", "NCCL_HOME")] == [1, 1, 1]
    assert "library-cudnn" not in checks


def test_what_is_not_needed_and_not_there_is_not_spoken_of() -> None:
    """Nor is what is there and well, beyond one line."""
    assert set(checked(toolchain(), needed=("cudart",))) == {"nvcc", "host-compiler", "libraries"}


def test_a_library_in_python_packages_only_has_to_be_shown_to_the_build() -> None:
    """nvcc does not look into site-packages."""
    wheel = copy("cudnn", f"{WHEEL}/cudnn", version="9.13.0", kind="python")
    check = checked(toolchain(libraries=(wheel,)), needed=("cudnn",))["library-cudnn"]
    assert check.status is Status.WARNING
    assert check.hint == f"export CUDNN_PATH={WHEEL}/cudnn"


def test_copies_that_disagree_are_both_named() -> None:
    """Any two of them, not only neighbours; a soname that says less disagrees with nothing."""
    libraries = (
        copy("cudnn", "/opt/cudnn", version="9.5.1", kind="variable"),
        copy("cudnn", "/usr", version="9", header_version="", kind="system"),
        copy("cudnn", f"{WHEEL}/cudnn", version="9.13.0", kind="python"),
    )
    check = checked(toolchain(libraries=libraries))["library-cudnn"]
    assert check.status is Status.WARNING
    assert check.text == f"cuDNN twice, and they differ: 9.5.1 in /opt/cudnn, 9.13.0 in {WHEEL}/cudnn"
    assert check.hint == "export CUDNN_PATH=/opt/cudnn"


def test_what_torch_runs_with_does_not_disagree_with_the_toolkit() -> None:
    """CUDA 12's runtime in python packages beside a CUDA 13 toolkit is everyday; the one in /usr is not."""
    own = copy("cublas")
    wheel = copy("cublas", f"{WHEEL}/cublas", version="12.8.4", kind="python")
    assert "library-cublas" not in checked(toolchain(libraries=(own, wheel)))
    system = copy("cublas", "/usr", version="12.8.4", kind="system")
    assert "library-cublas" in checked(toolchain(libraries=(own, system)))


def test_half_a_library_is_a_warning() -> None:
    """A header without library, a library that the linker does not find by name, a header of another version."""
    half = copy("nccl", "/usr", library="", library_version="", linkable=False)
    assert "no library" in checked(toolchain(libraries=(half,)), needed=("nccl",))["library-nccl"].text
    unnamed = copy("nccl", "/usr", library="/usr/lib64/libnccl.so.2", library_version="", linkable=False)
    hint = checked(toolchain(libraries=(unnamed,)), needed=("nccl",))["library-nccl"].hint
    assert hint == "ln -s libnccl.so.2 /usr/lib64/libnccl.so"
    torn = copy("nccl", "/usr", header_version="2.27.7", library_version="2.21.5")
    text = checked(toolchain(libraries=(torn,)), needed=("nccl",))["library-nccl"].text
    assert text == "NCCL in /usr: the header says 2.27.7, the library 2.21.5"
    headless = copy("nccl", "/usr", header="", header_version="")
    assert checked(toolchain(libraries=(headless,)), needed=("nccl",))["library-nccl"].status is Status.PROBLEM


@pytest.mark.parametrize("name", HEADER_ONLY)
def test_of_some_only_the_header_is_needed(name: str) -> None:
    """NVML's library comes with the driver, which a machine that only builds does not have; others have none."""
    header = copy(name, library="", library_version="", linkable=False, header_version="")
    assert f"library-{name}" not in checked(toolchain(libraries=(header,)), needed=(name,))


def test_a_toolkit_of_two_versions_is_noticed() -> None:
    """An nvcc of 12.8 that includes the headers of 13.0: half an upgrade."""
    check = checked(toolchain("12.8.93", libraries=(copy("cudart", version="13.0"),)))["library-cudart"]
    assert check.status is Status.WARNING
    assert "nvcc is 12.8.93" in check.text
    assert "of 13.0" in check.text
