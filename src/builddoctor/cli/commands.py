"""The commands of the program, each with its own imports: a build does not wait for those of all others.

Does *not* cover: what a command does, or how its errors are shown (``cli.app``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache

import typer


def _build(app: typer.Typer) -> None:
    from builddoctor.cli.build import build

    app.command("build")(build)


def _run(app: typer.Typer) -> None:
    from builddoctor.cli.run import run

    app.command("run", context_settings={"allow_interspersed_args": False})(run)


def _doctor(app: typer.Typer) -> None:
    from builddoctor.cli.doctor import doctor

    app.command("doctor")(doctor)


def _plan(app: typer.Typer) -> None:
    from builddoctor.cli.plan import plan

    app.command("plan")(plan)


def _watch(app: typer.Typer) -> None:
    from builddoctor.cli.watch import watch

    app.command("watch")(watch)


def _explain(app: typer.Typer) -> None:
    from builddoctor.cli.explain import explain

    app.command("explain")(explain)


@cache
def _trace_app() -> typer.Typer:
    from builddoctor.cli import trace, trace_export, trace_repro, view

    trace.app.command("view")(view.view)
    trace.app.command("export")(trace_export.export)
    trace.app.command("repro")(trace_repro.repro)
    return trace.app


@cache
def _recipe_app() -> typer.Typer:
    from builddoctor.cli import recipe, recipe_render

    recipe.app.command("render")(recipe_render.render)
    return recipe.app


def _trace(app: typer.Typer) -> None:
    app.add_typer(_trace_app(), name="trace")


def _toolkit(app: typer.Typer) -> None:
    from builddoctor.cli import toolkit

    app.add_typer(toolkit.app, name="toolkit")


def _machine(app: typer.Typer) -> None:
    from builddoctor.cli import machine

    app.add_typer(machine.app, name="machine")


def _history(app: typer.Typer) -> None:
    from builddoctor.cli import history

    app.add_typer(history.app, name="history")


def _recipe(app: typer.Typer) -> None:
    app.add_typer(_recipe_app(), name="recipe")


COMMANDS: Mapping[str, Callable[[typer.Typer], None]] = {
    "build": _build,
    "run": _run,
    "doctor": _doctor,
    "plan": _plan,
    "watch": _watch,
    "explain": _explain,
    "trace": _trace,
    "toolkit": _toolkit,
    "machine": _machine,
    "history": _history,
    "recipe": _recipe,
}
"""by name, as ``--help`` lists them"""


def needed(arguments: list[str]) -> Iterable[str]:
    """Names of the commands that this command line can need: its first word, or all, which help and mistypes show."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return ()
    return (first,) if first in COMMANDS else COMMANDS
