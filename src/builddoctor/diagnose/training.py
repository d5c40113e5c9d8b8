"""A process of a training, not of a build, that was killed: the host's memory, told apart from the GPU's. Pure.

Covers: workers and ranks killed by SIGKILL, a bare ``Killed`` or 137 at the end of a training's log.
Does *not* cover: the GPU's memory (``diagnose.gpu_verdict``); the kernel's own report (``diagnose.kernel_verdict``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from builddoctor.model.finding import Finding
from builddoctor.model.verdict import Fix, Verdict

DATALOADER = "dataloader-killed"
ENTRIES = frozenset((DATALOADER, "launcher-saw-sigkill"))
FEW = 2

_TRAINING = re.compile(
    r"(?i)\b(?:epoch|step|iteration|iter|batch)s?\b[ :=/\[]{1,3}\d|\bloss\b[ :='\"]{1,4}\d|\d(?:it/s|s/it)\b"
    r"|\btorchrun\b|\baccelerate launch\b|\bdeepspeed\b|\btrain\w*\.py\b|\bDataLoader\b"
)
_BUILD = re.compile(
    r"\bnvcc\b|\bcc1plus\b|\bcicc\b|\bptxas\b|\bninja\b|\bg?make(?:\[\d+\])?: |\bg\+\+|\bc\+\+|\bBuilding \w+ object\b"
    r"|\bBuilding wheel\b|\bsetup\.py\b|^FAILED: "
)


def in_training(entry: str, tail: Sequence[str], command: str) -> bool:
    """Whether what was killed belonged to a training: by the text itself, else by what the log ends with."""
    if entry in ENTRIES:
        return True
    if command or any(_BUILD.search(text) for text in tail):
        return False
    return sum(_TRAINING.search(text) is not None for text in tail) >= FEW


def of_training(cause: Finding, fixes: Sequence[Fix]) -> Verdict:
    """Too many workers times what each holds, most likely; no advice that belongs to builds."""
    return Verdict(
        verdict="parallel",
        confidence="medium" if cause.entry == DATALOADER else "low",
        died="a worker of the training's DataLoader" if cause.entry == DATALOADER else "a process of a training",
        why="it was killed (SIGKILL) and left no traceback of its own: most likely the host's memory ran out, not the "
        "GPU's. Usually it is the number of worker processes times what each of them loads; a smaller model or batch "
        "does not help",
        cause=cause.entry,
        evidence=[
            f"line {cause.line}: {cause.text}",
            "a GPU that runs out of memory gives a Python traceback and kills nobody",
        ],
        fixes=list(fixes),
    )
