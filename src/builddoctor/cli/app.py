"""The ``builddoctor`` program: commands put together, errors turned into one line, a hint and an exit code."""

from __future__ import annotations

import sys
from typing import Annotated

import click
import typer

import builddoctor
from builddoctor.cli import build, run, trace
from builddoctor.cli.output import print_error
from builddoctor.errors import BuildDoctorError, UsageError

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
app.add_typer(trace.app, name="trace")


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
    try:
        code = app(args=arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message(), err=True)
        return UsageError.exit_code
    except click.UsageError as error:
        topic = f"{error.ctx.command_path} --help" if error.ctx is not None else "builddoctor --help"
        print_error(UsageError(_plain(error.format_message()), hint=f"`{topic}` shows what there is"))
        return UsageError.exit_code
    except click.exceptions.Abort:
        return 130
    except BuildDoctorError as error:
        print_error(error)
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has gone; there is nobody to tell.
        sys.stderr.close()
        return 141
    return code if isinstance(code, int) else 0


def _plain(message: str) -> str:
    """click's sentence in our style: no capital, no full stop."""
    message = message.rstrip(".")
    return message[:1].lower() + message[1:] if message[1:2].islower() else message
