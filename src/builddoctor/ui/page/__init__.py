"""The page of a trace: one HTML file that needs nothing else, and reaches for nothing else.

Covers: the document, its security policy, and plotly's script as the installed package brings it. Words and tables are
HTML (``sections``); the pictures are drawn by the script from data (``payload``).
Does *not* cover: verdicts (``words`` are handed in), or where the file goes.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import msgspec

from builddoctor.core.errors import BuildDoctorError
from builddoctor.core.plan import WhatIf
from builddoctor.trace.picture import GROUPS, Picture
from builddoctor.ui.page import sections
from builddoctor.ui.page.payload import CSS_OF, encoded, payload, units_of
from builddoctor.ui.page.sections import text
from builddoctor.ui.page.words import Words

SWATCH_LINES = {
    "cicc": "",
    "ptxas": '<path d="M-2 8 L8 -2 M4 20 L20 4"/>',
    "cudafe++": '<path d="M0 18 L18 0 M0 0 L18 18"/>',
    "cc1plus": "".join(f'<circle cx="{x}" cy="{y}" r="1.6"/>' for x in (5, 13) for y in (5, 13)),
    "ld": '<path d="M-2 10 L8 20 M4 -2 L20 14"/>',
    "other": '<path d="M0 6 H18 M0 12 H18"/>',
}


PLACE = ("package_data", "plotly.min.js")


def page(picture: Picture, words: Words, what: WhatIf | None, library: Library) -> str:
    """The whole document."""
    units = units_of(picture)
    script = _own("page.js") + _own("charts.js")
    style = _own("page.css") + _steps()
    header = picture.header
    title = header.title or " ".join(header.command)
    policy = (
        f"default-src 'none'; script-src '{digest_of(script.encode())}' '{library.digest}'; "
        # Plotly writes styles of its own, and some versions try out an image; nothing in them can be fetched.
        "style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Template(_own("page.html")).substitute(
        policy=policy,
        label=text(words.label),
        title=text(title),
        style=style,
        trace_id=text(header.trace_id),
        started=text(sections.started(header.started_at)),
        verdict=sections.verdict(words),
        figures=sections.figures(picture),
        tools=_tools(),
        in_words=text(sections.picture_in_words(picture, units)),
        events=sections.events(picture),
        units=sections.unit_table(picture, units),
        what_if=sections.what_if_table(what),
        about=sections.about(picture),
        trace=encoded(payload(picture, units)),
        library=library.packed,
        script=script,
    )


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _steps() -> str:
    """Widths and colours of bars as classes: the page allows no style in tags."""
    widths = "".join(f".s{step}{{width:{100 * step / sections.STEPS:.0f}%}}" for step in range(1, sections.STEPS + 1))
    names = [CSS_OF.get(name, name) for name in GROUPS]
    return widths + "".join(
        f".{name}{{background:var(--{name})}}.tools .{name} rect{{fill:var(--{name})}}"
        f".tools .{name} path{{stroke:var(--on-{name})}}.tools .{name} circle{{fill:var(--on-{name})}}"
        for name in names
    )


def _tools() -> str:
    """Legend and switches in one: colour and pattern of each tool, as in the pictures."""
    return "".join(
        f'<button type="button" data-tool="{CSS_OF.get(name, name)}" aria-pressed="true">'
        f'<svg class="{CSS_OF.get(name, name)}" viewBox="0 0 18 18" aria-hidden="true"><rect width="18" height="18"/>'
        f"{SWATCH_LINES[name]}</svg>{name}</button>"
        for name in GROUPS
    )


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
