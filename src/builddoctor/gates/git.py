"""Git, as far as sources need it: tags of a repository, and one commit of it with its submodules.

Covers: shallow fetches that go on where they were cut off; nothing is asked at the terminal, no hook is run.
Does *not* cover: where a checkout is kept (``projects.sources.obtain``).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.core.errors import SourceNotFoundError
from builddoctor.core.units import printable
from builddoctor.gates.subprocesses import run_captured, run_streamed
from builddoctor.trace.masking import mask_text

TAGS_WITHIN_S = 120.0

_NEVER_ASKS = {"GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "SSH_ASKPASS": "true", "GCM_INTERACTIVE": "never"}
_PLAIN = ("-c", "advice.detachedHead=false", "-c", "core.hooksPath=/dev/null")


def tags(url: str, env: Mapping[str, str]) -> list[str]:
    """Names of all tags. Raises SourceNotFoundError."""
    git = _git(env)
    answer = run_captured(
        [git, "ls-remote", "--tags", "--refs", "--", url], env={**env, **_NEVER_ASKS}, timeout_s=TAGS_WITHIN_S
    )
    if answer.status != 0:
        raise _failed(url, answer.output or answer.problem)
    return [line.rpartition("refs/tags/")[2].strip() for line in answer.output.splitlines() if "refs/tags/" in line]


def check_out(url: str, ref: str, folder: Path, env: Mapping[str, str], *, submodules: bool = True) -> str:
    """Bring the commit that ``ref`` names (a tag, branch, commit; empty: the default branch) into ``folder``.

    ``folder`` may hold what an earlier try has brought. Gives the commit. Raises SourceNotFoundError.
    """
    git = _git(env)
    if not (folder / ".git").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _run([git, "init", "--quiet"], folder, env, url)
    _run([git, *_PLAIN, "fetch", "--depth", "1", "--no-tags", "--", url, ref or "HEAD"], folder, env, url)
    _run([git, *_PLAIN, "checkout", "--quiet", "--force", "FETCH_HEAD"], folder, env, url)
    if submodules and (folder / ".gitmodules").exists():
        # Relative addresses of submodules are seen from here.
        run_captured([git, "remote", "add", "origin", url], env=dict(env), cwd=str(folder))
        update = ["submodule", "update", "--init", "--recursive", "--depth", "1", "--progress"]
        _run([git, *_PLAIN, *update], folder, env, url)
    head = run_captured([git, "rev-parse", "HEAD"], env=dict(env), cwd=str(folder))
    return head.output.strip()


def _git(env: Mapping[str, str]) -> str:
    found = shutil.which("git", path=env.get("PATH"))
    if found is None:
        raise SourceNotFoundError(
            "there is no git on PATH to fetch the sources with",
            hint="install it (conda install git), or give the sources: --source PATH",
        )
    return found


def _run(argv: Sequence[str], folder: Path, env: Mapping[str, str], url: str) -> None:
    done = run_streamed(argv, env={**env, **_NEVER_ASKS}, cwd=str(folder))
    if done.status != 0:
        raise _failed(url, done.problem or f"git {next((w for w in argv[1:] if w[0] != '-' and '=' not in w), '')}")


def _failed(url: str, said: str) -> SourceNotFoundError:
    last = [line.strip() for line in said.splitlines() if line.strip()][-1:] or ["git did not answer"]
    return SourceNotFoundError(f"cannot fetch {printable(mask_text(url))}: {printable(mask_text(last[0]))[:300]}")
