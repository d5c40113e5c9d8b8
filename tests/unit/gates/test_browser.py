"""Which browser is started on a page, if any."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.gates.browser import browser_command


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """A PATH with an opener and a browser."""
    for name in ("xdg-open", "surf"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    return str(tmp_path)


def test_without_a_screen_nothing_is_started(programs: str) -> None:
    """A terminal far away has no window to open."""
    assert browser_command(Path("/p.html"), {"PATH": programs}) is None


@pytest.mark.parametrize("screen", ["DISPLAY", "WAYLAND_DISPLAY"])
def test_on_a_screen_the_desktop_decides(screen: str, programs: str) -> None:
    """What opens files opens the page, by its address."""
    command = browser_command(Path("/a b.html"), {"PATH": programs, screen: ":0"})
    assert command == ["xdg-open", "file:///a%20b.html"]


@pytest.mark.parametrize(
    ("browser", "command"),
    [
        ("surf", ["surf", "file:///p.html"]),
        ("nothing:surf -z 2", ["surf", "-z", "2", "file:///p.html"]),
        ("surf --app=%s", ["surf", "--app=file:///p.html"]),
        ("'unbalanced:nothing", None),
    ],
)
def test_users_browser_comes_first(browser: str, command: list[str] | None, programs: str) -> None:
    """The first of $BROWSER that there is, with or without a screen."""
    assert browser_command(Path("/p.html"), {"PATH": programs, "BROWSER": browser}) == command
