"""Device architectures: as people type them, and as each build system wants them. Pure."""

from __future__ import annotations

import re

import msgspec

from builddoctor.errors import UsageError

_ARCH = re.compile(r"\A(?:sm_|compute_)?(?P<major>\d{1,2}?)(?P<dot>\.?)(?P<minor>\d)(?P<suffix>[af]?)\Z")

_EVERY = (
    ": what that means is nvcc's own, and differs from one nvcc to the next",
    "name those that you need, `--arch sm_90,sm_100`; `nvcc --list-gpu-arch` lists what yours knows",
)
_NO_NUMBERS = {
    "native": (
        ": the GPU of this machine need not be the one that the build is for, and there may be none",
        "name it, `--arch sm_90`; `nvidia-smi --query-gpu=compute_cap --format=csv,noheader` says which this one is",
    ),
    "all": _EVERY,
    "all-major": _EVERY,
}
"""Words that nvcc and CMake take: why we do not, and what to write instead."""


class Arch(msgspec.Struct, frozen=True):
    """One architecture, e.g. 10, 0, "a" for ``sm_100a``."""

    major: int
    minor: int
    suffix: str

    @property
    def sm(self) -> str:
        return f"sm_{self.number}"

    @property
    def number(self) -> str:
        """``100a``: CMake's and TransformerEngine's form."""
        return f"{self.major}{self.minor}{self.suffix}"

    @property
    def dotted(self) -> str:
        """``10.0a``: torch's form."""
        return f"{self.major}.{self.minor}{self.suffix}"


def parse_archs(text: str) -> tuple[Arch, ...]:
    """``sm_100,sm_90a``, ``90``, ``10.0`` (also separated by blanks or semicolons); UsageError for anything else."""
    archs: list[Arch] = []
    for word in re.split(r"[,;\s]+", text.strip()):
        match = _ARCH.match(word)
        if match is None:
            why, hint = _NO_NUMBERS.get(word.lower(), ("", "write it as `--arch sm_90` or `sm_100,sm_90a`"))
            raise UsageError(f"not a device architecture: {word!r}{why}", hint=hint)
        arch = Arch(int(match["major"]), int(match["minor"]), match["suffix"])
        if arch not in archs:
            archs.append(arch)
    return tuple(archs)


def arch_environment(archs: tuple[Arch, ...]) -> dict[str, str]:
    """The variables that real projects read their architectures from; nothing without architectures."""
    if not archs:
        return {}
    numbers = ";".join(arch.number for arch in archs)
    dotted = [arch.dotted for arch in archs]
    return {
        "CUDAARCHS": numbers,
        "NVTE_CUDA_ARCHS": numbers,
        "FLASH_ATTN_CUDA_ARCHS": numbers,
        "TORCH_CUDA_ARCH_LIST": ";".join(dotted),
        "FLASHINFER_CUDA_ARCH_LIST": " ".join(dotted),
        "NATTEN_CUDA_ARCH": ";".join(dotted),
    }
