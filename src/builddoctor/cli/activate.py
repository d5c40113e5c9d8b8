"""``builddoctor activate``: builds of this shell, or of an environment, are supervised without a word changed.

Covers: what is printed or written, for each kind of place. Does *not* cover: the variables (``runtime.activation``).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import typer

from builddoctor.cli import options
from builddoctor.cli.output import print_data, print_notes
from builddoctor.core.errors import FolderNotWritableError, UsageError
from builddoctor.gates.environment import FOLDERS, plain_environment
from builddoctor.gates.overlay import replace_text
from builddoctor.runtime.activation import activation
from builddoctor.system.root import SystemRoot, monotonic

Shell = Literal["sh", "bash", "zsh", "fish"]
ShellOption = Annotated[
    Shell | None,
    typer.Option("--shell", show_default=False, help="The shell that reads it.  [default: the one in $SHELL]"),
]
CondaOption = Annotated[bool, typer.Option("--conda", help="Do it whenever this conda environment is activated.")]

HOOK = "builddoctor.sh"
"""Its name in conda's folders."""


def activate(
    shell: ShellOption = None,
    conda: CondaOption = False,
    uv: Annotated[
        str, typer.Option("--uv", metavar="PACKAGE[,PACKAGE]", help="Print uv's table of build variables for these.")
    ] = "",
    docker: Annotated[bool, typer.Option("--docker", help="Print an ENV block for a Dockerfile.")] = False,
    systemd: Annotated[bool, typer.Option("--systemd", help="Print a file for systemd's EnvironmentFile.")] = False,
    memory: options.Memory = "",
    cores: options.Cores = None,
    toolkit: options.ToolkitOption = "",
) -> None:
    """Supervise the builds of this shell: `eval "$(builddoctor activate)"`.

    From then on plain `pip install`, `uv sync`, `cmake --build` and `make` wait for memory before they compile. Each
    leaves its trace. `builddoctor status` shows what runs, `eval "$(builddoctor deactivate)"` ends it.

    \b
    Examples:
      eval "$(builddoctor activate)"               # sh, bash, zsh
      builddoctor activate --shell fish | source
      builddoctor activate --docker >> Dockerfile
    """
    if sum((conda, bool(uv), docker, systemd, shell is not None)) > 1:
        raise UsageError(
            "more than one place to activate is named", hint="name one of --shell, --conda, --uv, --docker, --systemd"
        )
    if conda:
        _install_hooks(_conda_prefix(os.environ), _options(memory, cores, toolkit))
        return
    plain = plain_environment(os.environ)
    request = options.make_request(
        ("activate",),
        cwd=Path.cwd(),
        title="",
        archs=(),
        memory=memory,
        cores=cores,
        toolkit=toolkit,
        trace="",
        summary="",
        ignore_caps=False,
        no_doctor=True,
        need_toolkit=False,
    )
    variables = activation(request, plain, SystemRoot(), monotonic)
    if uv:
        print_data(uv_table(uv.split(","), variables))
    elif docker:
        print_data(docker_block(variables, plain))
    elif systemd:
        print_data("\n".join(f"{name}={_quoted(value)}" for name, value in _kept(variables)))
    else:
        print_data("\n".join(exports(variables, shell or usual_shell(os.environ))))
        print_notes(["builddoctor: builds of this shell are supervised now; `builddoctor status` shows them"])


def deactivate(shell: ShellOption = None, conda: CondaOption = False) -> None:
    """Undo `activate`: `eval "$(builddoctor deactivate)"`. Builds that run already go on."""
    if conda:
        _remove_hooks(_conda_prefix(os.environ))
        return
    plain = plain_environment(os.environ)
    changed: dict[str, str | None] = {
        name: plain.get(name) for name, value in os.environ.items() if plain.get(name) != value
    }
    if not changed:
        print_notes(["builddoctor: this shell is not activated"])
        return
    print_data("\n".join(exports(changed, shell or usual_shell(os.environ))))


def usual_shell(env: Mapping[str, str]) -> Shell:
    """The user's own; what is not known is taken for one that reads ``export``."""
    return "fish" if os.path.basename(env.get("SHELL", "")) == "fish" else "sh"


def exports(variables: Mapping[str, str | None], shell: Shell) -> list[str]:
    """Lines for that shell. None: the variable goes."""
    fish = shell == "fish"
    return [
        (f"set -e {name}" if fish else f"unset {name}")
        if value is None
        else (f"set -gx {name} {_fish(value)}" if fish else f"export {name}={shlex.quote(value)}")
        for name, value in variables.items()
    ]


def _fish(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def uv_table(packages: list[str], variables: Mapping[str, str]) -> str:
    """For pyproject.toml or uv.toml; PATH stays what it is there."""
    values = ", ".join(f"{name} = {_quoted(value)}" for name, value in _kept(variables) if name != "PATH")
    lines = [f"{package.strip()} = {{ {values} }}" for package in packages if package.strip()]
    return "\n".join(["[tool.uv.extra-build-variables]", *lines])


def docker_block(variables: Mapping[str, str], plain: Mapping[str, str]) -> str:
    """What an image's own PATH holds stays behind ours."""
    lines = []
    for name, value in _kept(variables):
        was = plain.get(name, "")
        ours = value.removesuffix(f":{was}") + f":${name}" if name in FOLDERS and was else value
        lines.append(f"{name}={_quoted(ours)}")
    return "ENV " + " \\\n    ".join(lines)


def _kept(variables: Mapping[str, str]) -> list[tuple[str, str]]:
    """Without what only a shell can go back by."""
    return [(name, value) for name, value in variables.items() if name != "BUILDDOCTOR_BEFORE"]


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _options(memory: str, cores: int | None, toolkit: str) -> list[str]:
    named = (("--memory", memory), ("--cores", "" if cores is None else str(cores)), ("--toolkit", toolkit))
    return [word for name, value in named if value for word in (name, value)]


def _conda_prefix(env: Mapping[str, str]) -> Path:
    prefix = env.get("CONDA_PREFIX")
    if not prefix:
        raise UsageError("no conda environment is active", hint="`conda activate NAME` first")
    return Path(prefix)


def _hooks(prefix: Path) -> tuple[Path, Path]:
    folder = prefix / "etc" / "conda"
    return folder / "activate.d" / HOOK, folder / "deactivate.d" / HOOK


def _install_hooks(prefix: Path, words: list[str]) -> None:
    begin, end = _hooks(prefix)
    program = ["builddoctor", "activate", "--shell", "sh", *words]
    try:
        for hook, command in ((begin, program), (end, ["builddoctor", "deactivate", "--shell", "sh"])):
            hook.parent.mkdir(parents=True, exist_ok=True)
            replace_text(hook, f'eval "$({shlex.join(command)} 2>/dev/null)"\n')
    except OSError as error:
        raise FolderNotWritableError(f"cannot write conda's hooks below {prefix}: {error.strerror}") from error
    print_notes([f"builddoctor: builds are supervised after the next `conda activate`: {begin}"])


def _remove_hooks(prefix: Path) -> None:
    for hook in _hooks(prefix):
        hook.unlink(missing_ok=True)
    print_notes(["builddoctor: conda's hooks are removed; shells that are activated stay so"])
