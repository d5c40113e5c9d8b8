"""A phase that another machine or the store is to do, as this build sees it: what is sent of it, and how it came back.

Does *not* cover: the way there and back (``runtime.away``, which needs Dask: this module does not), or the store
(``runtime.stored_phases``).
"""

from __future__ import annotations

import os

import msgspec

from builddoctor.core.events import PhaseEnded
from builddoctor.core.phase import STORE, Outcome
from builddoctor.gates.phase_replay import PhaseCall
from builddoctor.toolchain.options import first_value
from builddoctor.toolchain.travelling import CUDA_TRAVELLERS, Travelling, travelling, travelling_source


class Returned(msgspec.Struct, frozen=True, kw_only=True):
    """How a phase came back."""

    outcome: Outcome
    status: int = 0
    """wait status, where it ended there"""
    printed: bytes = b""
    peak_mib: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    sent_mib: float = 0.0
    back_mib: float = 0.0

    def ended(self, phase_id: int, node: str, *, at_s: float, away_s: float) -> PhaseEnded:
        """As a fact."""
        there_s = 0.0 if node == STORE else self.wall_s
        by_itself = self.outcome in (Outcome.OK, Outcome.FAILED)
        return PhaseEnded(
            at_s=at_s,
            phase_id=phase_id,
            outcome=self.outcome,
            peak_mib=round(self.peak_mib, 1),
            wall_s=round(self.wall_s, 3),
            cpu_s=round(self.cpu_s, 3),
            exit_code=os.WEXITSTATUS(self.status) if by_itself and os.WIFEXITED(self.status) else None,
            signal=os.WTERMSIG(self.status) if by_itself and os.WIFSIGNALED(self.status) else None,
            node=node,
            sent_mib=round(self.sent_mib, 3),
            back_mib=round(self.back_mib, 3),
            transfer_s=round(max(0.0, away_s - there_s), 3),
        )


LOST = Returned(outcome=Outcome.NODE_LOST)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """A phase that is about to be sent."""

    phase: Travelling
    cwd: str
    program: str
    """path of the program itself"""
    before: tuple[str, ...] = ()
    """with these arguments it has to run here first: it preprocesses"""
    preprocessed: str = ""
    """the file that it writes then, which nobody else wants"""


def load_of(call: PhaseCall, number: int) -> Load | None:
    """What is sent of a phase; None where it has to stay after all. ``number``: makes the file's name its own."""

    def is_file(path: str) -> bool:
        return os.path.isfile(os.path.join(call.cwd, path))

    if call.name in CUDA_TRAVELLERS:
        phase = travelling(call.name, call.argv, is_file)
        return None if phase is None else Load(phase=phase, cwd=call.cwd, program=call.tool)
    # Beside the assembler code, among gcc's temporary files.
    beside = os.path.dirname(first_value(call.argv, "-o"))
    path = os.path.join(beside, f".builddoctor-{os.getpid()}-{number}.ii")
    source = travelling_source(call.name, call.argv, is_file, preprocessed=path)
    if source is None:
        return None
    return Load(phase=source.phase, cwd=call.cwd, program=call.tool, before=source.before, preprocessed=path)
