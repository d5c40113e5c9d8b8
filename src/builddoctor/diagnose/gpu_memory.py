"""A GPU's memory ran out: the message with its numbers, and what they mean. Pure.

Covers: PyTorch 0.4 to 2.x, JAX, TensorFlow, CuPy, CUDA; telling such a message from others, its sizes, what the
traceback around it was doing; fragmentation, a full card, another process's memory, a request that no card holds, a
share that was set, and all of it while a CUDA graph was captured.
Does *not* cover: memory of the host (an allocator that names the CPU is none of these), or the ways out
(``remedies.toml``).

Sources: c10/cuda/CUDACachingAllocator.cpp (its sentences changed in 0.4, 1.5, 2.1 and 2.4), and reports in
pytorch/pytorch#121932, #59778, tensorflow's bfc_allocator.cc, xla's bfc_allocator.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from builddoctor.core.units import format_mib
from builddoctor.core.verdict import Diagnosis, Verdict
from builddoctor.core.word import Confidence
from builddoctor.diagnose.remedies import ladder
from builddoctor.diagnose.remedy_facts import GpuOomKind, RemedyFacts

_SIZE = r"(?P<{0}>[\d.,]{{1,20}} ?(?:bytes|[KMGT]i?B|B)\b)"
_KNOWN = (
    ("PyTorch", re.compile(r"\b(?:CUDA|HIP|XPU|MPS backend) out of memory\b(?=[. ]+(?:Tried to|\(MPS|\(malloc))")),
    (
        "PyTorch",
        re.compile(r"\b(?:torch(?:\.cuda)?\.)?(?<![.\w])OutOfMemoryError: (?:Allocation on device|CUDA|HIP|XPU)"),
    ),
    ("PyTorch", re.compile(r"\btorch(?:\.cuda)?\.OutOfMemoryError\b(?=: |\Z)")),
    ("PyTorch", re.compile(r"\bRuntimeError: (?:CUDA|HIP|XPU|MPS backend) out of memory\b")),
    ("TensorFlow", re.compile(r"\bOOM when allocating tensor\b")),
    ("TensorFlow", re.compile(r"\bAllocator \((?:GPU|mlir_gpu)\w{0,20}\) ran out of memory trying to allocate\b")),
    ("JAX", re.compile(r"\bRESOURCE_EXHAUSTED: .{0,200}?(?:[Oo]ut of memory|[Ff]ailed to allocate request)")),
    ("CuPy", re.compile(r"\bcupy\S{0,40}\.OutOfMemoryError: Out of memory allocating\b")),
    ("RMM", re.compile(r"\bout_of_memory: CUDA error\b|\bMemoryError: std::bad_alloc: out_of_memory: (?:CUDA|RMM)")),
    ("cuBLAS", re.compile(r"\bCUBLAS_STATUS_ALLOC_FAILED\b")),
    ("cuDNN", re.compile(r"\bCUDNN_STATUS_ALLOC_FAILED\b")),
    (
        "CUDA",
        re.compile(
            r"\b(?:CUDA error: )?cudaErrorMemoryAllocation\b|\bCUDA_ERROR_OUT_OF_MEMORY\b|\bhipErrorOutOfMemory\b"
        ),
    ),
    ("CUDA", re.compile(r"(?i)\b(?:CUDA|HIP|NCCL)[\w ]{0,20} (?:error|failure)\b[^\n]{0,60}?\bout of memory\b")),
    ("CUDA", re.compile(r"\bcuda(?:Malloc\w{0,12}|MemcpyAsync) (?:failed|error)[^\n]{0,40}?\bout of memory\b")),
)
_NO_FAILURE = re.compile(
    r"device:CPU:|caller indicates that this is not a failure|\bby allocator cpu\b|DefaultCPUAllocator"
    r"|Allocator \(cpu\)|allocator Host\b"
)
_DEVICE = re.compile(r"\bGPU:? ?(\d{1,3})\b|\bdevice (?:ordinal )?(\d{1,3})\b|\bcuda:(\d{1,3})\b")
_TRIED = (
    re.compile(r"Tried to allocate " + _SIZE.format("size")),
    re.compile(r"(?:trying to allocate|allocating|Failed to allocate request for) " + _SIZE.format("size")),
)
_TOTAL = (
    re.compile(r"total capacity? of " + _SIZE.format("size")),
    re.compile(r"total capacty of " + _SIZE.format("size")),
    re.compile(_SIZE.format("size") + r" total capacity"),
)
_FREE = (re.compile(r"of which " + _SIZE.format("size") + r" is free"), re.compile(_SIZE.format("size") + r" free\b"))
_OWN = (re.compile(r"this process has " + _SIZE.format("size") + r" memory in use"),)
_OTHER = re.compile(r"Process (?P<pid>\d{1,10}) has " + _SIZE.format("size") + r" memory in use")
_ALLOCATED = (
    re.compile(r"allocated memory " + _SIZE.format("size") + r" is allocated by PyTorch"),
    re.compile(_SIZE.format("size") + r" already allocated"),
    re.compile(r"MPS allocated: " + _SIZE.format("size")),
    re.compile(r"allocated so far: " + _SIZE.format("size")),
)
_SPARE = (re.compile(_SIZE.format("size") + r" is reserved by PyTorch but unallocated"),)
_RESERVED = (re.compile(_SIZE.format("size") + r" reserved in total by PyTorch"),)
_CACHED = (re.compile(_SIZE.format("size") + r" cached\b"),)
_POOLS = (re.compile(r"with " + _SIZE.format("size") + r" allocated in private pools"),)
_ALLOWED = (
    re.compile(_SIZE.format("size") + r" allowed;"),
    re.compile(r"max allowed: " + _SIZE.format("size")),
)
_FACTORS = {"b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_ABSURD_MIB = 1024.0**3
"""A pebibyte: 2.1 to 2.4 print 17179869184.00 GiB where a figure is not known."""

CAPTURE_WORDS = (
    "make_graphed_callables",
    "torch.cuda.graph",
    "torch/cuda/graphs.py",
    "capture_begin",
    "capture_end",
    "CUDAGraph",
    "cudagraph_trees",
    "cuda_graphs.py",
    "capture_model",
    "_capture_cudagraph",
    "cudaErrorStreamCapture",
    "during capture",
)
BACKWARD_WORDS = ("torch.autograd.grad", "autograd.backward", "fused_attn_bwd", ".backward(", "in backward", "_bwd(")


class GpuOom(msgspec.Struct, frozen=True, kw_only=True):
    """One message; a size is None where it does not say it, or says what cannot be."""

    line: int
    text: str
    library: str
    device: str = ""
    tried_mib: float | None = None
    total_mib: float | None = None
    free_mib: float | None = None
    own_mib: float | None = None
    """all that this process holds, CUDA's context and others' allocators included"""
    others: tuple[tuple[int, float], ...] = ()
    """processes named by number, and what each holds: in a container this process may be among them"""
    allocated_mib: float | None = None
    """by live tensors"""
    spare_mib: float | None = None
    """taken from the driver, in no tensor: ``reserved by PyTorch but unallocated``"""
    pools_mib: float | None = None
    """in private pools of CUDA graphs"""
    allowed_mib: float | None = None
    """a share that the program set itself"""
    doing: tuple[str, ...] = ()
    """what the traceback shows of capturing a graph and of a backward pass"""

    @property
    def capturing(self) -> bool:
        """A CUDA graph was being captured."""
        return any(word in CAPTURE_WORDS for word in self.doing)

    @property
    def backward(self) -> bool:
        """A backward pass."""
        return any(word in BACKWARD_WORDS for word in self.doing)


def decode(text: str, line: int = 0, around: Iterable[str] = ()) -> GpuOom | None:
    """The message in a line; None when it is none. ``around``: the traceback, in which it tells what was going on."""
    library = next((name for name, pattern in _KNOWN if _says(pattern, text)), None)
    if library is None or _NO_FAILURE.search(text):
        return None
    device = _DEVICE.search(text)
    allocated = _size(text, _ALLOCATED)
    spare, reserved = _size(text, _SPARE), _size(text, _RESERVED)
    if spare is None and reserved is not None and allocated is not None:
        spare = max(0.0, reserved - allocated)
    others = tuple((int(found["pid"]), _mib(found["size"])) for found in _OTHER.finditer(text))
    return GpuOom(
        line=line,
        text=text,
        library=library,
        device=next(filter(None, device.groups()), "") if device else "",
        tried_mib=_size(text, _TRIED),
        total_mib=_size(text, _TOTAL),
        free_mib=_size(text, _FREE),
        own_mib=_size(text, _OWN),
        others=tuple((pid, size) for pid, size in others if size is not None),
        allocated_mib=allocated,
        spare_mib=spare if spare is not None else _size(text, _CACHED),
        pools_mib=_size(text, _POOLS),
        allowed_mib=_size(text, _ALLOWED),
        doing=_doing((text, *around)),
    )


def _says(pattern: re.Pattern[str], text: str) -> bool:
    """The line says it of itself: numbers stand behind it, or it is all of a message. Prose about it does neither."""
    found = pattern.search(text)
    if found is None or len(text) > 20_000:
        return False
    if any(tried.search(text, found.start()) for tried in _TRIED):
        return True
    before, behind = text[: found.start()].rstrip(), text[found.end() :].lstrip("'\"` ")
    return (not before or before[-1] in ":])>|E") and (not behind or behind[0] in ".:([{|@`w")


def _doing(lines: Iterable[str]) -> tuple[str, ...]:
    words = (*CAPTURE_WORDS, *BACKWARD_WORDS)
    seen = {word for line in lines for word in words if word in line}
    return tuple(word for word in words if word in seen)


def _size(text: str, patterns: Iterable[re.Pattern[str]]) -> float | None:
    for pattern in patterns:
        if (found := pattern.search(text)) is not None:
            return _mib(found["size"])
    return None


def _mib(size: str) -> float | None:
    """``194.00 MiB`` or ``8589934592 bytes`` as MiB; None for what no machine has."""
    number = size.rstrip("BKMGTbytesi ").replace(",", "")
    unit = size[len(size.rstrip("BKMGTbytesi ")) :].strip()[:1].lower() or "b"
    try:
        mib = float(number) * _FACTORS[unit] / 1024**2
    except (ValueError, KeyError):
        return None
    return mib if 0 <= mib < _ABSURD_MIB else None


# -- what the numbers mean -------------------------------------------------------------------------------------------


NOT_THE_HOST = "this is the GPU's memory and not the host's: builddoctor, MAX_JOBS and RAM have nothing to do with it"

SPARE_SHARE = 0.05
"""of the card: below that, what is reserved and in no tensor is not what is missing"""
OTHERS_SHARE = 0.2
"""of the card, held by others: more than a driver, a context and libraries take"""
OTHERS_MIB = 1024.0
POOLS_SHARE = 0.25
ALLOWED_SHARE = 0.9


def judge_gpu(found: GpuOom, more: int = 0) -> Diagnosis:
    """The verdict for one message; ``more``: how many others the log has, other ranks' mostly."""
    kind = kind_of(found)
    evidence = [f"line {found.line}: {found.text}"] if found.line else [found.text]
    evidence += _numbers(found)
    if found.doing:
        evidence.append(f"around it: {', '.join(found.doing)}")
    if more:
        evidence.append(f"{more} more such messages: the first counts, other ranks follow it")
    known = found.tried_mib is not None and (found.total_mib is not None or found.capturing)
    return Diagnosis(
        verdict=Verdict.GPU_OOM,
        confidence=Confidence.HIGH if known else Confidence.MEDIUM,
        died=f"{_where(found)}: {_no_room(found)}{_while(found)}",
        why=f"{_why(found, kind)}; {NOT_THE_HOST}",
        cause=f"gpu-{kind.value}",
        evidence=evidence,
        fixes=ladder(Verdict.GPU_OOM, RemedyFacts(gpu_kind=kind, gpu_library=found.library)),
    )


def kind_of(found: GpuOom) -> GpuOomKind:
    """What the numbers mean."""
    tried, total, free = found.tried_mib, found.total_mib, found.free_mib
    if tried is not None and total is not None and tried > total:
        return GpuOomKind.IMPOSSIBLE
    if found.capturing or (found.pools_mib or 0.0) > POOLS_SHARE * (total or float("inf")):
        return GpuOomKind.GRAPH_CAPTURE
    if _others_mib(found) > max(OTHERS_MIB, OTHERS_SHARE * (total or 0.0)):
        return GpuOomKind.OTHER_PROCESS
    if total and found.allowed_mib is not None and found.allowed_mib < ALLOWED_SHARE * total:
        return GpuOomKind.SHARE
    spare = found.spare_mib or 0.0
    if tried is not None and spare >= tried and spare >= SPARE_SHARE * (total or 0.0):
        return GpuOomKind.FRAGMENTATION
    if tried is not None and free is not None and free > tried and not found.capturing:
        return GpuOomKind.UNCLEAR
    return GpuOomKind.CAPACITY


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


def _shown(size_mib: float | None) -> str:
    if size_mib is None:
        return "what was asked for"
    return f"{size_mib * 1024:.0f} KiB" if size_mib < 1 else format_mib(size_mib)


def _no_room(found: GpuOom) -> str:
    return "its memory ran out" if found.tried_mib is None else f"no room for {_shown(found.tried_mib)} more"


def _while(found: GpuOom) -> str:
    if not found.capturing:
        return ", in a backward pass" if found.backward else ""
    of = "of the backward pass " if found.backward else ""
    return f", while a CUDA graph {of}was captured"


def _why(found: GpuOom, kind: GpuOomKind) -> str:
    total, free, spare = _shown(found.total_mib), _shown(found.free_mib), _shown(found.spare_mib)
    of = (
        f"of {total}, {free} were free" if found.total_mib is not None and found.free_mib is not None else "it was full"
    )
    asked = f"{_shown(found.tried_mib)} were asked for"
    if kind is GpuOomKind.IMPOSSIBLE:
        return f"{asked}, and the card has {total}: no freeing helps, one tensor alone is too large (look at its shape)"
    if kind is GpuOomKind.GRAPH_CAPTURE:
        pools = f", {_shown(found.pools_mib)} of it in private pools of graphs" if found.pools_mib else ""
        return (
            f"capacity: {of}{pools}, and {asked}. A graph keeps every buffer of what it captured for "
            "itself, so capture takes more than the same step without it"
        )
    if kind is GpuOomKind.OTHER_PROCESS:
        return f"another process, or another library, holds {_shown(_others_mib(found))} of the card: {of}, and {asked}"
    if kind is GpuOomKind.SHARE:
        return f"the program allows itself {_shown(found.allowed_mib)} of {total} only, and {asked}"
    if kind is GpuOomKind.FRAGMENTATION:
        return f"fragmentation: {asked}, and {spare} were reserved and in no tensor, in pieces that are too small"
    if kind is GpuOomKind.UNCLEAR:
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
    parts = [f"{name} {_shown(size)}" for name, size in told if size is not None]
    lines = [", ".join(parts)] if parts else []
    over = (found.allocated_mib or 0.0) > (found.total_mib or float("inf"))
    return (
        [*lines, "tensors hold more than the card has: the driver moved some into the host's memory"] if over else lines
    )


# -- ways out ----------------------------------------------------------------------------------------------------
