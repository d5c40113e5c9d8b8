"""What a system's own packages are called that hold headers and libraries, and the commands that install them. Pure.

Covers: ``packages.toml``, by a header's, a library's or CMake's name.
Does *not* cover: packages of Python's that a build needs, which its project names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources

import msgspec

from builddoctor.core.word import Word


class Installer(Word):
    """What installs a system's own packages."""

    APT = "apt"
    DNF = "dnf"
    APK = "apk"
    PACMAN = "pacman"
    BREW = "brew"
    CONDA = "conda"


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
    programs: str = ""
    """a pattern of the programs that it brings"""
    code: str = ""
    """a pattern of its names in sources, and of its headers' folders, as compilers and linkers quote them"""
    folder: str = ""
    """Debian's folder of its headers, where the compiler does not look there by itself"""
    apt: str = ""
    dnf: str = ""
    apk: str = ""
    pacman: str = ""
    brew: str = ""
    conda: str = ""
    pip: str = ""


class _Packages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    package: tuple[SystemPackage, ...]


_FIELDS = (
    *(("file", "headers"), ("library", "libraries"), ("package", "cmake")),
    *(("tool", "programs"), ("package", "programs")),
)
"""what a line names, and the pattern that knows it"""


@lru_cache(maxsize=1)
def load_packages() -> tuple[SystemPackage, ...]:
    """All that are known, in the file's order."""
    return msgspec.toml.decode(
        resources.files(__package__).joinpath("packages.toml").read_bytes(), type=_Packages
    ).package


def package_of(said: Mapping[str, str]) -> SystemPackage | None:
    """The package of a header (``file``), a library (``library``), what CMake calls it (``package``), or of a program
    (``tool``)."""
    for group, field in _FIELDS:
        name = said.get(group, "")
        names = [name]
        if group == "library":
            # Some packages hold an old version alone: ``tinfo.so.5``.
            versioned = re.search(r"(?:\A|/)lib([\w+-]{1,60}\.so\.\d[\d.]*)\Z", name)
            plain = re.sub(r"\A(?:-l|lib(?=\w))|-(?:vc|mt|gd|x64|x32).*|\.(?:so|dylib|dll|lib|a)\b.*", "", name)
            names = [*([] if versioned is None else [versioned[1]]), plain]
        for wanted in names if name else ():
            for each in load_packages():
                pattern = getattr(each, field)
                if pattern and re.fullmatch(pattern, wanted):
                    return each
    return None


def named_in_code(*texts: str) -> str:
    """The library whose names stand in what a compiler or linker says; the first that any of the texts has."""
    for text in texts:
        for each in load_packages() if text else ():
            if each.code and re.search(each.code, text):
                return each.name
    return ""


INSTALLS = {
    Installer.APT: "apt-get install ",
    Installer.DNF: "dnf install ",
    Installer.APK: "apk add ",
    Installer.PACMAN: "pacman -S ",
    Installer.BREW: "brew install ",
    Installer.CONDA: "conda install -c conda-forge ",
}
"""how each begins"""
