"""One batch job of Slurm for a matrix of builds: an array, whose tasks are its cells. Pure.

Covers: what it asks for (the most that a cell needs), which cell a task is, a folder for each with its own copy of the
sources, its wheels and its traces; going on in another attempt where Slurm is about to end one.
Does *not* cover: the builds themselves (``staged_script``), or what their plans are (``plans.matrix``).

A cell builds in a folder that stays, so that a next attempt goes on where one was stopped, on whatever node. Slurm
requeues no job that has reached its time limit: so it is told to send SIGUSR1 before that, upon which the build is
ended and the job queues itself again. SIGTERM ends the build as well, and nothing more: that is ``scancel``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from builddoctor.core.errors import TO_BE_CONTINUED
from builddoctor.core.plan import AxisValue, Plan
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import counted, format_clock, format_mib
from builddoctor.ui.scripts.render_request import RenderWith, needs_of
from builddoctor.ui.scripts.safe_text import comments, heading, here_document, word
from builddoctor.ui.scripts.shell_files import about, job_name
from builddoctor.ui.scripts.staged_script import staged_body

LEAST_ATTEMPTS = 3
GRACE_S = 120
"""Before the time limit. Slurm may send a signal up to a minute early (sbatch(1))."""

GRACE_SHARE = 0.25
"""of a short limit at most"""

_START = """\
set -eu
unset CDPATH
@BEGAN@
say() { printf 'matrix: %s\\n' "$*" >&2; }

case ${SLURM_ARRAY_TASK_ID:-none} in
@CELLS@
  *) say "there is no cell ${SLURM_ARRAY_TASK_ID:-}: sbatch --array=0-@LAST@"; exit 2 ;;
esac
attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
most=${ATTEMPTS:-@ATTEMPTS@}
say "$cell, attempt $attempt of at most $most"

# The folder with the sources, and after -- another command than the usual one.
folder=.
if [ $# -gt 0 ] && [ "$1" != -- ]; then
  folder=$1
  shift
fi
top=${MATRIX:-matrix}
mkdir -p -- "$top"
top=$(cd -- "$top" && pwd -P)
folder=$(cd -- "$folder" && pwd -P)
case $folder/ in
  "$top"/*) say "the sources lie where their copies go, $top: set MATRIX to another folder"; exit 2 ;;
esac
at=$top/$cell
mkdir -p -- "$at"
"""

_COPY = """\
# Each cell has its own copy of the sources, without what git ignores at their top: builds of others. `copied` lists
# what is in it, and is there once the copy is whole: one that was interrupted is made anew. An attempt more takes it as
# it is. A new job removes what the sources no longer have and copies what has another size or date, with the date of
# today: put back with an older one, a build would take it for what it has compiled. What builds have made stays.
if [ "$attempt" -eq 1 ] || [ ! -e "$at/copied" ]; then
  (
    export LC_ALL=C
    again=1
    if [ -e "$at/copied" ] && [ -d "$at/source" ]; then
      mv -f -- "$at/copied" "$at/copied.before"
    else
      again=
      rm -rf -- "$at/source"
      : >"$at/copied.before"
    fi
    mkdir -p -- "$at/source"
    cd -- "$folder"
    for each in * .[!.]*; do
      if [ -e "$each" ] || [ -L "$each" ]; then
        # In a folder of another checkout everything may be ignored.
        [ ! -e .git ] || ! git check-ignore -q -- "$each" 2>/dev/null || continue
        # Without the copies themselves, however deep they lie.
        find "./$each" -samefile "$top" -prune -o -type d -printf 'd 0 0 0 %p\\n' -o -printf '%y %m %s %T@ %p\\n'
      fi
    done >"$at/copied.unsorted"
    sort -o "$at/copied.now" -- "$at/copied.unsorted"
    comm -13 -- "$at/copied.before" "$at/copied.now" >"$at/copied.new"
    # No more than names below the folder, whatever they hold.
    names() { sed -n "s|^$1 [0-7]* [0-9]* [0-9.-]* \\(\\./\\)|\\1|p"; }
    cd -- "$at/source"
    comm -23 -- "$at/copied.before" "$at/copied.now" | names . | sort -r | while IFS= read -r each; do
      # A folder stays where a build has put something into it, unless it is in the way.
      if [ -d "$each" ] && [ ! -L "$each" ] && [ ! -e "$folder/$each" ] && [ ! -L "$folder/$each" ]; then
        rmdir -- "$each" 2>/dev/null || :
      else
        rm -rf -- "$each"
      fi
    done
    names d <"$at/copied.new" | xargs -r -d '\\n' mkdir -p --
    cd -- "$folder"
    names '[^d]' <"$at/copied.new" | xargs -r -d '\\n' cp -a --parents --remove-destination -t "$at/source" --
    cd -- "$at/source"
    [ -z "$again" ] || names '[^d]' <"$at/copied.new" | xargs -r -d '\\n' touch -h -c --
    rm -f -- "$at/copied.before" "$at/copied.unsorted" "$at/copied.new"
    mv -- "$at/copied.now" "$at/copied"
  )
fi
"""

_PYTHON = """\
# The cell's Python: on PATH, or $PYTHONS/3.12/bin/python3.12, where PYTHONS names a folder of environments.
PYTHON=$(command -v "${PYTHONS:+$PYTHONS/$MATRIX_PYTHON/bin/}python$MATRIX_PYTHON") || {
  say "no python$MATRIX_PYTHON: PYTHONS=FOLDER names a folder of environments, one for each version"
  exit 127
}
mkdir -p -- "$at/bin"
cat >"$at/bin/python" <<'BUILDDOCTOR_END'
#!/bin/sh
exec "$PYTHON" "$@"
BUILDDOCTOR_END
chmod 755 -- "$at/bin/python"
PATH=$at/bin:${PYTHON%/*}:$PATH
export PYTHON PATH
"""

_OTHERS = """\
# Here: what a cell needs beside, such as `module load cuda/$MATRIX_CUDA`. Of its own it has these variables:
"""

_RUN = """\
WHEELS=$at/dist
export WHEELS
@UNTIL@
# SIGUSR1 is Slurm's before the time limit (--signal), SIGTERM is scancel's. The build is a session of its own, so that
# all of it is told.
ended=
child=
end() {
  ended=$1
  [ -z "$child" ] || kill -s TERM -- "-$child" 2>/dev/null || :
}
trap 'end time' USR1
trap 'end cancelled' TERM
setsid sh "$at/build.sh" "$at/source" "$@" &
child=$!
[ -z "$ended" ] || end "$ended"
status=0
while :; do
  status=0
  wait "$child" || status=$?
  kill -0 "$child" 2>/dev/null || break
done
[ "$ended" != cancelled ] || exit 143
if [ "$ended" != time ] && [ "$status" -ne @CONTINUED@ ]; then
  [ "$status" -eq 0 ] || say "$cell failed: exit code $status"
  exit "$status"
fi
if [ "$status" -eq 0 ]; then
  exit 0
fi
if [ "$attempt" -ge "$most" ]; then
  say "$cell is not done after $attempt attempts; the same line with --array=$SLURM_ARRAY_TASK_ID goes on from there"
  exit @CONTINUED@
fi
say "$cell goes on in another attempt"
# Not $SLURM_JOB_ID: of the last task that is the array's own number, and all others would be requeued with it.
scontrol requeue "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID" || exit @CONTINUED@
"""

_UNTIL = """\
# builddoctor begins nothing that cannot end before the signal comes.
limit=$((${SLURM_JOB_END_TIME:-$((began + @LIMIT@))} - began))
[ "$limit" -gt @KEPT@ ] || {
  say "the time limit is too short: its last @KEPT@ seconds are kept for ending the build"
  exit 2
}
UNTIL=$((began + limit - $(date +%s) - @KEPT@))
[ "$UNTIL" -gt 0 ] || UNTIL=1
TRACE=$at/trace-$SLURM_ARRAY_JOB_ID-$attempt.jsonl
case ${STORE:-} in "" | /* | *://*) ;; *) STORE=$(pwd -P)/$STORE ;; esac
export UNTIL TRACE STORE
"""

_STORE = (
    "STORE=FOLDER|tls://HOST keeps what each compiler wrote, for all builds: one that is stopped half-way through",
    "a source goes on from there. It needs builddoctor[store].",
)

_GATED_WORDS = '--until "${UNTIL}s" --trace "$TRACE" ${STORE:+--store "$STORE"}'


class ArrayCell(msgspec.Struct, frozen=True, kw_only=True):
    """One of its builds."""

    name: str
    values: tuple[AxisValue, ...]
    recipe: Recipe
    plan: Plan
    how: RenderWith


def render_slurm_array(cells: Sequence[ArrayCell], *, time_limit_s: float = 0.0) -> str:
    """The script for ``sbatch``. ``time_limit_s``: of each of its jobs; 0: as long as the longest cell may take.

    Raises MemoryBudgetError or RecipeError, as for one build.
    """
    needs = [needs_of(cell.recipe, cell.plan, cell.how) for cell in cells]
    asked = [
        each.peak_mib + each.beside_mib + math.ceil(cell.plan.reserve_mib)
        for each, cell in zip(needs, cells, strict=True)
    ]
    minutes = math.ceil((time_limit_s or max(each.time_s for each in needs)) / 60)
    grace_s = math.ceil(min(GRACE_S, GRACE_SHARE * 60 * minutes))
    attempts = max(LEAST_ATTEMPTS, 2 * max(cell.plan.attempts or 1 for cell in cells))
    one = cells[0]
    bodies = {_body(cell): None for cell in cells}
    numbers = {body: number for number, body in enumerate(bodies, 1)}
    lines = [
        "#!/bin/sh",
        f"#SBATCH --job-name=build-{job_name(one.plan.project)}",
        f"#SBATCH --array=0-{len(cells) - 1}",
        "#SBATCH --nodes=1",
        "#SBATCH --ntasks=1",
        f"#SBATCH --cpus-per-task={one.plan.cores}",
        f"#SBATCH --mem={max(asked)}M",
        f"#SBATCH --time={minutes}",
        f"#SBATCH --signal=B:USR1@{grace_s}",
        "#SBATCH --requeue",
        "#SBATCH --open-mode=append",
        "#",
        *comments([f"{counted(len(cells), 'build')} of {' '.join((one.plan.project, one.plan.version)).strip()}."]),
        "#",
        *_uses(len(cells) - 1),
        "#",
        *comments(
            [
                "Each builds in matrix/NAME, on a disk that all nodes see: its copy of the sources, its wheels in dist"
                + (", a trace of each attempt." if one.how.with_builddoctor else "."),
                "",
                *(
                    f"- {number}: {cell.name}: {format_mib(mib)}, about {format_clock(cell.plan.makespan_s)}"
                    for number, (cell, mib) in enumerate(zip(cells, asked, strict=True))
                ),
                "",
                "--mem is the most that one of them needs.",
                f"--time: {minutes} minutes; a build is stopped {grace_s} seconds before they end.",
                f"It goes on in another attempt, {attempts} at most (ATTEMPTS=N).",
                *(_STORE if one.how.with_builddoctor else ()),
            ]
        ),
        "",
    ]
    cases = "\n".join(f"  {number}) {_case(cell, numbers[_body(cell)])} ;;" for number, cell in enumerate(cells))
    began = "began=$(date +%s)\n" if one.how.with_builddoctor else ""
    start = _START.replace("@CELLS@", cases).replace("@LAST@", str(len(cells) - 1)).replace("@BEGAN@", began)
    parts = ["\n".join(lines) + start.replace("@ATTEMPTS@", str(attempts)), _COPY]
    axes = [each.axis for each in one.values]
    if "python" in axes:
        parts.append(_PYTHON)
    variables = [variable(axis) for axis in axes]
    others = [variable(axis) for axis in axes if axis not in ("arch", "python")]
    parts.append((_OTHERS if others else "") + f"export {' '.join(variables)}\n")
    parts.append(
        "case $script in\n" + "".join(f"{number})\n{_written(body)};;\n" for body, number in numbers.items()) + "esac\n"
    )
    until = _UNTIL.replace("@LIMIT@", str(60 * minutes)).replace("@KEPT@", str(2 * grace_s))
    run = _RUN.replace("@UNTIL@", until if one.how.with_builddoctor else "")
    parts.append(run.replace("@CONTINUED@", str(TO_BE_CONTINUED)))
    return "\n".join(parts)


def _uses(last: int) -> list[str]:
    """``last``: the highest number of a cell."""
    whole = "# sbatch build.slurm [FOLDER]"
    if not last:
        return [f"{whole}  from the folder with the sources, or with its path"]
    part = f"# sbatch --array={last} build.slurm [FOLDER]"
    return [
        f"{whole.ljust(len(part))}  all of them, from the folder with the sources, or with its path",
        f"{part}  that one alone; --array=0-{last}%1: one at a time",
    ]


def variable(axis: str) -> str:
    """What a job has its cell's value in: ``MATRIX_PYTHON``."""
    return f"MATRIX_{axis.upper().replace('-', '_')}"


def _case(cell: ArrayCell, script: int) -> str:
    values = " ".join(f"{variable(each.axis)}={word(each.value)}" for each in cell.values)
    return f"cell={word(cell.name)} script={script} {values}"


def _body(cell: ArrayCell) -> str:
    """The build of one cell: the same for all of the same architectures."""
    head = "\n".join(["#!/bin/sh", *comments([heading(cell.plan), "", *about(cell.recipe, cell.plan, cell.how)])])
    return f"{head}\n{staged_body(cell.recipe, cell.plan, cell.how, gated_words=_GATED_WORDS)}"


def _written(body: str) -> str:
    return here_document('cat >"$at/build.sh"', body)
