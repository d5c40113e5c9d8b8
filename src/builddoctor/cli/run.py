"""``builddoctor run -- COMMAND…``: supervise any build command. ``build`` shares ``run_supervised``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from builddoctor.cli import options
from builddoctor.cli.loudness import Loudness, Quiet, Verbose, loudness
from builddoctor.cli.options import archs_of
from builddoctor.cli.output import print_error, print_notes
from builddoctor.core.board import BoardState
from builddoctor.core.errors import FolderNotWritableError, UsageError
from builddoctor.core.events import BuildResult
from builddoctor.core.request import RunRequest
from builddoctor.core.units import printable
from builddoctor.gates import environment
from builddoctor.recipes.shelf import Shelved
from builddoctor.runtime.build import Finished, supervise
from builddoctor.runtime.sampler import Rules
from builddoctor.system.root import Clock, SystemRoot, monotonic
from builddoctor.system.source_files import text_of
from builddoctor.trace.masking import mask_argv
from builddoctor.ui.progress import closing
from builddoctor.ui.screen import BoardScreen, Listener, QuietScreen, Screen, VerboseScreen, wants_board


def run(
    context: typer.Context,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND…", show_default=False, help="The build command, after `--`.")
    ] = None,
    arch: options.Archs = "",
    recipe: options.RecipeOption = "",
    strategy: options.StrategyOption = "gated",
    memory: options.Memory = "",
    cores: options.Cores = None,
    toolkit: options.ToolkitOption = "",
    trace: options.TraceFile = "",
    summary: options.SummaryFile = "",
    ignore_caps: options.IgnoreCaps = False,
    auto_remedy: options.AutoRemedy = False,
    no_doctor: options.NoDoctor = False,
    until: options.Until = "",
    cluster: options.ClusterOption = "",
    keys: options.KeysOption = "",
    store: options.StoreOption = "",
    store_size: options.StoreSizeOption = "",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Supervise any build command: ninja, cmake --build, pip install, python setup.py …

    The command runs unchanged in this folder, and its exit code is passed through.

    \b
    Examples:
      builddoctor run -- ninja -C build
      builddoctor run --memory 24GiB -- pip install -v --no-build-isolation .
      builddoctor run --until 5h20m -- cmake --build build
    """
    if not command or not command[0]:
        raise UsageError("no command to run", hint="write it after `--`: `builddoctor run -- ninja -C build`")
    del quiet, verbose
    loud = loudness(context)
    named_recipe = options.named_recipe(recipe)
    request = options.make_request(
        tuple(command),
        cwd=Path.cwd(),
        title=title_of(command),
        archs=archs_of(arch, os.environ),
        memory=memory,
        cores=cores,
        toolkit=toolkit,
        trace=trace,
        summary=summary,
        ignore_caps=ignore_caps,
        no_doctor=no_doctor,
        auto_remedy=auto_remedy,
        need_toolkit=False,
        recipe=recipe,
        strategy=strategy,
        until=until,
        cluster=cluster,
        keys=keys,
        store=store,
        store_size=store_size,
    )
    if _calls_nvcc_by_path(command, Path.cwd()):
        request = msgspec.structs.replace(request, nvcc_by_path=True)
    if strategy == "staged":
        # Only here: with what it imports every build would start later.
        from builddoctor.cli.staging import staged_request

        request = staged_request(request, os.environ, say=loud.notes)
    return run_supervised(request, named_recipe=named_recipe, loud=loud)


def _calls_nvcc_by_path(command: Sequence[str], cwd: Path) -> bool:
    """A setup.py that it runs, here or in a folder that it names, does (docs/adr/0004)."""
    if not os.path.basename(command[0]).startswith(("pip", "python", "uv")):
        return False
    read = (text_of(cwd / folder / "setup.py") or "" for folder in ("", *command[1:]))
    texts = [text for text in read if "cuda" in text.lower()]
    if not texts:
        return False
    # Only here: what reads Python takes a while to import.
    from builddoctor.projects.setup_py import calls_nvcc_by_path

    return any(map(calls_nvcc_by_path, texts))


LONGEST_TITLE = 60


def title_of(command: Sequence[str]) -> str:
    """What a build is called that has no other name: its command."""
    text = printable(" ".join(mask_argv([os.path.basename(command[0]), *command[1:]])))
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…"


def run_supervised(
    request: RunRequest,
    *,
    env: Mapping[str, str] = os.environ,
    root: SystemRoot | None = None,
    rules: Rules | None = None,
    clock: Clock = monotonic,
    ready: Callable[[], None] = lambda: None,
    named_recipe: Shelved | None = None,
    loud: Loudness = Loudness.USUAL,
) -> int:
    """Run the build to its end; gives the exit code. ``root``, ``rules``, ``clock``: another system and thresholds.

    ``ready`` is called when nothing is in the way of the build any more, before it is started.
    ``named_recipe``: what ``request.recipe`` names.
    """
    if environment.is_supervised(env):
        loud.notes(["builddoctor: already inside a supervised build; its gates serve this command too"])
        environment.become(request.command, {**env, **dict(request.extra_env)}, request.cwd)

    def make_screen(state: Callable[[], BoardState], listener: Callable[[str], Listener], trace: Path) -> Screen:
        kinds = {Loudness.QUIET: QuietScreen, Loudness.VERBOSE: VerboseScreen}
        kind = kinds.get(loud) or (BoardScreen if wants_board(env) else Screen)
        return kind(state, listener, trace=trace, env=env)

    outcome = supervise(
        request,
        env,
        make_screen,
        root=root,
        clock=clock,
        rules=rules,
        ready=ready,
        say=loud.notes,
        named_recipe=named_recipe,
    )
    if request.summary:
        _write_summary(Path(request.summary), outcome)
    if loud is not Loudness.QUIET or outcome.summary.result is not BuildResult.OK:
        _show(request, outcome)
    return outcome.summary.exit_code


def _show(request: RunRequest, outcome: Finished) -> None:
    blamed = outcome.state.given_up.row if outcome.state.given_up is not None else None
    blame, peak_mib = (blamed.name, blamed.peak_mib) if blamed is not None else ("", 0.0)
    summary = outcome.summary
    last = _last_words(summary.trace) if summary.result is BuildResult.FAILED else []
    staged = bool(request.stages)
    failed = outcome.state.in_error
    words = closing(
        summary, title=request.title, blame=blame, peak_mib=peak_mib, last=last, failed=failed, staged=staged
    )
    print_notes([*words, *(f"  recipe  {line}" for line in outcome.beyond)])


def _last_words(trace: str) -> list[str]:
    try:
        # Only here: with what it imports every build would start later.
        from builddoctor.cli.trace import last_words

        return last_words(trace)
    except Exception as error:  # noqa: BLE001 - the build's own result is worth more: builddoctor may be another by now
        print_notes([f"cannot say here why it failed ({error!r}): builddoctor trace show {trace}"])
        return []


def _write_summary(path: Path, outcome: Finished) -> None:
    try:
        path.write_bytes(msgspec.json.encode(outcome.summary) + b"\n")
    except OSError as error:
        # The build's own result is worth more than the exit code of this.
        print_error(FolderNotWritableError(f"cannot write the summary {path}: {error.strerror}"))
