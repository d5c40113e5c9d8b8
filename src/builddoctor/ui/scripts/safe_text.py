"""Text in files that a shell, BuildKit or YAML reads: quoted, so that it stays text; and where the numbers come from.

Covers: comments, words for a shell, here-documents that their own content cannot end; sentences on the recipe, the
machine, how figures were found, what is known to fail. Pure.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping

from builddoctor.core.errors import RecipeError
from builddoctor.core.plan import Plan, Stage
from builddoctor.core.recipe import Recipe
from builddoctor.core.units import counted, escaped, format_clock, format_mib

WIDTH = 110
_DIRECTIVE = re.compile(r"\A\s*(?:shellcheck|hadolint|escape|syntax|check|SBATCH|!)", re.IGNORECASE)
"""Comments that programs read; ours are written out where we want them."""

_MARK = re.compile(r"\{(\w+)\}")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,63}\Z")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


def comment(text: str) -> list[str]:
    """The text as lines of a comment, whatever is in it."""
    # GitHub replaces expressions wherever they stand, in comments too.
    tame = escaped(text).replace("${{", "$ {{")
    lines = textwrap.wrap(tame, WIDTH - 2, break_on_hyphens=False, subsequent_indent="  " * tame.startswith("- "))
    return [f"# . {line}" if _DIRECTIVE.match(line) else f"# {line}".rstrip() for line in lines]


def comments(texts: Iterable[str]) -> list[str]:
    """One comment line or more for each; an empty text is an empty comment line."""
    return [line for text in texts for line in (comment(text) if text.strip() else ["#"])]


def word(text: str) -> str:
    """One word for a shell. Raises RecipeError for control characters, which no such word of ours has."""
    if not text.isprintable():
        raise RecipeError(f"a control character in {escaped(text)!r}", hint="leave it out: it would go into a script")
    return shlex.quote(text)


def words(texts: Iterable[str], marks: Mapping[str, str]) -> str:
    """A command line; ``{name}`` in a text becomes the shell's variable that ``marks`` names."""
    return " ".join(filled(text, marks) for text in texts)


def filled(text: str, marks: Mapping[str, str]) -> str:
    """One word in which ``{name}`` becomes the value of the shell's variable ``marks[name]``."""
    parts: list[str] = []
    end = 0
    for found in _MARK.finditer(text):
        if found[1] in marks:
            parts += [text[end : found.start()], ""]
            parts[-1] = f'"${marks[found[1]]}"'
            parts[-2] = word(parts[-2]) if parts[-2] else ""
            end = found.end()
    rest = text[end:]
    return "".join(parts) + (word(rest) if rest or not parts else "")


def delimiter(text: str, name: str = "BUILDDOCTOR_END") -> str:
    """A line that the text does not have."""
    lines = set(re.split(r"[\r\n]", text)) | {line.strip() for line in text.splitlines()}
    number, found = 1, name
    while found in lines:
        number += 1
        found = f"{name}_{number}"
    return found


def here_document(command: str, text: str) -> str:
    """``command`` with the text on its stdin, as it is: no shell looks into it."""
    if "\0" in text:
        raise RecipeError("a NUL in a text that goes into a script", hint="look at the recipe with `recipe check`")
    whole = text if text.endswith("\n") or not text else f"{text}\n"
    end = delimiter(whole)
    return f"{command} <<'{end}'\n{whole}{end}\n"


def variable_name(name: str) -> str:
    """The name of an environment variable. Raises RecipeError for anything else."""
    if not _VARIABLE.match(name):
        raise RecipeError(f"no name of a variable: {name!r}", hint="capital letters, digits and `_` only")
    return name


def file_name(name: str) -> str:
    """The name of a file in a folder of ours. Raises RecipeError for anything that leads out of it."""
    if not _FILE_NAME.match(name):
        raise RecipeError(f"no name for a file: {escaped(name)!r}", hint="letters, digits, `.`, `_` and `-` only")
    return name


def heading(plan: Plan) -> str:
    """What is built, for what, and where."""
    what = " ".join(part for part in (plan.project, plan.version) if part)
    size = f"{counted(plan.cores, 'core')} and {format_mib(plan.memory_mib)}"
    return f"{what}{_for(plan.archs)} on {plan.machine}{'' if size in plan.machine else f', {size}'}."


def sources(recipe: Recipe, plan: Plan) -> list[str]:
    """Where the numbers come from."""
    origin = recipe.origin
    where = ", ".join(part for part in (origin.machine, origin.date) if part)
    by = f"builddoctor {origin.builddoctor}" if origin.builddoctor else ""
    lines = [
        f"Numbers: recipe {plan.recipe}, {plan.provenance} in {counted(plan.runs, 'run')}"
        + (f" with {by}" if by else "")
        + (f" ({where})" if where else "")
        + "."
    ]
    if origin.how:
        lines.append(origin.how)
    kinds = Counter(phase.provenance or origin.provenance for unit in recipe.units for phase in unit.phases)
    if len(kinds) > 1:
        lines.append("Of its phases: " + ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) + ".")
    toolchain = [
        *([f"nvcc {recipe.fingerprint.nvcc}"] if recipe.fingerprint.nvcc else []),
        *([f"gcc {recipe.fingerprint.host_compiler}"] if recipe.fingerprint.host_compiler else []),
        *([recipe.fingerprint.host_arch] if recipe.fingerprint.host_arch else []),
        f"{recipe.fingerprint.page_kib} KiB pages",
    ]
    lines.append(f"They hold for {', '.join(toolchain)}.")
    lines += [f"Differs from the recipe: {each}." for each in plan.differs]
    if plan.page_allowance_mib:
        lines.append(
            f"Pages of {plan.page_kib} KiB: {format_mib(plan.page_allowance_mib)} were added to every compiler phase."
        )
    return lines


def memory(plan: Plan) -> str:
    """What the plan hands out, and what it keeps free."""
    beside = f"{format_mib(plan.beside_mib)} are for what starts them, " if plan.beside_mib else ""
    return (
        f"Compilers may hold {format_mib(plan.budget_mib)} together; {beside}{format_mib(plan.reserve_mib)} of "
        f"{format_mib(plan.memory_mib)} stay free."
    )


def stage_lines(plan: Plan) -> list[str]:
    """A line a stage."""
    staged = f" in all about {format_clock(plan.staged_s)}" if plan.staged_s is not None else ""
    return [f"Stages, one after the other,{staged}:" if staged else "Stages, one after the other:"] + [
        _stage(each) for each in plan.stages
    ]


def known(plan: Plan) -> list[str]:
    """Hazards, and what a person should know."""
    hazards = [f"Known: {each.text}" + (f" ({each.source})" if each.source else "") for each in plan.hazards]
    return [*hazards, *(f"Note: {each}" for each in plan.notes)]


def _stage(stage: Stage) -> str:
    what = counted(stage.units, "unit") if stage.targets or stage.weight != "rest" else "whatever is left, and links"
    memory = (
        f", the largest takes {format_mib(stage.largest_mib)}, all of them {format_mib(stage.peak_mib)}"
        if stage.largest_mib > 0
        else ""
    )
    return (
        f"- {stage.name}: {what}, {counted(stage.jobs, 'job')} at once{memory}; about {format_clock(stage.makespan_s)}"
    )


def _for(archs: Iterable[str]) -> str:
    names = ", ".join(archs)
    return f" for {names}" if names else ""
