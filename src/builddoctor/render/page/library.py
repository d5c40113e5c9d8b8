"""The plotting library as the installed package brings it, packed for the page. It is never fetched, and never ours."""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
from importlib.util import find_spec
from pathlib import Path

import msgspec

from builddoctor.errors import BuildDoctorError

PLACE = ("package_data", "plotly.min.js")


class Library(msgspec.Struct, frozen=True, kw_only=True):
    """One script."""

    packed: str
    """gzip, then base64: a third of its size"""
    digest: str
    """as a Content-Security-Policy names it: ``sha256-…`` of the unpacked text"""


@functools.cache
def plotly() -> Library:
    """Plotly's script. Raises BuildDoctorError where the package is not whole.

    The package is found and not imported: that alone would take longer than all the rest of the page.
    """
    spec = find_spec("plotly")
    folders = spec.submodule_search_locations if spec is not None else None
    for folder in folders or ():
        try:
            script = Path(folder, *PLACE).read_bytes()
        except OSError:
            continue
        # No time in it: the same trace gives the same page.
        packed = base64.b64encode(gzip.compress(script, 9, mtime=0)).decode()
        return Library(packed=packed, digest=digest_of(script))
    raise BuildDoctorError(
        "plotly, which draws the page, is not installed as it should be", hint="pip install -U plotly"
    )


def digest_of(script: bytes) -> str:
    """As a Content-Security-Policy names a script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode()
