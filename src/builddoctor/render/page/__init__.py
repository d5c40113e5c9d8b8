"""The page of a trace: one HTML file that needs nothing else, and reaches for nothing else.

Covers: the document and its security policy. Words and tables are HTML (``sections``, ``tables``), the pictures are
drawn by the script from data (``payload``) with a packed library (``library``).
Does *not* cover: verdicts (``words`` are handed in), or where the file goes.
"""

from __future__ import annotations

from importlib.resources import files
from string import Template

from builddoctor.model.what_if import WhatIf
from builddoctor.render.page import sections, tables
from builddoctor.render.page.library import Library, digest_of
from builddoctor.render.page.markup import text
from builddoctor.render.page.payload import CSS_OF, encoded, payload, units_of
from builddoctor.render.page.words import Words
from builddoctor.trace.picture import GROUPS, Picture

SWATCH_LINES = {
    "cicc": "",
    "ptxas": '<path d="M-2 8 L8 -2 M4 20 L20 4"/>',
    "cudafe++": '<path d="M0 18 L18 0 M0 0 L18 18"/>',
    "cc1plus": "".join(f'<circle cx="{x}" cy="{y}" r="1.6"/>' for x in (5, 13) for y in (5, 13)),
    "ld": '<path d="M-2 10 L8 20 M4 -2 L20 14"/>',
    "other": '<path d="M0 6 H18 M0 12 H18"/>',
}


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
        units=tables.unit_table(picture, units),
        what_if=tables.what_if_table(what),
        about=sections.about(picture),
        trace=encoded(payload(picture, units)),
        library=library.packed,
        script=script,
    )


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _steps() -> str:
    """Widths and colours of bars as classes: the page allows no style in tags."""
    widths = "".join(f".s{step}{{width:{100 * step / tables.STEPS:.0f}%}}" for step in range(1, tables.STEPS + 1))
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
