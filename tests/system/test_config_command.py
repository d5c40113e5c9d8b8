"""Settings as the commands take them."""

from __future__ import annotations

import json

from support.program import Program


def test_a_file_counts_as_the_flag_and_the_flag_before_it(program: Program) -> None:
    (program.folder / "builddoctor.toml").write_text('memory = "3GiB"\n')
    assert limit_mib(program) == 3072
    assert limit_mib(program, "--memory", "2GiB") == 2048
    shown = json.loads(program.run("config", "show", "--json").stdout)
    assert shown == [{"name": "memory", "value": "3GiB", "source": str(program.folder / "builddoctor.toml")}]


def test_every_setting_is_a_flag_of_a_command(program: Program) -> None:
    """`config show --all` names nothing that no command takes."""
    helps = " ".join(program.run(name, "--help").stdout for name in ("build", "run", "activate", "doctor"))
    rows = program.run("config", "show", "--all").stdout.splitlines()[1:]
    assert len(rows) >= 13
    assert [row.split()[0] for row in rows if f"--{row.split()[0]} " not in helps] == []


def test_a_wrong_name_stops_a_build_before_it_starts(program: Program) -> None:
    (program.folder / "builddoctor.toml").write_text("core = 3\n")
    done = program.run("run", "--", "touch", "built")
    assert done.returncode == 64
    assert "did you mean cores?" in done.stderr
    assert not (program.folder / "built").exists()


def limit_mib(program: Program, *options: str) -> float:
    summary = program.folder / "summary.json"
    done = program.run("run", *options, "--summary", str(summary), "--", "true")
    assert done.returncode == 0, done.stderr
    return json.loads(summary.read_text())["limit_mib"]
