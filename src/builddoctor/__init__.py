"""builddoctor: run the build you already have; no compiler process starts before its memory is there."""

from __future__ import annotations

try:
    # Written by the build, from the last tag (docs/releasing.md). To ask the installed package takes 20 ms.
    from builddoctor._version import __version__
except ModuleNotFoundError:
    # A checkout's sources that were never installed.
    __version__ = "0.0"

__all__ = ["__version__"]
