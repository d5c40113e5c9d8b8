"""``builddoctor trace`` as a program: which trace, which form, which errors."""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from builddoctor.cli.app import main
from builddoctor.cli.run import run_supervised
from builddoctor.cli.trace import last_words
from builddoctor.core.errors import TraceError
from builddoctor.core.events import BuildEnded, BuildEvent, BuildResult
from builddoctor.core.request import RunRequest
from support.trace_events import Events, events
from unit.builders import header, summary
from unit.small_traces import admitted, asked, ended, tick, unit
from unit.ui.test_trace_page import EVIL

Caught = pytest.CaptureFixture[str]


def records(**fields: object) -> list[BuildEvent]:
    return events(
        header(**fields),
        unit(),
        unit(unit_id="u2", source="/src/b.cu", output="b.o"),
        *(asked(1), admitted(1), tick(3.0, 90), ended(1, peak_mib=300)),
        *(asked(2, 10.0, "u2", "ptxas"), admitted(2, 11.0), ended(2, 15.0, peak_mib=900, wall_s=2.0), tick(16.0, 900)),
    )


def lay(path: Path, *lines: Events) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in events(*lines)))
    return path


@pytest.fixture
def traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two traces, ``aaa111`` and the newer ``bbb222``."""
    monkeypatch.setenv("BUILDDOCTOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "100")
    folder = tmp_path / "state" / "traces"
    end = BuildEnded(at_s=17.0, summary=summary())
    lay(folder / "20250101-000000.000-aaa111.jsonl", *records(trace_id="aaa111"), end)
    lay(folder / "20250102-000000.000-bbb222.jsonl", *records(trace_id="bbb222", nvcc="13.0.88"), end)
    return folder


def test_the_newest_trace_is_shown_where_none_is_named(traces: Path, capsys: Caught) -> None:
    """``last`` says the same; the beginning of an id is enough."""
    assert main(["trace", "show"]) == 0
    shown = capsys.readouterr().out
    assert "bbb222" in shown
    assert main(["trace", "show", "last"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["trace", "show", "aaa"]) == 0
    assert "aaa111" in capsys.readouterr().out


def test_the_list_has_the_newest_first(traces: Path, capsys: Caught) -> None:
    """And as many as were asked for."""
    assert main(["trace", "list"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["id", "bbb222", "aaa111"]
    assert main(["trace", "list", "-n", "1", "--json"]) == 0
    (only,) = msgspec.json.decode(capsys.readouterr().out)
    assert (only["header"]["trace_id"], only["exit_code"], only["peak_mib"]) == ("bbb222", 0, 2048.0)


def test_the_keys_that_others_rely_on_are_there(traces: Path, capsys: Caught) -> None:
    """``trace show --json`` and ``trace units --json`` keep the keys that other programs read."""
    assert main(["trace", "show", "--json"]) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert shown["verdict"] is None
    assert {"confidence", "evidence", "fixes", "timeline", "events"} <= shown.keys()
    assert main(["trace", "units", "--json"]) == 0
    units = msgspec.json.decode(capsys.readouterr().out)
    assert [(each["unit"], each["peak_mib"], each["wall_s"]) for each in units] == [
        ("/src/b.cu", 900, 2),
        ("/src/a.cu", 300, 5),
    ]
    assert units[0]["phases"][0]["attempts"][0]["outcome"] == "ok"


@pytest.mark.parametrize(
    ("options", "first"),
    [([], "b.cu"), (["--sort", "time"], "a.cu"), (["--sort", "name"], "a.cu"), (["--filter", "cicc"], "a.cu")],
)
def test_units_are_sorted_and_filtered(traces: Path, capsys: Caught, options: list[str], first: str) -> None:
    """By name, or by what their phases are."""
    assert main(["trace", "units", *options]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert first in rows[1]
    assert len(rows) == (2 if "--filter" in options else 3)


def test_csv_has_a_line_a_unit(traces: Path, capsys: Caught) -> None:
    """With the peak of each kind of phase in a column of its own."""
    assert main(["trace", "units", "--csv"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (first["unit"], first["peak_mib"], first["ptxas_peak_mib"], first["cicc_peak_mib"]) == (
        "/src/b.cu",
        "900.0",
        "900.0",
        "",
    )
    assert (second["worst_kind"], second["worst_arch"], second["estimate_mib"]) == ("cicc", "sm_90", "100.0")


def test_two_traces_are_compared(traces: Path, capsys: Caught) -> None:
    """The second is the newest where it is not named."""
    assert main(["trace", "compare", "aaa111"]) == 0
    assert "13.0.88" in capsys.readouterr().out
    assert main(["trace", "compare", "aaa111", "bbb222", "--json"]) == 0
    told = msgspec.json.decode(capsys.readouterr().out)
    assert told["differences"] == [{"what": "nvcc", "before": "none", "after": "13.0.88"}]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["show", "ccc"], 78, "no trace 'ccc'"),
        (["units", "--sort", "colour"], 64, "unknown sort key 'colour'"),
        (["units", "--json", "--csv"], 64, "exclude each other"),
        (["show", "."], 78, "no trace of a build in ."),
        (["show", "/dev/zero"], 78, "no regular file"),
        (["show", "/nowhere/t.jsonl"], 78, "no trace"),
    ],
)
def test_what_cannot_be_answered_is_an_error_with_a_hint(
    traces: Path, capsys: Caught, arguments: list[str], code: int, words: str
) -> None:
    """A line and a hint, an exit code of its own, nothing on stdout."""
    assert main(["trace", *arguments]) == code
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert "hint: " in said.err


def test_without_any_trace_last_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Caught) -> None:
    """And the list is empty."""
    monkeypatch.setenv("BUILDDOCTOR_STATE_DIR", str(tmp_path))
    assert main(["trace", "show"]) == TraceError.exit_code
    assert main(["trace", "list"]) == 0
    assert capsys.readouterr().out == "no traces yet\n"


def test_a_pipe_does_not_make_it_wait(traces: Path, tmp_path: Path, capsys: Caught) -> None:
    """Nobody may ever write into it."""
    os.mkfifo(tmp_path / "pipe")
    assert main(["trace", "show", str(tmp_path / "pipe")]) == TraceError.exit_code
    assert "no regular file" in capsys.readouterr().err


def test_ten_sparse_gigabytes_are_no_trace(traces: Path, tmp_path: Path, capsys: Caught) -> None:
    """Said at once."""
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10 * 1024**3)
    for command in ("show", "units"):
        assert main(["trace", command, str(tmp_path / "sparse")]) == TraceError.exit_code
    assert capsys.readouterr().err.count("is not a trace") == 2


def test_a_hole_of_ten_gigabytes_in_a_trace_is_jumped_over(traces: Path, tmp_path: Path, capsys: Caught) -> None:
    """A file system that lost what was written last leaves such; what stands behind it counts."""
    path = lay(tmp_path / "t.jsonl", *records())
    with path.open("r+b") as file:
        file.seek(10 * 1024**3)
        file.write(b"\n" + msgspec.json.encode(BuildEnded(at_s=17.0, summary=summary())) + b"\n")
    assert main(["trace", "show", "--json", str(path)]) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert (shown["whole"], shown["units"]) == (True, 2)
    assert 1 <= shown["unreadable_lines"] <= 3
    with path.open("r+b") as file:
        file.truncate(10 * 1024**3)
    assert main(["trace", "show", str(path)]) == 0
    assert "the trace stops short" in capsys.readouterr().out


@pytest.mark.parametrize("line", [b'{"t":"header","schema":99,"new":1}', msgspec.json.encode(header(schema=99))])
def test_a_trace_of_a_newer_schema_says_so(traces: Path, tmp_path: Path, capsys: Caught, line: bytes) -> None:
    """Also where its header has become another."""
    (tmp_path / "t.jsonl").write_bytes(line + b"\n")
    assert main(["trace", "show", str(tmp_path / "t.jsonl")]) == TraceError.exit_code
    said = capsys.readouterr().err
    assert "has trace schema 99" in said
    assert "pip install -U builddoctor" in said


def test_unknown_records_and_keys_are_passed_over(traces: Path, tmp_path: Path, capsys: Caught) -> None:
    """Fields may be added within a schema."""
    path = lay(tmp_path / "t.jsonl", *records())
    more = b'{"t":"moon","at_s":1}\n{"t":"note","at_s":18,"text":"x","moon":[{}]}\n'
    path.write_bytes(path.read_bytes() + more)
    assert main(["trace", "show", "--json", str(path)]) == 0
    shown = msgspec.json.decode(capsys.readouterr().out)
    assert (shown["unreadable_lines"], shown["events"][-1]["text"]) == (1, "x")


@pytest.mark.parametrize("command", ["show", "units", "list"])
@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
def test_no_control_character_of_a_trace_gets_through(
    traces: Path, capsys: Caught, command: str, form: list[str]
) -> None:
    """In no form, on neither channel: JSON has them as escapes."""
    if form == ["--csv"] and command != "units":
        return
    evil = records(title=EVIL, cwd=EVIL, command=[EVIL], trace_id="ccc333", archs=[EVIL], limited_by=EVIL, nvcc=EVIL)
    lay(traces / "20250103-000000.000-ccc333.jsonl", *evil, unit(unit_id="u3", source=EVIL, output=EVIL))
    assert main(["trace", command, *(["ccc333"] if command != "list" else []), *form]) == 0
    said = capsys.readouterr()
    assert all(char.isprintable() or char == "\n" for char in said.out + said.err)
    if form == ["--json"]:
        assert repr(EVIL)[1:-1] in repr(msgspec.json.decode(said.out))


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
def test_a_stdout_of_ascii_gets_ascii(traces: Path, monkeypatch: pytest.MonkeyPatch, form: list[str]) -> None:
    """JSON stays JSON."""
    path = lay(traces / "20250103-000000.000-ccc333.jsonl", *records(), unit(unit_id="u3", source="/src/hältö.cu"))
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding="ascii", write_through=True))
    assert main(["trace", "units", str(path), *form]) == 0
    assert main(["trace", "show", str(path)]) == 0
    assert raw.getvalue().isascii()
    if form == ["--json"]:
        units = msgspec.json.decode(raw.getvalue().split(b"\n")[0])
        assert units[-1]["unit"] == "/src/hältö.cu"


def test_the_last_words_need_a_trace_that_can_be_read(traces: Path, tmp_path: Path) -> None:
    """A full disk leaves none; a build that went well needs none."""
    assert last_words(str(tmp_path / "none.jsonl")) == []
    assert last_words(str(traces / "20250101-000000.000-aaa111.jsonl")) == []
    assert last_words("\0") == []
    failed = BuildEnded(at_s=17.0, summary=summary(result=BuildResult.FAILED, exit_code=3))
    path = lay(tmp_path / "t.jsonl", *records(trace_id="ddd444"), failed)
    assert last_words(str(path))[-1].startswith("  more    builddoctor trace show /tmp/t.jsonl ")


def test_a_build_that_failed_keeps_its_exit_code_where_we_cannot_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """builddoctor was taken away or replaced while the build ran, or there is no memory."""

    def gone(_: str) -> list[str]:
        raise ImportError("no module named builddoctor.render")

    monkeypatch.setattr("builddoctor.cli.trace.last_words", gone)
    state = SimpleNamespace(given_up=None, in_error=[])
    found = summary(result=BuildResult.FAILED, exit_code=3, trace=str(tmp_path / "none.jsonl"))
    request = RunRequest(command=("ninja",), cwd=str(tmp_path), summary=str(tmp_path / "s.json"))
    monkeypatch.setattr(
        "builddoctor.cli.run.supervise",
        lambda *_, **__: SimpleNamespace(summary=found, state=state, beyond=()),
    )
    assert run_supervised(request, env={}) == 3
    assert msgspec.json.decode((tmp_path / "s.json").read_bytes())["exit_code"] == 3
    assert "cannot say here why it failed" in capsys.readouterr().err
