"""Staged builds without builddoctor: a program that stands in front of ninja on PATH, and the stages it runs. Pure.

Covers: the files of one folder. With that folder first on PATH, whatever calls ninja (CMake, pip, torch's
BuildExtension) builds the plan's targets stage by stage, each with its own number of jobs. The program is POSIX sh with
awk, grep, sed, tr, dd; it needs no builddoctor, no Python, and no write access to the folder.
Does *not* cover: builds without ninja; working out the stages (``plans``).

What the program does is said at its top, and in docs/reference by those that use it. These variables change it:
``BUILDDOCTOR_REAL_NINJA`` (the ninja to call), ``BUILDDOCTOR_STAGES`` (a folder of other stages),
``BUILDDOCTOR_STAGES_KEEP_GOING`` (not empty: ``-k 0`` where nothing else is said), ``BUILDDOCTOR_STAGES_MARK``
(a file that is made when stages are run), ``BUILDDOCTOR_STAGES_UPTO`` (a stage's name: those after it are not run),
``BUILDDOCTOR_STAGES_REACHED`` (a file that is made when that one has ended well) and ``BUILDDOCTOR_STAGES_ANY_J`` (not
empty: the ``-j`` that the program is called with is no upper bound).

Text of a recipe goes into data files alone, one line each, and never into shell.
"""

from __future__ import annotations

import re
from importlib.resources import files

import msgspec

from builddoctor.core.plan import Plan, Stage

MOST_JOBS = 9999
STAGES_FILE = "stages"
MARK = b"builddoctor's stand-in for ninja"
_HEAD_BYTES = 128

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")

_NINJA_BUILD = """\
#!/bin/sh
# builddoctor's stand-in for ninja, under the name that CMake looks for first.
BUILDDOCTOR_STAGED_AS=ninja-build
export BUILDDOCTOR_STAGED_AS
case $0 in
*/*) exec "${0%/*}/ninja" "$@" ;;
*) exec ./ninja "$@" ;;
esac
"""


class StagingFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the folder."""

    name: str
    text: str
    executable: bool = False


def is_stand_in(path: str) -> bool:
    """This file is one of the programs, told by its first lines.

    A gate must not call it: it would look for a ninja on PATH, where the gate is.
    """
    try:
        with open(path, "rb") as file:
            return MARK in file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return False


def staging_programs() -> tuple[StagingFile, ...]:
    """The programs alone, the same for every plan: without the files of ``staging_data`` they are the real ninja."""
    text = files(__package__).joinpath("ninja.sh").read_text(encoding="utf-8")
    return (
        StagingFile(name="ninja", text=text, executable=True),
        StagingFile(name="ninja-build", text=_NINJA_BUILD, executable=True),
    )


def staging_data(plan: Plan) -> tuple[StagingFile, ...]:
    """The stages of a plan: ``stages``, with a line ``NUMBER<tab>JOBS<tab>THREADS<tab>NAME`` for each, and a file
    ``stage-NUMBER`` of its targets, one a line. The last line is for what no stage has: links, and new sources.

    A stage without targets is left out. A target that is no line of text goes with the rest.
    """
    staged = [(stage, lines) for stage in plan.stages if (lines := _lines(stage))]
    rows = [f"{number}\t{_figures(stage)}\t{_line(stage.name)}\n" for number, (stage, _) in enumerate(staged, start=1)]
    rests = [stage for stage in plan.stages if stage.weight == "rest"]
    # Where the plan says nothing of the rest, it is taken to be as large as the largest.
    jobs = min((_within(stage.jobs) for stage in rests or plan.stages), default=1)
    threads = min((_within(stage.threads) for stage in rests or plan.stages), default=1)
    head = f"# {_line(plan.recipe)} on {_line(plan.machine)}: number, jobs, nvcc's threads, name\n"
    table = "".join([head, *rows, f"rest\t{jobs}\t{threads}\trest\n"])
    return (
        StagingFile(name=STAGES_FILE, text=table),
        *(
            StagingFile(name=f"stage-{number}", text="".join(f"{line}\n" for line in lines))
            for number, (_, lines) in enumerate(staged, start=1)
        ),
    )


def staging_files(plan: Plan) -> tuple[StagingFile, ...]:
    """All files of a folder that, first on PATH, runs the build of this plan in stages. The same for the same plan."""
    return (*staging_programs(), *staging_data(plan))


def _lines(stage: Stage) -> list[str]:
    return [target for target in stage.targets if target and not _CONTROL.search(target) and target[0] not in "-#"]


def _figures(stage: Stage) -> str:
    return f"{_within(stage.jobs)}\t{_within(stage.threads)}"


def _within(number: int) -> int:
    return max(1, min(MOST_JOBS, number))


def _line(text: str) -> str:
    return _CONTROL.sub(" ", text).strip() or "-"
