"""The case at hand: versions, system and tools that a log names, and the words of advice that follow from them. Pure.

Covers: nvcc, gcc, torch and the CUDA it was built with, Python, the operating system, how it installs packages and
whether conda is in use; from these, and from what a known line says, words for ``@name@`` in texts: the first toolkit
that knows an architecture, a setting that the build reads, the package that holds a header.
Does *not* cover: facts of memory and of failed steps (``diagnose.log_facts``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources

import msgspec

from builddoctor.core.units import shell_word
from builddoctor.core.word import Word
from builddoctor.diagnose.log_lines import text_of
from builddoctor.projects.archs import Arch
from builddoctor.projects.nvcc_archs import SPANS, release, span, spelled


class System(Word):
    """What a build runs on."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


class Installer(Word):
    """What installs a system's own packages."""

    APT = "apt"
    DNF = "dnf"
    APK = "apk"
    PACMAN = "pacman"
    BREW = "brew"
    CONDA = "conda"


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Empty and None: the log does not say."""

    nvcc: str = ""
    nvcc_at: str = ""
    """its path, as it was started"""
    gcc: str = ""
    torch: str = ""
    torch_cuda: str = ""
    """the CUDA that torch was compiled with"""
    python: str = ""
    system: System | None = None
    installer: Installer | None = None
    conda: bool = False
    torch_builds: bool = False
    """torch's own build code compiles: it reads TORCH_CUDA_ARCH_LIST"""
    cmake_builds: bool = False
    cuda: bool = False
    """something of CUDA is named"""
    pip_downloaded: bool = False
    """pip builds a source distribution that it has downloaded"""
    one_at_a_time: bool = False
    """setuptools itself starts the compilers, one after the other"""
    archs: tuple[str, ...] = ()
    """numbers of those that nvcc was asked for, ``90a``"""


# -- reading them ----------------------------------------------------------------------------------------------------


MOST_BLOCKS = 4
"""at the beginning, and at the end: versions are said in few places"""
LONGEST_LOOKED = 20_000

_CU = re.compile(r"(\d{1,2})(\d)\Z")

_SAYS: tuple[tuple[str, tuple[bytes, ...], re.Pattern[str]], ...] = tuple(
    (name, words, re.compile(pattern))
    for name, words, pattern in (
        # The surest first: what is found first of a name stays.
        ("nvcc", (b"tools, release",), r"Cuda compilation tools, release (\d{1,2}\.\d)"),
        ("nvcc", (b"identification is NVIDIA",), r"CUDA compiler identification is NVIDIA (\d{1,2}\.\d)"),
        ("nvcc", (b"detected CUDA version",), r"detected CUDA version \((\d{1,2}\.\d)"),
        ("nvcc", (b"Found CUDA",), r"Found CUDA(?:Toolkit)?: .{1,300}\(found (?:suitable )?version \"(\d{1,2}\.\d)"),
        ("nvcc", (b"/bin/nvcc",), r"/(?:cuda|CUDA)[-/](\d{1,2}\.\d)[\d.]{0,8}\S{0,30}/bin/nvcc"),
        ("nvcc", (b"CUDA\\v",), r"CUDA\\v(\d{1,2}\.\d)"),
        ("nvcc", (b"\\CUDA ",), r"\\CUDA (\d{1,2}\.\d)\.targets"),
        ("nvcc", (b"/cuda-",), r"/cuda-(\d{1,2}\.\d)/"),
        ("nvcc_at", (b"nvcc",), r"(?:^|[\s'\"])((?:/[\w.+-]{1,60}){1,12}/nvcc)\b"),
        ("gcc", (b"identification is GNU",), r"CXX compiler identification is GNU (\d{1,2}(?:\.\d{1,2}){0,2})"),
        ("gcc", (b"gcc version",), r"\bgcc version (\d{1,2}(?:\.\d{1,2}){1,2})"),
        ("gcc", (b"/c++/",), r"/include/c\+\+/(\d{1,2}(?:\.\d{1,2}){0,2})/"),
        ("gcc", (b"/lib/gcc/",), r"/lib/gcc/[\w.-]{1,40}/(\d{1,2}(?:\.\d{1,2}){0,2})/"),
        ("torch_cuda", (b"PyTorch (",), r"\bPyTorch \((\d{1,2}\.\d)\)"),
        ("torch_cuda", (b"build PyTorch",), r"used to build PyTorch: (\d{1,2}\.\d)"),
        ("torch_cuda", (b"torch.version.cuda",), r"torch\.version\.cuda\W{1,4}(\d{1,2}\.\d)"),
        ("torch_cuda", (b"inaries were compiled",), r"(?i)pytorch binaries were compiled with cuda (\d{1,2}\.\d)"),
        ("torch_cuda", (b"+cu",), r"\b(?:torch|PyTorch)\b.{1,40}\d\+cu(\d{2,3})\b"),
        ("torch", (b"torch.__version__",), r"torch\.__version__\W{1,6}(\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)"),
        ("torch", (b"PyTorch version",), r"PyTorch version\W{1,3}(\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)"),
        ("torch", (b"Found Torch",), r"Found Torch: .{1,300}version \"(\d{1,2}\.\d{1,2}(?:\.\d{1,2})?)"),
        ("torch", (b"torch",), r"(?:^|[\s'\"/])torch(?:==|-| \(|=)(\d{1,2}\.\d{1,2}\.\d{1,2})(?![\w.]*[<>])"),
        ("python", (b"cpython-3",), r"cpython-3(\d{1,2})"),
        ("python", (b"python3.",), r"python3\.(\d{1,2})[/\s]"),
        ("python", (b"x86_64-3.", b"aarch64-3."), r"(?:x86_64|aarch64)-3\.(\d{1,2})\b"),
        ("python", (b"Python3",), r"\\Python3(\d{1,2})\\"),
    )
)

_MARKS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    ("macos", (b"-macosx-", b"/Library/Developer/", b"/opt/homebrew/", b"macosx_", b"apple-darwin", b"/Users/")),
    (
        "windows",
        (b":\\Program Files", b":\\Users\\", b"win-amd64", b"win_amd64", b"\\Microsoft Visual Studio\\", b":\\"),
    ),
    ("linux", (b"/usr/", b"/home/", b"linux-gnu", b"linux-x86_64", b"linux_x86_64")),
    ("apk", (b"-alpine-", b"alpine-linux", b"apk add", b"-musl")),
    ("dnf", (b"-redhat-linux", b"dnf install", b"yum install", b"manylinux_", b"/usr/lib64/", b"/usr/local/lib64/")),
    ("pacman", (b"pacman -S", b"x86_64-pc-linux-gnu/1", b"makepkg")),
    ("apt", (b"apt-get ", b"x86_64-linux-gnu", b"aarch64-linux-gnu", b"Ubuntu", b"Debian")),
    ("conda", (b"conda3/", b"/miniconda", b"/anaconda", b"/miniforge", b"/mambaforge", b"/opt/conda/", b"conda/envs/")),
    ("torch_builds", (b"/torch/include", b"\\torch\\include", b"cpp_extension.py", b"TORCH_CUDA_ARCH_LIST")),
    ("cuda", (b"nvcc", b"cicc", b"ptxas", b"cudafe", b"CUDA", b".cu.o", b".cu:", b"/cuda")),
    ("pip_downloaded", (b"/pip-install-", b"\\pip-install-")),
    ("setuptools_failed", (b"error: command '", b"Compile failed: command '")),
    ("others_build", (b"ninja", b"make[", b"make: ", b"CMakeFiles/", b"bazel", b"cargo", b"meson")),
    ("cmake_builds", (b"CMakeFiles/", b"CMake Error", b"CMakeLists.txt", b"CMAKE_")),
)

_ASKED = re.compile(r"(?:-gencode|--generate-code|-arch|--gpu-architecture)[ =].{0,2000}")
_NUMBER = re.compile(r"\b(?:sm|compute)_(\d{2,3}[af]?)\b")


class CaseTable:
    """Fed with blocks of whole lines."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self._surest: dict[str, int] = {}
        self._marks: set[str] = set()
        self._archs: tuple[str, ...] = ()

    def feed(self, block: bytes) -> None:
        """The next block."""
        for rank, (name, words, pattern) in enumerate(_SAYS):
            if self._surest.get(name, rank + 1) > rank and (found := _first(block, words, pattern)):
                self._found[name], self._surest[name] = found, rank
        self._marks |= {
            name for name, words in _MARKS if name not in self._marks and any(map(block.__contains__, words))
        }
        if not self._archs:
            self._archs = _archs_of(block)

    def found(self) -> Case:
        """What all of them said."""
        said = self._found
        return Case(
            nvcc=said.get("nvcc", ""),
            nvcc_at=said.get("nvcc_at", ""),
            gcc=said.get("gcc", ""),
            torch=said.get("torch", ""),
            torch_cuda=_CU.sub(r"\1.\2", said.get("torch_cuda", "")),
            python=f"3.{said['python']}" if "python" in said else "",
            system=next((each for each in (System.WINDOWS, System.MACOS, System.LINUX) if each in self._marks), None),
            installer=self._installer(),
            conda="conda" in self._marks,
            torch_builds="torch_builds" in self._marks,
            cmake_builds="cmake_builds" in self._marks,
            cuda="cuda" in self._marks,
            pip_downloaded="pip_downloaded" in self._marks,
            one_at_a_time="setuptools_failed" in self._marks and "others_build" not in self._marks,
            archs=self._archs,
        )

    def _installer(self) -> Installer | None:
        if "windows" in self._marks:
            return None
        if "macos" in self._marks:
            return Installer.BREW
        order = (Installer.APT, Installer.APK, Installer.PACMAN, Installer.DNF)
        return next((each for each in order if each in self._marks), None)


def _first(block: bytes, words: tuple[bytes, ...], pattern: re.Pattern[str]) -> str:
    """What the pattern finds in the first of a few lines with one of the words."""
    for word in words:
        at = block.find(word)
        for _ in range(8):
            if at < 0:
                break
            start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            end = len(block) if end < 0 else end
            found = pattern.search(text_of(block[start : min(end, start + LONGEST_LOOKED)]))
            if found is not None:
                return found[1]
            at = block.find(word, end)
    return ""


def _archs_of(block: bytes) -> tuple[str, ...]:
    at = block.find(b"compute_")
    for _ in range(8):
        if at < 0:
            return ()
        start, end = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
        end = len(block) if end < 0 else end
        line = text_of(block[start : min(end, start + LONGEST_LOOKED)])
        if (asked := _ASKED.search(line)) is not None and "fatal" not in line:
            return tuple(dict.fromkeys(_NUMBER.findall(asked[0])))
        at = block.find(b"compute_", end)
    return ()


# -- words that follow -----------------------------------------------------------------------------------------------


def case_values(case: Case, captured: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """What ``@name@`` stands for in texts; empty where it is not known. ``captured``: what the line itself says.

    A pattern has each name once: what ``file_2`` found in another form of a text is ``file`` as well.
    """
    said = {re.sub(r"_\d\Z", "", name): value for name, value in captured if value}
    nvcc = case.nvcc or said.get("found", "")
    return {
        **said,
        "nvcc": nvcc,
        "nvcc_or_another": nvcc or "another version",
        "this_nvcc": f"nvcc {nvcc}" if nvcc else "this nvcc",
        "nvcc_dashed": nvcc.replace(".", "-"),
        "pip_source": "pip" if case.pip_downloaded else "",
        "nvcc_unsaid": "" if nvcc else "this nvcc",
        "gcc": case.gcc,
        "this_gcc": f"gcc {case.gcc}" if case.gcc else "this gcc",
        "torch": case.torch,
        "this_torch": f"torch {case.torch}" if case.torch else "the installed torch",
        "torch_cuda": case.torch_cuda,
        "of_torch_cuda": f"CUDA {case.torch_cuda}" if case.torch_cuda else "another CUDA",
        "python": case.python,
        "conda": "conda" if case.conda else "",
        "no_conda": "" if case.conda else "the system",
        "on_macos": "macOS" if case.system is System.MACOS else "",
        "on_windows": "Windows" if case.system is System.WINDOWS else "",
        "on_linux": "Linux" if case.system not in (System.MACOS, System.WINDOWS) else "",
        "torch_toolkit": case.torch_cuda if release(case.torch_cuda) >= MANAGED_SINCE else "",
        "gcc_that_fits": _gcc_for(nvcc),
        "torch_index": _torch_index(nvcc),
        "distribution_nvcc": case.nvcc_at if case.nvcc_at == "/usr/bin/nvcc" else "",
        **_arch_values(case, nvcc, said.get("arch", "")),
        **_package_values(case, nvcc, said),
    }


MANAGED_SINCE = (13, 0)
"""``builddoctor toolkit install`` has toolkits from that one on"""

_GCC = ((13, 0, 15), (12, 8, 14), (12, 4, 13), (12, 0, 12), (11, 5, 11), (11, 1, 10), (11, 0, 9), (10, 2, 8), (9, 0, 6))
"""a CUDA, and the newest gcc that it and its next ones take (``crt/host_config.h``)"""


def _gcc_for(nvcc: str) -> str:
    """The newest gcc that nvcc takes; empty where its version is not known."""
    version = release(nvcc)
    return next((str(gcc) for major, minor, gcc in _GCC if version >= (major, minor)), "") if version else ""


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


def _arch_values(case: Case, nvcc: str, arch: str) -> dict[str, str]:
    """Of an architecture that this nvcc, or this torch, does not take."""
    spelt = _CAPTURED_ARCH.match(arch)
    known = span(Arch(int(spelt[1]), int(spelt[2]), spelt[3])) if spelt is not None else None
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
        return (
            f"rm -rf build && cmake -B build -DCMAKE_CUDA_ARCHITECTURES={shell_word(';'.join(a.number for a in each))}"
        )
    return f"export TORCH_CUDA_ARCH_LIST={shell_word(dotted)}"


# -- packages of systems ---------------------------------------------------------------------------------------------


class SystemPackage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One library, and what its development files are called. Empty where an installer has none."""

    name: str
    """for people"""
    headers: str = ""
    """a pattern of its headers' whole names"""
    libraries: str = ""
    """a pattern of its libraries' names, without lib and .so"""
    cmake: str = ""
    """a pattern of what CMake's find_package calls it"""
    apt: str = ""
    dnf: str = ""
    apk: str = ""
    pacman: str = ""
    brew: str = ""
    conda: str = ""
    pip: str = ""


class _Packages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    package: tuple[SystemPackage, ...]


@lru_cache(maxsize=1)
def load_packages() -> tuple[SystemPackage, ...]:
    """All that are known, in the file's order."""
    return msgspec.toml.decode(
        resources.files(__package__).joinpath("packages.toml").read_bytes(), type=_Packages
    ).package


def package_of(said: Mapping[str, str]) -> SystemPackage | None:
    """The package of a header (``file``), a library (``library``) or what CMake calls it (``package``)."""
    for group, field in (("file", "headers"), ("library", "libraries"), ("package", "cmake")):
        name = said.get(group, "")
        if group == "library":
            name = re.sub(r"\A(?:-l|lib(?=\w))|\.(?:so|dylib|dll|lib|a)\b.*", "", name)
        for each in load_packages() if name else ():
            pattern = getattr(each, field)
            if pattern and re.fullmatch(pattern, name):
                return each
    return None


_INSTALLS = {
    Installer.APT: "apt-get install ",
    Installer.DNF: "dnf install ",
    Installer.APK: "apk add ",
    Installer.PACMAN: "pacman -S ",
    Installer.BREW: "brew install ",
    Installer.CONDA: "conda install -c conda-forge ",
}


def _package_values(case: Case, nvcc: str, said: Mapping[str, str]) -> dict[str, str]:
    package = package_of(said)
    python = f"python{case.python}" if case.python else "python3"
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
    return {
        "library_name": package.name,
        "library_install": f"{_INSTALLS[installer]}{named}" if named else "",
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
