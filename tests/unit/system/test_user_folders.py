"""Where a user's folders lie, with and without a home."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from builddoctor.system.user_folders import usual_folder


def test_below_home_as_is_the_custom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert usual_folder("state") == Path("/home/u/.local/state/builddoctor")


def test_below_the_root_for_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """No HOME and no entry in passwd: no command may fail for that."""

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in [each for each in os.environ if each == "HOME" or each.startswith("XDG_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert usual_folder("cache") == Path("/.cache/builddoctor")
    assert usual_folder("config") == Path("/.config/builddoctor")
