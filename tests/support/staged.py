"""Folders of stages, shells to run them with, and compilers that write down when they began and ended."""

from __future__ import annotations

import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from builddoctor.core.phase import PhaseKind
from builddoctor.core.plan import Plan, Range, Stage, StageName
from builddoctor.core.recipe import Origin, PhaseFigures, Recipe, RecipeProject, RecipeUnit
from builddoctor.recipes.recipe_text import dump
from builddoctor.ui.staged import staging_files
from support.program import clean_environment

AT_ONCE = f"{sys.executable} -IS {Path(__file__).with_name('at_once.py')}"
UNTIL_KILLED = f"{sys.executable} -IS {Path(__file__).with_name('until_killed.py')}"

SHELLS = [["dash"], ["bash", "--posix"], ["busybox", "sh"]]
"""Each is tried where it is there; dash or bash is everywhere."""


def shells() -> list[list[str]]:
    return [each for each in SHELLS if shutil.which(each[0])]


def a_stage(
    name: str, jobs: int, targets: Sequence[str] = (), *, weight: StageName = "light", threads: int = 1
) -> Stage:
    return Stage(
        name=name,
        weight=weight,
        jobs=jobs,
        threads=threads,
        targets=tuple(targets),
        units=len(targets),
        largest_mib=1.0,
        peak_mib=1.0,
        makespan_s=1.0,
    )


def rest(jobs: int = 2) -> Stage:
    return a_stage("rest", jobs, weight="rest")


def a_plan(*stages: Stage) -> Plan:
    unknown = Range(low=1.0, high=1.0)
    return Plan(
        recipe="demo",
        project="demo",
        provenance="measured",
        machine="this machine",
        cores=2,
        memory_mib=1024.0,
        reserve_mib=100.0,
        budget_mib=900.0,
        window=2,
        threads=1,
        stages=stages,
        peak_mib=1.0,
        peak_range_mib=unknown,
        makespan_s=1.0,
        makespan_range_s=unknown,
        staged_s=1.0,
        static=None,
    )


def write_recipe(folder: Path, peaks_mib: Mapping[str, float], *, named: bool = True) -> str:
    """A recipe with a unit for each object, by what Ninja calls it."""
    units = tuple(
        RecipeUnit(
            place=f"{target}.c",
            target=target if named else "",
            phases=(PhaseFigures(kind=PhaseKind.HOST, tool="cc1", peak_mib=peak_mib, cpu_s=1.0),),
        )
        for target, peak_mib in peaks_mib.items()
    )
    recipe = Recipe(schema=2, project=RecipeProject(name="demo"), origin=Origin(provenance="measured"), units=units)
    path = folder / "demo.toml"
    path.write_text(dump(recipe), encoding="utf-8")
    return str(path)


class Staging:
    """A build folder, a folder of stages that stands in front of ninja, and what ninja and compilers were asked."""

    def __init__(self, folder: Path, *stages: Stage, name: str = "stages") -> None:
        self.folder = folder / name
        self.build = folder / "build"
        self.log = folder / "log"
        self.calls = folder / "calls"
        self.env = clean_environment()
        ninja = shutil.which("ninja", path=self.env["PATH"])
        assert ninja is not None
        self.real = ninja
        for each in (self.folder, self.build):
            each.mkdir(parents=True, exist_ok=True)
        self.put(*stages)
        self._recorder(folder / "recorded")
        self.env["PATH"] = f"{self.folder}:{folder / 'recorded'}:{self.env['PATH']}"

    def put(self, *stages: Stage) -> None:
        for file in staging_files(a_plan(*stages)):
            path = self.folder / file.name
            path.write_text(file.text, encoding="utf-8")
            if file.executable:
                path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def _recorder(self, folder: Path) -> None:
        """A ninja on PATH that writes down how it was called to build: one line a call."""
        folder.mkdir()
        program = folder / "ninja"
        program.write_text(
            "#!/bin/sh\n"
            'case " $* " in *" -t "* | *" -n "* | *--version*) ;; '
            f"*) printf '%s\\n' \"$*\" >>{shlex.quote(str(self.calls))} ;; esac\n"
            f'exec {self.real} "$@"\n'
        )
        program.chmod(0o755)

    def edges(self, script: str, names: Sequence[str], more: str = "") -> None:
        """A build.ninja whose compiler is this shell script, with ``$1`` the output."""
        compiler = self.build / "compiler"
        compiler.write_text(f"#!/bin/sh\n{script}\n")
        compiler.chmod(0o755)
        edges = "".join(f"build {name}: cc\n" for name in names)
        rule = "rule cc\n  command = ./compiler $out\n"
        (self.build / "build.ninja").write_text(f"{rule}{edges}{more}")

    def run(
        self, *arguments: str, shell: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*shell, str(self.folder / "ninja"), *arguments],
            cwd=self.build,
            env={**self.env, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def asked(self) -> list[str]:
        """What the real ninja was called with, to build."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def logged(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    def most_at_once(self, names: Sequence[str]) -> int:
        """Of these, how many ran at the same time, from lines ``begin NAME`` and ``end NAME``."""
        running = most = 0
        for line in self.logged():
            what, _, name = line.partition(" ")
            if name in names:
                running += {"begin": 1, "end": -1}[what]
                most = max(most, running)
        return most


def together(log: Path, jobs: int) -> str:
    """A compiler that ends when as many have begun as may run at once: it would wait for ever with fewer jobs."""
    return (
        f"echo \"begin $1\" >>'{log}'\n"
        f"while :; do\n"
        f"  begun=$(grep -c ^begin '{log}') ended=$(grep -c ^end '{log}')\n"
        f'  [ $((begun - begun % {jobs})) -le "$ended" ] || break\n'
        "done\n"
        f"echo \"end $1\" >>'{log}'\n"
        'echo "$1" >"$1"'
    )


def awaiting(process: subprocess.Popen[str], path: Path) -> None:
    """Until this file is there."""
    while not path.exists():
        assert process.poll() is None or path.exists(), process.communicate()
        time.sleep(0.005)
