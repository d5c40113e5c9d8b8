"""``--strategy staged``: a plan for this machine, its stages written where ninja finds them, and builds that have none.

Covers: the recipe, the plan, the files below the cache folder; refusing builds that do not use ninja, or that CMake has
configured with another one. Does *not* cover: the program that runs stages (``ui.staged``), or the build.

The program always lies at the same place, since CMake keeps its path; without ``BUILDDOCTOR_STAGES`` it is plain ninja.
The stages lie in folders named by their digest, so that builds side by side keep theirs.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from builddoctor.core.errors import FolderNotWritableError, RecipeError, UsageError
from builddoctor.core.plan import Plan
from builddoctor.core.project import BuildFolder
from builddoctor.core.request import RunRequest
from builddoctor.core.units import shell_word
from builddoctor.gates import environment
from builddoctor.gates.fronts import MAKE_NAMES
from builddoctor.gates.overlay import replace_text
from builddoctor.plans.inputs import PlanHost, host_of_machine, limited
from builddoctor.plans.planner import make_plan
from builddoctor.projects.configured_folders import build_folders
from builddoctor.projects.metadata import pyproject_of
from builddoctor.runtime.folders import cache_folder, stages_folder
from builddoctor.runtime.recipe_use import choose_recipe
from builddoctor.runtime.units import Toolchain
from builddoctor.system.machine_probe import probe_machine
from builddoctor.system.root import SystemRoot
from builddoctor.ui.staged import StagingFile, staging_data, staging_programs

MAKE_PROGRAM = "-DCMAKE_MAKE_PROGRAM="
GATED = "leave `--strategy staged` out: a gated build needs no ninja"


def staged_request(
    request: RunRequest, env: Mapping[str, str], *, say: Callable[[Sequence[str]], None], build_folder: str = ""
) -> RunRequest:
    """The request with its stages, which are written and said. ``build_folder``: where CMake builds, if that is known.

    Raises RecipeError without a recipe, UsageError for a build without ninja, FolderNotWritableError.
    """
    folder = stages_folder(cache_folder(env))
    program = folder / "bin" / "ninja"
    request = _with_make_program(request, env, program)
    require_ninja(request, {**env, **dict(request.extra_env)}, program=program, build_folder=build_folder)
    if environment.is_supervised(env):
        # It becomes the command, which has gates already.
        return request
    plan = _plan(request, env, _host(request, env, SystemRoot()))
    say(staged_lines(plan))
    return msgspec.structs.replace(request, stages=str(write_stages(folder, plan)))


def _with_make_program(request: RunRequest, env: Mapping[str, str], program: Path) -> RunRequest:
    """scikit-build-core takes the ninja of Python's package before PATH's, unless it is told which."""
    backend = pyproject_of(Path(request.cwd)).backend
    if backend.partition(".")[0] != "scikit_build_core":
        return request
    settings = dict(request.extra_env)
    own = settings.get("CMAKE_ARGS", env.get("CMAKE_ARGS", ""))
    settings["CMAKE_ARGS"] = f"{own} {MAKE_PROGRAM}{shlex.quote(str(program))}".strip()
    return msgspec.structs.replace(request, extra_env=tuple(settings.items()))


def require_ninja(request: RunRequest, env: Mapping[str, str], *, program: Path, build_folder: str) -> None:
    """Refuse what is known to be built without ninja, or without asking PATH for it."""
    name = os.path.basename(request.command[0])
    if name in MAKE_NAMES:
        raise UsageError(f"--strategy staged needs a build with ninja; this one calls {name}", hint=GATED)
    if request.nvcc_by_path:
        raise UsageError(
            "--strategy staged needs a build with ninja; this setup.py compiles without it, one file after the other",
            hint=GATED,
        )
    if name == "cmake" and "--build" in request.command[:-1]:
        build_folder = os.path.join(request.cwd, request.command[request.command.index("--build") + 1])
    known = _configured(build_folder)
    generator = known.generator if known is not None else env.get("CMAKE_GENERATOR", "")
    if generator and not generator.startswith("Ninja"):
        raise UsageError(
            f"--strategy staged needs a build with ninja; CMake's generator here is {generator}",
            hint=f"{GATED}; or configure another folder with `cmake -G Ninja`",
        )
    told = MAKE_PROGRAM in env.get("CMAKE_ARGS", "")
    if known is not None and not told and os.path.isabs(known.make_program) and known.make_program != str(program):
        raise UsageError(
            f"{known.path} is configured with a ninja of its own, {known.make_program}, which knows no stages",
            hint=f"cmake {MAKE_PROGRAM}{shell_word(str(program))} {shell_word(known.path)}",
        )


def _configured(build_folder: str) -> BuildFolder | None:
    """What CMake has written there before."""
    if not build_folder:
        return None
    found = build_folders(Path(build_folder), {})
    return next((each for each in found if each.configured and each.path == str(Path(build_folder))), None)


def _plan(request: RunRequest, env: Mapping[str, str], host: PlanHost) -> Plan:
    near = msgspec.structs.replace(request, nearest_recipe=True)
    chosen = choose_recipe(near, None, Toolchain(host_arch=host.host_arch), env)
    if chosen is None:
        raise RecipeError(
            "--strategy staged needs a recipe: what each unit takes decides its stage"
            + (", and --recipe none says to go by none" if request.recipe else ""),
            hint="one gated build makes it: `builddoctor build . --trace build.jsonl`, then "
            "`builddoctor recipe from-trace build.jsonl -o build.toml`, then `--strategy staged --recipe build.toml`",
        )
    plan = make_plan(
        chosen.recipe,
        name=chosen.name,
        host=host,
        archs=request.archs,
        differs=chosen.distance.words,
        distance=chosen.distance.value,
    )
    if not any(stage.targets for stage in plan.stages):
        raise RecipeError(
            f"the recipe {chosen.name} does not say what ninja calls its units, so there are no stages",
            hint=f"make it again from the trace of a build with ninja; or {GATED}",
        )
    return plan


def _host(request: RunRequest, env: Mapping[str, str], root: SystemRoot) -> PlanHost:
    machine = probe_machine(root, env, memory_mib=request.memory_mib)
    return limited(host_of_machine(machine), cores=request.cores or 0)


def write_stages(folder: Path, plan: Plan) -> Path:
    """The programs in ``folder``/bin, and the plan's stages in a folder of their own, which is given back."""
    files = staging_data(plan)
    digest = hashlib.sha256(msgspec.json.encode(files)).hexdigest()[:12]
    place = folder / "plans" / digest
    try:
        _write(folder / "bin", staging_programs())
        # The table comes last: without it the lists are not read.
        _write(place, [*files[1:], files[0]])
    except OSError as error:
        raise FolderNotWritableError(
            f"cannot write the stages to {folder}: {error.strerror}",
            hint="name another cache folder: `export BUILDDOCTOR_CACHE_DIR=/some/folder`",
        ) from error
    return place


def _write(folder: Path, files: Sequence[StagingFile]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        path = folder / file.name
        if not path.exists() or path.read_text(encoding="utf-8", errors="replace") != file.text:
            replace_text(path, file.text, mode=0o755 if file.executable else 0o644)


def staged_lines(plan: Plan) -> list[str]:
    """What to say before the build begins."""
    of = [
        f"{stage.name} -j {stage.jobs} ({stage.units} unit{'s' * (stage.units != 1)})"
        for stage in plan.stages
        if stage.targets
    ]
    lines = [f"stages    {', '.join([*of, 'then the rest'])}"]
    lines += [f"stages    does not fit alone: {each}" for each in plan.too_big]
    return lines
