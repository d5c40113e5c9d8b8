"""What was killed was of a training or a server, and of no build: whether it was, and what is said of it. Pure.

Does *not* cover: the GPU's memory (``diagnose.gpu_memory``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from builddoctor.core.verdict import Diagnosis, Finding, Fix, Verdict, Weight
from builddoctor.core.word import Confidence
from builddoctor.diagnose.catalogue import cause_of, entry_of, fixes_of
from builddoctor.diagnose.log_facts import LogFacts
from builddoctor.diagnose.log_scanner import Reading

DATALOADER, LAUNCHER = "dataloader-killed", "launcher-saw-sigkill"
OF_TRAINING = frozenset((DATALOADER, LAUNCHER))
OF_JOBS_MEMORY = frozenset(
    (
        "slurm-oom-kill",
        "slurm-task-oom",
        "slurm-polled-memory",
        "slurm-exceeded-memory",
        "slurm-state-oom",
        "lsf-memory-limit",
        "pbs-memory-limit",
        "kubernetes-oom",
        "docker-oom-flag",
    )
)
FEW_LINES = 2

_TRAINING = re.compile(
    r"(?i)\b(?:epoch|step|iteration|iter|batch)s?\b[ :=/\[]{1,3}\d|\bloss\b[ :='\"]{1,4}\d|[\d?](?:it/s|s/it)\b"
    r"|\bsigkill_handler\b"
    r"|\btorchrun\b|\baccelerate launch\b|\bdeepspeed\b|\btrain\w*\.py\b|\bDataLoader\b"
    r"|\bLoading (?:safetensors |pt )?checkpoint shards\b|\bvllm serve\b|\bapi_server\b|\bUvicorn running\b"
    r"|\btritonserver\b"
)
_PROGRESS = re.compile(r"\d/\d{1,9} \[\d\d:\d\d<.{1,40}(?:it/s|s/it)\]")
_BUILD = re.compile(
    r"\bnvcc\b|\bcc1plus\b|\bcicc\b|\bptxas\b|\bninja\b|\bg?make(?:\[\d+\])?: |\bg\+\+|\bc\+\+|\bBuilding \w+ object\b"
    r"|\bBuilding wheel\b|\bsetup\.py\b|^FAILED: "
)


def of_host_memory(cause: Finding) -> bool:
    """A kill for memory, or one that looks like it, of something that may be no build."""
    return cause.verdict is Verdict.PARALLEL or cause.entry in OF_TRAINING or cause.entry in OF_JOBS_MEMORY


def builds(reading: Reading, facts: LogFacts) -> bool:
    """Something in it is of a build: a step that failed, or a compiler at the end."""
    return reading.failing is not None or bool(facts.command) or any(_BUILD.search(text) for text in reading.tail)


def in_training(entry: str, tail: Sequence[str], command: str) -> bool:
    """Whether what was killed was of a training or a server: by the text itself, else by what the log ends with."""
    if entry in OF_TRAINING:
        return True
    if command or any(_BUILD.search(text) for text in tail):
        return False
    marks = sum(_TRAINING.search(text) is not None for text in tail)
    # A progress bar that the kill stands behind is enough.
    return marks >= FEW_LINES or bool(tail and _PROGRESS.search(tail[-1]))


def of_training(cause: Finding, findings: Sequence[Finding]) -> Diagnosis:
    """Too many workers times what each holds, most likely, or the job's limit; no advice that belongs to builds."""
    limit = next((each for each in findings if each.entry in OF_JOBS_MEMORY and each.weight is Weight.SAYS), None)
    by_limit = entry_of(limit.entry) if limit is not None else None
    own: list[Fix] = []
    killed = "it was killed (SIGKILL) and left no traceback of its own: most likely the host's memory ran out"
    if limit is not None and by_limit is not None:
        killed = (
            f"a training or a server, no build: {cause_of(by_limit, limit.captured, {})}. The host's memory ran out"
        )
        own = [fix for fix in fixes_of(by_limit, limit.captured, {}) if not fix.command.startswith("builddoctor")]
    workers = entry_of(DATALOADER if cause.entry == DATALOADER else LAUNCHER)
    return Diagnosis(
        verdict=Verdict.NOT_A_BUILD,
        confidence=Confidence.MEDIUM if cause.entry == DATALOADER or limit is not None else Confidence.LOW,
        died="a worker of the training's DataLoader" if cause.entry == DATALOADER else "a process of a training",
        why=f"{killed}, not the GPU's. Usually it is the number of worker processes times what each of them loads; a "
        "smaller model or batch does not help",
        cause=cause.entry,
        root="" if limit is None else limit.quoted,
        evidence=[
            cause.quoted,
            *([limit.quoted] if limit is not None and limit != cause else []),
            "a GPU that runs out of memory gives a Python traceback and kills no process",
        ],
        fixes=[*own, *(workers.fixes if workers is not None else ())],
    )
