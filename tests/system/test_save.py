"""``save`` and ``restore`` between two machines: real make, real ninjas, real compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import ninja
import pytest

from support.program import Program

MAKEFILE = """
all: build/one.o build/two.o build/three.o
build/%.o: %.c
\tmkdir -p build
\t$(CC) -c -o $@ $<
\techo $@ >> ../compiled
"""


def checkout(folder: Path) -> None:
    """As a runner gets it: all files are new."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("one", "two", "three"):
        (folder / f"{name}.c").write_text(f"int {name}(void) {{ return 1; }}\n")
    (folder / "Makefile").write_text(MAKEFILE)


def test_only_what_is_missing_or_changed_is_compiled(program: Program) -> None:
    folder, archive = program.folder / "project", program.folder / "build.tar.gz"
    checkout(folder)
    subprocess.run(["make", "build/one.o", "build/two.o"], cwd=folder, check=True, capture_output=True)
    saved = json.loads(program.run("save", str(archive), "--json", cwd=folder).stdout)
    assert saved["build_folders"] == ["build"]
    checkout(folder)
    (folder / "two.c").write_text("int two(void) { return 2; }\n")
    done = program.run("restore", str(archive), cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 files; 3 sources are as they were, 1 has changed")
    (program.folder / "compiled").unlink()
    subprocess.run(["make"], cwd=folder, check=True, capture_output=True)
    assert sorted((program.folder / "compiled").read_text().split()) == ["build/three.o", "build/two.o"]


BUILD_NINJA = """
cflags = -I{include}
rule cc
  command = gcc $cflags -MD -MF $out.d -c $in -o $out && echo $out >> {compiled}
  depfile = $out.d
  deps = gcc
build one.o: cc {folder}/one.c
build two.o: cc {folder}/two.c
build three.o: cc {folder}/three.c
"""


class NinjaProject:
    """A checkout with absolute paths in its build.ninja, as CMake writes it, and headers elsewhere."""

    def __init__(self, home: Path, name: str, compiled: Path) -> None:
        self.folder = home / name
        self.include = home / "include"
        self.compiled = compiled
        checkout(self.folder)
        self.install()
        for each in ("one", "two"):
            (self.folder / f"{each}.c").write_text(f'#include "{each}.h"\nint {each}(void) {{ return 1; }}\n')

    def install(self) -> None:
        """The headers, with new times."""
        self.include.mkdir(parents=True, exist_ok=True)
        for each in ("one", "two"):
            (self.include / f"{each}.h").write_text("/* a header */\n")

    def configure(self) -> None:
        (self.folder / "build").mkdir()
        text = BUILD_NINJA.format(include=self.include, folder=self.folder, compiled=self.compiled)
        (self.folder / "build/build.ninja").write_text(text)

    def build(self, ninja: str, *targets: str) -> list[str]:
        """What was compiled."""
        self.compiled.unlink(missing_ok=True)
        subprocess.run([ninja, "-C", "build", *targets], cwd=self.folder, check=True, capture_output=True)
        return sorted(self.compiled.read_text().split()) if self.compiled.exists() else []


@pytest.fixture
def moved(program: Program) -> Callable[[str], NinjaProject]:
    """Two of three objects are built in one home, and saved; the project that is restored in another home."""

    def move(ninja: str) -> NinjaProject:
        archive, compiled = program.folder / "build.tar.gz", program.folder / "compiled"
        here = NinjaProject(program.folder / "here", "project", compiled)
        here.configure()
        assert here.build(ninja, "one.o", "two.o") == ["one.o", "two.o"]
        program.env["HOME"] = str(program.folder / "here")
        assert program.run("save", str(archive), cwd=here.folder).returncode == 0
        shutil.rmtree(program.folder / "here")
        program.env["HOME"] = str(program.folder / "there")
        return NinjaProject(program.folder / "there", "checkout/of/it", compiled)

    return move


NINJAS = sorted(
    {
        str(Path(ninja.BIN_DIR, "ninja")),
        shutil.which("ninja", path="/usr/bin") or "",
    }
    - {""}
)
"""Our own, and Debian's older one where it is: their logs differ."""


@pytest.mark.parametrize("which", NINJAS)
def test_a_build_goes_on_in_another_folder(program: Program, moved: Callable[[str], NinjaProject], which: str) -> None:
    """And with another HOME, where the same headers were installed anew: what was compiled is not compiled again."""
    there = moved(which)
    done = program.run("restore", str(program.folder / "build.tar.gz"), cwd=there.folder)
    assert done.returncode == 0, done.stderr
    assert f"it was saved in {program.folder}/here/project: its build files name this folder now" in done.stderr
    assert there.build(which) == ["three.o"]
    # It knows its headers and its sources by the new paths.
    (there.include / "one.h").write_text("/* another */\n")
    assert there.build(which) == ["one.o"]
    (there.folder / "two.c").write_text("int two(void) { return 2; }\n")
    assert there.build(which) == ["two.o"]


@pytest.mark.parametrize("which", NINJAS)
def test_what_changed_on_the_way_is_compiled_again(
    program: Program, moved: Callable[[str], NinjaProject], which: str
) -> None:
    """A source of the new checkout."""
    there = moved(which)
    (there.folder / "two.c").write_text('#include "two.h"\nint two(void) { return 2; }\n')
    assert program.run("restore", str(program.folder / "build.tar.gz"), cwd=there.folder).returncode == 0
    assert there.build(which) == ["three.o", "two.o"]


def test_another_header_elsewhere_is_said(program: Program, moved: Callable[[str], NinjaProject]) -> None:
    """All that was installed anew counts then: which of it has a part in what changed is not known."""
    there = moved(NINJAS[0])
    (there.include / "two.h").write_text("/* another toolkit's */\n")
    done = program.run("restore", str(program.folder / "build.tar.gz"), cwd=there.folder)
    assert f"{there.include}/two.h is missing or not what it was" in done.stderr
    assert there.build(NINJAS[0]) == ["one.o", "three.o", "two.o"]


def test_nothing_to_save_is_said(program: Program) -> None:
    done = program.run("save", "build.tar.gz")
    assert done.returncode == 64
    assert "there is no build folder" in done.stderr
