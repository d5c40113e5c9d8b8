"""The live board on a real terminal: it draws, it passes the build's output on, it goes away."""

from __future__ import annotations

import os
import pty
import subprocess

import pytest

from support.program import Program


def on_terminal(program: Program, *command: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """Run builddoctor on a terminal of its own; its exit code and everything that it wrote there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        program.supervised(*command),
        cwd=program.folder,
        env={**program.env, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:
            break
        written += piece
    os.close(ours)
    return process.wait(), written.decode(errors="replace")


def test_the_board_shows_memory_and_goes_away(program: Program) -> None:
    """Units, memory and jobs are drawn while the build runs; its own lines are all there, unharmed."""
    (program.folder / "one.cpp").write_text('#include <regex>\nstd::regex one("a+");\n')
    script = "echo '[red]not markup[/red]'; g++ -O2 -c one.cpp; printf 'no newline at the end'; exit 3"
    code, screen = on_terminal(program, "sh", "-c", script)
    assert code == 3
    for word in (
        "units",
        "memory",
        "jobs",
        "[red]not markup[/red]",
        "no newline at the end",
        "failed with exit code 3",
    ):
        assert word in screen
    assert any(line.strip().startswith("trace ") for line in screen.splitlines())
    assert "\x1b[?25h" in screen, "the cursor is shown again"


@pytest.mark.parametrize("env", [{"CI": "true"}, {"TERM": "dumb"}])
def test_no_board_in_ci_or_on_a_dumb_terminal(program: Program, env: dict[str, str]) -> None:
    """There the terminal gets plain lines, without one escape sequence."""
    code, screen = on_terminal(program, "echo", "built", env=env)
    assert code == 0
    assert "built" in screen
    assert "\x1b" not in screen
