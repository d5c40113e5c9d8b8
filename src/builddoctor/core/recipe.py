"""A recipe: portable facts about the build of one project, measured once; and two recipes side by side.

Covers: the shapes, from which the TOML file, its JSON Schema and docs/reference/recipe.md are made. Sizes in MiB; times
in seconds of one core. A recipe is data: it holds no command, and no path that is absolute or leads upward.
Does *not* cover: files and comparing (``recipes``), or what is computed from a recipe for one machine (``core.plan``).
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from builddoctor.core.phase import PhaseKind

RECIPE_SCHEMA: Literal[2] = 2
"""Recipes of 1 had no courses."""

LARGEST_FILE = 16 * 1024 * 1024
"""Bytes. Twenty thousand units with six phases each are 12 MB; courses of half of them add a sixth."""

MOST_UNITS = 20_000
MOST_PHASES = 2_000
"""of one unit"""

END = r"(?![\s\S])"
"""End of a text for Python and for JSON Schema alike; ``$`` would let a newline pass."""

Mib = Annotated[float, msgspec.Meta(ge=0, le=1e8, description="a size in MiB, from 0 to 100,000,000")]
CoreSeconds = Annotated[float, msgspec.Meta(ge=0, le=1e6, description="seconds of one core, from 0 to 1,000,000")]
Runs = Annotated[int, msgspec.Meta(ge=0, le=1_000_000, description="a whole number, from 0 to 1,000,000")]
Line = Annotated[
    str,
    msgspec.Meta(
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*" + END,
        description="one line of text, without control characters, up to 1000",
        examples=["cicc needs 17 GiB"],
    ),
]
"""One line of text for a person, without characters that change its direction."""

Word = Annotated[
    str,
    msgspec.Meta(
        max_length=100,
        pattern=r"^(?:[A-Za-z0-9][A-Za-z0-9_.+-]*)?" + END,
        description="a name or version of letters, digits and . _ + -, up to 100",
        examples=["13.0.88"],
    ),
]
"""A name or version: nothing that a shell or a TOML file would read as more."""

_NOT_UPWARD = r"(?!(?:[^/]*/)*\.\.(?:/|" + END + r"))"

Place = Annotated[
    str,
    msgspec.Meta(
        max_length=400,
        pattern=r"^(?![-/])" + _NOT_UPWARD + r"[A-Za-z0-9_.+,@=~%: /-]*" + END,
        description="a path below the project's folder, without .. and without characters that a shell reads, up to "
        "400",
        examples=["src/gemm/gemm.cu"],
    ),
]
"""A path below the project's or the build's folder. Spaces are allowed; characters that a shell interprets are not."""

Digest = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:[0-9a-f]{8,64})?" + END,
        description="a digest of 8 to 64 of the characters 0 to 9 and a to f",
        examples=["5d1f09aa"],
    ),
]
Day = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:[0-9]{4}-[0-9]{2}-[0-9]{2})?" + END, description="a day as text", examples=["2026-01-31"]
    ),
]
Arch = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:(?:sm|compute)_[0-9]{2,3}[af]?)?" + END,
        description="one architecture such as sm_90, sm_100a or compute_90",
        examples=["sm_100a"],
    ),
]
VariableName = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[A-Z][A-Z0-9_]{0,63}" + END,
        description="a variable's name of capitals, digits and _, up to 64",
        examples=["MAX_JOBS"],
    ),
]
VariableValue = Annotated[
    str,
    msgspec.Meta(
        max_length=200,
        pattern=r"^[A-Za-z0-9_.;,+:= -]*" + END,
        description="a variable's value of letters, digits, blanks and . ; , _ + : = -, up to 200",
        examples=["9.0;10.0"],
    ),
]

CourseText = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(?:[0-9]{1,4}:[0-9]{1,4}(?: [0-9]{1,4}:[0-9]{1,4}){0,31})?" + END,
        description="steps of a course in thousandths, until:held, up to 32",
        examples=["125:310 800:1000 1000:450"],
    ),
]
"""One text and no list of lists: a recipe has thousands of them, and each bracket costs its reader."""

Provenance = Literal["measured", "emulated", "derived"]
"""``measured``: by builddoctor or by wait4, on the real tools; ``emulated``: the real tools under user-mode emulation
of their processor; ``derived``: worked out from measured figures of something alike, as ``origin.how`` says"""


class PhaseFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One phase of a unit: what it takes."""

    kind: PhaseKind
    tool: Word = ""
    """the program, such as ``cc1plus``"""
    arch: Arch = ""
    """device architecture; empty for phases that are for none"""
    input_mib: Mib = 0.0
    """size of its input file"""
    peak_mib: Mib
    """largest resident size of its process: the median of all runs"""
    high_mib: Mib = 0.0
    """the largest of all runs; 0: as ``peak_mib``"""
    cpu_s: CoreSeconds
    """processor time: the median of all runs; of emulated tools that of the same phase without emulation"""
    high_s: CoreSeconds = 0.0
    """the longest of all runs; 0: as ``cpu_s``"""
    course: CourseText = ""
    """what it held while it ran: until this thousandth of its time, at most this thousandth of its peak, and so on;
    empty where that is not known, and for short and small phases"""
    runs: Runs = 0
    """how often it was measured; 0: as often as ``origin.runs``"""
    provenance: Provenance | None = None
    """where its figures come from; none: from where ``origin.provenance`` says"""


class RecipeUnit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One translation unit, or one link."""

    place: Place
    """the source's path below the project's folder; ``link NAME`` for a link"""
    output: Place = ""
    """file name of what is made"""
    target: Place = ""
    """what Ninja calls it: a path below its folder; empty where that is not known, or outside that folder"""
    options: Digest = ""
    """digest of the options that matter for memory"""
    source_digest: Digest = ""
    """of the source file; not of what it includes"""
    archs: tuple[Arch, ...] = ()
    """device architectures, sorted; none for host code"""
    after_all: bool = False
    """a link: it begins when what it is made of is there"""
    phases: Annotated[tuple[PhaseFigures, ...], msgspec.Meta(max_length=MOST_PHASES)]
    """in the order in which they run"""


class RecipeProject(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is built."""

    name: Word
    """what the project calls itself"""
    version: Word = ""
    """that was built"""
    title: Line = ""
    """as its people write it"""


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What the figures hold for. Where a build differs they are trusted less, and never refused."""

    archs: tuple[Arch, ...] = ()
    """that it was built for"""
    nvcc: Word = ""
    """its version"""
    host_compiler: Word = ""
    """version of gcc, such as ``12.2.0``"""
    host_arch: Word = ""
    """``x86_64``, ``aarch64``"""
    page_kib: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 4
    """the kernel's page size; larger pages make small phases larger"""
    options: Digest = ""
    """of the options of all units"""
    source: Digest = ""
    """of all units' places and sources"""


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where the figures come from."""

    provenance: Provenance
    """by builddoctor on the real tools, under emulation of their processor, or worked out as ``how`` says"""
    runs: Runs = 1
    """builds that they were taken from"""
    how: Line = ""
    """in a sentence or two"""
    machine: Line = ""
    """processor, cores and memory; no host name"""
    builddoctor: Word = ""
    """its version, where it measured"""
    date: Day = ""
    """of the last run"""
    data: Place = ""
    """file with the figures that the recipe was made from, beside it"""
    data_digest: Digest = ""
    """sha256 of that file"""
    traces: Annotated[tuple[Word, ...], msgspec.Meta(max_length=1000)] = ()
    """ids of the traces that they were taken from, so that none is counted twice"""


HazardKind = Literal["runaway", "too-big", "host-memory", "toolchain", "build"]


class Hazard(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Something that is known to go wrong with this build."""

    kind: HazardKind
    """a compiler without end, a unit that needs very much, memory of the host, compilers, or the build itself"""
    text: Line
    """what happens, and what helps"""
    source: Line = ""
    """where that is known from: an address, or ``measured``"""
    place: Place = ""
    """the unit; empty for all of them"""
    tool: Word = ""
    """the program; empty for none or any"""
    host_arch: Word = ""
    """only there; empty for everywhere"""


class Setting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An environment variable that the build was measured with, or needs."""

    name: VariableName
    """one that a recipe may set; docs/reference/recipe.md lists them"""
    value: VariableValue
    """as it is set; no shell reads it"""
    why: Line = ""
    """what it is good for"""


class Recipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """All of it."""

    schema: Literal[1, 2]
    """version of this file's form"""
    project: RecipeProject
    fingerprint: Fingerprint = Fingerprint()
    origin: Origin
    environment: Annotated[tuple[Setting, ...], msgspec.Meta(max_length=100)] = ()
    hazards: Annotated[tuple[Hazard, ...], msgspec.Meta(max_length=100)] = ()
    units: Annotated[tuple[RecipeUnit, ...], msgspec.Meta(max_length=MOST_UNITS)]


class UnitPeak(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that only one of them has."""

    place: str
    output: str
    peak_mib: float
    cpu_s: float


class UnitChange(msgspec.Struct, frozen=True, kw_only=True):
    """A unit whose figures differ by more than they spread."""

    place: str
    output: str
    memory: Literal["grew", "shrank", ""]
    """empty: within its spread"""
    time: Literal["slowed", "sped up", ""]
    before_mib: float
    after_mib: float
    before_s: float
    after_s: float
    source_changed: bool
    options_changed: bool


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """All of it; ``before`` is the first recipe."""

    before: str
    """project and version"""
    after: str
    toolchain: tuple[str, ...] = ()
    """in words"""
    added: tuple[UnitPeak, ...] = ()
    removed: tuple[UnitPeak, ...] = ()
    changed: tuple[UnitChange, ...] = ()
    """the largest change of memory first"""
    same: int = 0
    """units within their spread"""
    hazards_added: tuple[Hazard, ...] = ()
    hazards_removed: tuple[Hazard, ...] = ()
    environment: tuple[str, ...] = ()
    """in words"""
