"""``save`` and ``restore`` between two machines: real make, real compiler."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

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
    folder.mkdir()
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


def test_another_folder_is_said(program: Program) -> None:
    folder, other, archive = program.folder / "a", program.folder / "b", program.folder / "build.tar.gz"
    checkout(folder)
    checkout(other)
    subprocess.run(["make"], cwd=folder, check=True, capture_output=True)
    program.run("save", str(archive), cwd=folder)
    done = program.run("restore", str(archive), cwd=other)
    assert f"it was saved in {folder}" in done.stderr


def test_nothing_to_save_is_said(program: Program) -> None:
    done = program.run("save", "build.tar.gz")
    assert done.returncode == 64
    assert "there is no build folder" in done.stderr
