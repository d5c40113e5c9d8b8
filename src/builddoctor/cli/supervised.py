"""What ``build`` and ``run`` do alike: supervise, show, sum up, and give the build's exit code."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from builddoctor.cli.output import print_error, print_notes
from builddoctor.errors import FolderNotWritableError
from builddoctor.intercept import nested
from builddoctor.model.request import RunRequest
from builddoctor.policy.rules import Rules
from builddoctor.recipes.shelf import Shelved
from builddoctor.render.closing import closing
from builddoctor.sensors.root import Clock, SystemRoot, monotonic
from builddoctor.supervise.build import Finished, supervise
from builddoctor.supervise.fronts import Fronts
from builddoctor.supervise.phases import describe
from builddoctor.supervise.prepare import Prepared
from builddoctor.supervise.screen import BoardScreen, Screen, wants_board
from builddoctor.supervise.session import Session


def run_supervised(
    request: RunRequest,
    *,
    env: Mapping[str, str] = os.environ,
    root: SystemRoot | None = None,
    rules: Rules | None = None,
    clock: Clock = monotonic,
    ready: Callable[[], None] = lambda: None,
    named_recipe: Shelved | None = None,
) -> int:
    """Run the build to its end; gives the exit code. ``root``, ``rules``, ``clock``: another system and thresholds.

    ``ready`` is called when nothing is in the way of the build any more, before it is started.
    ``named_recipe``: what ``request.recipe`` names.
    """
    if nested.is_supervised(env):
        print_notes(["builddoctor: already inside a supervised build; its gates serve this command too"])
        nested.become(request.command, {**env, **dict(request.extra_env)}, request.cwd)

    def make_screen(session: Session, prepared: Prepared, fronts: Fronts) -> Screen:
        kind = BoardScreen if wants_board(env) else Screen
        return kind(session, prepared, fronts, title=title_of(request, prepared), cwd=request.cwd, env=env)

    outcome = supervise(
        request,
        env,
        make_screen,
        root=root,
        clock=clock,
        rules=rules,
        ready=ready,
        say=print_notes,
        named_recipe=named_recipe,
    )
    if request.summary:
        _write_summary(Path(request.summary), outcome)
    _show(request, outcome)
    return outcome.summary.exit_code


def title_of(request: RunRequest, prepared: Prepared) -> str:
    """``attention_kernels · sm_90 · nvcc 13.0.88``."""
    nvcc = f"nvcc {prepared.toolkit.version}" if prepared.toolkit else ""
    return " · ".join(part for part in (request.title, *request.archs, nvcc) if part)


def _show(request: RunRequest, outcome: Finished) -> None:
    given_up = outcome.session.given_up
    blame = describe(given_up.phase) if given_up is not None else ""
    peak_mib = given_up.peak_mib if given_up is not None else 0.0
    summary = outcome.summary
    last = _last_words(summary.trace) if summary.result == "failed" else []
    staged = bool(request.stages)
    words = closing(summary, title=request.title, blame=blame, peak_mib=peak_mib, last=last, staged=staged)
    print_notes([*words, *(f"  recipe  {line}" for line in outcome.beyond)])


def _last_words(trace: str) -> list[str]:
    try:
        # Only here: with what it imports every build would start later.
        from builddoctor.cli.last_words import last_words

        return last_words(trace)
    except Exception as error:  # noqa: BLE001 - the build's own result is worth more: builddoctor may be another by now
        print_notes([f"why it failed cannot be told here ({error!r}): builddoctor trace show {trace}"])
        return []


def _write_summary(path: Path, outcome: Finished) -> None:
    try:
        path.write_bytes(msgspec.json.encode(outcome.summary) + b"\n")
    except OSError as error:
        # The build's own result is worth more than the exit code of this.
        print_error(FolderNotWritableError(f"cannot write the summary {path}: {error.strerror}"))
