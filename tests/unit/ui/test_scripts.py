"""What is rendered from a recipe and a plan: complete, the same each time, and with the origin of its numbers."""

from __future__ import annotations

import re

import msgspec
import pytest

from builddoctor.core.errors import MemoryBudgetError, RecipeError
from builddoctor.core.recipe import Fingerprint
from builddoctor.ui.scripts.dockerfile import render_dockerfile
from builddoctor.ui.scripts.github_actions import render_workflow
from builddoctor.ui.scripts.render_request import RenderWith, Variable
from builddoctor.ui.scripts.shell_files import render_conda, render_env, render_script, render_slurm
from builddoctor.ui.scripts.slurm_array import render_slurm_array
from builddoctor.ui.staged import staging_files
from support.recipes import BY_ARCH, PLAN, RECIPE, TOO_BIG, array_cells

KINDS = {
    "sh": render_script,
    "dockerfile": render_dockerfile,
    "env": render_env,
    "slurm": render_slurm,
    "github-actions": render_workflow,
    "conda": render_conda,
}
IN_STAGES = [name for name in KINDS if name != "env"]
HOW = RenderWith(variables=(Variable(name="CUDAARCHS", value="90", forced=True),))
GATED = RenderWith(with_builddoctor=True, builddoctor="0.8.0", recipe="attention_kernels")


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_plan_gives_the_same_text(kind: str) -> None:
    """Two renderings are equal to the letter, and end in one newline."""
    text = KINDS[kind](RECIPE, PLAN, HOW)
    assert text == KINDS[kind](RECIPE, PLAN, HOW)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("kind", KINDS)
def test_comments_tell_where_the_numbers_come_from(kind: str) -> None:
    """Provenance, runs, machine, day, toolchain, difference and hazard are all there."""
    plan = msgspec.structs.replace(
        PLAN, differs=("the recipe is of gcc 12.2.0, this is 13.3.0",), page_allowance_mib=64
    )
    lines = KINDS[kind](RECIPE, plan, HOW).splitlines()
    said = " ".join(" ".join(line.strip().removeprefix("#") for line in lines).split())
    assert "recipe attention_kernels, measured in 3 runs with builddoctor 0.8.0" in said
    assert "a machine with 2 cores and 15 GiB, 2026-11-20" in said
    assert "nvcc 13.0.88, gcc 12.2.0, x86_64" in said
    assert "Differs from the recipe: the recipe is of gcc 12.2.0, this is 13.3.0." in said
    assert "64 MiB were added to every compiler phase" in said
    assert "Known: cudafe++ may take all memory there is (measured)" in said


@pytest.mark.parametrize("kind", KINDS)
def test_figures_of_several_kinds_are_counted(kind: str) -> None:
    """Where phases are not all measured, the comment says how many are which."""
    first, *others = RECIPE.units
    phase = msgspec.structs.replace(first.phases[0], provenance="derived")
    recipe = msgspec.structs.replace(RECIPE, units=(msgspec.structs.replace(first, phases=(phase,)), *others))
    assert "Of its phases: 1 derived, 4 measured." in KINDS[kind](recipe, PLAN, HOW)


@pytest.mark.parametrize("kind", IN_STAGES)
def test_the_staging_program_is_inside(kind: str) -> None:
    """Every line of every file that a staged build needs is in the text: nothing else has to be there."""
    lines = {line.strip() for line in KINDS[kind](RECIPE, PLAN, HOW).splitlines()}
    for file in staging_files(PLAN):
        assert {line.strip() for line in file.text.splitlines()} <= lines
    assert not any("builddoctor build" in line for line in lines)


@pytest.mark.parametrize("kind", KINDS)
def test_with_builddoctor_the_build_is_gated(kind: str) -> None:
    """builddoctor runs the build with the recipe and the plan's memory, and chooses jobs itself."""
    text = KINDS[kind](RECIPE, PLAN, GATED)
    assert "BUILDDOCTOR_STAGES" not in text
    assert not re.search(r"^MAX_JOBS=", text, re.MULTILINE)
    if kind != "env":
        assert 'builddoctor build "$folder" --recipe attention_kernels --memory 3072MiB --arch sm_90' in text
        assert "pip install builddoctor==0.8.0" in text


@pytest.mark.parametrize("version", ["0.1.dev334+g6e5003a62", "0.1.dev3", "0.8.0+g6e5003a62", "0.0", ""])
def test_a_version_that_no_index_has_is_not_asked_for(version: str) -> None:
    """A build of a checkout between two tags: the script says what to install, and ends."""
    text = render_script(RECIPE, PLAN, msgspec.structs.replace(GATED, builddoctor=version))
    assert "pip install builddoctor" not in text
    assert "no builddoctor on PATH, and the one that wrote this is of no release" in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", [HOW, GATED], ids=["staged", "gated"])
def test_a_unit_that_does_not_fit_is_refused_with_what_it_takes(kind: str, how: RenderWith) -> None:
    """No number of jobs helps: the unit is named, and the memory that would do."""
    with pytest.raises(MemoryBudgetError, match=r"2\.0 GiB .* src/attention_forward\.cu: 2\.1 GiB \(cicc\)") as refused:
        KINDS[kind](RECIPE, TOO_BIG, how)
    assert "--memory 3GiB" in refused.value.hint


def test_nothing_fixed_is_safe_where_not_even_one_job_fits() -> None:
    """An env file holds fixed numbers only: without a safe one it is refused."""
    with pytest.raises(MemoryBudgetError, match="no fixed number of jobs is safe"):
        render_env(RECIPE, msgspec.structs.replace(PLAN, static=None), HOW)


def test_the_script_wants_the_largest_stage_and_half_of_what_stays_free() -> None:
    """2 x 1250 MiB are the most that are held at once; half of the 307 MiB that stay free are taken by others."""
    text = render_script(RECIPE, PLAN, HOW)
    assert "The plan counts on 2654 MiB: 2500 for compilers, 154 kept free." in text
    assert 'if [ "$budget" -lt 2180 ]; then' in text


def test_a_unit_that_takes_of_what_stays_free_is_not_refused_for_it() -> None:
    """Planned to run alone with 2900 of 3072 MiB: the script keeps half of the rest free, and no more."""
    solo = msgspec.structs.replace(PLAN.stages[2], largest_mib=2900.0, peak_mib=2900.0)
    text = render_script(RECIPE, msgspec.structs.replace(PLAN, stages=(*PLAN.stages[:2], solo)), HOW)
    assert "The plan counts on 2986 MiB: 2900 for compilers, 86 kept free." in text


def test_a_dockerfile_has_a_layer_for_each_stage() -> None:
    """Each stage but the last is stopped after; the last one is the whole build."""
    runs = [line for line in render_dockerfile(RECIPE, PLAN, HOW).splitlines() if line.startswith("RUN ")]
    assert runs[-4:] == [
        "RUN BUILDDOCTOR_STAGES_UPTO=light sh /opt/builddoctor/build.sh /src",
        "RUN BUILDDOCTOR_STAGES_UPTO=medium sh /opt/builddoctor/build.sh /src",
        "RUN BUILDDOCTOR_STAGES_UPTO=solo sh /opt/builddoctor/build.sh /src",
        "RUN sh /opt/builddoctor/build.sh /src",
    ]
    gated = [line for line in render_dockerfile(RECIPE, PLAN, GATED).splitlines() if line.startswith("RUN sh ")]
    assert gated == runs[-1:]


def test_stages_by_architecture_keep_their_names_in_one_word() -> None:
    """`heavy sm_90` is one stage for the shell, too."""
    text = render_dockerfile(RECIPE, BY_ARCH, HOW)
    assert "RUN BUILDDOCTOR_STAGES_UPTO='heavy sm_90' sh /opt/builddoctor/build.sh /src\n" in text
    assert "  'light sm_90' | 'heavy sm_90' | 'light sm_100' | rest) ;;\n" in text


def test_the_image_is_that_of_the_recipes_nvcc() -> None:
    """CUDA's release of the fingerprint; one that is said goes first; what is no image's name is refused."""
    assert "ARG CUDA_IMAGE=nvidia/cuda:13.0.0-devel-ubuntu24.04\n" in render_dockerfile(RECIPE, PLAN, HOW)
    old = msgspec.structs.replace(RECIPE, fingerprint=Fingerprint(nvcc="12.4.131"))
    assert "ARG CUDA_IMAGE=nvidia/cuda:12.4.0-devel-ubuntu22.04\n" in render_dockerfile(old, PLAN, HOW)
    mine = msgspec.structs.replace(HOW, image="registry.example/cuda:1@sha256:0123")
    assert "ARG CUDA_IMAGE=registry.example/cuda:1@sha256:0123\n" in render_dockerfile(RECIPE, PLAN, mine)
    with pytest.raises(RecipeError, match="no name of an image"):
        render_dockerfile(RECIPE, PLAN, msgspec.structs.replace(HOW, image="cuda\nRUN x"))


def test_a_dockerfile_copies_the_context_or_clones_a_repository() -> None:
    """The context is the folder with the sources; an address is cloned at its tag, with submodules."""
    assert "\nCOPY . /src\n" in render_dockerfile(RECIPE, PLAN, HOW)
    cloned = msgspec.structs.replace(HOW, source="https://example.org/a.git", tag="v1.0")
    text = render_dockerfile(RECIPE, PLAN, cloned)
    assert "--branch v1.0 -- https://example.org/a.git /src\n" in text
    assert "COPY . " not in text


def test_a_recipe_of_ones_own_is_copied_into_the_image() -> None:
    """Only with builddoctor, which reads it; a name that COPY would read as more is refused."""
    own = msgspec.structs.replace(GATED, recipe="sub/mine.toml", recipe_is_file=True)
    text = render_dockerfile(RECIPE, PLAN, own)
    assert "\nCOPY mine.toml /opt/builddoctor/recipe.toml\n" in text
    assert "\nrecipe=/opt/builddoctor/recipe.toml\n" in text
    with pytest.raises(RecipeError, match="COPY would read"):
        render_dockerfile(RECIPE, PLAN, msgspec.structs.replace(own, recipe="a b.toml"))


def test_a_batch_job_asks_for_what_the_plan_needs() -> None:
    """The largest stage and all that stays free; the stages' time at the upper end of its range, and twenty minutes."""
    lines = render_slurm(RECIPE, PLAN, HOW).splitlines()
    assert "#SBATCH --cpus-per-task=2" in lines
    assert "#SBATCH --mem=2808M" in lines
    assert "#SBATCH --time=23" in lines  # 120 s times 100/80, and 1200 s
    gated = render_slurm(RECIPE, PLAN, GATED).splitlines()
    assert "#SBATCH --mem=3008M" in gated
    assert "#SBATCH --time=22" in gated


def test_an_array_asks_for_the_most_that_a_cell_needs() -> None:
    """Memory and time of the largest; the signal before the limit, a quarter of a short one; attempts for all."""
    few, many = (
        array_cells(RECIPE, PLAN, HOW),
        array_cells(RECIPE, msgspec.structs.replace(PLAN, reserve_mib=900.0), HOW),
    )
    longer = msgspec.structs.replace(many[0], plan=msgspec.structs.replace(PLAN, staged_s=6000.0, attempts=4))
    text = render_slurm_array([few[0], many[1], longer])
    lines = text.splitlines()
    assert "#SBATCH --array=0-2" in lines
    assert f"#SBATCH --mem={2500 + 900}M" in lines
    assert "#SBATCH --time=145" in lines  # 6000 s times 100/80, and 1200 s
    assert "#SBATCH --signal=B:USR1@120" in lines
    assert "most=${ATTEMPTS:-8}" in lines
    assert text.count('cat >"$at/build.sh"') == 3
    short = render_slurm_array(few, time_limit_s=60.0)
    assert "#SBATCH --signal=B:USR1@15" in short.splitlines()
    assert short.count('cat >"$at/build.sh"') == 1
    assert short == render_slurm_array(few, time_limit_s=60.0)


def test_an_arrays_head_names_cells_that_it_has() -> None:
    """What is pasted from it is taken by sbatch."""
    cells = array_cells(RECIPE, PLAN, HOW)
    assert "# sbatch --array=1 build.slurm [FOLDER]  that one alone; --array=0-1%1: " in render_slurm_array(cells[:2])
    assert "# sbatch --array=3 build.slurm [FOLDER]  that one alone; --array=0-3%1: " in render_slurm_array(cells)
    assert "sbatch --array" not in render_slurm_array(cells[:1]).partition("set -eu")[0]


def test_an_array_of_what_does_not_fit_is_refused() -> None:
    cells = array_cells(RECIPE, PLAN, HOW)
    with pytest.raises(MemoryBudgetError):
        render_slurm_array([*cells[:3], msgspec.structs.replace(cells[3], plan=TOO_BIG)])


def test_a_workflow_keeps_the_build_below_the_runners_memory() -> None:
    """The container's limit leaves a quarter of what stays free to the runner's agent."""
    text = render_workflow(RECIPE, PLAN, HOW)
    assert "options: --memory 2995m --memory-swap 2995m --cpus 2\n" in text
    assert "runs-on: ubuntu-24.04\n" in text
    arm = render_workflow(RECIPE, msgspec.structs.replace(PLAN, host_arch="aarch64"), HOW)
    assert "runs-on: ubuntu-24.04-arm\n" in arm


def test_a_workflow_asks_githubs_runners_for_no_more_than_they_have() -> None:
    """More cores or memory than theirs: it is for a runner of one's own, and the head says so."""
    for more in ({"cores": 144}, {"memory_mib": 65536.0}):
        text = render_workflow(RECIPE, msgspec.structs.replace(PLAN, **more), HOW)
        assert "runs-on: [self-hosted, Linux, X64]\n" in text
        assert "# GitHub's own runners have 4 cores and 16.0 GiB" in text


def test_a_workflow_that_takes_too_long_says_so() -> None:
    """GitHub ends a job after six hours: the time limit is no more, and the head says what is expected."""
    text = render_workflow(RECIPE, msgspec.structs.replace(PLAN, staged_s=36_000.0), HOW)
    assert "timeout-minutes: 360\n" in text
    assert "# It is expected to take up to 770 minutes, and GitHub ends it after 360." in text


def test_an_env_file_holds_nothing_that_one_of_its_readers_takes_for_more() -> None:
    """docker takes quotes as they are and a shell takes `;` for an end: such a value is a comment that says how."""
    how = RenderWith(
        variables=(
            Variable(name="CUDAARCHS", value="90;100", forced=True),
            Variable(name="TORCH_CUDA_ARCH_LIST", value="9.0+PTX", forced=True),
            Variable(name="NVTE_CMAKE_BUILD_DIR", value="{build}"),
        )
    )
    lines = render_env(RECIPE, PLAN, how).splitlines()
    settings = [line for line in lines if line and not line.startswith("#")]
    assert settings == ["TORCH_CUDA_ARCH_LIST=9.0+PTX", "MAX_JOBS=1", "CMAKE_BUILD_PARALLEL_LEVEL=1", "NVCC_THREADS=1"]
    assert any("docker run -e 'CUDAARCHS=90;100'" in line for line in lines)


def test_what_the_user_has_set_stands_but_for_what_was_planned() -> None:
    """Architectures, jobs and threads are the plan's; another variable of the project is only set where it is not."""
    how = RenderWith(variables=(*HOW.variables, Variable(name="NVTE_X", value="a b", why="it is needed")))
    lines = render_script(RECIPE, PLAN, how).splitlines()
    assert "CUDAARCHS=90" in lines
    assert "[ -n \"${NVTE_X+set}\" ] || NVTE_X='a b'" in lines
    assert "# NVTE_X: it is needed" in lines
    assert "MAX_JOBS=1" in lines


def test_folders_come_from_the_script_and_not_from_here() -> None:
    """Marks in a command and in values become the shell's own variables, in quotes."""
    how = RenderWith(command=("{python}", "-C=build-dir={build}/x", "{source}"), variables=HOW.variables)
    text = render_script(RECIPE, PLAN, how)
    assert 'set -- "$python" -C=build-dir="$build"/x "$folder"\n' in text
    assert 'mkdir -p -- "$build"\n' in text


def test_conda_installs_into_the_environment_that_it_packs() -> None:
    """pip install in place of a wheel, from conda-build's folder of sources."""
    text = render_conda(RECIPE, PLAN, HOW)
    assert 'set -- "$python" -m pip install --no-build-isolation --no-deps -vv "$folder"\n' in text
    assert "folder=${SRC_DIR:-.}\n" in text
