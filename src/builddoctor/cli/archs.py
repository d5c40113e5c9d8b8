"""``--arch`` as typed, with this machine's GPUs where ``native`` asks for them."""

from __future__ import annotations

from collections.abc import Mapping

from builddoctor.intercept.gpus import visible_archs
from builddoctor.projects.archs import Arch, parse_archs, wants_native


def archs_of(text: str, env: Mapping[str, str]) -> tuple[Arch, ...]:
    """None for an empty text. Raises UsageError."""
    if not text:
        return ()
    return parse_archs(text, native=visible_archs(env) if wants_native(text) else ())
