"""A build of which one unit runs and two wait for memory, for as long as a test wants to look at it."""

from __future__ import annotations

from support.program import Program
from support.stand_ins import HOG, stand_in

FOLDER = "transformer_engine/common/normalization/layernorm"
NAMES = ("ln_fwd_cuda_kernel", "ln_bwd_semi_cuda_kernel", "gelu")
SMALL = ("--memory", "1200M", "--cores", "3")
"""Options with which there is memory for one."""


def waiting_build(program: Program, then: str = "echo all built") -> tuple[str, ...]:
    """The command. Each unit holds 240 MiB until there is a file ``done``; afterwards comes ``then``."""
    stand_in(program, f"exec {HOG} 240 0 {program.folder}/done")
    edges = "".join(f"build {name}: cc {FOLDER}/{name}.cpp\n" for name in NAMES)
    (program.folder / FOLDER).mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (program.folder / FOLDER / f"{name}.cpp").touch()
    rule = "rule cc\n  command = clang++ -c $in -o $out\n"
    (program.folder / "build.ninja").write_text(rule + edges)
    return "sh", "-c", f"ninja -v && {then}"
