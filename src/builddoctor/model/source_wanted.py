"""Sources of a project: what is wanted, and what was got.

Does *not* cover: getting them (``sources``).
"""

from __future__ import annotations

import msgspec


class SourceWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look, in the order of ``place``, ``package``, ``repository``."""

    name: str
    """the project's, for folders and for people"""
    place: str = ""
    """``--source``: a folder, an archive, or a URL of git or of an archive; empty for ``pypi:NAME``"""
    version: str = ""
    """``--version``: empty for the newest release"""
    package: str = ""
    """source distribution in the package index"""
    no_package: str = ""
    """why there is none that can be built"""
    repository: str = ""
    """to be cloned, with its submodules"""
    tag: str = "v{version}"
    """of a release in the repository"""
    offline: bool = False
    """the cache, and nothing else"""


class Obtained(msgspec.Struct, frozen=True, kw_only=True):
    """Sources that lie on this machine."""

    folder: str
    version: str = ""
    """as its release is numbered; empty for a folder of the user's"""
    origin: str = ""
    """for people: ``flash-attn 2.8.3 from the package index, sha256 1a2b…``"""
    cached: bool = False
    """it was here already"""
