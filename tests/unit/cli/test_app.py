"""Errors of the command line that need no process: one line, a hint, an exit code of their own, nothing on stdout."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

from builddoctor.cli.app import COMMANDS, command, main
from builddoctor.cli.summaries import SUMMARIES
from builddoctor.core.errors import (
    BuildDoctorError,
    ExtraMissingError,
    FolderNotWritableError,
    MemoryBudgetError,
    NoBuildSystemError,
    ProjectNotFoundError,
    SourceNotFoundError,
    TraceError,
    UsageError,
)
from builddoctor.core.events import TRACE_SCHEMA
from builddoctor.recipes.recipe_text import dump
from builddoctor.trace.writer import TraceWriter
from support.own_commands import own_commands, parse
from unit.builders import header
from unit.demo_recipes import recipe

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))

from command_model import Command, the_program


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this user's is read, nothing is written outside the test's folder."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "project").mkdir()
    (tmp_path / "work" / "project" / "setup.py").write_text("")
    (tmp_path / "work" / "empty").mkdir()
    (tmp_path / "work" / "notes.txt").write_text("hello\n")
    monkeypatch.setenv("BUILDDOCTOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("BUILDDOCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path / "work")


@pytest.mark.parametrize(
    ("arguments", "code", "said", "hint"),
    [
        ("run --memory 0 -- true", UsageError, "no room for any compiler", "--memory 8GiB"),
        ("run --memory 12XB -- true", UsageError, "not a memory size: '12XB'", "--memory 24GiB"),
        ("build project --memory lots", UsageError, "not a memory size: 'lots'", "--memory 24GiB"),
        ("run --cores -1 -- true", UsageError, "--cores -1", "all cores"),
        ("run --cores 0 -- true", UsageError, "--cores 0", "all cores"),
        ("run --cores many -- true", UsageError, "'--cores'", "run --help"),
        ("run --arch sm90 -- true", UsageError, "not a device architecture: 'sm90'", "--arch sm_90"),
        ("run -q -v -- true", UsageError, "--quiet and --verbose exclude each other", "use one of them"),
        ("-v run -vq -- true", UsageError, "--quiet and --verbose exclude each other", "use one of them"),
        ("-q -v run -- true", UsageError, "--quiet and --verbose exclude each other", "use one of them"),
        ("-q doctor", UsageError, "doctor has no --quiet", "doctor --help"),
        ("run --no-such-flag -- true", UsageError, "--no-such-flag", "run --help"),
        ("build project --no-such-flag", UsageError, "--no-such-flag", "build --help"),
        ("--no-such-flag", UsageError, "--no-such-flag", " --help`"),
        ("no-such-command", UsageError, "no-such-command", " --help`"),
        ("run", UsageError, "no command to run", "builddoctor run -- ninja"),
        ("run --memory 8GiB", UsageError, "no command to run", "builddoctor run -- ninja"),
        ("build", UsageError, "PATH", "build --help"),
        ("build project extra", UsageError, "extra", "build --help"),
        ("build missing", ProjectNotFoundError, "no such path: missing", "builddoctor build path/to/it"),
        ("build empty", NoBuildSystemError, "no build system found in", "builddoctor run -- make"),
        ("build notes.txt", NoBuildSystemError, "is a file, not a project folder", "builddoctor build ."),
        ("build project --summary /missing/s.json", FolderNotWritableError, "cannot write the summary", "may write"),
        ("doctor notes.txt", NoBuildSystemError, "is a file, not a project folder", "builddoctor doctor ."),
        ("doctor --yes", UsageError, "--yes needs --fix", "builddoctor doctor --fix --yes"),
        ("doctor --arch native", UsageError, "'native': no GPU of this machine answered", "compute_cap"),
        ("trace units notes.txt", TraceError, "notes.txt is not a trace", "trace list"),
        ("trace units nothing", TraceError, "no trace 'nothing'", "trace list"),
        ("trace units empty", TraceError, "no trace of a build in empty", "trace list"),
    ],
)
def test_an_error_is_one_line_a_hint_and_a_code(
    capsys: pytest.CaptureFixture[str], arguments: str, code: type[BuildDoctorError], said: str, hint: str
) -> None:
    """What happened, and the next step; stdout stays empty for those who read it."""
    assert main(arguments.split()) == code.exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("builddoctor: ")
    assert said in lines[0]
    assert lines[1].startswith("hint: ")
    assert hint in lines[1]


@pytest.mark.parametrize(
    "arguments",
    [
        "run --store tls:/host -- true",
        "run --store tls://host:99999 -- true",
        "run --cluster tcp://far:1 -- true",
        "run --cluster tcp://far:1 --store kept -- true",
        "worker tcp://far:1",
        "cluster serve --listen tcp://far:1",
        "cluster serve --store tls://host",
        "cluster status tcp://far:1",
        "plan kept.toml --cluster tcp://far:1",
    ],
)
def test_a_bad_address_is_said_before_a_missing_package(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    """Whoever installs the package first would be told of the address only then."""
    Path("kept.toml").write_text(dump(recipe()))
    for missing in ("zstandard", "builddoctor.cluster.keys"):
        monkeypatch.setitem(sys.modules, missing, None)
    assert main(arguments.split()) == UsageError.exit_code
    assert "address" in (said := capsys.readouterr().err) or "encrypted" in said


@pytest.mark.parametrize("arguments", ["run --store kept -- true", "run --cluster tls://host -- true"])
def test_a_missing_package_is_said_of_a_good_address(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: str
) -> None:
    """With the line that installs it."""
    for missing in ("zstandard", "builddoctor.cluster.keys"):
        monkeypatch.setitem(sys.modules, missing, None)
    assert main(arguments.split()) == ExtraMissingError.exit_code
    assert "pip install 'builddoctor[" in capsys.readouterr().err


def test_no_arguments_at_all_show_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, as a usage error: nothing was asked for."""
    assert main([]) == UsageError.exit_code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.search(r"Usage: .+ \[OPTIONS\] COMMAND", shown.err)


@pytest.mark.parametrize("arguments", ["--help", "-h", "build --help", "run -h", "trace --help", "trace units --help"])
def test_help_that_was_asked_for_is_data(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    """On stdout, and no error."""
    assert main(arguments.split()) == 0
    shown = capsys.readouterr()
    assert "Usage:" in shown.out
    assert shown.err == ""


def test_the_version_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Name and number, on stdout."""
    assert main(["--version"]) == 0
    assert re.fullmatch(r"builddoctor \d+\.\d+\S*\n", capsys.readouterr().out)


def test_a_dry_run_prints_the_command_and_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that can be pasted into a shell, with the architectures that it is for."""
    assert main(["build", "project", "--dry-run", "--arch", "sm_100,sm_90a", "--wheel-dir", "out dir"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.startswith("cd ")
    for words in ("TORCH_CUDA_ARCH_LIST='10.0;9.0a'", "-m pip wheel", "--no-build-isolation", "/out dir'"):
        assert words in shown.out
    assert not Path("out dir").exists()


def test_a_dry_run_fetches_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """What is known of the project is printed, its own variables alone, with the line that gets the sources."""
    assert main(["build", "flash_attn", "--dry-run", "--arch", "sm_90", "--version", "2.8.3"]) == 0
    shown = capsys.readouterr()
    assert "sources   not here: a build fetches them from flash-attn" in shown.err
    folder, command = shown.out.splitlines()
    assert folder == 'cd "$(builddoctor build flash_attn --fetch --version 2.8.3)"'
    assert "FLASH_ATTN_CUDA_ARCHS=90 " in command
    assert "NVTE" not in command
    assert command.endswith(" .")


def test_of_an_unknown_project_nothing_is_known_without_its_sources(capsys: pytest.CaptureFixture[str]) -> None:
    """With the line that gets them."""
    arguments = ["build", "mine", "--source", "https://example.org/mine.git", "--dry-run"]
    assert main(arguments) == SourceNotFoundError.exit_code
    assert "builddoctor build mine --fetch --source https://example.org/mine.git" in capsys.readouterr().err


def test_a_checkout_says_its_version(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is known of that version is told as for one that was fetched."""
    engine = tmp_path / "work" / "engine"
    (engine / "transformer_engine" / "common").mkdir(parents=True)
    (engine / "transformer_engine" / "common" / "CMakeLists.txt").touch()
    (engine / "setup.py").touch()
    (engine / "build_tools").mkdir()
    (engine / "build_tools" / "VERSION.txt").write_text("2.3.0\n")
    for name in ("cudnn-frontend", "cutlass"):
        (engine / "3rdparty" / name).mkdir(parents=True)
    assert main(["build", "transformer_engine", "--source", "engine", "--dry-run", "--json"]) == 0
    shown = capsys.readouterr()
    assert "does not compile with CUDA 13" in shown.err
    assert msgspec.json.decode(shown.out)["title"] == "TransformerEngine 2.3.0"


def test_a_dry_run_names_the_recipe_it_would_go_by(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr: what it prints is to be pasted."""
    Path("kept.toml").write_text(dump(recipe()))
    assert main(["build", "project", "--dry-run", "--recipe", "kept.toml"]) == 0
    shown = capsys.readouterr()
    assert "recipe    kept (measured" in shown.err
    assert "kept" not in shown.out


@pytest.mark.parametrize("more", ["--dry-run", "--fetch", ""])
@pytest.mark.parametrize("wrong", ["--memory 8GG", "--cores 0", "--until soon"])
def test_what_is_wrong_is_said_before_sources_are_fetched(
    capsys: pytest.CaptureFixture[str], wrong: str, more: str
) -> None:
    """Those of some projects take minutes."""
    assert main(["build", "flash_attn", *wrong.split(), *more.split()]) == UsageError.exit_code
    shown = capsys.readouterr()
    assert wrong.split()[1] in shown.err
    assert "sources" not in shown.err


@pytest.mark.parametrize("arguments", ["build missing --dry-run", "build project --dry-run --arch sm90"])
def test_a_dry_run_has_the_same_errors(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    """What would stop the build is said before it."""
    assert main(arguments.split()) in (UsageError.exit_code, ProjectNotFoundError.exit_code)
    assert capsys.readouterr().out == ""


def test_traces_are_listed_even_beside_broken_ones(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One that cannot be read is said so on stderr; the others are data."""
    folder = tmp_path / "state" / "traces"
    folder.mkdir(parents=True)
    (folder / "20250101-000000-zzzzzz.jsonl").write_text("broken\n")
    writer = TraceWriter(folder / "20250101-000001-abc123.jsonl")
    writer.write(header())
    writer.close()
    assert main(["trace", "list"]) == 0
    shown = capsys.readouterr()
    assert "abc123" in shown.out
    assert "is not a trace" in shown.err
    assert main(["trace", "list", "--json"]) == 0
    assert [each["header"]["trace_id"] for each in msgspec.json.decode(capsys.readouterr().out)] == ["abc123"]
    assert main(["trace", "units", "abc"]) == 0
    assert "worst phase" in capsys.readouterr().out


def test_without_traces_the_list_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    """That is an answer and no error."""
    assert main(["trace", "list"]) == 0
    assert capsys.readouterr().out == "no traces yet\n"


def test_a_trace_of_a_newer_schema_names_both_versions(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """And how to get a newer builddoctor."""
    writer = TraceWriter(tmp_path / "newer.jsonl")
    writer.write(header(schema=TRACE_SCHEMA + 1))
    writer.close()
    assert main(["trace", "units", str(tmp_path / "newer.jsonl")]) == TraceError.exit_code
    shown = capsys.readouterr()
    assert (shown.out, "pip install -U" in shown.err) == ("", True)


def test_an_id_that_fits_two_traces_is_asked_for_in_full(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Neither is guessed."""
    folder = tmp_path / "state" / "traces"
    folder.mkdir(parents=True)
    for name in ("20250101-000000-abc1.jsonl", "20250101-000000-abc2.jsonl"):
        (folder / name).write_text("")
    assert main(["trace", "units", "abc"]) == TraceError.exit_code
    assert "2 traces begin with 'abc'" in capsys.readouterr().err


def test_no_memory_at_all_is_an_error_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under a very low ``ulimit -v``: no traceback."""

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("builddoctor.cli.doctor.find_subject", refuse)
    assert main(["doctor"]) == MemoryBudgetError.exit_code
    assert "ulimit -v unlimited" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["--help", "-h run", "--version", "biuld .", ""])
def test_no_command_is_imported_where_none_is_called(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Help, mistypes and the version need names and summaries alone."""
    command.cache_clear()
    main(line.split())
    assert command.cache_info().currsize == 0
    assert "".join(capfd.readouterr())


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_called_what_it_was_listed_as(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """And its summary is the first sentence of its own help."""
    assert main([name, "--help"]) == 0
    assert re.match(rf"Usage: .+ {name} ", capfd.readouterr().out)
    assert command(name).get_short_help_str(1000) == SUMMARIES[name]


def test_help_lists_every_command_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capfd.readouterr().out
    assert re.findall(r"^  (?:\W )?([a-z]+)  ", shown, re.MULTILINE) == list(COMMANDS)


def test_the_version_needs_no_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capfd.readouterr().out.startswith("builddoctor ")


@pytest.mark.parametrize("shown", [each for each in the_program().walk() if each.examples], ids=lambda each: each.path)
def test_what_an_example_says_is_a_command_line(shown: Command) -> None:
    """Its commands and options are there, and what it needs is named."""
    for line in shown.examples.splitlines():
        commands = own_commands(line.replace('"', " "))
        assert commands, line
        for words in commands:
            parse(words)


def test_the_commands_that_people_begin_with_have_examples() -> None:
    """All but those that have nothing to say, and those that only list or undo."""
    without = {each.path.split(" ", 1)[1] for each in the_program().walk() if not (each.examples or each.commands)}
    assert not without & {"build", "run", "activate", "doctor", "plan", "watch", "attach", "explain", "trace show"}
