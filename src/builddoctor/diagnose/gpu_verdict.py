"""What to say where a GPU's memory ran out: what its numbers mean, and the ways out in their order. Pure.

Covers: fragmentation, a full card, somebody else's memory, a request that no card holds, a share that was set, and all
of it while a CUDA graph was captured. Does *not* cover: reading the message (``diagnose.gpu_memory``).

No rung changes a binary: nothing was being built. Some change the results of a training, and say so.
"""

from __future__ import annotations

from typing import Literal

from builddoctor.diagnose.gpu_memory import GpuOom
from builddoctor.model.verdict import Fix, Verdict
from builddoctor.units import format_mib

Kind = Literal["capacity", "fragmentation", "other-process", "impossible", "share", "graph-capture", "unclear"]

NOT_THE_HOST = "this is the GPU's memory and not the host's: builddoctor, MAX_JOBS and RAM have nothing to do with it"

SPARE_SHARE = 0.05
"""of the card: below that, what is reserved and in no tensor is not what is missing"""
OTHERS_SHARE = 0.2
"""of the card, held by others: more than a driver, a context and libraries take"""
OTHERS_MIB = 1024.0
POOLS_SHARE = 0.25
ALLOWED_SHARE = 0.9

SAME = "changes no results"
NEARLY = "changes results within rounding: bf16 keeps the range of fp32"
CHANGES = "changes the results: declare it, and compare anew"


def judge_gpu(found: GpuOom, more: int = 0) -> Verdict:
    """The verdict for one message; ``more``: how many others the log has, other ranks' mostly."""
    kind = kind_of(found)
    evidence = [f"line {found.line}: {found.text}"] if found.line else [found.text]
    evidence += _numbers(found)
    if found.doing:
        evidence.append(f"around it: {', '.join(found.doing)}")
    if more:
        evidence.append(f"{more} more such messages: the first counts, other ranks follow it")
    known = found.tried_mib is not None and (found.total_mib is not None or found.capturing)
    return Verdict(
        verdict="gpu-oom",
        confidence="high" if known else "medium",
        died=f"{_where(found)}: {_no_room(found)}{_while(found)}",
        why=f"{_why(found, kind)}; {NOT_THE_HOST}",
        cause=f"gpu-{kind}",
        evidence=evidence,
        fixes=fixes_for(found, kind),
    )


def kind_of(found: GpuOom) -> Kind:
    """What the numbers mean."""
    tried, total, free = found.tried_mib, found.total_mib, found.free_mib
    if tried is not None and total is not None and tried > total:
        return "impossible"
    if found.capturing or (found.pools_mib or 0.0) > POOLS_SHARE * (total or float("inf")):
        return "graph-capture"
    if _others_mib(found) > max(OTHERS_MIB, OTHERS_SHARE * (total or 0.0)):
        return "other-process"
    if total and found.allowed_mib is not None and found.allowed_mib < ALLOWED_SHARE * total:
        return "share"
    spare = found.spare_mib or 0.0
    if tried is not None and spare >= tried and spare >= SPARE_SHARE * (total or 0.0):
        return "fragmentation"
    if tried is not None and free is not None and free > tried and not found.capturing:
        return "unclear"
    return "capacity"


def _others_mib(found: GpuOom) -> float:
    """What the card holds that is not this process's, as far as the message tells."""
    if found.others and found.own_mib is not None:
        return sum(size for _, size in found.others)
    mine = (found.allocated_mib or 0.0) + (found.spare_mib or 0.0)
    if found.own_mib is not None:
        mine = max(mine, found.own_mib)
    elif len(found.others) == 1 and found.allocated_mib is None:
        # In a container the process sees itself under a number that is not its own.
        mine = found.others[0][1]
    elif found.allocated_mib is None:
        return 0.0
    if found.total_mib is None or found.free_mib is None:
        return 0.0
    return max(0.0, found.total_mib - found.free_mib - mine)


def _where(found: GpuOom) -> str:
    return f"GPU {found.device}" if found.device else "a GPU"


def _size(size_mib: float | None) -> str:
    if size_mib is None:
        return "what was asked for"
    return f"{size_mib * 1024:.0f} KiB" if size_mib < 1 else format_mib(size_mib)


def _no_room(found: GpuOom) -> str:
    return "its memory ran out" if found.tried_mib is None else f"no room for {_size(found.tried_mib)} more"


def _while(found: GpuOom) -> str:
    if not found.capturing:
        return ", in a backward pass" if found.backward else ""
    of = "of the backward pass " if found.backward else ""
    return f", while a CUDA graph {of}was captured"


def _why(found: GpuOom, kind: Kind) -> str:
    total, free, spare = _size(found.total_mib), _size(found.free_mib), _size(found.spare_mib)
    of = (
        f"of {total}, {free} were free" if found.total_mib is not None and found.free_mib is not None else "it was full"
    )
    asked = f"{_size(found.tried_mib)} were asked for"
    if kind == "impossible":
        return f"{asked}, and the card has {total}: no freeing helps, one tensor alone is too large (look at its shape)"
    if kind == "graph-capture":
        pools = f", {_size(found.pools_mib)} of it in private pools of graphs" if found.pools_mib else ""
        return (
            f"capacity: {of}{pools}, and {asked}. A graph keeps every buffer of what it captured for "
            "itself, so capture takes more than the same step without it"
        )
    if kind == "other-process":
        return f"another process, or another library, holds {_size(_others_mib(found))} of the card: {of}, and {asked}"
    if kind == "share":
        return f"the program allows itself {_size(found.allowed_mib)} of {total} only, and {asked}"
    if kind == "fragmentation":
        return f"fragmentation: {asked}, and {spare} were reserved and in no tensor, in pieces that are too small"
    if kind == "unclear":
        return (
            f"{asked} and refused although {free} were free: another process took them in between, or a zombie "
            "or the driver holds what is shown as free"
        )
    if found.total_mib is None:
        return f"{asked}, and the message says no more" if found.tried_mib is not None else "it was full"
    small = f"; only {spare} were reserved and in no tensor, so it is no fragmentation" if found.spare_mib else ""
    return f"capacity: {of}, and {asked}{small}"


def _numbers(found: GpuOom) -> list[str]:
    """The figures of the message, each with what it means."""
    told = [
        ("asked for", found.tried_mib),
        ("the card", found.total_mib),
        ("free", found.free_mib),
        ("this process", found.own_mib),
        *((f"process {pid}", size) for pid, size in found.others[:8]),
        ("in tensors", found.allocated_mib),
        ("reserved, in no tensor", found.spare_mib),
        ("in private pools of graphs", found.pools_mib),
        ("allowed", found.allowed_mib),
    ]
    parts = [f"{name} {_size(size)}" for name, size in told if size is not None]
    lines = [", ".join(parts)] if parts else []
    over = (found.allocated_mib or 0.0) > (found.total_mib or float("inf"))
    return (
        [*lines, "tensors hold more than the card has: the driver moved some into the host's memory"] if over else lines
    )


# -- ways out ----------------------------------------------------------------------------------------------------

_SEE_WHO = Fix(
    text="see who holds the card's memory; end what is left over from an earlier run, or take another card",
    command="nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv",
    effect=SAME,
)
_BATCH = Fix(
    text="a smaller micro-batch, with more steps of gradient accumulation: the effective batch stays the same",
    effect=SAME,
)
_BF16 = Fix(text="bf16 mixed precision: activations take half", effect=NEARLY)
_CHECKPOINT = Fix(
    text="activation (gradient) checkpointing: activations are computed again in the backward pass",
    effect=f"{SAME}; 20 to 30 % slower",
)
_SEGMENTS = Fix(
    text="segments that can grow: helps against fragmentation only (newer name: PYTORCH_ALLOC_CONF)",
    command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    effect=SAME,
)
_SHORTER = Fix(text="shorter sequences, or a lower resolution", effect=CHANGES)
_OFFLOAD = Fix(
    text="offload optimizer state, then parameters, to the host or to NVMe: the last resort of a single GPU",
    effect=f"{SAME}; several times slower",
)
_LADDER = [
    _BATCH,
    _BF16,
    _CHECKPOINT,
    _SEGMENTS,
    Fix(text="SDPA or FlashAttention, so that no attention matrix of the sequence's square is kept", effect=SAME),
    _SHORTER,
    Fix(text="an 8-bit or paged optimizer: 8 bytes of state a parameter become about 2", effect=SAME),
    Fix(text="FSDP or ZeRO 1, 2, 3: state, gradients, parameters spread over two GPUs or more", effect=SAME),
    _OFFLOAD,
    Fix(text="for fine-tuning: LoRA or QLoRA", effect=f"{CHANGES}; the model that is trained is another"),
]
"""In the order of what they cost in time, in work, and in trust in the result."""

_CAPTURE_LADDER = [
    Fix(
        text="a smaller micro-batch, with more gradient accumulation: what a graph keeps shrinks with it",
        effect=SAME,
    ),
    _CHECKPOINT,
    _BF16,
    _OFFLOAD,
    Fix(
        text="segments that can grow: worth one try, but they only change how the demand is met, not how large it is",
        command="export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        effect=SAME,
    ),
    Fix(
        text="capture less: fewer layers in graphs, or the backward pass left out, or several smaller graphs that "
        "share a pool; without graphs the same step fits, and is slower",
        effect=SAME,
    ),
    Fix(text="newer PyTorch, TransformerEngine, Megatron-LM and driver: how pools are kept changed often", effect=SAME),
    Fix(text="a larger GPU, or more of them: tensor or pipeline parallelism spreads what is captured", effect=SAME),
]

_OF_LIBRARY = {
    "JAX": Fix(
        text="let JAX take memory as it needs it, in place of three quarters of the card at its start",
        command="export XLA_PYTHON_CLIENT_PREALLOCATE=false",
        effect=SAME,
    ),
    "TensorFlow": Fix(
        text="let TensorFlow take memory as it needs it, in place of all at its start",
        command="export TF_FORCE_GPU_ALLOW_GROWTH=true",
        effect=SAME,
    ),
}
_PYTORCH_ONLY = ("expandable_segments", "SDPA")


def fixes_for(found: GpuOom, kind: Kind) -> list[Fix]:
    """The ladder for this message."""
    if kind == "graph-capture":
        return list(_CAPTURE_LADDER)
    first: list[Fix] = []
    if kind == "impossible":
        first = [Fix(text="look at that tensor's shape, in the last line of the traceback that is yours", effect=SAME)]
    elif kind in ("other-process", "unclear"):
        first = [_SEE_WHO]
    elif kind == "fragmentation":
        first = [_SEGMENTS]
    elif kind == "share":
        first = [Fix(text="raise the share that torch.cuda.set_per_process_memory_fraction sets", effect=SAME)]
    if found.library in _OF_LIBRARY:
        first.append(_OF_LIBRARY[found.library])
    if found.library not in ("PyTorch", "cuBLAS", "cuDNN", "CUDA"):
        rest = [fix for fix in _LADDER if not any(word in fix.text + fix.command for word in _PYTORCH_ONLY)]
    else:
        rest = list(_LADDER)
    if found.library in ("CUDA", "RMM", "cuBLAS", "cuDNN") and not first:
        first = [_SEE_WHO]
    return [*first, *(fix for fix in rest if fix not in first)]
