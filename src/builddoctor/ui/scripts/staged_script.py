"""The script that runs a build in a plan's stages: plain POSIX sh, for everything that is rendered. Pure.

It finds out how much memory is free where it runs, takes fewer jobs where that is less than planned, and refuses where
the largest unit would not fit. The staging program of ``ui.staged`` stands in front of ninja.
Nothing of a recipe is ever read as shell: numbers are numbers, texts are comments, quoted words or here-documents.
"""

from __future__ import annotations

import math

from builddoctor.core.errors import MemoryBudgetError
from builddoctor.core.plan import Plan
from builddoctor.core.recipe import Recipe
from builddoctor.ui.scripts.render_request import SPARE_PERCENT, Needs, RenderWith, needs_of
from builddoctor.ui.scripts.safe_text import comment, file_name, filled, here_document, variable_name, word, words
from builddoctor.ui.staged import STAGES_FILE, staging_files

NO_ROOM = MemoryBudgetError.exit_code
NO_NINJA = 127

BUILD_FOLDER = "build/cmake"
"""As in a gated build (``projects.build_plan``): below ``build``, which projects tell git to ignore."""

MARKS = {"python": "python", "source": "folder", "wheels": "wheels", "build": "build"}
"""What may stand in a command or a value, and the script's variable for it."""

_START = """\
set -eu
unset CDPATH

say() { printf 'staged build: %s\\n' "$*" >&2; }

# The arguments: the folder with the sources, and after -- another command than the usual one.
folder=@FOLDER@
if [ $# -gt 0 ] && [ "$1" != -- ]; then
  folder=$1
  shift
fi
if [ $# -gt 0 ]; then
  [ "$1" = -- ] || { say "after the folder come -- and a command, not: $1"; exit 2; }
  shift
fi
cd -- "$folder"
"""

_FOLDERS = {
    "folder": "folder=$(pwd -P)",
    "stages": "stages=$folder/build/builddoctor-stages",
    "build": f"build=$folder/{BUILD_FOLDER}",
    "wheels": "wheels=${WHEELS:-$folder/dist}",
    "python": "python=${PYTHON:-$(command -v python || command -v python3 || :)}",
}

_ROOM = """\
# Room in MiB: the least of what the machine, the memory cgroups above this process and the batch system leave.
# Page cache that can be dropped counts as room. MEMORY_MIB=N says it instead.
room=
limited_by=
lower() {
  if [ -z "$room" ] || [ "$1" -lt "$room" ]; then
    room=$1
    limited_by=$2
  fi
}
number_in() {
  number=
  [ ! -r "$1" ] || read -r number <"$1" || :
  case $number in
    '' | *[!0-9]*) ;;                          # "max": no limit
    ????????????????*) ;;                      # from 10^15 on: no limit either
    *) printf '%s\\n' "$number" ;;
  esac
}
value_of() {
  [ -r "$2" ] || return 0
  while read -r key value _; do
    if [ "$key" = "$1" ]; then
      printf '%s\\n' "$value"
      return 0
    fi
  done <"$2"
}
levels() {
  place=${2%/}
  [ -d "$1$place" ] || place=
  while :; do
    limit=$(number_in "$1$place/$3")
    if [ -n "$limit" ]; then
      used=$(number_in "$1$place/$4")
      idle=$(value_of "$5inactive_file" "$1$place/memory.stat")
      active=$(value_of "$5active_file" "$1$place/memory.stat")
      lower $(((limit - ${used:-0} + ${idle:-0} + ${active:-0}) / 1048576)) "$1$place/$3"
    fi
    [ -n "$place" ] || break
    place=${place%/*}
  done
}
look_for_room() {
  if [ -n "${MEMORY_MIB:-}" ]; then
    lower "$MEMORY_MIB" MEMORY_MIB
    return 0
  fi
  available=$(value_of MemAvailable: /proc/meminfo)
  [ -z "$available" ] || lower $((available / 1024)) "the machine"
  if [ -r /proc/self/cgroup ]; then
    while IFS=: read -r _ controllers group; do
      case ,$controllers, in
        ,,)
          levels /sys/fs/cgroup "$group" memory.max memory.current ""
          levels /sys/fs/cgroup "$group" memory.high memory.current ""
          ;;
        *,memory,*)
          levels /sys/fs/cgroup/memory "$group" memory.limit_in_bytes memory.usage_in_bytes total_
          ;;
      esac
    done </proc/self/cgroup
  fi
  case ${SLURM_MEM_PER_NODE:-0} in
    *[!0-9]* | 0) ;;
    *) lower "$SLURM_MEM_PER_NODE" SLURM_MEM_PER_NODE ;;
  esac
}
case ${MEMORY_MIB:-0} in *[!0-9]*) say "MEMORY_MIB takes a number of MiB, not $MEMORY_MIB"; exit 2 ;; esac
look_for_room
"""

_FIT = """\
# The plan counts on @WANTED@ MiB: @PEAK@ for compilers, @BESIDE_WORDS@@SPARE@ kept free.
budget=
if [ -n "$room" ] && [ "$room" -lt @WANTED@ ]; then
  spare=$((room / @SHARE@))
  [ "$spare" -lt @SPARE@ ] || spare=@SPARE@
  budget=$((room - spare@BESIDE@))
  if [ "$budget" -lt @LARGEST@ ]; then
    say "$room MiB are free ($limited_by), and one unit alone takes @LARGEST@ MiB: it needs @LEAST@ MiB"
    say "give the build more memory, or MEMORY_MIB=N if there is more than that"
    exit @NO_ROOM@
  fi
  say "$room MiB are free ($limited_by), where the plan counts on @WANTED@: fewer jobs at once, and slower"
fi
"""

_NINJA = """\
command -v ninja >/dev/null || { say "no ninja on PATH: python -m pip install ninja"; exit @NO_NINJA@; }
"""

_NVCC = """\
nvcc=$(command -v "${CUDACXX:-nvcc}" || command -v "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" || :)
release=
[ -z "$nvcc" ] || release=$("$nvcc" --version | sed -n 's/.*release \\([0-9.]*\\).*/\\1/p')
wanted=@RELEASE@
case $release in
  "$wanted") ;;
  '') say "no nvcc found; the numbers are for nvcc $wanted" ;;
  *) say "this is nvcc $release, and the numbers are for nvcc $wanted: they may be off" ;;
esac
"""

_FEWER = """\
if [ -n "$budget" ]; then
  # As many jobs as fit into that, whichever of the stage's units they are.
  tab=$(printf '\\t')
  while IFS=$tab read -r number jobs threads name; do
    case $number in
@LARGEST@
      *) largest=0 ;;
    esac
    if [ "$largest" -gt 0 ] && [ "$jobs" -gt $((budget / largest)) ]; then
      jobs=$((budget / largest))
      [ "$jobs" -gt 0 ] || jobs=1
    fi
    printf '%s\\t%s\\t%s\\t%s\\n' "$number" "$jobs" "$threads" "$name"
  done <"$stages/@TABLE@" >"$stages/@TABLE@.new"
  mv -f -- "$stages/@TABLE@.new" "$stages/@TABLE@"
fi
"""

_CONFIGURED = """\
for cache in "$folder/build/CMakeCache.txt" "$folder/@BUILD@/CMakeCache.txt"; do
  if [ -r "$cache" ] && grep -q '^CMAKE_MAKE_PROGRAM:' "$cache" &&
    ! grep -qF "CMAKE_MAKE_PROGRAM:FILEPATH=$stages/" "$cache"; then
    say "$cache is of a build with another ninja, which goes on without stages: remove that folder"
  fi
done
"""

_RUN = """\
# The jobs of each stage are those of the plan, whatever number the build gives its ninja.
BUILDDOCTOR_STAGES_ANY_J=1
PATH=$stages:$PATH
export BUILDDOCTOR_STAGES_ANY_J PATH

if [ -z "${BUILDDOCTOR_STAGES_UPTO:-}" ]; then
  exec "$@"
fi
# One stage of the build, for a layer of its own. What comes after it in the project's own build (links, copying) cannot
# work yet: what counts is that the stage was reached.
case $BUILDDOCTOR_STAGES_UPTO in
  @NAMES@) ;;
  *) say "there is no stage $BUILDDOCTOR_STAGES_UPTO"; exit 2 ;;
esac
BUILDDOCTOR_STAGES_REACHED=$stages/reached
export BUILDDOCTOR_STAGES_REACHED
rm -f -- "$BUILDDOCTOR_STAGES_REACHED"
status=0
"$@" || status=$?
if [ -e "$BUILDDOCTOR_STAGES_REACHED" ]; then
  say "stage $BUILDDOCTOR_STAGES_UPTO is done"
  exit 0
fi
[ "$status" -ne 0 ] || say "stage $BUILDDOCTOR_STAGES_UPTO was not reached: did the build use the ninja in $stages?"
exit "$status"
"""

_GATED = """\
if ! command -v builddoctor >/dev/null; then
@GET@
fi
"""
_GET = """\
  [ -n "$python" ] || { say "no python on PATH"; exit 127; }
  "$python" -m pip install @PACKAGE@"""
_BRING = """\
  say "no builddoctor on PATH, and the one that wrote this is of no release: install it from its checkout"
  exit 127"""


def staged_body(recipe: Recipe, plan: Plan, how: RenderWith, *, folder: str = ".", gated_words: str = "") -> str:
    """All of the script but its head. ``folder``: the sources, as the shell reads it, where no argument says.
    ``gated_words``: more options of builddoctor, as the shell reads them.

    Raises MemoryBudgetError for a plan with units that do not fit, RecipeError for what must not be in a script.
    """
    needs = needs_of(recipe, plan, how)
    if how.with_builddoctor:
        return _gated_body(plan, how, folder, gated_words)
    parts = [
        _START.replace("@FOLDER@", folder) + _subfolder(how) + _folders(how, "stages"),
        _ROOM + _fit(needs),
        _NINJA.replace("@NO_NINJA@", str(NO_NINJA)) + _nvcc(recipe),
        _variables(how, needs),
        _command(how),
        _staging(plan) + _fewer(plan),
        _CONFIGURED.replace("@BUILD@", BUILD_FOLDER),
        _RUN.replace("@NAMES@", " | ".join(word(stage.name) for stage in plan.stages) or "''"),
    ]
    return "\n".join(parts)


def _gated_body(plan: Plan, how: RenderWith, folder: str, more: str) -> str:
    """builddoctor itself keeps the memory; the plan's is a limit of its own, for where a container sees the host's."""
    get = _GET.replace("@PACKAGE@", word(f"builddoctor=={how.builddoctor}")) if how.released else _BRING
    options = ["--recipe", how.recipe or plan.recipe, "--memory", f"{int(plan.memory_mib)}MiB"]
    if plan.archs:
        options += ["--arch", ",".join(plan.archs)]
    shown = " ".join(map(word, options))
    file = ""
    if how.recipe_is_file:
        shown = shown.replace(word(options[1]), '"$recipe"', 1)
        file = f"recipe={word(options[1])}\ncase $recipe in /*) ;; *) recipe=$(pwd -P)/$recipe ;; esac\n"
    shown += f" {more}" if more else ""
    start = _START.replace("@FOLDER@", folder)
    return "\n".join(
        [
            start.replace('cd -- "$folder"\n', f'{file}cd -- "$folder"\n') + _folders(None, "wheels", "python"),
            _GATED.replace("@GET@", get),
            f'if [ $# -gt 0 ]; then\n  exec builddoctor run {shown} -- "$@"\nfi',
            f'exec builddoctor build "$folder" {shown} --wheel-dir "$wheels"\n',
        ]
    )


def _subfolder(how: RenderWith) -> str:
    """A checkout of which only one folder is built."""
    if not how.subfolder:
        return ""
    inside = word(f"./{how.subfolder}")
    return f"[ ! -d {inside} ] || cd -- {inside}\n"


def _folders(how: RenderWith | None, *wanted: str) -> str:
    """The shell's variables that the rest of the script needs."""
    texts = (*how.command, *(each.value for each in how.variables)) if how is not None else ()
    needed = {MARKS[mark] for mark in MARKS if any(f"{{{mark}}}" in text for text in texts)}
    return "".join(f"{line}\n" for name, line in _FOLDERS.items() if name in {"folder", *wanted, *needed})


def _fit(needs: Needs) -> str:
    text = _FIT
    for name, number in (
        ("WANTED", needs.wanted_mib),
        ("PEAK", needs.peak_mib),
        ("SPARE", needs.spare_mib),
        ("BESIDE_WORDS", needs.beside_words),
        ("BESIDE", f" - {needs.beside_mib}" if needs.beside_mib else ""),
        ("LARGEST", needs.largest_mib),
        ("LEAST", needs.least_mib),
        ("NO_ROOM", NO_ROOM),
        ("SHARE", 100 // SPARE_PERCENT),
    ):
        text = text.replace(f"@{name}@", str(number))
    return text


def _nvcc(recipe: Recipe) -> str:
    """Only a warning: another nvcc takes other amounts of memory, and mostly similar ones."""
    release = ".".join(recipe.fingerprint.nvcc.split(".")[:2])
    return _NVCC.replace("@RELEASE@", word(release)) if release else ""


def _variables(how: RenderWith, needs: Needs) -> str:
    kept = any("{build}" in text for text in (*how.command, *(each.value for each in how.variables)))
    lines = ['mkdir -p -- "$build"'] if kept else []
    for each in how.variables:
        if each.why:
            lines += comment(f"{each.name}: {each.why}")
        lines += _export(each.name, filled(each.value, {"build": "build"}), forced=each.forced)
    lines.append("# For compilers that Ninja does not start: a number of jobs that fits whatever they are.")
    for name in how.jobs:
        lines += _export(name, str(needs.jobs), forced=True)
    for name in how.threads:
        lines += _export(name, str(needs.threads), forced=True)
    return "\n".join(lines) + "\n"


def _export(name: str, value: str, *, forced: bool) -> list[str]:
    """What the user has set already stands, unless the plan was made for another."""
    name = variable_name(name)
    set_it = f"{name}={value}" if forced else f'[ -n "${{{name}+set}}" ] || {name}={value}'
    return [set_it, f"export {name}"]


def _command(how: RenderWith) -> str:
    uses_python = any("{python}" in each for each in how.command)
    check = '  [ -n "$python" ] || { say "no python on PATH"; exit 127; }\n' if uses_python else ""
    return f"if [ $# -eq 0 ]; then\n{check}  set -- {words(how.command, MARKS)}\nfi\n"


def _staging(plan: Plan) -> str:
    """The files of the staging program: each is written whole or not at all."""
    parts = ['mkdir -p -- "$stages"\n']
    for file in staging_files(plan):
        name = file_name(file.name)
        parts.append(here_document(f'cat >"$stages/{name}.new"', file.text))
        if file.executable:
            parts.append(f'chmod 755 -- "$stages/{name}.new"\n')
        parts.append(f'mv -f -- "$stages/{name}.new" "$stages/{name}"\n')
    return "".join(parts)


def _fewer(plan: Plan) -> str:
    """The table of the stages with fewer jobs: for a place with less memory than planned."""
    (table,) = [file.text for file in staging_files(plan) if file.name == STAGES_FILE]
    largest = {stage.name.strip(): math.ceil(stage.largest_mib) for stage in plan.stages}
    most = max(largest.values(), default=0)
    cases = []
    for line in table.splitlines():
        number, _, rest = line.partition("\t")
        if number.isdigit() or number == "rest":
            # Units outside the plan may be as large as the largest.
            cases.append(f"      {number}) largest={largest.get(rest.split(chr(9), 2)[-1]) or most} ;;")
    return _FEWER.replace("@LARGEST@", "\n".join(cases)).replace("@TABLE@", STAGES_FILE)
