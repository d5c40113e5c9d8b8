"""Rendered scripts and Dockerfiles carried out: real shells, a real ninja, real memory limits."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import dockerfile as buildkit
import msgspec
import ninja
import pytest

from builddoctor.core.plan import Plan
from builddoctor.ui.scripts.dockerfile import render_dockerfile
from builddoctor.ui.scripts.render_request import RenderWith, Variable
from builddoctor.ui.scripts.shell_files import render_conda, render_script, render_slurm
from builddoctor.ui.scripts.slurm_array import render_slurm_array
from support.image_build import ImageBuild
from support.memcg import memory_cgroup
from support.program import clean_environment
from support.recipes import BY_ARCH, PLAN, RECIPE, array_cells

pytestmark = pytest.mark.slow

SCALE = 4
"""The recipe's memory, divided: 1185 MiB if all units are built at once, in a limit of 768."""

PEAKS_MIB = {unit.target: round(unit.phases[0].peak_mib / SCALE) for unit in RECIPE.units}
LIMIT_MIB = round(PLAN.memory_mib / SCALE)
HOW = RenderWith(
    variables=(
        Variable(name="CUDAARCHS", value="90;100", forced=True, why="those that were planned"),
        Variable(name="NVTE_CMAKE_BUILD_DIR", value="{build}"),
    )
)
GATED = RenderWith(with_builddoctor=True, builddoctor="0.8.0", recipe="attention_kernels")
SHELLS = ("dash", "bash --posix")


def small(plan: Plan) -> Plan:
    """The plan for units of a quarter of the size."""
    stages = tuple(
        msgspec.structs.replace(each, largest_mib=each.largest_mib / SCALE, peak_mib=each.peak_mib / SCALE)
        for each in plan.stages
    )
    return msgspec.structs.replace(
        plan,
        memory_mib=plan.memory_mib / SCALE,
        reserve_mib=plan.reserve_mib / SCALE,
        budget_mib=plan.budget_mib / SCALE,
        stages=stages,
    )


COMPILER = "dd if=/dev/zero of=/dev/null bs=${mib}M count=12 2>/dev/null"
TOGETHER = f"""
import sys, time
from pathlib import Path
held, lost = Path("held"), Path("lost")
size = bytearray(b"x") * (int(sys.argv[1]) << 20)
with held.open("a") as file:
    file.write("x")
while held.stat().st_size < {len(PEAKS_MIB)} and not lost.exists():
    time.sleep(0.02)
"""
"""A compiler that holds its memory until all hold theirs, or one was lost: however slow the machine, they overlap. It
looks again and again, since there is nothing to wait for that the kernel's kill of another would always end."""


def project(folder: Path, *, factor: float = 1.0, compiler: str = COMPILER) -> Path:
    """Sources with a configured build, whose compilers hold what the recipe says and write a line when they begin."""
    build = folder / "build" / "cmake"
    build.mkdir(parents=True)
    edges = "".join(
        f"build {target}: compile\n  mib = {max(1, round(mib * factor))}\n" for target, mib in PEAKS_MIB.items()
    )
    (build / "build.ninja").write_text(
        "rule compile\n"
        f"  command = echo $out >>begun && {compiler} && : >$out\n"
        f"rule link\n  command = cat $in >$out\n{edges}build lib.so: link {' '.join(PEAKS_MIB)}\ndefault lib.so\n"
    )
    return folder


def environment() -> dict[str, str]:
    env = clean_environment()
    env["PATH"] = f"{ninja.BIN_DIR}:{env['PATH']}"
    return {name: value for name, value in env.items() if not name.startswith("SLURM")}


def run(script: Path, *words: str, shell: str = "sh", **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell.split(), str(script), *words],
        env={**environment(), **extra},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The script of the small plan."""
    path = tmp_path / "build.sh"
    path.write_text(render_script(RECIPE, small(PLAN), HOW))
    return path


BUILD = ("--", "ninja", "-C", "build/cmake")


@pytest.mark.parametrize("plan", [PLAN, BY_ARCH], ids=["by memory", "by architecture"])
@pytest.mark.parametrize("how", [HOW, GATED], ids=["staged", "gated"])
def test_scripts_are_clean(tmp_path: Path, plan: Plan, how: RenderWith) -> None:
    """shellcheck has nothing to say, not even for style."""
    files = []
    for name, render in (("build.sh", render_script), ("build.slurm", render_slurm), ("conda.sh", render_conda)):
        files.append(str(tmp_path / name))
        (tmp_path / name).write_text(render(RECIPE, plan, how))
    files.append(str(tmp_path / "array.slurm"))
    (tmp_path / "array.slurm").write_text(render_slurm_array(array_cells(RECIPE, plan, how)))
    done = subprocess.run(["shellcheck", *files], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("plan", [PLAN, BY_ARCH], ids=["by memory", "by architecture"])
@pytest.mark.parametrize(
    "how",
    [
        HOW,
        GATED,
        msgspec.structs.replace(HOW, source="https://example.org/a.git", tag="v1.0"),
        msgspec.structs.replace(GATED, recipe="mine.toml", recipe_is_file=True),
    ],
    ids=["staged", "gated", "cloned", "own recipe"],
)
def test_dockerfiles_are_clean(tmp_path: Path, plan: Plan, how: RenderWith) -> None:
    """hadolint has nothing to say; what is switched off is so in the file, with its reason."""
    file = tmp_path / "Dockerfile"
    file.write_text(render_dockerfile(RECIPE, plan, how))
    done = subprocess.run(["hadolint", "--no-color", str(file)], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_builds_in_stages_and_goes_on(tmp_path: Path, script: Path, shell: str) -> None:
    """Stages in their order in any shell; a second run has nothing to do, and a removed object is made again."""
    sources = project(tmp_path / "my sources", factor=0.01)
    done = run(script, str(sources), *BUILD, shell=shell)
    assert done.returncode == 0, done.stderr
    begun = (sources / "build/cmake/begun").read_text().splitlines()
    peaks = [PEAKS_MIB[each] for each in begun]
    assert [sorted(peaks[:2]), sorted(peaks[2:4]), peaks[4:]] == [[48, 48], [232, 312], [545]]
    again = run(script, str(sources), *BUILD, shell=shell)
    assert "no work to do" in again.stdout
    (sources / "build/cmake/CMakeFiles/attention_kernels.dir/src/rope.cu.o").unlink()
    run(script, str(sources), *BUILD, shell=shell)
    assert (sources / "build/cmake/begun").read_text().splitlines()[5:] == [
        "CMakeFiles/attention_kernels.dir/src/rope.cu.o"
    ]


@pytest.mark.needs_memcg
def test_all_at_once_does_not_fit_and_the_stages_do(tmp_path: Path, script: Path) -> None:
    """In the limit that was planned for, plain Ninja loses compilers to the kernel, and the script none."""
    with memory_cgroup(LIMIT_MIB << 20) as group:
        (tmp_path / "together.py").write_text(TOGETHER)
        together = f"{{ {sys.executable} -I -S {tmp_path}/together.py $mib || {{ : >lost; exit 1; }}; }}"
        plain = project(tmp_path / "plain", compiler=together)
        done = group.run(["ninja", "-j5", "-C", "build/cmake"], cwd=plain, env=environment())
        assert done.returncode != 0
        assert group.kernel_kills > 0
    with memory_cgroup(LIMIT_MIB << 20) as group:
        sources = project(tmp_path / "staged")
        done = group.run(["sh", str(script), str(sources), *BUILD], env=environment())
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    assert "fewer jobs at once" not in done.stderr
    assert (sources / "build/cmake/lib.so").exists()


@pytest.mark.needs_memcg
def test_with_less_memory_than_planned_it_takes_fewer_jobs(tmp_path: Path, script: Path) -> None:
    """600 MiB where 664 were counted on: it says so, builds one at a time, and nothing is killed."""
    with memory_cgroup(600 << 20) as group:
        sources = project(tmp_path / "sources")
        done = group.run(["sh", str(script), str(sources), *BUILD], env=environment())
        assert done.returncode == 0, done.stderr
        assert group.kernel_kills == 0
    assert "where the plan counts on 664: fewer jobs at once" in done.stderr
    assert str(group.limit_file) in done.stderr
    assert "stage medium (2 of 5 units, -j 1)" in done.stderr


@pytest.mark.needs_memcg
def test_where_the_largest_unit_does_not_fit_nothing_is_started(tmp_path: Path, script: Path) -> None:
    """The number that it takes is said, and the exit code is builddoctor's own for it."""
    sources = project(tmp_path / "sources")
    with memory_cgroup(400 << 20) as group:
        done = group.run(["sh", str(script), str(sources), *BUILD], env=environment())
    assert done.returncode == 77
    assert "one unit alone takes 545 MiB: it needs 584 MiB" in done.stderr
    assert not (sources / "build/cmake/begun").exists()


@pytest.mark.needs_memcg
def test_a_person_knows_better_how_much_is_free(tmp_path: Path, script: Path) -> None:
    """MEMORY_MIB replaces what would be found."""
    sources = project(tmp_path / "sources", factor=0.01)
    with memory_cgroup(400 << 20) as group:
        done = group.run(["sh", str(script), str(sources), *BUILD], env={**environment(), "MEMORY_MIB": "3000"})
    assert done.returncode == 0, done.stderr
    assert "fewer jobs" not in done.stderr


def test_slurms_own_limit_counts(tmp_path: Path) -> None:
    """Without a cgroup the batch system's variable is the limit; the sources are where it says."""
    sources = project(tmp_path / "sources", factor=0.01)
    script = tmp_path / "build.slurm"
    script.write_text(render_slurm(RECIPE, small(PLAN), HOW))
    done = run(script, *BUILD, SLURM_MEM_PER_NODE="620", SLURM_SUBMIT_DIR=str(sources))
    assert done.returncode == 0, done.stderr
    assert "620 MiB are free (SLURM_MEM_PER_NODE)" in done.stderr


def test_one_stage_alone_ends_well_though_nothing_can_be_linked_yet(tmp_path: Path, script: Path) -> None:
    """What follows in the project's own build fails, and the stage counts; a compiler that fails does not."""
    sources = project(tmp_path / "sources", factor=0.01)
    words = ("--", "sh", "-ec", "ninja -C build/cmake; cp build/cmake/lib.so out")
    done = run(script, str(sources), *words, BUILDDOCTOR_STAGES_UPTO="medium")
    assert done.returncode == 0, done.stderr
    assert "stage medium is done" in done.stderr
    assert len((sources / "build/cmake/begun").read_text().splitlines()) == 4
    manifest = sources / "build/cmake/build.ninja"
    manifest.write_text(manifest.read_text().replace("of=/dev/null", "of=/dev/full"))
    failed = run(script, str(sources), *words, BUILDDOCTOR_STAGES_UPTO="solo")
    assert failed.returncode != 0
    assert "is done" not in failed.stderr


def test_a_stage_that_there_is_not_is_refused(tmp_path: Path, script: Path) -> None:
    """Before anything is built."""
    sources = project(tmp_path / "sources", factor=0.01)
    done = run(script, str(sources), *BUILD, BUILDDOCTOR_STAGES_UPTO="heavy")
    assert done.returncode == 2
    assert "there is no stage heavy" in done.stderr
    assert not (sources / "build/cmake/begun").exists()


def test_a_build_folder_of_another_ninja_is_said(tmp_path: Path, script: Path) -> None:
    """CMake keeps the ninja that it found first: a folder configured before would be built without stages."""
    sources = project(tmp_path / "sources", factor=0.01)
    cache = sources / "build/cmake/CMakeCache.txt"
    cache.write_text("CMAKE_MAKE_PROGRAM:FILEPATH=/usr/bin/ninja\n")
    assert "another ninja" in run(script, str(sources), *BUILD).stderr
    cache.write_text(f"CMAKE_MAKE_PROGRAM:FILEPATH={sources}/build/builddoctor-stages/ninja\n")
    assert "another ninja" not in run(script, str(sources), *BUILD).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere",), "nowhere"),
        ((".", "--help"), "after the folder come -- and a command, not: --help"),
    ],
)
def test_wrong_arguments_are_said(script: Path, words: tuple[str, ...], said: str) -> None:
    """With exit code 2, as shells have it."""
    done = run(script, *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_missing_ninja_is_said(tmp_path: Path, script: Path) -> None:
    """With the line that brings one."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("printf", "sed", "cat", "mkdir", "rm", "mv", "chmod", "grep"):
        (tools / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
    done = subprocess.run(
        [shutil.which("sh") or "/bin/sh", str(script), str(tmp_path)],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 127
    assert "no ninja on PATH: python -m pip install ninja" in done.stderr


@pytest.mark.needs_unshare
@pytest.mark.needs_memcg
def test_the_layers_of_a_dockerfile_are_built_one_by_one(tmp_path: Path) -> None:
    """Each RUN leaves what its stage makes, all of them fit into the limit, and the wheel is there at the end."""
    context = project(tmp_path / "context")
    image = ImageBuild(tmp_path / "image", render_dockerfile(RECIPE, small(PLAN), HOW), context)
    with memory_cgroup(LIMIT_MIB << 20) as group:
        done = image.run(group=group)
        assert [each.returncode for each in done] == [0] * 7, done[-1].stderr
        assert group.kernel_kills == 0
    said = [[line for line in each.stderr.splitlines() if " is done" in line] for each in done[3:]]
    assert said == [[f"staged build: stage {name} is done"] for name in ("light", "medium", "solo")] + [[]]
    assert (image.root / "wheels/demo.whl").exists()
    assert image.calls("pip") == ["install setuptools wheel packaging ninja cmake"]


@pytest.mark.needs_unshare
def test_a_layer_that_fails_leaves_those_before(tmp_path: Path) -> None:
    """The third stage's compiler fails: two layers are done, and the build ends there with its code."""
    context = project(tmp_path / "context", factor=0.01)
    manifest = context / "build/cmake/build.ninja"
    solo = f"mib = {round(PEAKS_MIB[PLAN.stages[2].targets[0]] * 0.01)}"
    manifest.write_text(manifest.read_text().replace(solo, "mib = none"))
    image = ImageBuild(tmp_path / "image", render_dockerfile(RECIPE, small(PLAN), HOW), context)
    done = image.run()
    assert [each.returncode for each in done[:-1]] == [0] * 5
    assert done[-1].returncode != 0
    assert len((image.root / "src/build/cmake/begun").read_text().splitlines()) == 5
    assert not (image.root / "wheels/demo.whl").exists()


def test_buildkit_sees_the_script_as_it_is() -> None:
    """Nothing in the here-document is expanded or left out: what lies in the image is what `--to sh` gives."""
    commands = buildkit.parse_string(render_dockerfile(RECIPE, PLAN, HOW))
    (inside,) = [each.heredocs[0].content for each in commands if each.heredocs]
    assert inside == render_script(RECIPE, PLAN, HOW)
