"""pip, as it is configured on this machine: wheels with its proxies, certificates and passwords; where its indexes are.

Covers: finding a pip; wheels for a named platform, checked by pip against the hash that its index gives; the addresses
of its indexes, for source distributions (``projects.sources.web``).
Nothing is installed, no package's code is run (wheels only). Does *not* cover: keeping wheels (``toolkits.wheels``).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.core.errors import DiskFullError, PackageDamagedError, PackageUnavailableError
from builddoctor.gates.subprocesses import run_captured
from builddoctor.system.probes import first_program
from builddoctor.trace.masking import mask_text

MOST_VERSIONS = 40
"""named of a package; the newest"""

ANSWERS_WITHIN_S = 60.0
FETCH_TIMEOUT_S = 6 * 3600.0
"""for one call; pip itself gives up much earlier when nothing comes"""

_LAUNCH = """
import ctypes, runpy, sys
ctypes.CDLL(None).prctl(1, 15, 0, 0, 0)
sys.argv[0] = "pip"
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
"""PR_SET_PDEATHSIG: a fetch ends with us, whatever we die of."""

_OWN_DEFAULT = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
_SETTING = re.compile(r"^(?P<section>[^.\s]+)\.(?P<key>(?:extra-)?index-url)='(?P<value>[^']*)'\s*$", re.MULTILINE)
_SECTIONS = (":env:", "download", "install", "global")
"""What counts more comes first."""

_VERSIONS = re.compile(r"\(from versions: ([^)]*)\)")


class OtherVersionsError(PackageUnavailableError):
    """A package cannot be had: the index has it in other versions alone."""

    def __init__(self, requirement: str, versions: tuple[str, ...]) -> None:
        super().__init__(f"no {requirement} in the package index; it has {', '.join(versions)}")
        self.versions = versions


def find_pip(env: Mapping[str, str]) -> str:
    """A python that has pip: ours, else one on PATH. Raises PackageUnavailableError."""
    for python in dict.fromkeys((sys.executable, first_program("python3", env), first_program("python", env))):
        if python and run_captured([python, "-c", "import pip"], env=env, cwd="/").status == 0:
            return python
    raise PackageUnavailableError(
        "there is no pip to fetch packages with", hint="python3 -m ensurepip --user, or install python3-pip"
    )


def fetch_wheels(
    python: str, requirements: Sequence[str], folder: Path, *, platforms: Sequence[str], env: Mapping[str, str]
) -> list[Path]:
    """The best wheel for each, fetched into the empty ``folder``, which pip also uses for its own files.

    Raises PackageUnavailableError, PackageDamagedError when it is not what the index says, DiskFullError.
    """
    argv = [python, "-c", _LAUNCH, "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input"]
    argv += ["-vv", "--disable-pip-version-check", "--progress-bar=off", "--implementation=py", "--abi=none"]
    argv += [f"--platform={platform}" for platform in platforms]
    argv += ["--dest", str(folder), *requirements]
    # What pip fetches lies in TMPDIR first, which may be small, or memory. In "/": -c looks for modules where it is.
    done = run_captured(argv, env={**env, "TMPDIR": str(folder)}, cwd="/", timeout_s=FETCH_TIMEOUT_S)
    wheels = sorted(folder.glob("*.whl")) if done.status == 0 else []
    if wheels and len(wheels) == len(requirements):
        return wheels
    raise _failure(" ".join(requirements), done.output, done.problem)


def _failure(
    requirement: str, output: str, problem: str
) -> PackageUnavailableError | PackageDamagedError | DiskFullError:
    lines = [line.strip() for line in mask_text(output).splitlines()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    low = output.lower()
    if "no space left on device" in low or "disk quota exceeded" in low:
        return DiskFullError(
            f"the disk is full: {requirement} could not be fetched",
            hint="keep wheels on another disk: export BUILDDOCTOR_CACHE_DIR=/some/folder",
        )
    if "do not match the hashes" in low:
        return PackageDamagedError(
            f"{requirement} is not what the package index says: wrong sha256",
            hint="try again; if it stays, the index or a proxy before it has a damaged copy",
        )
    known = _VERSIONS.search(output)
    if known and known[1] != "none":
        return OtherVersionsError(requirement, tuple(word.strip() for word in known[1].split(",")[-MOST_VERSIONS:]))
    said = problem or next((line for line in errors if line), lines[-1] if lines else "pip said nothing")
    # With -vv: why a page could not be read, where otherwise it would seem to be empty.
    said = next((line for line in lines if line.startswith("Could not fetch URL") and "404" not in line), said)
    return PackageUnavailableError(f"{requirement} cannot be fetched: {said[:400]}", hint=OFFLINE_HINT)


OFFLINE_HINT = (
    "name a mirror, `export PIP_INDEX_URL=…`; or fetch on a machine with network (`toolkit install` there, copy "
    "its folder of wheels, then `--offline`); or use a toolkit that is here, `builddoctor toolkit list`"
)


def usable_platforms(arch: str) -> list[str]:
    """pip's names for Linux with glibc on ``arch``, the newest first; nothing newer than this machine's glibc."""
    newest = 39
    # With another C library: an index may still have what runs here all the same.
    with contextlib.suppress(ValueError, OSError):
        newest = int((os.confstr("CS_GNU_LIBC_VERSION") or "").rpartition(".")[2])
    minors = range(min(newest, 60), 16, -1)
    return [*(f"manylinux_2_{minor}_{arch}" for minor in minors), f"manylinux2014_{arch}", f"linux_{arch}"]


def python_version(python: str, env: Mapping[str, str]) -> str:
    """Such as ``3.11.7``; empty where it does not say."""
    said = run_captured([python, "-c", "import platform; print(platform.python_version())"], env=env, cwd="/")
    return said.output.strip() if said.status == 0 else ""


def index_urls(python: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """The index and further ones, in pip's order; none where pip does not answer."""
    settings = run_captured([python, "-m", "pip", "config", "list"], env=env, timeout_s=ANSWERS_WITHIN_S)
    found: dict[tuple[str, str], str] = {}
    if settings.status == 0:
        for match in _SETTING.finditer(settings.output):
            found[match["section"], match["key"]] = match["value"]
    main = _setting(found, "index-url")
    further = _setting(found, "extra-index-url").split()
    if not main:
        asked = run_captured([python, "-c", _OWN_DEFAULT], env=env, timeout_s=ANSWERS_WITHIN_S)
        lines = asked.output.split() if asked.status == 0 else []
        main = lines[-1] if lines and "://" in lines[-1] else ""
    return tuple(dict.fromkeys(url.rstrip("/") for url in (main, *further) if url))


def _setting(found: Mapping[tuple[str, str], str], key: str) -> str:
    return next((found[section, key] for section in _SECTIONS if (section, key) in found), "")
