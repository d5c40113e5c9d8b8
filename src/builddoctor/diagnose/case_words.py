"""Words for ``@name@`` in texts that follow from the case: what a line says, and what the log names. Pure.

Covers: versions in words, the gcc and the torch that fit a CUDA, the first toolkit that knows an architecture, a
setting that the build reads, the package that holds a header.
Does *not* cover: words on memory, limits and jobs (``diagnose.remedies``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from builddoctor.core.units import shell_word
from builddoctor.diagnose.case_facts import Case, System
from builddoctor.diagnose.system_packages import INSTALLS, Installer, named_in_code, package_of
from builddoctor.projects.archs import Arch
from builddoctor.projects.nvcc_archs import SPANS, release, span, spelled


def case_values(case: Case, captured: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """What ``@name@`` stands for in texts; empty where it is not known. ``captured``: what the line itself says.

    A pattern has each name once: what ``file_2`` found in another form of a text is ``file`` as well.
    """
    said = {re.sub(r"_\d{1,2}\Z", "", name): value for name, value in captured if value}
    nvcc = case.nvcc or said.get("found", "")
    torch_cuda = case.torch_cuda or said.get("torch_cuda", "")
    return {
        **said,
        "library_in_code": named_in_code(*(said.get(each, "") for each in ("symbol", "what", "file"))),
        "stem": re.split(r"[/.]", said.get("file", ""), maxsplit=1)[0],
        "where": f"{said['file']}:{said['line']}: " if "file" in said and "line" in said else "",
        "nvcc": nvcc,
        "nvcc_or_another": nvcc or "another version",
        "this_nvcc": f"nvcc {nvcc}" if nvcc else "this nvcc",
        "nvcc_dashed": nvcc.replace(".", "-"),
        "pip_source": "pip" if case.pip_downloaded else "",
        "module_of_library": module if _OF_LIBRARIES.match(module := _module_file(said.get("module", ""))) else "",
        "module_of_project": "" if _OF_LIBRARIES.match(module) else module,
        "module_unsaid": "" if module else "module",
        "of_torchs": ", of torch's CUDA" if case.torch_named else " in its folder bin",
        "msvc_linker": "Visual Studio's linker" if case.msvc_links else "",
        "pip_clones": "pip" if case.pip_clones else "",
        "torch_compiled": "torch" if case.torch_builds else "",
        "package_of_any": "" if _BINARY.match(package := said.get("package", "")) else package,
        "torch_named": "torch" if (torch := case.torch_named or "of_torch" in said) else "",
        "no_torch_named": "" if torch else "code",
        "wheel_built": "pip" if case.wheel_built else "",
        "under_sudo": "sudo" if case.sudo else "",
        "python_312": case.python if release(case.python) >= (3, 12) else "",
        "python_venv": f"python{case.python or 3}-venv",
        "cub_folder": case.cub_folder,
        "cudatoolkit_asked": case.cudatoolkit,
        "library_first": case.library_first,
        "left_out": "" if case.left_out in _OF_C else case.left_out,
        "left_out_unsaid": "the C library" if case.left_out in _OF_C else "",
        "in_bazel": "Bazel" if case.bazel and "gcc_part" in said else "",
        "r_gfortran": "R for macOS" if case.mac_r and _OF_GFORTRAN.match(said.get("library", "")) else "",
        "free_threaded_library": library if re.match(r"python3\d{2}t", library := said.get("library", "")) else "",
        "blas_symbol": symbol if _OF_BLAS.match(symbol := said.get("symbol", "")) else "",
        "empty_before": empty[1] if (empty := _EMPTY_BEFORE.search(said.get("what", ""))) else "",
        "node_waf": "node-waf" if said.get("tool") == "node-waf" else "",
        "gnu_only": gnu[1] if case.system is System.WINDOWS and (gnu := _OF_GNU.search(said.get("what", ""))) else "",
        "permissive": "-fpermissive" if said.get("what", "").endswith("[-fpermissive]") else "",
        "gcc_of_std": next((gcc for ends, gcc in _GCC_OF_STD if said.get("std", "").endswith(ends)), ""),
        "nvcc_knows_std": nvcc if release(nvcc) >= _CUDA_OF_STD.get(said.get("std", ""), (99, 0)) else "",
        "which_python": "Python 2 has no such thing, and its headers are taken"
        if "since_python_3" in said
        else "the source, or the Cython that made it, is made for an older Python than this one",
        "package_plain": re.sub(r"\Alib(?=\w)|[-_]?config\Z", "", said.get("package", "").lower().replace("_", "-")),
        "c_alone": "" if case.cuda else "C",
        "cuda_named": "CUDA" if case.cuda else "",
        "no_cuda_named": "" if case.cuda else "nothing of a GPU",
        "isolated_build": "an isolated build" if case.isolated else "",
        "nvcc_unsaid": "" if nvcc else "this nvcc",
        "gcc": case.gcc,
        "this_gcc": f"gcc {case.gcc}" if case.gcc else "this gcc",
        "torch": case.torch,
        "this_torch": f"torch {case.torch}" if case.torch else "the installed torch",
        "torch_cuda": torch_cuda,
        "of_torch_cuda": f"CUDA {torch_cuda}" if torch_cuda else "another CUDA",
        "the_kernel": "the kernel" if case.kernel_module else "",
        "the_compiler": "" if case.kernel_module else "the compiler",
        "since_when": "this kernel has no such function any more, or with other arguments"
        if case.kernel_module
        else "newer compilers take this old fault for an error",
        "since_gone": "this kernel has no such function any more"
        if case.kernel_module
        else "a library that had the function (Python, Ruby, OpenSSL, FFmpeg) may be too new for this source",
        "since_when_here": "this kernel has it no more, or with other arguments"
        if case.kernel_module
        else "a warning that this project makes an error, and that other compilers do not give",
        "torch_isolated": "a torch" if case.torch_isolated else "",
        "conda_toolkit": case.conda_toolkit,
        "cuda_home_list": case.cuda_home_list,
        "cuda_library": (cuda_library := _cuda_library(said.get("symbol", ""))),
        "newest_is_2022": "Visual Studio 2022" if said.get("newest") == "2022" else "",
        "newest_is_2017": "Visual Studio 2017" if said.get("newest") == "2017" else "",
        "cuda_import_library": f"{cuda_library[2:]}.lib" if cuda_library else "",
        "python": case.python,
        "conda": "conda" if case.conda else "",
        "no_conda": "" if case.conda else "the system",
        "on_macos": "macOS" if case.system is System.MACOS else "",
        "on_windows": "Windows" if case.system is System.WINDOWS else "",
        "on_linux": "Linux" if case.system not in (System.MACOS, System.WINDOWS) else "",
        "torch_toolkit": case.torch_cuda if release(case.torch_cuda) >= MANAGED_SINCE else "",
        "gcc_that_fits": _gcc_for(nvcc),
        "older_gcc": _older_gcc(nvcc, case.gcc),
        "torch_index": _torch_index(nvcc),
        "distribution_nvcc": case.nvcc_at if case.nvcc_at == "/usr/bin/nvcc" else "",
        **_arch_values(case, nvcc, said.get("arch", "")),
        **_package_values(case, nvcc, said),
    }


_BINARY = re.compile(
    r"(?i)(?:torch|nvidia|triton|tensorflow|jax|onnx|cupy|cuda|llvmlite|numba|numpy|scipy|pandas|scikit|opencv|py(?:qt|side)"
    r"|tokenizers|sentencepiece|xformers|bitsandbytes|vllm|faiss|open3d|mediapipe|lxml|grpcio|pyarrow)"
)
"""packages whose files are for one Python and system each"""

_GCC_OF_STD = (
    (("+11", "+0x", "+14", "+1y"), "5"),
    (("+17", "+1z"), "8"),
    (("+20", "+2a"), "11"),
    (("+23", "+2b"), "13"),
)
"""the gcc that compiles a standard"""

_CUDA_OF_STD = {"CUDA14": (9, 0), "CUDA17": (11, 0), "CUDA20": (12, 0)}

_OF_GNU = re.compile(r'"(__(?:asm__|volatile__|attribute__|restrict__|builtin_\w{1,40}|sync_\w{1,40}|int128(?:_t)?))"')
"""names that gcc and clang have, as nvcc's front end says that they are unknown"""

_OF_C = frozenset(("", "c", "dl", "m", "pthread", "rt"))
"""libraries of the C library; the empty name: the log does not say which"""

_OF_GFORTRAN = re.compile(r"-l(?:gfortran|quadmath)\Z")

_OF_BLAS = re.compile(
    r"_?(?:cblas_[sdcz]\w{2,8}|[sdcz](?:gemm|gemv|axpy|dot|scal|nrm2|potrf|getrf|gesv|syev|gesdd)_?)\Z"
)

_EMPTY_BEFORE = re.compile(r"expected expression before .(<<|>>|==|\|\|?|%). token")
"""operators that want something before them, and that begin nothing"""

_OF_LIBRARIES = re.compile(r"(?i)(?:mpi|netcdf|hdf5|pnetcdf|fftw|petsc|openacc|cudafor|mkl|omp_lib|blas95|lapack|esmf)")
"""names of Fortran modules that libraries bring"""

_CUDA_LIBRARIES = "cublasLt", "cublas", "cudnn", "cufft", "curand", "cusparse", "cusolver", "cupti", "nvrtc", "nccl"


def _module_file(module: str) -> str:
    """The file of a Fortran module, which ifx, flang and Cray's compiler name without its end, some in capitals."""
    return f"{module.lower()}.mod" if module and "." not in module else module


def _cuda_library(symbol: str) -> str:
    """``-lnvrtc``: the option that has the linker take what defines it; empty where that is unclear."""
    if symbol.startswith(("__cudaRegisterLinkedBinary", "__fatbinwrap_")):
        return ""
    named = next((each for each in _CUDA_LIBRARIES if symbol.startswith(each)), "")
    if not named and symbol.startswith(("cuda", "__cuda")):
        named = "cudart"
    if not named and re.match(r"cu[A-Z]", symbol):
        named = "cuda"
    return f"-l{named}" if named else ""


MANAGED_SINCE = (13, 0)
"""``builddoctor toolkit install`` has toolkits from that one on"""

_GCC = ((13, 0, 15), (12, 8, 14), (12, 4, 13), (12, 0, 12), (11, 5, 11), (11, 1, 10), (11, 0, 9), (10, 2, 8), (9, 0, 6))
"""a CUDA, and the newest gcc that it and its next ones take (``crt/host_config.h``)"""


def _gcc_for(nvcc: str) -> str:
    """The newest gcc that nvcc takes; empty where its version is not known."""
    version = release(nvcc)
    return next((str(gcc) for major, minor, gcc in _GCC if version >= (major, minor)), "") if version else ""


def _older_gcc(nvcc: str, gcc: str) -> str:
    """One that nvcc takes, and that is older than the one whose headers it did not understand."""
    fitting, used = _gcc_for(nvcc), release(gcc)
    return str(min(int(fitting), used[0] - 1)) if fitting and used else fitting


TORCH_INDEXES = ("11.8", "12.1", "12.4", "12.6", "12.8", "12.9", "13.0")
"""CUDAs that torch has wheels for"""


def _torch_index(nvcc: str) -> str:
    """``cu126``: the index with torches of that CUDA, or of the next older one of the same major version."""
    version = release(nvcc)
    fitting = [
        each for each in TORCH_INDEXES if version and version[0] == release(each)[0] and release(each) <= version
    ]
    return f"cu{fitting[-1].replace('.', '')}" if fitting else ""


_CAPTURED_ARCH = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)\Z")


_NO_NUMBER = re.compile(r"(?:sm_|compute_)(?!native|all|auto)[A-Za-z]\w*\Z")
"""what a script wrote that got no answer of a GPU"""


_BEFORE_TABLE = {"10": "6.5", "11": "6.5", "12": "6.5", "13": "6.5", "20": "8.0", "21": "8.0"}
"""architectures that were gone before any toolkit of the table, and the last CUDA that had them"""


def _arch_values(case: Case, nvcc: str, arch: str) -> dict[str, str]:
    """Of an architecture that this nvcc, or this torch, does not take."""
    spelt = _CAPTURED_ARCH.match(arch)
    known = span(Arch(int(spelt[1]), int(spelt[2]), spelt[3])) if spelt is not None else None
    if _NO_NUMBER.match(arch):
        return {"arch_no_number": arch, "arch_when": "", "arch_unclear": ""}
    if spelt is not None and known is None and (last := _BEFORE_TABLE.get(spelt[1] + spelt[2])):
        when = f": CUDA {last} was the last that made code for it"
        return {"arch_when": when, "arch_of_old": arch, "arch_of_old_last": last, "arch_unclear": ""}
    if spelt is None or known is None:
        return {"arch_when": "", "arch_unclear": "this nvcc"}
    version = release(nvcc)
    dropped = known.before is not None and version >= known.before
    too_new = version < known.since if version else known.before is None
    either = not version and not too_new
    since, last = spelled(known.since), "" if known.before is None else f"{known.before[0] - 1}.x"
    before = _newest_before(version, spelt[1] + spelt[2]) if version and too_new else ""
    left = [each for each in case.archs if each != f"{spelt[1]}{spelt[2]}{spelt[3]}" and _is_known(each, version)]
    when = f": CUDA {since} is the first that does" if too_new else ""
    if either:
        when = f": CUDA {since} is the first that does, and {last} the last"
    return {
        "arch_since": since if too_new else "",
        "arch_last": last if dropped else "",
        "arch_dropped": spelled(known.before) if dropped and known.before is not None else "",
        "arch_unclear": "" if too_new or dropped or either else "this nvcc",
        "arch_either": last if either else "",
        "arch_first": since if either else "",
        "arch_when": f": CUDA {spelled(known.before or ())} dropped it" if dropped else when,
        "arch_before": f"sm_{before}" if before else "",
        "arch_before_setting": _arch_setting(case, [before], ptx=True) if before else "",
        "archs_left_setting": _arch_setting(case, left) if left and dropped else "",
    }


OF_MODULES = frozenset(("32", "37", "53", "62", "72", "87", "88", "101", "110"))
"""architectures of embedded modules, and of one card that few have"""


def _is_known(number: str, version: tuple[int, ...]) -> bool:
    spelt = _CAPTURED_ARCH.match(number)
    known = span(Arch(int(spelt[1]), int(spelt[2]), spelt[3])) if spelt is not None else None
    return known is not None and version >= known.since and (known.before is None or version < known.before)


def _newest_before(version: tuple[int, ...], number: str) -> str:
    """The newest architecture of that toolkit whose PTX an architecture can run."""
    servers = (each for each in SPANS if each.isdigit() and each not in OF_MODULES)
    fitting = [each for each in servers if int(each) < int(number) and _is_known(each, version)]
    return max(fitting, key=int, default="")


def _arch_setting(case: Case, numbers: Iterable[str], *, ptx: bool = False) -> str:
    """A command that says so to what builds."""
    each = [Arch(int(found[1]), int(found[2]), found[3]) for text in numbers if (found := _CAPTURED_ARCH.match(text))]
    dotted = ";".join(arch.dotted for arch in each) + "+PTX" * ptx
    if case.cmake_builds and not case.torch_builds:
        setting = f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(arch.number for arch in each)}"
        if case.wheel_built:
            return f"export CMAKE_ARGS={shell_word(setting)}"
        return f"rm -rf build && cmake -B build {shell_word(setting)}"
    return f"export TORCH_CUDA_ARCH_LIST={shell_word(dotted)}"


def _package_values(case: Case, nvcc: str, said: Mapping[str, str]) -> dict[str, str]:
    package = package_of(said)
    python = f"python{case.python or case.python_2 or 3}"
    if case.system is System.WINDOWS:
        pip = _of_major(package.pip, nvcc.partition(".")[0]) if package is not None else ""
        return {
            "library_name": package.name if package is not None else "",
            "library_pip": pip and f"pip install {pip}",
        }
    values = {"python_headers": _install(case.installer, f"{python}-dev", f"{python}-devel")}
    values["gxx_install"] = _install(case.installer, "build-essential", "gcc-c++ make")
    if package is None:
        return {"library_name": "", **values}
    installer = case.installer or Installer.APT
    major = nvcc.partition(".")[0]
    named, pip = (_of_major(each, major) for each in (getattr(package, installer, ""), package.pip))
    conda = case.conda and package.conda
    beside = package.folder if installer is Installer.APT and "file" in said else ""
    folder = f" && export CPATH={beside}:$CPATH" if beside else ""
    return {
        "library_name": package.name,
        "library_install": f"{INSTALLS[installer]}{named}{folder}" if named else "",
        "library_conda": f"conda install -c conda-forge {package.conda}" if conda else "",
        "library_pip": f"pip install {pip}" if pip else "",
        **values,
    }


def _of_major(package: str, major: str) -> str:
    """Its name for that CUDA; empty where it has one for each, and the CUDA is not known."""
    return "" if "@major@" in package and not major else package.replace("@major@", major)


def _install(installer: Installer | None, apt: str, dnf: str) -> str:
    """A command for what every distribution has, with its names of it."""
    if installer is Installer.DNF:
        return f"dnf install {dnf}"
    if installer is Installer.APK:
        return f"apk add {'build-base' if 'essential' in apt else 'python3-dev'}"
    if installer is Installer.PACMAN:
        return f"pacman -S {'base-devel' if 'essential' in apt else 'python'}"
    if installer is Installer.BREW:
        return "xcode-select --install" if "essential" in apt else "brew install python"
    return f"apt-get install {apt}"
