"""What the last traced build of a folder took."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.supervise import past
from builddoctor.supervise.folders import traces_folder
from builddoctor.trace.records import PhaseFinished
from unit.builders import header

FINISHED = msgspec.json.encode(
    PhaseFinished(at_s=2.0, phase_id=1, outcome="ok", peak_mib=1234.0, wall_s=1.0, cpu_s=1.0, exit_code=0)
)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    env = {"BUILDDOCTOR_STATE_DIR": str(tmp_path / "state")}
    traces_folder(env).mkdir(parents=True)
    return env


def trace(env: dict[str, str], number: int, cwd: str, *more: bytes) -> Path:
    """A trace of a build in ``cwd``; a higher number is newer."""
    path = traces_folder(env) / f"2026010{number}-000000-abc.jsonl"
    first = msgspec.json.encode(msgspec.structs.replace(header(), cwd=cwd))
    path.write_bytes(b"\n".join([first, *more, b""]))
    return path


def test_the_newest_build_of_this_folder_counts(env: dict[str, str]) -> None:
    """Or below it; not of another one, and not a file that is no trace."""
    trace(env, 1, "/p", FINISHED.replace(b"1234", b"99"))
    trace(env, 2, "/p/sub", FINISHED)
    trace(env, 3, "/q", FINISHED.replace(b"1234", b"77"))
    trace(env, 4, "/p")
    (traces_folder(env) / "20260105-no.jsonl").write_bytes(b"\xff\n")
    (traces_folder(env) / "20260106-no.jsonl").mkdir()
    assert past.last_peak_mib(env, Path("/p")) == 1234.0
    assert past.last_peak_mib(env, Path("/nowhere")) is None


def test_of_other_folders_only_the_first_line_is_read(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """However long their traces are: this one is within what is read in all."""
    size = trace(env, 1, "/p", FINISHED).stat().st_size
    for number in (2, 3, 4):
        trace(env, number, "/q", *[FINISHED] * 5000)
    monkeypatch.setattr(past, "MOST_BYTES", size * 4)
    assert past.last_peak_mib(env, Path("/p")) == 1234.0


def test_no_more_is_read_than_in_all(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds of this folder that failed before any phase had ended, one after the other."""
    size = trace(env, 1, "/p", FINISHED).stat().st_size
    junk = b'{"t":"note","at_s":1,"text":"' + b"x" * size + b'"}'
    for number in range(2, 9):
        trace(env, number, "/p", junk)
    assert past.last_peak_mib(env, Path("/p")) == 1234.0
    monkeypatch.setattr(past, "MOST_BYTES", size * 5)
    assert past.last_peak_mib(env, Path("/p")) is None


def test_a_trace_that_is_too_large_is_passed_over(env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """For an older, smaller one."""
    size = trace(env, 1, "/p", FINISHED).stat().st_size
    trace(env, 2, "/p", *[FINISHED.replace(b"1234", b"77")] * 50)
    monkeypatch.setattr(past, "MOST_BYTES", size * 4)
    assert past.last_peak_mib(env, Path("/p")) == 1234.0
