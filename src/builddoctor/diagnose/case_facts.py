"""What a log names of versions and of its system: the case at hand. Pure.

Covers: nvcc, gcc, torch and the CUDA it was built with, Python, the operating system, how it installs packages, whether
conda is in use, what builds.
Does *not* cover: words of advice that follow (``case_words``), memory and failed steps (``log_facts``).
"""

from __future__ import annotations

import re

import msgspec

from builddoctor.core.word import Word
from builddoctor.diagnose.log_lines import text_of
from builddoctor.diagnose.system_packages import Installer


class System(Word):
    """What a build runs on."""

    LINUX = "linux"
    MACOS = "macos"
    WINDOWS = "windows"


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
    python_2: str = ""
    """where the log names no Python 3"""
    cub_folder: str = ""
    """a CUB of its own on the include path"""
    cudatoolkit: str = ""
    """of version 12 or later, which conda is asked for"""
    system: System | None = None
    installer: Installer | None = None
    conda: bool = False
    sudo: bool = False
    """the build was started by it"""
    library_first: str = ""
    """the first library of a link whose libraries stand before the objects"""
    left_out: str = ""
    """the library that has a symbol which only others bring along, without lib and .so"""
    bazel: bool = False
    mac_r: bool = False
    """an extension of R for macOS is linked"""
    torch_builds: bool = False
    """torch's own build code compiles: it reads TORCH_CUDA_ARCH_LIST"""
    cmake_builds: bool = False
    wheel_built: bool = False
    """pip, uv or another front of Python's builds: CMake is started by them"""
    cuda: bool = False
    """something of CUDA is named"""
    torch_isolated: bool = False
    """the torch that is built against is one that pip or uv got for this build alone"""
    kernel_module: bool = False
    """a module of Linux is built, against the headers of a kernel"""
    pip_clones: bool = False
    """pip starts git"""
    msvc_links: bool = False
    """Visual Studio's linker says something, and not MinGW's or the NDK's"""
    torch_named: bool = False
    """something of torch is named"""
    isolated: bool = False
    """pip or uv builds in an environment of its own"""
    pip_downloaded: bool = False
    """pip builds a source distribution that it has downloaded"""
    one_at_a_time: bool = False
    """setuptools itself starts the compilers, one after the other"""
    conda_toolkit: str = ""
    """conda's environment, where a build takes it for CUDA's folder: its libraries are not in lib64"""
    cuda_home_list: str = ""
    """CUDA_HOME, where it holds a colon as PATH does"""
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
        ("nvcc", (b"nvcc version",), r"\bnvcc version\W{1,3}(\d{1,2}\.\d)"),
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
        (
            "torch_isolated",
            (b"pip-build-env-", b"builds-v0"),
            r"(pip-build-env|builds-v0)\S{0,200}[/\\](?:dist|site)-packages[/\\]torch[/\\]",
        ),
        ("cuda_home_list", (b"using CUDA_HOME='",), r"using CUDA_HOME='((?![A-Za-z]:)[^'\\]{0,200}:[^'\\]{0,200})'"),
        (
            "cuda_home_list",
            (b":/include", b"-I:/", b":/lib64", b"-L:/"),
            r"(?:^|\s)'?-[IL](?=\S{0,400}cuda)((?![A-Za-z]:)[^\s'\\]{0,200}:[^\s'\\]{0,200})/(?:include|lib64)(?=['\s]|$)",
        ),
        ("conda_toolkit", (b"/lib64",), r"-L(/\S{0,200}(?:conda|envs/)\S{0,200}?)/lib64\b"),
        ("python", (b"cpython-3",), r"cpython-3(\d{1,2})"),
        ("python", (b"python3.",), r"python3\.(\d{1,2})[/\s]"),
        ("python", (b"x86_64-3.", b"aarch64-3."), r"(?:x86_64|aarch64)-3\.(\d{1,2})\b"),
        ("python", (b"Python3",), r"\\Python3(\d{1,2})\\"),
        # Not an end of a line in what Python wrote as it is in a source: 'failed:\\n'.
        ("drive", (b":\\",), r"(?:(?<![A-Za-z])|(?<=-I)|(?<=-L))([A-Za-z]):\\"),
        ("python_2", (b"python2.",), r"/python(2\.\d)(?=[/\s'\"]|\Z)"),
        ("left_out", (b"DSO missing",), r"\blib([\w.+-]{1,60}?)\.so[\d.]{0,12}: error adding symbols: DSO missing"),
        ("cub_folder", (b"/cub-",), r"-I(/\S{0,200}/cub-\d[\w.]{0,10})(?=[\s'\"]|\Z)"),
        (
            "library_first",
            (b" -l",),
            (
                r"(?:^|[\s/])(?:gcc|g\+\+|cc|c\+\+|clang)(?!.{0,2000} -c )(?: -\S{1,200}){0,40}? (-l[\w.+-]{1,60})"
                r"(?: -(?!o )\S{1,200}){0,40}(?: -o \S{1,200})?(?: [^\s-]\S{0,200}\.(?:o|c|cc|cpp)){1,60}$"
            ),
        ),
        ("cudatoolkit", (b"cudatoolkit=",), r"\bcudatoolkit={1,2}(1[2-9](?:\.\d{1,2}){0,2})"),
    )
)

_MARKS: tuple[tuple[str, tuple[bytes, ...]], ...] = (
    (
        "macos",
        (
            *(b"-macosx-", b"/Library/Developer/", b"/opt/homebrew/", b"macosx_", b"apple-darwin", b"/Users/"),
            *(b".macosx-", b"MacOSX.platform", b"MacOSX.sdk", b"xcrun: ", b"-darwin.so", b"mach-o"),
            *(b"/Applications/Xcode", b"/usr/local/Cellar/", b"/private/var/", b"darwin$ "),
        ),
    ),
    (
        "windows",
        (
            *(b":\\Program Files", b":\\Users\\", b"\\Microsoft Visual Studio\\"),
            *(b".win-amd64", b"-win-amd64", b" win_amd64", b"'win_amd64", b"/win-64"),
            b"but you're on Windows",
            *(
                b"C:/Program Files",
                b"C:/PROGRA~",
                b"C:/Users/",
                b" C:/",
                b" c:/",
                b" D:/",
                b'"C:/',
                b'"D:/',
                b"'C:/",
                b"'D:/",
            ),
        ),
    ),
    # A list of a release's wheels names those of all systems.
    ("wheel_for_windows", (b"-win_amd64",)),
    ("wheel_for_linux", (b"linux_x86_64", b"linux_aarch64", b"manylinux")),
    ("linux", (b"/usr/", b"/home/", b"linux-gnu", b"linux-x86_64", b"linux_x86_64")),
    ("apk", (b"-alpine-", b"alpine-linux", b"apk add", b"-musl")),
    ("dnf", (b"-redhat-linux", b"dnf install", b"yum install", b"manylinux_", b"/usr/lib64/", b"/usr/local/lib64/")),
    ("pacman", (b"pacman -S", b"x86_64-pc-linux-gnu/1", b"makepkg")),
    ("apt", (b"apt-get ", b"x86_64-linux-gnu", b"aarch64-linux-gnu", b"Ubuntu", b"Debian")),
    ("conda", (b"conda3/", b"/miniconda", b"/anaconda", b"/miniforge", b"/mambaforge", b"/opt/conda/", b"conda/envs/")),
    ("sudo", (b"sudo python", b"sudo -H p", b"sudo pip", b"sudo sh ", b"sudo bash ", b"sudo make", b"sudo ./")),
    ("bazel", (b"bazel build", b"bazel test", b"bazel run", b"bazel-out/")),
    ("mac_r", (b"/R.framework", b"-framework R ")),
    ("torch_builds", (b"/torch/include", b"\\torch\\include", b"cpp_extension.py", b"TORCH_CUDA_ARCH_LIST")),
    ("pip_clones", (b"Running command git clone",)),
    ("torch_named", (b"torch",)),
    ("msvc_links", (b"error LNK",)),
    ("cuda", (b"nvcc", b"cicc", b"ptxas", b"cudafe", b"CUDA", b".cu.o", b".cu:", b"/cuda", b"CUresult")),
    ("kernel_module", (b"/lib/modules/", b"/linux-headers-", b"CC [M]", b"DKMS make.log", b"/var/lib/dkms/")),
    ("isolated", (b"pip-build-env-", b"builds-v0", b"Installing build dependencies")),
    ("pip_downloaded", (b"/pip-install-", b"\\pip-install-")),
    ("setuptools_failed", (b"error: command '", b"Compile failed: command '")),
    ("others_build", (b"ninja", b"make[", b"make: ", b"CMakeFiles/", b"bazel", b"cargo", b"meson")),
    ("cmake_builds", (b"CMakeFiles/", b"CMake Error", b"CMakeLists.txt", b"CMAKE_")),
    ("wheel_built", (b"Building wheel", b"build_wheel", b"scikit_build_core", b"scikit-build-core", b"pip wheel")),
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
        marks = self._marks | ({"windows"} if self._on_windows() else set())
        return Case(
            nvcc=said.get("nvcc", ""),
            nvcc_at=said.get("nvcc_at", ""),
            gcc=said.get("gcc", ""),
            torch=said.get("torch", ""),
            torch_cuda=_CU.sub(r"\1.\2", said.get("torch_cuda", "")),
            python=f"3.{said['python']}" if "python" in said else "",
            python_2="" if "python" in said else said.get("python_2", ""),
            cub_folder=said.get("cub_folder", ""),
            cudatoolkit=said.get("cudatoolkit", ""),
            system=next((each for each in (System.WINDOWS, System.MACOS, System.LINUX) if each in marks), None),
            installer=self._installer(),
            conda="conda" in self._marks,
            sudo="sudo" in self._marks,
            library_first=said.get("library_first", ""),
            left_out=said.get("left_out", ""),
            bazel="bazel" in self._marks,
            mac_r="mac_r" in self._marks,
            torch_builds="torch_builds" in self._marks,
            cmake_builds="cmake_builds" in self._marks,
            wheel_built="wheel_built" in self._marks,
            cuda="cuda" in self._marks,
            torch_isolated="torch_isolated" in said,
            conda_toolkit=said.get("conda_toolkit", ""),
            cuda_home_list=said.get("cuda_home_list", ""),
            kernel_module="kernel_module" in self._marks,
            pip_clones="pip_clones" in self._marks,
            msvc_links="msvc_links" in self._marks,
            torch_named="torch_named" in self._marks,
            isolated="isolated" in self._marks,
            pip_downloaded="pip_downloaded" in self._marks,
            one_at_a_time="setuptools_failed" in self._marks and "others_build" not in self._marks,
            archs=self._archs,
        )

    def _on_windows(self) -> bool:
        wheel = "wheel_for_windows" in self._marks and "wheel_for_linux" not in self._marks
        return wheel or "windows" in self._marks or "drive" in self._found

    def _installer(self) -> Installer | None:
        if self._on_windows():
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
