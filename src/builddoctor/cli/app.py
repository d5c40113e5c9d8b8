"""The ``builddoctor`` program: commands put together, errors turned into one line, a hint and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import builddoctor
from builddoctor.cli import (
    build,
    doctor,
    explain,
    history,
    machine,
    plan,
    recipe,
    recipe_render,
    run,
    toolkit,
    trace,
    trace_export,
    trace_repro,
    view,
    watch,
)
from builddoctor.cli.output import print_error, print_notes
from builddoctor.errors import BuildDoctorError, MemoryBudgetError, UsageError

# Typer re-exports BadParameter alone, and carries a click of its own from 0.17 on: this is its base in both.
_ParsingError = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="builddoctor",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("build")(build.build)
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
app.command("doctor")(doctor.doctor)
app.command("plan")(plan.plan)
app.command("watch")(watch.watch)
app.command("explain")(explain.explain)
trace.app.command("view")(view.view)
trace.app.command("export")(trace_export.export)
trace.app.command("repro")(trace_repro.repro)
app.add_typer(trace.app, name="trace")
app.add_typer(toolkit.app, name="toolkit")
app.add_typer(machine.app, name="machine")
app.add_typer(history.app, name="history")
recipe.app.command("render")(recipe_render.render)
app.add_typer(recipe.app, name="recipe")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"builddoctor {builddoctor.__version__}")
        raise typer.Exit


@app.callback()
def callback(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Run the build you already have; no compiler process starts before its memory is there."""
    del version


def main(arguments: list[str] | None = None) -> int:
    """Run the program; gives its exit code. A failed build's own code passes through unchanged."""
    _open_standard_files()
    try:
        code = app(args=arguments, standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BuildDoctorError as error:
        print_error(error)
        return error.exit_code
    except MemoryError:
        print_error(MemoryBudgetError("there is not even memory for builddoctor itself", hint="ulimit -v unlimited"))
        return MemoryBudgetError.exit_code
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody to tell.
        sys.stderr.close()
        return 141
    except OSError as error:
        print_error(BuildDoctorError(f"the system refused: {error}"))
        return BuildDoctorError.exit_code
    except Exception as error:
        if not isinstance(error, _ParsingError):
            raise
        return _misused(error)
    return code if isinstance(code, int) else 0


def _open_standard_files() -> None:
    """Where stdin, stdout or stderr is closed, the next file opened would take its place, and get what is written."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def _misused(error: Exception) -> int:
    """A command line that does not parse: help for no arguments at all, else what is wrong, as our own error."""
    message = str(getattr(error, "format_message", error.__str__)())
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        print_notes([message])
    else:
        program = context.command_path if context is not None else "builddoctor"
        print_error(UsageError(_plain(message), hint=f"`{program} --help` shows what there is"))
    return UsageError.exit_code


def _plain(message: str) -> str:
    """click's sentence in our style: no capital, no full stop."""
    message = message.rstrip(".")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message
