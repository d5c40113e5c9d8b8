"""Where CUDA's headers and libraries are found."""

from __future__ import annotations

from pathlib import Path

from builddoctor.model.toolchain import LibraryCopy
from builddoctor.sensors.cuda_libraries import library_copies, toolkit_facts, wheels_without_nvcc
from unit.toolchains import HOST_CONFIG, math_functions, toolkit
from unit.trees import plant

CUDA = "/usr/local/cuda"
RUNTIME = {f"{CUDA}/bin/nvcc": "", f"{CUDA}/lib64/libcudadevrt.a": "", f"{CUDA}/lib64/libcudart_static.a": ""}


def cudnn(version: str) -> str:
    return "".join(
        f"#define CUDNN_{part} {number}\n"
        for part, number in zip(("MAJOR", "MINOR", "PATCHLEVEL"), version.split("."), strict=True)
    )


def found(tmp_path: Path, files: dict[str, str], env: dict[str, str] | None = None) -> tuple[LibraryCopy, ...]:
    return library_copies(
        plant(tmp_path, files), env or {}, toolkit=toolkit(), site_folders=[Path("/site")], machine="x86_64"
    )


def test_every_copy_of_a_library_is_found_where_people_put_it(tmp_path: Path) -> None:
    """The variable's, Debian's in its triplet folder, conda's and the python package's; in the order of a search."""
    files = {
        "/opt/cudnn/include/cudnn_version.h": cudnn("9.5.1"),
        "/opt/cudnn/lib/libcudnn.so.9": "",
        "/usr/include/x86_64-linux-gnu/cudnn_version.h": cudnn("8.9.7"),
        "/usr/lib/x86_64-linux-gnu/libcudnn.so.8": "",
        "/usr/include/aarch64-linux-gnu/nccl.h": "#define NCCL_MAJOR 2\n",
        "/conda/include/cudnn_version.h": cudnn("9.10.2"),
        "/site/nvidia/cudnn/include/cudnn_version.h": cudnn("9.13.0"),
        "/site/nvidia/cudnn/lib/libcudnn.so.9": "",
    }
    copies = found(tmp_path, files, {"CUDNN_PATH": "/opt/cudnn", "CONDA_PREFIX": "/conda"})
    assert [(copy.kind, copy.header_version, copy.library_version) for copy in copies] == [
        ("variable", "9.5.1", "9"),
        ("conda", "9.10.2", ""),
        ("system", "8.9.7", "8"),
        ("python", "9.13.0", "9"),
    ]


def test_the_toolkit_s_own_library_is_found_by_nvcc_s_flags(tmp_path: Path) -> None:
    """Spelled with ``..`` as nvcc spells them; a copy reached by two ways counts once."""
    files = {
        f"{CUDA}/include/cuda_runtime_api.h": "#define CUDART_VERSION 13000\n",
        f"{CUDA}/lib64/libcudart.so.13.0.96": "",
        f"{CUDA}/lib64/libcudart.so": "",
    }
    copies = found(tmp_path, files, {"CMAKE_PREFIX_PATH": CUDA, "CPATH": f"{CUDA}/include"})
    assert len(copies) == 1
    assert (copies[0].kind, copies[0].header_version, copies[0].library_version) == ("toolkit", "13.0", "13.0.96")
    assert copies[0].linkable


def test_headers_of_tools_are_found(tmp_path: Path) -> None:
    """NVTX and the profiler's: TransformerEngine includes both. In the toolkit, and in packages of CUDA 12."""
    files = {
        f"{CUDA}/include/nvtx3/nvToolsExt.h": "",
        "/site/nvidia/cuda_profiler_api/include/cuda_profiler_api.h": "",
    }
    assert [(copy.name, copy.kind) for copy in found(tmp_path, files)] == [("nvtx", "toolkit"), ("profiler", "python")]


def test_a_link_says_the_version_of_what_it_leads_to(tmp_path: Path) -> None:
    """``libnccl.so.2`` alone says 2; its target says more."""
    plant(tmp_path, {"/usr/include/nccl.h": "#define NCCL_MAJOR 2\n", "/usr/share/libnccl.so.2.27.7": ""})
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnccl.so.2").symlink_to(tmp_path / "usr/share/libnccl.so.2.27.7")
    copies = found(tmp_path, {})
    assert [(copy.library_version, copy.linkable) for copy in copies] == [("2.27.7", False)]


def test_odd_folders_and_files_are_no_copies(tmp_path: Path) -> None:
    """A relative variable, a header that is a folder, a file in the place of a folder."""
    files = {"/usr/include/nccl.h/x": "", "/usr/lib64": "a file", "/usr/include/cudnn_version.h": "\x00\xfe"}
    copies = found(tmp_path, files, {"CUDNN_PATH": "relative", "CONDA_PREFIX": ".", "LIBRARY_PATH": "::x:/none"})
    assert [(copy.name, copy.header_version) for copy in copies] == [("cudnn", "")]


def test_a_toolkit_s_headers_say_what_it_accepts(tmp_path: Path) -> None:
    """Limits, bare functions, and a runtime where nvcc links from."""
    files = {
        f"{CUDA}/include/crt/host_config.h": HOST_CONFIG.format(gnu=14, clang=20),
        f"{CUDA}/include/crt/math_functions.h": math_functions(cospi="", sinpi="", rsqrt=""),
        **RUNTIME,
    }
    facts = toolkit_facts(plant(tmp_path, files), {}, toolkit=toolkit("12.8.93"), machine="x86_64")
    assert (facts.limits.gnu_newest, facts.limits.clang_newest) == (14, 19)
    assert facts.bare_functions == ("cospi", "sinpi", "rsqrt")
    assert facts.links is True


def test_a_toolkit_of_python_packages_does_not_link(tmp_path: Path) -> None:
    """Its libraries are in ``lib``, and nvcc looks in ``lib64``; what is not there says nothing of limits."""
    files = {f"{CUDA}/lib/libcudadevrt.a": "", f"{CUDA}/lib/libcudart_static.a": ""}
    facts = toolkit_facts(plant(tmp_path, files), {}, toolkit=toolkit(), machine="x86_64")
    assert (facts.links, facts.library_folder) == (False, f"{CUDA}/lib")
    assert facts.limits.gnu_newest is None
    assert facts.bare_functions is None


def test_a_split_toolkit_links_from_the_system_s_folder(tmp_path: Path) -> None:
    """Debian: nvcc's own folders are empty, its libraries and headers are the system's."""
    files = {
        "/usr/lib/x86_64-linux-gnu/libcudadevrt.a": "",
        "/usr/lib/x86_64-linux-gnu/libcudart_static.a": "",
        "/usr/include/crt/host_config.h": HOST_CONFIG.format(gnu=11, clang=15),
    }
    facts = toolkit_facts(plant(tmp_path, files), {}, toolkit=toolkit(), machine="x86_64")
    assert facts.links is True
    assert facts.limits.gnu_newest == 11


def test_cuda_12_s_python_packages_are_told_from_a_toolkit(tmp_path: Path) -> None:
    """They have ptxas and no nvcc."""
    root = plant(tmp_path, {"/site/nvidia/cuda_nvcc/bin/ptxas": "", "/other/nvidia/cu13/bin/nvcc": ""})
    assert wheels_without_nvcc(root, [Path("/other"), Path("/site")]) == "/site/nvidia/cuda_nvcc"
    plant(tmp_path, {"/site/nvidia/cuda_nvcc/bin/nvcc": ""})
    assert wheels_without_nvcc(root, [Path("/site")]) == ""
