"""What is said of a failure: a verdict, how sure it is, its evidence, and what to do.

Covers: the values that are relied upon (``explain``, ``trace show``, the page), and one line of a log that speaks for a
verdict. Does *not* cover: how they are arrived at (``diagnose``).
"""

from __future__ import annotations

import msgspec

from builddoctor.core.word import Confidence, Word


class Verdict(Word):
    """What made a build fail."""

    PARALLEL = "parallel"
    """too many compilers at once"""
    TOO_BIG = "too-big"
    """one compiler alone does not fit"""
    RUNAWAY = "runaway"
    """a compiler that grows without end"""
    RLIMIT = "rlimit"
    """a limit of the process, not of the machine"""
    CGROUP_PARENT = "cgroup-parent"
    """the limit of a group that holds other processes too"""
    NUMA_POLICY = "numa-policy"
    TMPFS = "tmpfs"
    DISK_FULL = "disk-full"
    EXTERNAL_KILL = "external-kill"
    OOMD = "oomd"
    SCHEDULER_KILL = "scheduler-kill"
    NOT_REDOABLE = "not-redoable"
    """killed for memory, and it reads or writes a pipe"""
    TOOLCHAIN = "toolchain"
    """compilers, toolkits, architectures, and what others' libraries and headers lack"""
    PYTHON_ENV = "python-env"
    """Python's packages and interpreter: isolation of builds, versions, wheels that do not fit each other"""
    NETWORK = "network"
    """a download"""
    SOURCE = "source"
    PLATFORM = "platform"
    """a system, processor or GPU that the project does not support"""
    NOT_A_BUILD = "not-a-build"
    """a program that runs failed, a training, a server: nothing was built"""
    GPU_OOM = "gpu-oom"
    """the GPU's memory: no failure of a build"""
    UNKNOWN = "unknown"

    @classmethod
    def read(cls, text: str) -> Verdict:
        """The verdict of that name; ``UNKNOWN`` for one that another version of builddoctor wrote."""
        try:
            return cls(text)
        except ValueError:
            return cls.UNKNOWN


class Weight(Word):
    """What a known line of a log is worth; of what fits a line, the first counts."""

    SAYS = "says"
    """the text alone tells the cause"""
    HINTS = "hints"
    """it fits several causes"""
    TRAILS = "trails"
    """it comes after any failure, and is never a cause"""
    GUESSES = "guesses"
    """an error of which only the kind is known: what mostly is behind that kind, where no other line says more"""
    SHOWS = "shows"
    """an error in a tool's own words, which the catalogue knows nothing more of"""

    @property
    def rank(self) -> int:
        """0 for the most particular."""
        return list(Weight).index(self)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log that an entry of the catalogue (``diagnose.catalogue``) knows."""

    entry: str
    """the entry's name"""
    verdict: Verdict | None
    """what it speaks for; None for ``shows`` and ``trails``"""
    weight: Weight
    line: int
    """from 1"""
    text: str
    """the line: without colours and prefixes of CI, what looks like a credential masked, at most 400 characters; with
    the lines of its message where it goes on under itself"""
    captured: tuple[tuple[str, str], ...] = ()
    """named groups of the pattern: name and text"""

    @property
    def quoted(self) -> str:
        return f"line {self.line}: {self.text}"


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do."""

    text: str
    command: str = ""
    """to be pasted; empty where there is none"""
    changes_binary: bool = False
    """what is built differs afterwards"""
    effect: str = ""
    """what to expect of it, in figures where they were measured, and where"""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """``verdict`` is None where nothing has to be explained: the build went well, was interrupted, or still runs."""

    verdict: Verdict | None
    confidence: Confidence
    died: str
    """what died, in a line; empty where nothing did"""
    why: str
    cause: str = ""
    """what it was in particular: the name of an entry in the catalogue of texts, ``gcc-too-new``; empty without one"""
    root: str = ""
    """the first error of the innermost layer that failed, as the build printed it, with its line; without a verdict its
    last line, where nothing says that it went well; empty without either"""
    evidence: list[str] = []
    fixes: list[Fix] = []
    """cheapest and least intrusive first"""
