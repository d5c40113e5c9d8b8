"""Builds by name: the same words for every command that takes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.cli.naming import find_trace, name_of
from builddoctor.core.errors import TraceError
from builddoctor.trace.writer import TraceWriter
from unit.builders import header

BUILDS = [
    ("20250101-000000.000-aaa111", "demo", "demo"),
    ("20250102-000000.000-bbb222", "demo", "demo/build"),
    ("20250103-000000.000-ccc333", "Flash-Attn", "flash"),
]
"""File, project and folder, oldest first."""


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three builds, and a file that is no trace, newer than they are."""
    folder = tmp_path / "state" / "traces"
    folder.mkdir(parents=True)
    for stem, project, where in BUILDS:
        (tmp_path / where).mkdir(parents=True, exist_ok=True)
        writer = TraceWriter(folder / f"{stem}.jsonl")
        writer.write(header(trace_id=stem[-6:], project=project, cwd=str(tmp_path / where)))
        writer.close()
    (folder / "20250104-000000.000-ddd444.jsonl").write_text("broken\n")
    monkeypatch.setenv("BUILDDOCTOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("bbb222", "bbb222"),
        ("b", "bbb222"),
        ("last", "ddd444"),
        ("last~1", "ccc333"),
        ("last~3", "aaa111"),
        ("flash_attn", "ccc333"),
        ("demo", "bbb222"),
        ("demo~1", "aaa111"),
        ("demo/build", "bbb222"),
        ("flash", "ccc333"),
        (".", "ccc333"),
        (".~2", "aaa111"),
        ("state/traces/20250101-000000.000-aaa111.jsonl", "aaa111"),
    ],
)
def test_a_build_is_found_by_any_of_its_names(traces: Path, name: str, wanted: str) -> None:
    """Id, its beginning, project, folder, the last; one before; or the file."""
    found = find_trace(name)
    assert name_of(found.absolute()) == wanted


def test_a_project_is_found_from_anywhere(traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no folder has its name."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert name_of(find_trace("demo")) == "bbb222"
    assert name_of(find_trace("Demo~1")) == "aaa111"


@pytest.mark.parametrize(
    "name", ["", "eee", "demo~2", "last~4", "state", "bbb222~1", "~1", "last~99999999999999999999"]
)
def test_what_names_no_build_is_an_error(traces: Path, name: str) -> None:
    with pytest.raises(TraceError, match="no trace") as caught:
        find_trace(name)
    assert "trace list" in caught.value.hint


def test_a_trace_elsewhere_is_named_by_its_file(traces: Path, tmp_path: Path) -> None:
    assert name_of(tmp_path / "build.jsonl") == str(tmp_path / "build.jsonl")
