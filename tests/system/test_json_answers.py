"""``--json``: every command that has it is run, and its answer is what its schema says."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from builddoctor.recipes.signing import make_key
from support.made_wheels import toolkit_wheels
from support.nodes import Meeting
from support.package_index import serving
from support.program import Program

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
sys.path.insert(0, str(ROOT / "scripts"))

from command_model import the_program  # noqa: E402
from json_answers import ANSWERS, schema_file  # noqa: E402

Done = subprocess.CompletedProcess[str]

BUILD_NINJA = """
rule cxx
  command = g++ -c $in -o $out
build heavy.o: cxx heavy.cpp
build light.o: cxx light.cpp
"""

CASES = [
    "status",
    "doctor",
    "doctor .",
    "plan demo.toml --on gb200-node",
    "plan demo.toml --matrix python=3.11,3.12 --time 1h",
    "build . --dry-run",
    "explain build.log",
    "explain last",
    "explain quiet.log",
    "save saved.tar.gz",
    "restore saved.tar.gz",
    "trace list",
    "trace show",
    "trace units",
    "trace compare first.jsonl",
    "trace replay",
    "trace repro last 1 -o repro --run",
    "trace prune --dry-run",
    "toolkit install 13.0 --dry-run",
    "toolkit install 13.0",
    "toolkit list",
    "toolkit path 13.0",
    "toolkit remove 13.0",
    "cluster status ADDRESS",
    "machine list",
    "machine show gb200-node",
    "machine probe",
    "history show",
    "history show --project demo",
    "history clear",
    "cache show",
    "cache clean",
    "config show",
    "recipe list",
    "recipe show demo.toml",
    "recipe from-trace last",
    "recipe check demo.toml broken.toml",
    "recipe diff demo.toml demo.toml",
    "recipe merge demo.toml demo.toml",
    "recipe push kept demo.toml --key signing",
    "recipe pull kept --key signing.pub",
]
"""In this order: some leave what others look at."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Done]:
    """What each prints, in a project that was built twice."""
    program = Program(tmp_path_factory.mktemp("answers"))
    folder = program.folder / "demo"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "demo"\nversion = "1.2"\n[tool.builddoctor]\ncores = 2\n')
    (folder / "build.ninja").write_text(BUILD_NINJA)
    (folder / "heavy.cpp").write_text("#include <map>\n#include <string>\nstd::map<std::string, int> table;\n")
    (folder / "light.cpp").write_text("int light() { return 1; }\n")
    (folder / "build.log").write_text("g++: fatal error: Killed signal terminated program cc1plus\n")
    (folder / "quiet.log").write_text("all is well\n")
    (folder / "broken.toml").write_text("no = 'recipe'\n")
    for trace in ("first.jsonl", ""):
        built = program.run("run", *(["--trace", trace] if trace else []), "--", "ninja", cwd=folder)
        assert built.returncode == 0, built.stderr
        for each in folder.glob("*.o"):
            each.unlink()
    made = program.run("recipe", "from-trace", "last", "-o", "demo.toml", cwd=folder)
    assert made.returncode == 0, made.stderr
    (folder / "build").mkdir()
    (folder / "build" / "CMakeCache.txt").touch()
    make_key(folder / "signing")
    toolkit_wheels(program.folder / "index")
    meeting = Meeting(program.folder / "meeting")
    with serving(program.folder / "index") as index, contextlib.closing(meeting):
        program.env.update(index.env(), HOME=str(program.folder / "home"))
        program.env.pop("CUDA_HOME", None)
        asked = {case: case.replace("ADDRESS", meeting.address).split() for case in CASES}
        return {case: program.run(*words, "--json", cwd=folder) for case, words in asked.items()}


def command_of(case: str) -> str:
    return next(name for name in sorted(ANSWERS, key=len, reverse=True) if f"{case} ".startswith(f"{name} "))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_answer_is_what_its_schema_says(answers: dict[str, Done], case: str) -> None:
    """By the schema in the reference."""
    assert answers[case].stdout, answers[case].stderr
    schema = json.loads((REFERENCE / schema_file(command_of(case))).read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(answers[case].stdout))


def test_every_command_with_json_has_a_schema_and_is_run() -> None:
    """A new one is added to scripts/json_answers.py and here."""
    with_json = {each.path.removeprefix("builddoctor ") for each in the_program().walk() if each.prints_json}
    assert with_json == set(ANSWERS) == {command_of(case) for case in CASES}
    assert [name for name in ANSWERS if not (REFERENCE / schema_file(name)).is_file()] == []
