"""Device architectures: as they are typed, as each build system wants them, and those of this machine's GPUs.

Names of GPUs and their families are those of NVIDIA's table of compute capabilities (developer.nvidia.com/cuda-gpus).
Does *not* cover: what an nvcc knows (``projects.nvcc_archs``), or the memory of GPUs, which is not the host's.
"""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Mapping

import msgspec

from builddoctor.core.errors import UsageError
from builddoctor.gates.subprocesses import run_captured

_ARCH = re.compile(
    r"\A(?:sm_|compute_)?(?P<major>\d{1,2}?)(?P<dot>\.?)(?P<minor>\d)(?P<suffix>[af]?)(?P<ptx>(?:\+ptx)?)\Z",
    re.IGNORECASE,
)

NVIDIA_SMI_WITHIN_S = 20.0
"""The driver may have to be loaded first."""

_CAPABILITY = re.compile(r"^\s*(?P<capability>\d{1,2}\.\d)\s*$", re.MULTILINE)

NATIVE = "native"
"""The GPUs of this machine."""

NAMED = {
    "v100": "7.0",
    "volta": "7.0",
    "t4": "7.5",
    "turing": "7.5",
    "a100": "8.0",
    "ampere": "8.0",
    "a10": "8.6",
    "a10g": "8.6",
    "a40": "8.6",
    "rtx3090": "8.6",
    "orin": "8.7",
    "l4": "8.9",
    "l40": "8.9",
    "l40s": "8.9",
    "rtx4090": "8.9",
    "ada": "8.9",
    "h100": "9.0",
    "h200": "9.0",
    "gh200": "9.0",
    "hopper": "9.0",
    "b200": "10.0",
    "gb200": "10.0",
    "blackwell": "10.0",
    "b300": "10.3",
    "gb300": "10.3",
    "thor": "11.0",
    "rtx5090": "12.0",
    "gb10": "12.1",
    "spark": "12.1",
}
"""A family stands for its data centre GPU: ``blackwell`` is sm_100, and the RTX 5090, of the same family, is sm_120."""

_EVERY = (
    ": what that means is nvcc's own, and differs from one nvcc to the next",
    "name those that you need, `--arch sm_90,sm_100`; `nvcc --list-gpu-arch` lists what yours knows",
)
_NO_NUMBERS = {
    NATIVE: (
        ": no GPU of this machine answered, and it need not be the one that the build is for",
        "name it, `--arch sm_90`; `nvidia-smi --query-gpu=compute_cap --format=csv,noheader` asks which this one is",
    ),
    "all": _EVERY,
    "all-major": _EVERY,
}
"""Words that nvcc and CMake take: why we do not, and what to write instead."""


class Arch(msgspec.Struct, frozen=True):
    """One architecture, e.g. 10, 0, "a" for ``sm_100a``. ``ptx``: also its PTX, for GPUs yet to come."""

    major: int
    minor: int
    suffix: str
    ptx: bool = False

    @property
    def sm(self) -> str:
        return f"sm_{self.number}"

    @property
    def number(self) -> str:
        """``100a``: CMake's and TransformerEngine's form."""
        return f"{self.major}{self.minor}{self.suffix}"

    @property
    def dotted(self) -> str:
        """``10.0a``."""
        return f"{self.major}.{self.minor}{self.suffix}"

    @property
    def for_torch(self) -> str:
        """``10.0a``, or ``10.0+PTX``."""
        return self.dotted + "+PTX" * self.ptx


def wants_native(text: str) -> bool:
    """This machine's own GPUs are asked for: ``parse_archs`` has to be told which they are."""
    return any(word.lower() == NATIVE for word in _words(text))


def parse_archs(text: str, *, native: tuple[str, ...] = ()) -> tuple[Arch, ...]:
    """``sm_100,sm_90a``, ``90``, ``10.0+PTX``, ``h100`` (also separated by blanks or semicolons).

    ``native``: what that word stands for. Raises UsageError for anything else.
    """
    archs: list[Arch] = []
    for word in _words(text):
        for each in native if word.lower() == NATIVE and native else (word,):
            arch = _parsed(each)
            if arch not in archs:
                archs.append(arch)
    return tuple(archs)


def archs_of_gpus(text: str) -> tuple[Arch, ...]:
    """Of a number and a model as makers write it, ``8 x NVIDIA H100 80 GB``; empty where no known name is in it."""
    return tuple(_parsed(word) for word in _words(text) if word.lower() in NAMED)


def _words(text: str) -> list[str]:
    return re.split(r"[,;\s]+", text.strip())


def _parsed(word: str) -> Arch:
    name, plus, ptx = word.lower().partition("+")
    match = _ARCH.match(NAMED.get(name.replace("_", "").replace("-", ""), name) + plus + ptx)
    if match is None:
        why, hint = _NO_NUMBERS.get(word.lower(), ("", "write it as `--arch sm_90` or `sm_100,sm_90a`"))
        if not why and (close := difflib.get_close_matches(name, NAMED, n=1, cutoff=0.7)):
            hint = f"did you mean {close[0]}? {hint}"
        raise UsageError(f"not a device architecture: {word!r}{why}", hint=hint)
    return Arch(int(match["major"]), int(match["minor"]), match["suffix"].lower(), bool(match["ptx"]))


GENERAL = ("CUDAARCHS", "TORCH_CUDA_ARCH_LIST")
"""Read by CMake and by torch, for whatever they build; the others of ``arch_environment`` are single projects'."""


def arch_environment(archs: tuple[Arch, ...]) -> dict[str, str]:
    """The variables that real projects read their architectures from; nothing without architectures."""
    if not archs:
        return {}
    numbers = ";".join(dict.fromkeys(arch.number for arch in archs))
    dotted = list(dict.fromkeys(arch.dotted for arch in archs))
    return {
        "CUDAARCHS": numbers,
        "NVTE_CUDA_ARCHS": numbers,
        "FLASH_ATTN_CUDA_ARCHS": numbers,
        "TORCH_CUDA_ARCH_LIST": ";".join(arch.for_torch for arch in archs),
        "FLASHINFER_CUDA_ARCH_LIST": " ".join(dotted),
        "NATTEN_CUDA_ARCH": ";".join(dotted),
    }


def visible_archs(env: Mapping[str, str]) -> tuple[str, ...]:
    """The compute capabilities of this machine's GPUs by nvidia-smi, ``("9.0",)``: each once, in the order of the GPUs.

    None where there is no GPU, or no answer.
    """
    program = shutil.which("nvidia-smi", path=env.get("PATH"))
    if program is None:
        return ()
    asked = [program, "--query-gpu=compute_cap", "--format=csv,noheader"]
    answer = run_captured(asked, env=env, timeout_s=NVIDIA_SMI_WITHIN_S)
    if answer.status != 0:
        return ()
    return tuple(dict.fromkeys(match["capability"] for match in _CAPABILITY.finditer(answer.output)))
