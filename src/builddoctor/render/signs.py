"""The signs that pictures are drawn with, on terminals with Unicode and without. Pure.

Covers: which terminal has which, and our own words in ASCII. Does *not* cover: what is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

_IN_ASCII = str.maketrans(
    {
        "…": "...",
        "·": "-",
        "✓": "ok",
        "✗": "x",
        "→": "->",
        "█": "#",
        "░": ".",
        "▕": "|",
        "▏": "|",
        "│": "|",
        "─": "-",
        "≥": ">=",
        "≤": "<=",
    }
)


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """One set of them, a cell each but for ``more``."""

    unicode: bool
    full: str
    empty: str
    free: str
    edge: str
    reserve: str
    left: str
    right: str
    more: str
    """where something was left out"""

    def ours(self, text: str) -> str:
        """A text with our own signs as this terminal has them; names of files stay as they are."""
        return text if self.unicode else text.translate(_IN_ASCII)

    def words(self, text: str) -> str:
        """A text with such signs as this terminal has; names of files lose what it cannot show."""
        if self.unicode or text.isascii():
            return text
        return text.translate(_IN_ASCII).encode("ascii", "replace").decode()


UNICODE = Signs(unicode=True, full="█", empty="░", free="·", edge="│", reserve="─", left="▕", right="▏", more="…")
ASCII = Signs(unicode=False, full="#", empty=".", free=" ", edge="|", reserve="-", left="[", right="]", more="...")


def signs_for(env: Mapping[str, str]) -> Signs:
    """By the locale that counts for characters, and by the terminal: the Linux console has few."""
    locale = env.get("LC_ALL") or env.get("LC_CTYPE") or env.get("LANG") or ""
    told = locale.lower().replace("-", "")
    return UNICODE if "utf8" in told and env.get("TERM") != "linux" else ASCII
