"""action.yml, its steps run as GitHub runs them: bash, files for outputs, paths and the summary.

Without GitHub's cache, whose file is carried by hand. Of conditions only the one for a name of the cache is kept.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.program import Program

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
MAKEFILE = """
all: build/one.o build/two.o
build/%.o: %.c
\tmkdir -p build
\tcc -c -o $@ $<
\techo $@ >> ../compiled
"""


class Job:
    """One job on one runner: a checkout, a folder for temporary files, and the files by which steps speak."""

    def __init__(self, program: Program, name: str, inputs: dict[str, str]) -> None:
        self.folder = program.folder / name
        self.temp = self.folder / "temp"
        self.checkout = program.folder / "checkout"
        self.temp.mkdir(parents=True)
        self.inputs = {key: str(each.get("default", "")) for key, each in ACTION["inputs"].items()} | inputs
        self.outputs: dict[str, dict[str, str]] = {}
        self.path: list[str] = []
        self.said = ""
        self.env = {
            **program.env,
            "BUILDDOCTOR_STATE_DIR": str(self.folder / "state"),
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_PATH": str(self.folder / "path"),
            "GITHUB_STEP_SUMMARY": str(self.folder / "summary"),
        }
        # The installed one stands for what pip would install: that takes minutes, and an index.
        bin_folder = self.temp / "builddoctor-bin"
        bin_folder.mkdir()
        (bin_folder / "builddoctor").symlink_to(shutil.which("builddoctor", path=program.env["PATH"]) or "")
        self.path.append(str(bin_folder))

    @property
    def archive(self) -> Path:
        return self.temp / "builddoctor-build.tar.gz"

    @property
    def summary(self) -> str:
        return (self.folder / "summary").read_text()

    def run(self) -> int:
        """Every step of its own but the install; the last exit code."""
        code = 0
        for step in ACTION["runs"]["steps"]:
            wanted = self.inputs["key"] or "inputs.key" not in step.get("if", "")
            if "run" in step and wanted and step["name"] != "Install builddoctor":
                code = self._step(step)
                if code:
                    break
        return code

    def _step(self, step: dict[str, Any]) -> int:
        output = self.folder / "output"
        output.write_text("")
        env = {name: self._filled(str(value)) for name, value in step.get("env", {}).items()}
        script = self.temp / "step.sh"
        script.write_text(step["run"])
        assert "${{" not in step["run"], "an input inside a script is code"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.checkout if "working-directory" in step else self.folder,
            env={**self.env, **env, "GITHUB_OUTPUT": str(output), "PATH": ":".join([*self.path, self.env["PATH"]])},
            capture_output=True,
            text=True,
            check=False,
        )
        self.said += done.stdout + done.stderr
        if "id" in step:
            lines = output.read_text().splitlines()
            self.outputs[step["id"]] = dict(line.split("=", 1) for line in lines)
        return done.returncode

    def _filled(self, text: str) -> str:
        def value(found: re.Match[str]) -> str:
            parts = found[1].split(".")
            return self.inputs[parts[1]] if parts[0] == "inputs" else self.outputs[parts[1]].get(parts[3], "")

        return re.sub(r"\$\{\{ ([\w.-]+) \}\}", value, text)


def check_out(program: Program) -> None:
    folder = program.folder / "checkout"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "Makefile").write_text(MAKEFILE)
    for name in ("one", "two"):
        (folder / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")


def test_a_build_that_goes_well(program: Program) -> None:
    check_out(program)
    job = Job(program, "job", {"command": "make", "key": "k"})
    assert job.run() == 0, job.said
    told = job.outputs["build"]
    assert (told["result"], told["exit-code"]) == ("ok", "0")
    assert int(told["peak-mib"]) >= 0
    assert Path(told["trace"]).exists()
    assert job.summary.startswith("### ✓ bash")
    assert job.archive.exists()


@pytest.mark.slow
def test_where_time_is_up_the_next_job_goes_on(program: Program) -> None:
    """On another runner, in a fresh checkout: what was compiled is not compiled again."""
    check_out(program)
    first = Job(program, "first", {"command": "make build/one.o && sleep 60", "until": "3s", "key": "k"})
    assert first.run() == 75, first.said
    assert "::error title=To be continued::" in first.said
    assert "to be continued" in first.summary.replace("\\", "")
    check_out(program)
    second = Job(program, "second", {"command": "make", "key": "k"})
    shutil.copy(first.archive, second.archive)
    assert second.run() == 0, second.said
    assert (program.folder / "compiled").read_text().split() == ["build/one.o", "build/two.o"]


def test_a_failure_is_annotated_and_passed_on(program: Program) -> None:
    check_out(program)
    (program.folder / "checkout" / "two.c").write_text("int two(void) { return missing; }\n")
    job = Job(program, "job", {"command": "make"})
    assert job.run() == 2, job.said
    assert "::error" in job.said
    assert "missing" in job.said.partition("::error")[2]
    assert job.outputs["build"]["result"] == "failed"
    assert "two.c" in job.summary
    assert not job.archive.exists()


@pytest.mark.parametrize("command", ['echo "a b" > "x y"', "echo 1; false || echo $((1 + 1)) > 'x y'"])
def test_a_command_is_given_to_bash_as_it_is(program: Program, command: str) -> None:
    check_out(program)
    job = Job(program, "job", {"command": command})
    assert job.run() == 0, job.said
    assert (program.folder / "checkout" / "x y").read_text() in ("a b\n", "2\n")


@pytest.mark.nightly
def test_its_first_step_installs_builddoctor(program: Program) -> None:
    """From this very checkout, into a folder that is on PATH from the next step on."""
    check_out(program)
    job = Job(program, "job", {"command": "make"})
    shutil.rmtree(job.temp / "builddoctor-bin")
    assert job._step(ACTION["runs"]["steps"][0]) == 0, job.said
    (folder,) = Path(job.env["GITHUB_PATH"]).read_text().split()
    shown = subprocess.run([f"{folder}/builddoctor", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("builddoctor ")


def test_every_use_is_pinned_and_every_output_is_one_of_a_step() -> None:
    steps = ACTION["runs"]["steps"]
    uses = [step["uses"] for step in steps if "uses" in step]
    assert all(re.fullmatch(r"actions/cache/(?:save|restore)@[0-9a-f]{40}", each) for each in uses)
    assert all(step["shell"] == "bash" for step in steps if "run" in step)
    ids = {step["id"] for step in steps if "id" in step}
    for output in ACTION["outputs"].values():
        assert re.search(r"steps\.(\w+)\.", output["value"])[1] in ids  # type: ignore[index]
