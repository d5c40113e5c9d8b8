"""Checks of the environment variables that builds read: those that would be ignored, or break the build. Pure.

Covers: MAX_JOBS, CC, lists of architectures, and sccache however it comes in.
Does *not* cover: values that are merely unwise: under gates they are caps or nothing (``gates.knobs``).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from builddoctor.core.check import Check, Status, Topic
from builddoctor.core.project import KnownProject, Source
from builddoctor.core.toolchain import BuildTools
from builddoctor.projects.archs import Arch, arch_environment

_ARCH_WORD = re.compile(r"\A(?:sm_)?(?P<major>\d{1,2}?)\.?(?P<minor>\d)(?P<suffix>[af]?)(?:\+PTX|-real|-virtual)?\Z")
_COMPILER = re.compile(r"(?:\A|[/-])(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[\d.]+)?\Z")
_LAUNCHERS = (
    "CMAKE_CUDA_COMPILER_LAUNCHER",
    "CMAKE_CXX_COMPILER_LAUNCHER",
    "CMAKE_C_COMPILER_LAUNCHER",
    "NVTE_CCACHE_BIN",
    "FLASHINFER_NVCC_LAUNCHER",
    "PYTORCH_NVCC",
    "CC",
    "CXX",
)
_LONGEST_SHOWN = 60


def variable_checks(
    source: Source | None,
    known: KnownProject | None,
    archs: tuple[Arch, ...],
    env: Mapping[str, str],
    tools: BuildTools,
    *,
    gpus: int | None,
) -> list[Check]:
    """What is wrong with the environment; nothing when all is well."""
    torch = (known is not None and known.needs_torch) or (source is not None and bool(source.files.uses_torch))
    checks = [*_max_jobs(env), *_cc(env, torch=torch), *_archs(archs, env), *_sccache(source, known, env, tools)]
    # torch takes the architectures of the GPUs that it sees; with none, older ones end in an IndexError.
    if torch and gpus == 0 and not archs and not env.get("TORCH_CUDA_ARCH_LIST"):
        text = "no --arch, no TORCH_CUDA_ARCH_LIST and no GPU here: torch does not know what to build for"
        checks.append(Topic.ENVIRONMENT.check("arch-unknown", Status.WARNING, text, "give one: `--arch sm_90`"))
    return checks


def _max_jobs(env: Mapping[str, str]) -> list[Check]:
    value = env.get("MAX_JOBS", "")
    if not value or value.isdigit():
        return []
    text = f"MAX_JOBS={_shown(value)} is no plain number: torch ignores it (builddoctor sets its own)"
    return [Topic.ENVIRONMENT.check("max-jobs", Status.WARNING, text, "unset MAX_JOBS")]


def _cc(env: Mapping[str, str], *, torch: bool) -> list[Check]:
    words = env.get("CC", "").split()
    if len(words) < 2 or not torch:
        # CMake itself takes a launcher in CC.
        return []
    text = (
        f"CC={_shown(env['CC'])} has more than one word: torch hands it to nvcc as one, and nvcc finds no such compiler"
    )
    named = [word for word in words if not word.startswith("-")]
    known = [word for word in named if _COMPILER.search(word)]
    compiler = next(iter(known or [word for word in named if "cache" not in word]), words[-1])
    return [Topic.ENVIRONMENT.check("cc-words", Status.PROBLEM, text, f"export CC={shlex.quote(compiler)}")]


def _archs(archs: tuple[Arch, ...], env: Mapping[str, str]) -> list[Check]:
    """builddoctor sets these variables from --arch: what the user's own say is lost."""
    asked = {arch.number for arch in archs}
    for name in arch_environment(archs):
        said = _numbers(env.get(name, ""))
        if said and said != asked:
            text = f"{name}={_shown(env[name])} says other architectures than --arch, which goes before it"
            return [Topic.ENVIRONMENT.check("arch-variables", Status.WARNING, text, f"unset {name}")]
    return []


def _numbers(text: str) -> set[str]:
    """Empty also when a word of it cannot be read: ``Hopper``, ``native``."""
    matches = [_ARCH_WORD.match(word) for word in re.split(r"[;,\s]+", text.strip()) if word]
    return {f"{m['major']}{m['minor']}{m['suffix']}" for m in matches if m} if all(matches) else set()


def _sccache(
    source: Source | None, known: KnownProject | None, env: Mapping[str, str], tools: BuildTools
) -> list[Check]:
    """Its compilers are children of a daemon that may be older than the build: no gate, and another cgroup."""
    named = next((name for name in _LAUNCHERS if "sccache" in env.get(name, "")), "")
    hint = f"unset {named}" if named else ""
    launchers = [value for folder in source.build_folders for _, value in folder.launchers] if source else []
    if named:
        why = f"{named} names sccache"
    elif any("sccache" in value for value in launchers):
        why = "a build folder here was configured with sccache"
    elif not tools.sccache:
        return []
    elif known is not None and known.avoids_sccache:
        if env.get(known.avoids_sccache.partition("=")[0]):
            return []
        why, hint = f"{known.title} uses sccache when it is on PATH", f"export {known.avoids_sccache}"
    elif source is not None and not source.files.uses_sccache:
        return []
    else:
        why = f"sccache is on PATH, and {source.files.uses_sccache} uses it" if source else "sccache is on PATH"
    text = f"{why}: it compiles in a daemon of its own, outside of this build's limits and gates"
    return [
        Topic.ENVIRONMENT.check("sccache", Status.WARNING, text, hint or "ccache compiles in place: use that instead")
    ]


def _shown(value: str) -> str:
    """As a shell takes it, and short."""
    value = "".join(letter if letter.isprintable() else "?" for letter in value)
    return shlex.quote(value if len(value) <= _LONGEST_SHOWN else value[:_LONGEST_SHOWN] + "…")
