"""All named machines, found by name.

Does *not* cover: their figures (``machines.nvidia``, ``machines.clouds``, ``machines.small``), or machines of a user's
own (``machines.files``).
"""

from __future__ import annotations

import difflib

from builddoctor.errors import MachineNotFoundError
from builddoctor.machines.clouds import CLOUDS
from builddoctor.machines.nvidia import DGX, GRACE, UNIFIED
from builddoctor.machines.small import COMPUTERS, RUNNERS
from builddoctor.model.profile import MachineProfile

PROFILES: tuple[MachineProfile, ...] = (*GRACE, *DGX, *UNIFIED, *CLOUDS, *RUNNERS, *COMPUTERS)

MOST_SUGGESTIONS = 3
LONGEST_SHOWN = 60


def find_machine(name: str) -> MachineProfile:
    """The profile of that name. Raises MachineNotFoundError with the names that are near."""
    for profile in PROFILES:
        if profile.name == name.strip().lower():
            return profile
    shown = name if len(name) <= LONGEST_SHOWN else name[:LONGEST_SHOWN] + "…"
    near = nearest(name)
    meant = f"; did you mean {', '.join(near[:-1])}{' or ' if near[1:] else ''}{near[-1]}?" if near else ""
    raise MachineNotFoundError(
        f"no machine is called {shown!r}{meant}",
        hint="`builddoctor machine list` shows those there are; `builddoctor machine probe -o FILE` makes one of yours",
    )


def nearest(name: str) -> tuple[str, ...]:
    """Names that someone may have meant: those that begin so first, then those that are spelled much alike."""
    word = name[:LONGEST_SHOWN].strip().lower()
    names = [profile.name for profile in PROFILES]
    begins = [each for each in names if word and (each.startswith(word) or word.startswith(each))]
    alike = difflib.get_close_matches(word, names, n=MOST_SUGGESTIONS, cutoff=0.6)
    return tuple(dict.fromkeys([*begins, *alike]))[:MOST_SUGGESTIONS]
