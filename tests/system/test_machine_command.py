"""``builddoctor machine``: data on stdout, notes on stderr, files that can be read again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.errors import FolderNotWritableError, MachineNotFoundError
from builddoctor.machines.named import profiles
from support.program import Program


def test_the_list_is_data_and_nothing_else(program: Program) -> None:
    """A line for each machine on stdout, as a table or as JSON; stderr stays empty."""
    table = program.run("machine", "list")
    assert (table.returncode, table.stderr) == (0, "")
    listed = program.run("machine", "list", "--json")
    assert (listed.returncode, listed.stderr) == (0, "")
    names = [each["name"] for each in json.loads(listed.stdout)]
    assert names == [profile.name for profile in profiles()]
    assert [line.split()[0] for line in table.stdout.splitlines()[1:]] == names


def test_a_machine_is_shown_with_its_sources(program: Program) -> None:
    """The page has every address, the JSON the keys that a probed machine has too."""
    page = program.run("machine", "show", "gb200-node")
    shown = program.run("machine", "show", "gb200-node", "--json")
    assert (page.returncode, page.stderr, shown.returncode, shown.stderr) == (0, "", 0, "")
    machine = json.loads(shown.stdout)
    assert {"cores", "limit_mib", "headroom_mib", "budget_mib", "reserve_mib"} <= set(machine)
    assert machine["confidence"] == "nominal"
    assert machine["sources"]
    assert all(source["where"] in page.stdout for source in machine["sources"])


@pytest.mark.parametrize("name", ["gb200", "nothing-like-it", "missing.json", "/"])
def test_an_unknown_machine_has_a_code_of_its_own(program: Program, name: str) -> None:
    """81, one line and a hint on stderr, nothing on stdout."""
    done = program.run("machine", "show", name)
    assert (done.returncode, done.stdout) == (MachineNotFoundError.exit_code, "")
    assert MachineNotFoundError.exit_code == 81
    message, hint = done.stderr.splitlines()
    assert message.startswith("builddoctor: ")
    assert "builddoctor machine list" in hint


@pytest.mark.machines("grace", "arm16k")
def test_this_machine_is_data(program: Program) -> None:
    """`probe --json` parses and has the keys that others rely on; what could not be read is a note on stderr."""
    done = program.run("machine", "probe", "--json")
    assert done.returncode == 0
    machine = json.loads(done.stdout)
    assert machine["cores"] == len(os.sched_getaffinity(0)) or "cgroup" in machine["cores_source"]
    assert 0 <= machine["budget_mib"] <= machine["headroom_mib"] <= machine["limit_mib"]
    assert machine["limited_by"] in [level["source"] for level in machine["levels"]]
    assert machine["platform"]["page_kib"] == os.sysconf("SC_PAGE_SIZE") // 1024
    assert len(done.stderr.splitlines()) == len(machine["unread"])


def test_this_machine_is_a_page_by_default(program: Program) -> None:
    """Cores, memory, who limits it and what is left."""
    done = program.run("machine", "probe")
    assert done.returncode == 0
    for label in ("cores", "memory", "limited by", "for builds", "page size", "current folder"):
        assert f"  {label}" in done.stdout


def test_a_probe_in_a_file_can_be_shown(program: Program) -> None:
    """`-o FILE` leaves stdout empty and says how to read the file; `show FILE` gives the same machine."""
    file = program.folder / "my machine.json"
    written = program.run("machine", "probe", "-o", str(file))
    assert (written.returncode, written.stdout) == (0, "")
    assert f"builddoctor machine show '{file}'" in written.stderr
    again = program.run("machine", "show", str(file), "--json")
    assert json.loads(again.stdout) == json.loads(file.read_text())
    assert "for builds" in program.run("machine", "show", str(file)).stdout


def test_a_named_machine_in_a_file_can_be_shown(program: Program) -> None:
    """Take one that comes near, change a figure, plan with it."""
    (program.folder / "mine.json").write_text(program.run("machine", "show", "dgx-h100", "--json").stdout)
    assert program.run("machine", "show", "mine.json").stdout == program.run("machine", "show", "dgx-h100").stdout


def test_a_file_that_cannot_be_written_is_named(program: Program) -> None:
    """With the code that all such failures have."""
    done = program.run("machine", "probe", "-o", "/no/such/folder/machine.json")
    assert (done.returncode, done.stdout) == (FolderNotWritableError.exit_code, "")
    assert "/no/such/folder/machine.json" in done.stderr


def test_a_folder_that_is_gone_is_no_error(program: Program) -> None:
    """The machine is the same wherever one stands."""
    gone = Path(program.folder, "gone")
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(gone), *program.argv("machine", "probe", "--json")],
        env=program.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cores"] >= 1


def test_without_a_command_there_is_help(program: Program) -> None:
    """As with `trace`: what there is, on stderr, and the code for a command line that is not whole."""
    done = program.run("machine")
    assert (done.returncode, done.stdout) == (64, "")
    for command in ("list", "show", "probe"):
        assert command in done.stderr
