"""Which CUDA toolkits know which GPU architecture, by their versions.

Pure. Does *not* cover: what a GPU can run.
"""

from __future__ import annotations

import msgspec

from builddoctor.projects.archs import Arch

Version = tuple[int, ...]


def release(version: str) -> Version:
    """A released toolkit's or library's: ``13.0.88`` as numbers; empty for what is no version, ``12.8-beta`` too."""
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() and len(part) < 10 for part in parts) else ()


def spelled(version: Version) -> str:
    return ".".join(str(part) for part in version)


# Sources: CMake 4.4's CMakeCUDAArchitecturesAll (toolkits 7 to 13, sm_50 to sm_121), the CUDA 12.9 features archive
# (sm_103, sm_121 and the ``f`` variants), the CUDA 13.0 release notes (Maxwell, Pascal and Volta dropped; sm_101 became
# sm_110), TransformerEngine's CMakeLists (sm_107 from 13.4), ``nvcc --help`` of 13.0.88. What nvcc itself says comes
# first: this table explains, and answers for an nvcc that does not say.


class Span(msgspec.Struct, frozen=True):
    """The toolkits that know an architecture: from ``since`` on, until ``before`` where it was dropped."""

    since: Version
    before: Version | None = None
    now_called: str = ""


_KEPLER_1, _KEPLER_2, _VOLTA = (11, 0), (12, 0), (13, 0)
"""the toolkits that dropped the last of these"""
SPANS = {
    "30": Span((5, 0), _KEPLER_1),
    "32": Span((6, 0), _KEPLER_1),
    "35": Span((5, 0), _KEPLER_2),
    "37": Span((6, 5), _KEPLER_2),
    "50": Span((6, 5), _VOLTA),
    "52": Span((7, 0), _VOLTA),
    "53": Span((7, 0), _VOLTA),
    "60": Span((8, 0), _VOLTA),
    "61": Span((8, 0), _VOLTA),
    "62": Span((8, 0), _VOLTA),
    "70": Span((9, 0), _VOLTA),
    "72": Span((9, 0), _VOLTA),
    "75": Span((10, 0)),
    "80": Span((11, 0)),
    "86": Span((11, 1)),
    "87": Span((11, 4)),
    "88": Span((13, 0)),
    "89": Span((11, 8)),
    "90": Span((11, 8)),
    "90a": Span((12, 0)),
    "100": Span((12, 8)),
    "101": Span((12, 8), _VOLTA, "sm_110"),
    "103": Span((12, 9)),
    "107": Span((13, 4)),
    "110": Span((13, 0)),
    "120": Span((12, 8)),
    "121": Span((12, 9)),
}
_FAMILIES = (12, 9)
"""the first toolkit with ``f`` variants"""


def span(arch: Arch) -> Span | None:
    """The toolkits that know ``arch``; None for one that is not in the table."""
    base = SPANS.get(f"{arch.major}{arch.minor}")
    if base is None:
        return None
    exact = SPANS.get(arch.number, base)
    if arch.suffix == "f":
        called = f"{exact.now_called}f" if exact.now_called else ""
        return Span(max(exact.since, _FAMILIES), exact.before, called)
    if arch.suffix and exact is base and base.now_called:
        return Span(base.since, base.before, f"{base.now_called}{arch.suffix}")
    return exact


def knows(nvcc_archs: tuple[str, ...], nvcc_version: str, arch: Arch) -> bool | None:
    """This nvcc can compile for ``arch``: by its own word, else by the table; None when neither says."""
    if nvcc_archs:
        return arch.sm in nvcc_archs
    version, known = release(nvcc_version), span(arch)
    if not version or known is None:
        return None
    return known.since <= version and (known.before is None or version < known.before)
