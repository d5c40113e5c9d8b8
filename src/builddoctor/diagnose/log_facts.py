"""What a log tells about a build beside its errors: the facts that decide between verdicts. Pure data.

Covers: how much ran at once, what grew, versions, the command that failed, the kernel's and the GPU's reports.
Does *not* cover: finding them (``diagnose.survey``), or weighing them (``diagnose.from_text``).
"""

from __future__ import annotations

import msgspec

from builddoctor.diagnose.gpu_memory import GpuOom
from builddoctor.diagnose.kernel_log import OomReport

LEAST_POINTS = 3
GROWN = 1.5
"""a compiler that ends at that many times what it began with, and never came down, grew"""
SUSPICIOUS_MIB = 8 * 1024.0
"""cudafe++ needs a hundredth of it (TransformerEngine#1996 saw 142 GiB)"""


class Quote(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log."""

    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A number, and the line that says it."""

    value: int
    quote: Quote


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one compiler in the order the log has them: of ``top``, ``ps``, or a person who wrote them down."""

    tool: str
    first_mib: float
    last_mib: float
    points: int
    falls: int
    """how often it was clearly smaller than before"""
    first: Quote
    last: Quote

    @property
    def grew(self) -> bool:
        """It rose from first to last, and never came down."""
        return self.points >= LEAST_POINTS and not self.falls and self.last_mib >= GROWN * max(1.0, self.first_mib)

    @property
    def monstrous(self) -> bool:
        """Far beyond what the program needs for anything that it should compile."""
        return self.tool == "cudafe++" and self.last_mib >= SUSPICIOUS_MIB


class LogFacts(msgspec.Struct, frozen=True, kw_only=True):
    """None and empty: the log does not say."""

    document: str = ""
    """what kind of text it is, where it is none of a failure but about some"""
    jobs: Count | None = None
    """compilers at once, as it was asked for"""
    in_flight: Count | None = None
    """edges that ran when the first one failed: ninja's %r"""
    failed: tuple[Quote, ...] = ()
    """ninja's ``FAILED:`` lines, at most 32"""
    command: str = ""
    """of the first edge that failed: masked, at most 16,000 characters"""
    command_line: int = 0
    threads: int | None = None
    """nvcc's --threads in that command, else in any"""
    growth: tuple[Growth, ...] = ()
    grows: Quote | None = None
    """somebody says so in words"""
    nvcc: str = ""
    gcc: str = ""
    kernel: tuple[OomReport, ...] = ()
    gpu: tuple[GpuOom, ...] = ()
    gpu_more: int = 0
    """messages beyond those"""
