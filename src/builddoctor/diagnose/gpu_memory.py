"""Messages that a GPU's memory ran out, with their numbers: PyTorch 0.4 to 2.x, JAX, TensorFlow, CuPy, CUDA. Pure.

Covers: telling such a message from others, its sizes, and what the traceback around it was doing.
Does *not* cover: what follows from the numbers (``diagnose.gpu_verdict``), or memory of the host: an allocator that
names the CPU is none of these.

Sources: c10/cuda/CUDACachingAllocator.cpp (its sentences changed in 0.4, 1.5, 2.1 and 2.4), and reports in
pytorch/pytorch#121932, #59778, tensorflow's bfc_allocator.cc, xla's bfc_allocator.cc.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

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
