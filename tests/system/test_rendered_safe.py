"""Rendered files run by real shells, with recipes and plans whose texts try to be more than text."""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path

import dockerfile as buildkit
import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import Plan
from builddoctor.core.recipe import (
    Fingerprint,
    Hazard,
    Origin,
    PhaseFigures,
    Recipe,
    RecipeProject,
    RecipeUnit,
    Setting,
)
from builddoctor.ui.scripts.dockerfile import SCRIPT, render_dockerfile
from builddoctor.ui.scripts.github_actions import render_workflow
from builddoctor.ui.scripts.render_request import RenderWith, Variable
from builddoctor.ui.scripts.shell_files import render_conda, render_env, render_script, render_slurm
from builddoctor.ui.scripts.slurm_array import render_slurm_array
from support.examples import examples
from support.recipes import PLAN, array_cells, stage

pytestmark = pytest.mark.slow

CANARY = "/canary-of-a-recipe"
"""Stands in the texts for a file that any shell which takes them for more would make."""

PIECES = (
    *("$(touch CANARY)", "`touch CANARY`", "; touch CANARY ;", "&& touch CANARY", "| touch CANARY", "\\", "'", '"'),
    *(
        "EOF",
        "BUILDDOCTOR_END",
        "BUILDDOCTOR_SCRIPT",
        "#",
        "# escape=`",
        "${IFS}",
        "$'\\n'",
        "${{ github.token }}",
        "{build}",
    ),
    *(
        "shellcheck disable=",
        "hadolint ignore=",
        "SBATCH --wrap=x",
        "\ufeff",
        "é",
        "%s",
        "<<EOF",
        ")",
        "}",
        "  ",
        "a",
        "~",
    ),
)
LINES = st.lists(st.sampled_from(PIECES), max_size=6).map(" ".join)
TIGHT = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
TEXTS = st.one_of(LINES, TIGHT)
PLACES = st.text(alphabet="abz09_.+,@=~%: /", min_size=1, max_size=30).filter(
    lambda text: text[0] not in "-/" and ".." not in text.split("/")
) | st.sampled_from(("BUILDDOCTOR_END", "BUILDDOCTOR_SCRIPT", "EOF"))
VALUES = st.text(alphabet="ab1_.;,+:= -", max_size=12)
NAMES = st.sampled_from(("PATH", "IFS", "LD_PRELOAD", "BASH_ENV", "ENV", "PS4", "NVTE_X", "CUDAARCHS", "HOME"))
WORDS = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.+-]{0,12}\Z")
MIB = st.floats(1.0, 900.0)


@st.composite
def recipes(draw: st.DrawFn, canary: str) -> Recipe:
    """Any recipe by the model's types, its texts as hostile as these allow."""
    text = TEXTS.map(lambda each: each.replace("CANARY", canary))
    recipe = Recipe(
        schema=2,
        project=RecipeProject(name=draw(WORDS), version=draw(WORDS), title=draw(text)),
        fingerprint=Fingerprint(nvcc=draw(WORDS), host_compiler=draw(WORDS), host_arch=draw(WORDS)),
        origin=Origin(provenance=draw(st.sampled_from(("measured", "derived"))), how=draw(text), machine=draw(text)),
        environment=tuple(Setting(name=draw(NAMES), value=draw(VALUES), why=draw(text)) for _ in range(2)),
        hazards=(Hazard(kind="build", text=draw(text), source=draw(text)),),
        units=tuple(
            RecipeUnit(
                place=place,
                target=place,
                phases=(PhaseFigures(kind=PhaseKind.HOST, peak_mib=draw(MIB), cpu_s=1.0),),
            )
            for place in draw(st.lists(PLACES, min_size=1, max_size=4, unique=True))
        ),
    )
    # The model itself says that this is one.
    return msgspec.convert(msgspec.to_builtins(recipe), Recipe)


@st.composite
def plans(draw: st.DrawFn, recipe: Recipe, canary: str) -> Plan:
    """A plan of it; what a planner takes from elsewhere (names of files and machines) is hostile too."""
    text = st.one_of(TEXTS, TEXTS.map(lambda each: f"{each}\n{each}\r\x1b[0m")).map(
        lambda each: each.replace("CANARY", canary)
    )
    targets = [unit.target for unit in recipe.units]
    cut = draw(st.integers(0, len(targets)))
    # What is refused in a name of a stage (tests/unit/test_rendered.py) is not in one here.
    hostile = draw(TEXTS).replace("CANARY", canary).replace("\ufeff", "").replace("${{", "{")
    names = [f"light {hostile}".strip(), "heavy", "rest"]
    stages = (
        stage("light", targets[:cut], jobs=2, largest_mib=20.0),
        stage("heavy", targets[cut:], largest_mib=50.0),
        stage("rest", largest_mib=20.0),
    )
    return msgspec.structs.replace(
        PLAN,
        recipe=draw(text),
        project=recipe.project.name,
        version=recipe.project.version,
        machine=draw(text),
        differs=(draw(text),),
        notes=(draw(text),),
        hazards=recipe.hazards,
        stages=tuple(msgspec.structs.replace(each, name=name) for each, name in zip(stages, names, strict=True)),
    )


class Ground:
    """A folder with sources, stand-ins for the programs of a build, and no canary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.canary = folder / CANARY.lstrip("/")
        self.sources = folder / "sources of ours"
        self.tools = folder / "tools"
        self.calls = folder / "calls"
        self.numbers = itertools.count()
        self.tools.mkdir()
        (self.sources / "build").mkdir(parents=True)
        (self.sources / "build.ninja").touch()
        listed = 'case "$*" in *"-t targets"*) cat "$TARGETS" ;; esac'
        for name, script in (
            ("ninja", f'{listed}\nprintf "ninja %s\\n" "$*" >>"$CALLS"'),
            ("python", 'printf "python %s\\n" "$*" >>"$CALLS"\nexec ninja'),
            ("builddoctor", 'printf "builddoctor %s\\n" "$*" >>"$CALLS"'),
            ("python3.11", 'printf "python %s\\n" "$*" >>"$CALLS"\nexec ninja'),
            ("nvcc", "echo release 13.0, V13.0.88"),
        ):
            (self.tools / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.tools / name).chmod(0o755)

    def run(self, argv: list[str], recipe: Recipe, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a shell to its end, with nothing but the stand-ins and the system's own tools."""
        targets = self.folder / "targets"
        targets.write_text("".join(f"{unit.target}: cc\n" for unit in recipe.units))
        self.calls.write_text("")
        environment = {
            "PATH": f"{self.tools}:/usr/bin:/bin",
            "HOME": str(self.folder),
            "CALLS": str(self.calls),
            "TARGETS": str(targets),
            "MEMORY_MIB": "3000",
            **extra,
        }
        return subprocess.run(
            argv,
            cwd=self.sources,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def check(self, done: subprocess.CompletedProcess[str], program: str) -> None:
        """It ended well, it built by that program, and nothing else happened."""
        assert not self.canary.exists(), "a recipe's text was run"
        assert done.returncode == 0, done.stderr
        calls = self.calls.read_text().splitlines()
        assert calls
        assert calls[0].startswith(f"{program} ")

    def file(self, text: str) -> str:
        """A rendered file; a new one each time, as no shell reads one that changes."""
        path = self.folder / f"rendered-{next(self.numbers)}"
        path.write_text(text)
        return str(path)


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def _how(gated: bool) -> RenderWith:
    variables = (Variable(name="CUDAARCHS", value="90;100", forced=True),)
    return RenderWith(variables=variables, with_builddoctor=gated, recipe="demo" * gated)


def few(count: int) -> settings:
    """Each example is some dozens of processes: one that fails is shown as it is, and not made smaller."""
    return examples(
        count,
        nightly=10 * count,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        phases=[Phase.reuse, Phase.generate],
    )


def _array(recipe: Recipe, plan: Plan, how: RenderWith) -> str:
    return render_slurm_array(array_cells(recipe, plan, how))


@few(25)
@given(data=st.data(), gated=st.booleans(), kind=st.sampled_from(("sh", "slurm", "array", "conda")))
def test_no_text_of_a_recipe_is_run_by_a_script(ground: Ground, data: st.DataObject, gated: bool, kind: str) -> None:
    """Scripts for shells end well, call the build once, and run nothing that stands in a recipe or a plan."""
    recipe = data.draw(recipes(str(ground.canary)))
    plan = data.draw(plans(recipe, str(ground.canary)))
    render = {"sh": render_script, "slurm": render_slurm, "array": _array, "conda": render_conda}[kind]
    script = ground.file(render(recipe, plan, _how(gated)))
    task = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    task["MATRIX"] = str(ground.folder / f"matrix {next(ground.numbers)}")
    folders = {
        "sh": {},
        "slurm": {"SLURM_SUBMIT_DIR": str(ground.sources)},
        "array": task,
        "conda": {"SRC_DIR": str(ground.sources)},
    }
    done = ground.run(["bash" if kind == "conda" else "sh", script], recipe, **folders[kind])
    ground.check(done, "builddoctor" if gated else "python")


@few(25)
@given(data=st.data())
def test_no_text_of_a_recipe_is_run_by_a_stage_alone(ground: Ground, data: st.DataObject) -> None:
    """A stage whose name is hostile is one word for the script, and its name is taken as it is."""
    recipe = data.draw(recipes(str(ground.canary)))
    plan = data.draw(plans(recipe, str(ground.canary)))
    script = ground.file(render_script(recipe, plan, _how(False)))
    done = ground.run(["sh", script], recipe, BUILDDOCTOR_STAGES_UPTO=plan.stages[0].name)
    ground.check(done, "python")
    assert f"there is no stage {plan.stages[0].name}" not in done.stderr


@few(12)
@given(data=st.data(), gated=st.booleans())
def test_no_text_of_a_recipe_gets_out_of_a_dockerfile(ground: Ground, data: st.DataObject, gated: bool) -> None:
    """BuildKit's own parser sees the same instructions whatever the texts are, and the script inside is whole."""
    recipe = data.draw(recipes(str(ground.canary)))
    plan = data.draw(plans(recipe, str(ground.canary)))
    text = render_dockerfile(recipe, plan, _how(gated))
    commands = buildkit.parse_string(text)
    names = [each.cmd.upper() for each in commands]
    stages = 0 if gated else 2
    base = ["ARG", "FROM", "RUN", "RUN", "ENV", "RUN", "COPY", "WORKDIR", "COPY"]
    assert names == [*base, *["RUN"] * (stages + 1), "FROM", "COPY"]
    (inside,) = [each.heredocs[0].content for each in commands if each.heredocs]
    assert inside == render_script(recipe, plan, _how(gated))
    for run in [each.value[0] for each in commands if each.cmd.upper() == "RUN" and "build.sh" in each.value[0]]:
        # The line as it is, but for the script's place, which is in the image.
        line = run.replace(SCRIPT, ground.file(inside)).replace(" /src", " .")
        ground.check(ground.run(["sh", "-c", line], recipe), "builddoctor" if gated else "python")


@few(25)
@given(data=st.data(), gated=st.booleans())
def test_an_env_file_is_the_same_for_a_shell_and_for_docker(ground: Ground, data: st.DataObject, gated: bool) -> None:
    """What docker reads of it (each line that is no comment, at its first `=`) is what a shell has after it."""
    recipe = data.draw(recipes(str(ground.canary)))
    plan = data.draw(plans(recipe, str(ground.canary)))
    printable = TEXTS.map(lambda each: each.replace("CANARY", str(ground.canary)).replace("\ufeff", ""))
    values = data.draw(st.lists(printable, max_size=3))
    hostile = tuple(Variable(name=f"NVTE_{place}", value=value) for place, value in enumerate(values))
    how = msgspec.structs.replace(_how(gated), variables=hostile)
    text = render_env(recipe, plan, how)
    docker = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    done = ground.run(["sh", "-euc", 'set -a; . "$0"; set +a; env -0', ground.file(text)], recipe)
    assert not ground.canary.exists(), "a recipe's text was run"
    assert done.returncode == 0, done.stderr
    shell = dict(each.split("=", 1) for each in done.stdout.split("\0") if each)
    assert docker == {name: shell[name] for name in docker}
    assert set(shell) - set(docker) <= {*os.environ, "CALLS", "TARGETS", "MEMORY_MIB", "PWD", "OLDPWD", "_", "SHLVL"}


@few(25)
@given(data=st.data(), gated=st.booleans())
def test_no_text_of_a_recipe_gets_out_of_a_workflow(ground: Ground, data: st.DataObject, gated: bool) -> None:
    """YAML's reader finds the steps that are ours, with the script as it is, and nothing that GitHub would replace."""
    recipe = data.draw(recipes(str(ground.canary)))
    plan = data.draw(plans(recipe, str(ground.canary)))
    text = render_workflow(recipe, plan, _how(gated))
    assert "${{" not in text
    steps = yaml.safe_load(text)["jobs"]["wheels"]["steps"]
    assert [each.get("name") or each["uses"].partition("@")[0] for each in steps] == [
        "Tools",
        "actions/checkout",
        "What it takes to build the project",
        "Build",
        "actions/upload-artifact",
    ]
    assert steps[3]["run"].rstrip() == render_script(recipe, plan, _how(gated)).rstrip().replace("${{", "$ {{")
    done = ground.run(["bash", "-e", ground.file(steps[3]["run"])], recipe)
    ground.check(done, "builddoctor" if gated else "python")
