"""The ``builddoctor`` program: its commands, and errors turned into one line, a hint and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import builddoctor
from builddoctor.cli.loudness import Quiet, Verbose, pass_on
from builddoctor.cli.output import print_error, print_notes
from builddoctor.cli.summaries import SUMMARIES
from builddoctor.core.errors import BuildDoctorError, MemoryBudgetError, UsageError

# Typer re-exports BadParameter alone, and carries a click of its own from 0.17 on: this is its base in both.
_ParsingError = typer.BadParameter.__mro__[1]


COMMANDS: Mapping[str, Mapping[str, str]] = {
    "build": {},
    "run": {},
    "activate": {},
    "deactivate": {},
    "status": {},
    "doctor": {},
    "plan": {},
    "watch": {},
    "attach": {},
    "worker": {},
    "cluster": {},
    "explain": {},
    "save": {},
    "restore": {},
    "trace": {"view": "trace_export", "export": "trace_export", "repro": "trace_repro"},
    "toolkit": {},
    "machine": {},
    "history": {},
    "cache": {},
    "config": {},
    "recipe": {"pull": "recipe_travel", "push": "recipe_travel", "render": "recipe_render"},
}
"""The commands as ``--help`` lists them, each a module of ``cli`` of its name (or of ``BESIDE``); for groups the
subcommands that live in modules of their own."""

BESIDE = {"deactivate": "activate", "restore": "save"}
"""Commands that undo another, in that one's module."""


CONFIGURED = frozenset(("build", "run", "activate", "doctor"))
"""Commands whose flags may be set in files and by variables (``core.configuration``)."""

EXAMPLES = """\b
Examples:
  builddoctor explain build.log             # what failed in any log, and the next step
  builddoctor run -- ninja -C build         # the build you already have, supervised
  builddoctor build flash_attn --arch h100  # by name: sources, variables, a wheel
  eval "$(builddoctor activate)"            # from now on plain pip, cmake and make of this shell
"""


class Group(TyperGroup):
    """Summaries of its commands are not cut: each is one sentence."""

    def format_commands(self, ctx: object, formatter: Any) -> None:  # noqa: ANN401, ARG002 - click's, or typer's own
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(1000)) for name, each in self.commands.items()])


class _Late(Group):
    """Holds names and summaries, which help and the shell's completion want; a command is imported when it is called.

    A build does not wait for what the others import.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:  # noqa: ANN401
        name, found, rest = super().resolve_command(ctx, args)
        return name, found if found is None else command(name), rest


def make_app() -> TyperGroup:
    """The program."""
    app = typer.Typer(
        name="builddoctor",
        cls=_Late,
        epilog=EXAMPLES,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(_program)
    made = typer.main.get_command(app)
    assert isinstance(made, TyperGroup)
    made.commands = {name: TyperCommand(name, help=SUMMARIES.get(name, "")) for name in COMMANDS}
    return made


@cache
def command(name: str) -> Any:  # noqa: ANN401 - click's command, or typer's own
    """One command or group, with all that is its own. Raises KeyError."""
    beside = COMMANDS[name]
    module = import_module(f"builddoctor.cli.{BESIDE.get(name, name)}")
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    if not hasattr(module, "app"):
        # What follows the words of `run` is the build's.
        settings = {"allow_interspersed_args": False} if name == "run" else {}
        made.command(name, context_settings=settings)(getattr(module, name))
        return typer.main.get_command(made)
    for each, where in beside.items():
        module.app.command(each)(getattr(import_module(f"builddoctor.cli.{where}"), each))
    made.add_typer(module.app, name=name, cls=Group)
    return typer.main.get_group(made).commands[name]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"builddoctor {builddoctor.__version__}")
        raise typer.Exit


def _program(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run the build you already have; no compiler process starts before its memory is there."""
    del version
    if (name := context.invoked_subcommand) and (quiet or verbose):
        pass_on(context, name, [each.name for each in command(name).params])


def main(arguments: list[str] | None = None) -> int:
    """Run the program; gives its exit code. A failed build's own code passes through unchanged."""
    _open_standard_files()
    words = sys.argv[1:] if arguments is None else arguments
    try:
        code = make_app()(args=words, standalone_mode=False, default_map=configured(words))
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BuildDoctorError as error:
        print_error(error)
        return error.exit_code
    except MemoryError:
        print_error(MemoryBudgetError("there is not even memory for builddoctor itself", hint="ulimit -v unlimited"))
        return MemoryBudgetError.exit_code
    except BrokenPipeError:
        # The reader of our output is gone.
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


def configured(arguments: list[str]) -> dict[str, dict[str, object]]:
    """Defaults of this command's flags from files and the environment, as click takes them."""
    command = next((word for word in arguments if not word.startswith("-")), "")
    if command not in CONFIGURED:
        return {}
    # Only here: `explain` does not wait for it.
    from builddoctor.runtime.configuration import settings

    try:
        here = Path.cwd()
    except OSError:
        # It was deleted.
        here = Path("/")
    return {command: {each.name.replace("-", "_"): each.value for each in settings(os.environ, here)}}


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
