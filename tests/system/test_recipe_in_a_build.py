"""Recipes in real builds: a first build that knows what it takes, a build beyond its recipe, recipes that are none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from builddoctor.core.events import Kill, Note, PhaseAsked, PhaseEnded, Queue
from support.fake_toolkit import fake_toolkit
from support.memcg import MemoryCgroup, memory_cgroup
from support.program import Program

pytestmark = pytest.mark.slow

MIB = 1024**2
LIMIT_MIB = 700
HOG_MIB = 350
"""One fits, two do not; without figures cudafe++ is expected to take 50 MiB for a source as small as these."""

HOG = """
import glob, mmap, os, sys, time
open(f"begun.{os.getpid()}", "w").close()
while len(glob.glob("begun.*")) < 2 and not os.path.exists("go"):
    time.sleep(0.02)
wanted = int(open("size").read())
held = [mmap.mmap(-1, 10 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        for _ in range(wanted // 10)]
while not os.path.exists("go"):
    time.sleep(0.02)
open(sys.argv[-1], "w").close()
"""
"""A cudafe++ that takes its memory as soon as there are two, and holds it until there is a file ``go``."""

UNITS = ("a", "b")


@pytest.fixture
def toolkit(program: Program) -> Path:
    """A project called demo with two units, and the toolkit that compiles them."""
    (program.folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.2\n")
    rule = "rule cu\n  command = nvcc -c $in -o $out\n"
    (program.folder / "build.ninja").write_text(rule + "".join(f"build {n}.o: cu {n}.cu\n" for n in UNITS))
    for name in UNITS:
        (program.folder / f"{name}.cu").write_text(f"// {name}\n")
    (program.folder / "size").write_text(str(HOG_MIB))
    return fake_toolkit(program.folder / "cuda", HOG)


def measured(program: Program, toolkit: Path) -> Path:
    """A recipe of the project, of a build where one compiler runs at a time; the build itself is forgotten."""
    recipe = program.folder / "measured.toml"
    (program.folder / "go").touch()
    options = ["--cores", "1", "--toolkit", str(toolkit)]
    built = subprocess.run(
        program.supervised("ninja", options=options), cwd=program.folder, env=program.env, capture_output=True
    )
    assert built.returncode == 0, built.stderr
    made = program.run("recipe", "from-trace", str(program.trace_file), "-o", str(recipe))
    assert made.returncode == 0, made.stderr
    shutil.rmtree(program.folder / "state")
    left = [program.folder / name for name in ("go", "a.o", "b.o", ".ninja_log", ".ninja_deps")]
    for file in (*left, *program.folder.glob("begun.*")):
        file.unlink(missing_ok=True)
    program.trace_file.unlink()
    return recipe


def build(program: Program, group: MemoryCgroup, toolkit: Path, *options: str) -> subprocess.Popen[str]:
    """Two cores, and memory for one of the units."""
    options = ("--cores", "2", "--toolkit", str(toolkit), *options)
    return program.start(group.wrapped(program.supervised("ninja", "-j", "2", options=options)))


def bad_ends(program: Program) -> list[str]:
    return [each.outcome for each in program.records() if isinstance(each, PhaseEnded) and each.outcome != "ok"]


@pytest.mark.needs_memcg
def test_a_first_build_without_a_recipe_finds_out_what_fits(program: Program, toolkit: Path) -> None:
    """Both units are let in at once, and one of them has to be redone: what the test after this one is about."""
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        process = build(program, group, toolkit)
        program.await_record(PhaseEnded, process, outcome=lambda outcome: outcome != "ok")
        (program.folder / "go").touch()
        output, _ = process.communicate()
    assert process.returncode == 0, output
    assert program.summary()["requeued"] >= 1
    assert "recipe    " not in output


@pytest.mark.needs_memcg
def test_a_first_build_with_a_recipe_makes_no_wrong_guess(program: Program, toolkit: Path) -> None:
    """The second unit waits until the first has ended: no kill of the kernel's or of ours, nothing redone."""
    recipe = measured(program, toolkit)
    with memory_cgroup(LIMIT_MIB * MIB) as group:
        process = build(program, group, toolkit, "--recipe", str(recipe))
        program.await_record(PhaseAsked, process, phase_id=2)
        (program.folder / "go").touch()
        output, _ = process.communicate()
        assert group.kernel_kills == 0
    assert process.returncode == 0, output
    asked = [record for record in program.records() if isinstance(record, Queue)]
    assert {record.estimate.source for record in asked} <= {"recipe", "recipe, not quite the same"}
    assert all(record.estimate.reserve_mib > HOG_MIB for record in asked)
    assert (program.summary()["requeued"], program.summary()["kernel_oom_kills"]) == (0, 0)
    assert not bad_ends(program)
    assert not [record for record in program.records() if isinstance(record, Kill)]
    assert "recipe    measured (measured, 1 run)" in output


def test_build_takes_the_projects_recipe_by_itself_and_says_when_it_was_too_low(
    program: Program, toolkit: Path
) -> None:
    """It is in the user's folder; the compiler takes twice as much now. The command that renews it runs as printed."""
    kept = program.folder / "data" / "recipes" / "demo-1.2.toml"
    kept.parent.mkdir(parents=True)
    (program.folder / "size").write_text("100")
    measured(program, toolkit).rename(kept)
    (program.folder / "size").write_text("200")
    (program.folder / "go").touch()
    arguments = ("--toolkit", str(toolkit), "--cores", "1", "--trace", str(program.trace_file))
    done = program.run("build", ".", *arguments)
    assert done.returncode == 0, done.stderr
    assert "recipe    demo-1.2 (measured, 1 run)\n" in done.stderr
    (beyond,) = [line for line in done.stderr.splitlines() if "took more than the recipe" in line]
    assert beyond.startswith("  recipe  2 units took more than the recipe demo-1.2 says")
    notes = [record.text for record in program.records() if isinstance(record, Note)]
    assert "recipe    demo-1.2 (measured, 1 run)" in notes
    assert beyond.removeprefix("  recipe  ") in notes
    command = beyond.rpartition("builddoctor ")[2].split()
    assert command == ["recipe", "from-trace", str(program.trace_file), "-o", str(kept)]
    renewed = program.run(*command)
    assert renewed.returncode == 0, renewed.stderr
    shutil.rmtree(program.folder / "state")
    for name in UNITS:
        (program.folder / f"{name}.o").unlink()
    again = program.run("build", ".", *arguments)
    assert again.returncode == 0, again.stderr
    assert "took more than" not in again.stderr
    without = program.run("build", ".", *arguments, "--recipe", "none")
    assert without.returncode == 0, without.stderr
    assert "recipe    " not in without.stderr


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("missing.toml", None),
        ("no-such-recipe", None),
        ("broken.toml", "schema = 1\n[project\n"),
        ("wrong.toml", 'schema = 1\n[project]\nname = "demo"\n[environment]\nLD_PRELOAD = "x.so"\n'),
        ("binary.toml", "\x00\x01"),
    ],
)
@pytest.mark.parametrize("command", ["run", "build"])
def test_a_recipe_that_is_none_is_an_error_before_anything_starts(
    program: Program, name: str, text: str | None, command: str
) -> None:
    """Exit code 89, a line that names it, and nothing was run or written."""
    (program.folder / "Makefile").write_text("all:\n\ttouch started\n")
    if text is not None:
        (program.folder / name).write_text(text)
    words = {"run": ["--", "touch", "started"], "build": ["."]}[command]
    done = program.run(command, "--recipe", name, "--trace", str(program.trace_file), *words)
    assert done.returncode == 89, done.stderr
    assert name in done.stderr
    assert not (program.folder / "started").exists()
    assert not program.trace_file.exists()


def test_a_recipe_of_something_else_never_fails_a_build(program: Program, toolkit: Path) -> None:
    """Another project's, named on purpose: its mismatch is said, and the build goes as it would without."""
    recipe = measured(program, toolkit)
    text = recipe.read_text().replace('"demo"', '"other"').replace('"1.2"', '"7.0"')
    assert text != recipe.read_text()
    recipe.write_text(text)
    (program.folder / "go").touch()
    done = subprocess.run(
        program.supervised("ninja", options=["--toolkit", str(toolkit), "--recipe", str(recipe)]),
        cwd=program.folder,
        env=program.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "of other, this is demo" in done.stderr
    assert "other 7.0, this is 1.2" in done.stderr
