"""Which phases have their input kept, and that whatever happens there stays there."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
from pathlib import Path

import pytest

from builddoctor.core.events import InputsKept, Note, UnitCommand
from builddoctor.core.phase import Outcome, Phase, PhaseKind, Unit
from builddoctor.gates.phase_replay import PhaseCall, TooLargeError, copy_inputs, unpack
from builddoctor.runtime.failure_capture import MOST_PHASES, InputCapture, call_of, crashed, repro_folder
from builddoctor.runtime.phases import LivePhase
from builddoctor.system.probes import Deadline
from builddoctor.system.root import SystemRoot

GATE = 4321


def phase(tool: str = "ptxas", phase_id: int = 7, *, trusted: bool = True) -> LivePhase:
    """To be made in a running event loop."""
    what = Phase(phase_id=phase_id, unit_id="u1", kind=PhaseKind.PTXAS, source="a.cu", tool=tool)
    live = LivePhase(what, gate_pid=GATE, trusted=trusted)
    live.outcome = Outcome.FAILED
    return live


class Build:
    """A folder with a trace, a planted /proc with one gate in it, and what is said and written."""

    def __init__(self, folder: Path, *words: str, free_mib: float = 4096.0) -> None:
        proc = folder / "proc" / str(GATE)
        proc.mkdir(parents=True)
        gate = ("/usr/bin/python3", "-IS", "/overlay/.gate/gate.py", "phase", *words)
        (proc / "cmdline").write_bytes("\0".join((*gate, "")).encode("utf-8", "surrogateescape"))
        (proc / "environ").write_bytes(b"LANG=C\0odd\0BUILDDOCTOR_SOCKET=/s\0")
        self.cwd = folder / "work"
        self.cwd.mkdir()
        (proc / "cwd").symlink_to(self.cwd)
        self.trace = folder / "build.jsonl"
        self.trace.touch()
        self.written: list[InputsKept] = []
        self.said: list[str] = []
        self.free_mib: float | None = free_mib
        self.capture = InputCapture(
            SystemRoot(folder),
            trace=self.trace,
            free_mib=self._read_free_mib,
            versions=lambda: ["nvcc 13.0.88"],
        )

    def _read_free_mib(self) -> float:
        if self.free_mib is None:
            raise ZeroDivisionError
        return self.free_mib

    def keep(self, *phases: tuple[int, bool], tool: str = "ptxas", status: int = 9, trusted: bool = True) -> None:
        async def run() -> None:
            for phase_id, given_up in phases:
                live = phase(tool, phase_id, trusted=trusted)
                for event in await self.capture.keep(live, status, given_up=given_up):
                    if isinstance(event, Note):
                        self.said.append(event.text)
                    else:
                        assert isinstance(event, InputsKept)
                        self.written.append(event)

        asyncio.run(run())


def ptxas(folder: Path) -> Build:
    """A ptxas that was given up, whose input is still there."""
    build = Build(folder, "/cuda/bin/ptxas", "/overlay/bin/ptxas", "-arch=sm_90", "a.ptx", "-o", "/t/a.cubin")
    (build.cwd / "a.ptx").write_bytes(b".version 8.8\n" * 1000)
    return build


def test_the_input_of_a_phase_that_was_given_up_is_kept_packed(tmp_path: Path) -> None:
    """Beside the trace, for this user alone; the trace says what it is, with which compiler, and the command."""
    build = ptxas(tmp_path)
    build.keep((7, True))
    (kept,) = build.written
    assert (kept.tool, kept.cwd, kept.phase_id) == ("/cuda/bin/ptxas", str(build.cwd), 7)
    assert kept.argv == ["-arch=sm_90", "a.ptx", "-o", "/t/a.cubin"]
    assert kept.versions == ["nvcc 13.0.88"]
    assert [(file.name, file.path, file.size_bytes) for file in kept.files] == [("a.ptx", "a.ptx", 13_000)]
    folder = repro_folder(build.trace)
    assert folder == tmp_path / "build.repro"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert gzip.decompress((folder / "7" / "a.ptx.gz").read_bytes()) == b".version 8.8\n" * 1000
    assert "keeps the input" in build.said[0]


@pytest.mark.parametrize(
    ("status", "tool", "worth"),
    [
        (signal.SIGSEGV, "cicc", True),
        (signal.SIGABRT | 0x80, "ptxas", True),
        (4 << 8, "cc1plus", True),
        (4 << 8, "cudafe++", True),
        (4 << 8, "ptxas", False),
        (1 << 8, "cc1plus", False),
        (signal.SIGTERM, "cicc", False),
        (signal.SIGINT, "cicc", False),
        (0, "cicc", False),
    ],
)
def test_a_crash_is_told_from_an_error_in_the_source(status: int, tool: str, worth: bool) -> None:
    """A signal of its own making, gcc's and EDG's own word for it; not Ctrl-C, and not a missing semicolon."""

    async def run() -> bool:
        return crashed(phase(tool), status)

    assert asyncio.run(run()) is worth


def test_phases_that_are_not_worth_it_are_not_looked_at(tmp_path: Path) -> None:
    """An ordinary error, and a gate that the kernel does not vouch for, whose number may be another's."""
    build = ptxas(tmp_path)
    build.keep((7, False), status=1 << 8)
    build.keep((7, True), trusted=False)
    assert (build.written, build.said) == ([], [])
    assert not repro_folder(build.trace).exists()


def test_of_one_build_three_phases_are_kept(tmp_path: Path) -> None:
    """A build with ``-k`` may lose hundreds."""
    build = ptxas(tmp_path)
    build.keep(*[(number, True) for number in range(1, 7)])
    assert len(build.written) == MOST_PHASES == 3
    assert sorted(each.name for each in repro_folder(build.trace).iterdir()) == ["1", "2", "3"]


def test_what_an_earlier_build_left_under_the_same_name_goes(tmp_path: Path) -> None:
    """``--trace build.jsonl`` again and again: the folder holds the last build's, and nothing that is not ours goes."""
    build = ptxas(tmp_path)
    folder = repro_folder(build.trace)
    (folder / "99").mkdir(parents=True)
    (folder / "99" / "old.gz").touch()
    (folder / "notes").mkdir()
    build.keep((7, True))
    assert sorted(each.name for each in folder.iterdir()) == ["7", "notes"]


@pytest.mark.parametrize(
    "trouble", ["a file in its place", "a link in its place", "no trace file", "input gone", "odd"]
)
def test_trouble_is_a_line_and_nothing_else(tmp_path: Path, trouble: str) -> None:
    """Whatever is the matter, ``keep`` comes back, and leaves nothing half done."""
    build = ptxas(tmp_path)
    folder = repro_folder(build.trace)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if trouble == "a file in its place":
        folder.touch()
    elif trouble == "a link in its place":
        folder.symlink_to(elsewhere)
    elif trouble == "no trace file":
        build.trace.unlink()
    elif trouble == "input gone":
        (build.cwd / "a.ptx").unlink()
    else:
        build.free_mib = None
    build.keep((7, True))
    if trouble == "input gone":
        (kept,) = build.written
        assert kept.files == []
    else:
        assert build.written == []
        assert "could not keep the input" in build.said[0]
    assert list(elsewhere.iterdir()) == []
    assert not folder.is_dir() or folder.is_symlink()


def test_a_gate_says_what_it_stands_for(tmp_path: Path) -> None:
    """Program, arguments (empty ones, and names that are no UTF-8), folder; another process is none."""
    build = Build(tmp_path, "/real/cicc", "/overlay/cicc", "", os.fsdecode(b"\xff.ii"))
    call = call_of(GATE, SystemRoot(tmp_path))
    assert call is not None
    assert (call.tool, call.argv, call.cwd) == ("/real/cicc", ("", os.fsdecode(b"\xff.ii")), str(build.cwd))
    assert call.env == {"LANG": "C", "BUILDDOCTOR_SOCKET": "/s"}
    assert call_of(1, SystemRoot(tmp_path)) is None


def test_too_large_an_input_leaves_nothing(tmp_path: Path) -> None:
    """Bounded in what is written, not in what is read: text packs well."""
    (tmp_path / "big.ptx").write_bytes(os.urandom(3 << 20))
    (tmp_path / "to").mkdir()
    call = PhaseCall(tool="ptxas", argv=("big.ptx",), cwd=str(tmp_path))
    with pytest.raises(TooLargeError):
        copy_inputs(call, tmp_path / "to", packed=True, most_bytes=1 << 20, deadline=Deadline(60), memory_mib=0)


def test_a_damaged_kept_input_is_an_error_that_is_named(tmp_path: Path) -> None:
    """A torn file of a full disk; a small file that unpacks to more than there is room for."""
    whole = gzip.compress(b"x" * 100_000)
    (tmp_path / "torn.gz").write_bytes(whole[:-20])
    (tmp_path / "bomb.gz").write_bytes(whole)
    (tmp_path / "changed.gz").write_bytes(whole[:10] + bytes([255 - whole[10]]) + whole[11:])
    with pytest.raises(OSError, match="damaged"):
        unpack(tmp_path / "changed.gz", tmp_path / "changed", most_bytes=1 << 30)
    with pytest.raises(OSError, match="stops short"):
        unpack(tmp_path / "torn.gz", tmp_path / "torn", most_bytes=1 << 30)
    with pytest.raises(TooLargeError):
        unpack(tmp_path / "bomb.gz", tmp_path / "bomb", most_bytes=1000)


def test_the_command_of_a_unit_is_written_masked_and_once(tmp_path: Path) -> None:
    """Credentials do not reach the trace; what a configure step tries out is not worth a line."""
    capture = ptxas(tmp_path).capture

    def called(unit: Unit, *argv: str) -> UnitCommand | None:
        return capture.unit_called(unit, argv, "/w", at_s=1.0)

    first = called(Unit(unit_id="u1", source="a.cu", counted=True), "-c", "a.cu", "-DTOKEN=abc")
    assert called(Unit(unit_id="u2", source="t.cu", counted=False), "-c", "t.cu") is None
    second = called(Unit(unit_id="77.1", source="b.cpp", counted=True), "/usr/bin/g++", "-c", "b.cpp")
    assert isinstance(first, UnitCommand)
    assert isinstance(second, UnitCommand)
    assert (first.tool, first.argv) == ("nvcc", ["-c", "a.cu", "-DTOKEN=****"])
    assert (second.tool, second.argv) == ("/usr/bin/g++", ["-c", "b.cpp"])
