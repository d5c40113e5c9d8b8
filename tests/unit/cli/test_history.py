"""``builddoctor history``: one project by any of its names."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from builddoctor.cli.app import main
from builddoctor.core.past import FinishedPhase, FinishedUnit, Seen, UnitKey
from builddoctor.core.phase import PhaseKind
from builddoctor.history.store import History
from builddoctor.runtime.folders import history_file
from builddoctor.trace.writer import TraceWriter
from unit.builders import header


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project's folder, and a history of one unit of it."""
    monkeypatch.setenv("BUILDDOCTOR_STATE_DIR", str(tmp_path / "state"))
    history_file(os.environ).parent.mkdir(parents=True)
    history = History.open(history_file(os.environ)).history
    assert history is not None
    phase = FinishedPhase(
        kind=PhaseKind.CICC, arch="sm_90", tool="cicc", seen=Seen(input_mib=4.0, peak_mib=100.0, wall_s=1.0)
    )
    key = UnitKey(project="flash-attn", place="a.cu")
    assert history.record([FinishedUnit(key=key, phases=(phase,), ended_at=1.0)])
    history.close()
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "flash_attn"\n')
    return folder


def test_a_project_is_found_by_any_spelling_and_by_its_checkout(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another name finds nothing."""

    def units(project: str) -> int:
        assert main(["history", "show", "--project", project, "--json"]) == 0
        return len(json.loads(capsys.readouterr().out))

    assert [units(each) for each in ("flash-attn", "Flash_Attn", str(checkout), "flash")] == [1, 1, 1, 0]


def test_a_build_names_its_project_where_nothing_is_deleted(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its id, or as the last; ``clear`` takes no such word."""
    traces = history_file(os.environ).parent / "traces"
    traces.mkdir()
    writer = TraceWriter(traces / "20250101-000000.000-abc123.jsonl")
    writer.write(header(project="flash-attn"))
    writer.close()
    for name in ("abc123", "last"):
        assert main(["history", "clear", "--project", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"units": 0}
        assert main(["history", "show", "--project", name, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == 1
