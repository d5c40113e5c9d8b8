"""ci/gitlab.yml, its scripts run as GitLab's runner runs them, over jobs that the deadline cuts.

As the shell executor does it: variables exported, before_script and script one after the other in one bash,
after_script in another whose end counts for nothing, and what the cache names carried from one checkout to the next.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.program import Program

ROOT = Path(__file__).parents[2]
FILE = ROOT / "ci" / "gitlab.yml"
JOB: dict[str, Any] = yaml.safe_load(FILE.read_text())[".builddoctor"]
MAKEFILE = """
all: build/one.o build/two.o
build/%.o: %.c
\tmkdir -p build
\tcc -c -o $@ $<
\techo $@ >> ../compiled
"""


class Job:
    """One run of the job: a fresh checkout, at the path that the project has on this runner."""

    def __init__(self, program: Program, command: str, **variables: str) -> None:
        self.folder = program.folder
        self.checkout = program.folder / "builds"
        shutil.rmtree(self.checkout, ignore_errors=True)
        self.checkout.mkdir()
        (self.checkout / "Makefile").write_text(MAKEFILE)
        for name in ("one", "two"):
            (self.checkout / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
        path = program.folder / "path"
        path.mkdir(exist_ok=True)
        if not (path / "builddoctor").exists():
            # The installed one stands for what pip would install: that takes minutes, and an index.
            (path / "builddoctor").symlink_to(shutil.which("builddoctor", path=program.env["PATH"]) or "")
        self.env = {
            **program.env,
            "PATH": f"{path}:{program.env['PATH']}",
            "BUILDDOCTOR_STATE_DIR": str(program.folder / f"state-{time.monotonic_ns()}"),
            "TMPDIR": str(program.folder),
            "CI_PROJECT_DIR": str(self.checkout),
            "CI_JOB_ID": "7",
            "CI_JOB_TIMEOUT": "600",
            "CI_JOB_STARTED_AT": _utc(time.time()),
            **{name: str(value) for name, value in JOB["variables"].items()},
            "BUILD_COMMAND": command,
            **variables,
        }
        self.said = ""

    @property
    def left(self) -> Path:
        return self.checkout / ".builddoctor"

    def run(self) -> int:
        """The cache, the script, what comes after it, the cache again; the script's exit code."""
        kept = self.folder / "cache-of-gitlab"
        paths = JOB["cache"]["paths"]
        _carry(kept, self.checkout, paths)
        code = self._shell([*JOB["before_script"], *JOB["script"]])
        self._shell(JOB["after_script"])
        assert JOB["cache"]["when"] == "always"
        _carry(self.checkout, kept, paths)
        return code

    def _shell(self, lines: Sequence[str]) -> int:
        text = f"cd {shlex.quote(str(self.checkout))}\n" + "\n".join(lines) + "\n"
        script = f"set -eo pipefail\nset +o noclobber\n: | eval {shlex.quote(text)}\n"
        done = subprocess.run(
            ["bash"], input=script, env=self.env, capture_output=True, text=True, check=False, timeout=120
        )
        self.said += done.stdout + done.stderr
        return done.returncode


def _utc(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def _carry(source: Path, target: Path, paths: Sequence[str]) -> None:
    for path in paths:
        if (source / path).exists():
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / path, target / path)


def compiled(program: Program) -> list[str]:
    return (program.folder / "compiled").read_text().split()


def _cut(program: Program, timeout_s: int) -> Job:
    job = Job(program, "make build/one.o && sleep 100", CI_JOB_TIMEOUT=str(timeout_s))
    assert job.run() == 75, job.said
    return job


@pytest.mark.slow
def test_a_job_that_the_deadline_cuts_goes_on_in_its_next_run(program: Program) -> None:
    """The job's own timeout decides; what was compiled is not compiled again. 75 is what makes GitLab run it again."""
    first = _cut(program, 10)
    if not (program.folder / "compiled").exists():
        # This machine is busy with other things: it was cut before that.
        first = _cut(program, 100)
    assert compiled(program) == ["build/one.o"]
    assert JOB["retry"]["exit_codes"] == 75
    assert "to be continued" in (first.left / "summary.md").read_text().replace("\\", "")
    assert "the next run of this job goes on from here" in first.said
    assert json.loads((first.left / "codequality.json").read_text()) == []
    second = Job(program, "make")
    assert second.run() == 0, second.said
    assert compiled(program) == ["build/one.o", "build/two.o"]
    assert "3 sources are as they were\n" in second.said
    assert (second.left / "summary.md").read_text().startswith("### ✓ bash")
    for path in JOB["artifacts"]["paths"]:
        assert path == "dist/" or (second.checkout / path).exists(), path


@pytest.mark.parametrize(("gone_s", "least_s", "most_s"), [(0, 500, 540), (500, 1, 40), (9000, 1, 1)])
def test_until_is_what_is_left_of_the_jobs_timeout(program: Program, gone_s: int, least_s: int, most_s: int) -> None:
    """A tenth of it is kept; a job that was long in its preparation has less."""
    job = Job(program, "true", BUILD_MEMORY="14GiB", CI_JOB_STARTED_AT=_utc(time.time() - gone_s))
    stand_in = program.folder / "path/builddoctor"
    stand_in.unlink()
    told = program.folder / "told"
    stand_in.write_text(f'#!/bin/sh\n[ "$1" != run ] || echo "$2 $3 $4 $5" > {told}\n')
    stand_in.chmod(0o755)
    assert job.run() == 0, job.said
    until, seconds, *memory = told.read_text().split()
    assert (until, memory) == ("--until", ["--memory", "14GiB"])
    assert least_s <= int(seconds.removesuffix("s")) <= most_s


def test_a_failure_is_explained_and_reported(program: Program) -> None:
    """In the job's log, and as a report for the merge request: at the line of the error."""
    job = Job(program, "make")
    (job.checkout / "two.c").write_text("int two(void) { return missing; }\n")
    assert job.run() == 2, job.said
    (entry,) = json.loads((job.left / "codequality.json").read_text())
    assert entry["location"] == {"path": "two.c", "lines": {"begin": 1}}
    assert "missing" in entry["description"]
    assert {"check_name", "fingerprint", "severity"} < entry.keys()
    assert "✗" in job.said


def test_a_command_is_given_to_bash_as_it_is(program: Program) -> None:
    job = Job(program, "echo 1; false || echo \"$((1 + 1))\" > 'x y'")
    assert job.run() == 0, job.said
    assert (job.checkout / "x y").read_text() == "2\n"


@pytest.mark.nightly
def test_it_installs_builddoctor_and_takes_it_away_again(program: Program) -> None:
    """From this very checkout; the build's own Python stays the first on PATH."""
    job = Job(program, "command -v python3 > python", BUILD_INSTALL=str(ROOT))
    (program.folder / "path/builddoctor").unlink()
    assert job.run() == 0, job.said
    assert (job.checkout / "python").read_text().strip() == shutil.which("python3", path=job.env["PATH"])
    assert not (program.folder / "builddoctor-7").exists()


def test_its_keys_are_gitlabs_own(tmp_path: Path) -> None:
    """By GitLab's own schema, for a pipeline that includes the file."""
    pipeline = {**yaml.safe_load(FILE.read_text()), "wheel": {"extends": ".builddoctor", "image": "x"}}
    file = tmp_path / ".gitlab-ci.yml"
    file.write_text(yaml.safe_dump(pipeline))
    words = ["check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, "NO_COLOR": "1"})
    assert done.returncode == 0, done.stdout


def test_its_scripts_are_clean(tmp_path: Path) -> None:
    """shellcheck has nothing to say of them."""
    for name in ("script", "after_script"):
        lines = [*JOB["before_script"], *JOB["script"]] if name == "script" else JOB["after_script"]
        file = tmp_path / name
        file.write_text("\n".join(["#!/bin/bash", *lines]))
        done = subprocess.run(["shellcheck", str(file)], capture_output=True, text=True, check=False)
        assert done.stdout == ""
