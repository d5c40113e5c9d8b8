"""Pages and tables as a terminal without colour shows them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text


def plain(lines: Iterable[Text]) -> list[str]:
    """Without styles."""
    return [line.plain for line in lines]
