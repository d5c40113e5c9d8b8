"""Settings that a user gives once, for all builds, instead of by a flag each time.

Covers: what they are. Does *not* cover: where they are read (``runtime.configuration``).
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Configuration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    """Each is the flag of its name of `build`, `run`, `activate` and `doctor`, where that command has it."""

    memory: str | None = None
    """an additional memory limit, e.g. ``24GiB``"""
    cores: int | None = None
    """compiler phases that may run at the same time"""
    arch: str | None = None
    """device architectures, e.g. ``sm_100,sm_90a``"""
    toolkit: str | None = None
    """the CUDA toolkit: its folder, its nvcc, or e.g. ``13.0`` (*)"""
    recipe: str | None = None
    """figures of earlier builds to plan with: a name, a file, or ``none``"""
    strategy: Literal["gated", "staged"] | None = None
    """``staged`` builds without gates, stage by stage"""
    cache: Literal["auto", "ccache", "sccache", "none"] | None = None
    """an object cache in front of the compilers"""
    store: str | None = None
    """folder in which compilers' results are kept for the next build, or the address of one elsewhere (*)"""
    wheel_dir: str | None = None
    """where `build` puts wheels (*)"""
    keep_going: bool | None = None
    """go on after a failure, with what does not depend on it"""
    offline: bool | None = None
    """fetch nothing"""
    ignore_caps: bool | None = None
    """do not take MAX_JOBS and its kin as upper bounds"""
    auto_remedy: bool | None = None
    """try what leaves the binary as it is where a compiler does not fit alone"""
    no_doctor: bool | None = None
    """skip the look ahead before a build"""
    quiet: bool | None = None
    """print nothing beside a build's own output, unless it fails"""
    verbose: bool | None = None
    """print each decision on compilers as a line, in place of the board"""


NOT_BY_PROJECTS = ("toolkit", "store", "wheel-dir")
"""What names a program or a place to write to: a checkout from elsewhere may not set it."""


EXCLUDING = ("quiet", "verbose")
"""Of these the first that is set counts alone."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One value in force, and where it came from."""

    name: str
    value: str | int | bool
    source: str
    """a variable of the environment, or a file"""
