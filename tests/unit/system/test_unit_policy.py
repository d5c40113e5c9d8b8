"""The systemd unit that a kernel kill would end as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.system.cgroup import find_place
from builddoctor.system.unit_policy import unit_that_stops
from unit.trees import level_v2, plant, v2

SCOPE = "/user.slice/user-1000.slice/user@1000.service/app.slice/run-r1.scope"
SESSION = "/user.slice/user-1000.slice/session-2.scope"
AT_SYSTEM, AT_USER = "/run/systemd/transient", "/run/user/1000/systemd/transient"


def stops(folder: Path, path: str, files: dict[str, str]) -> str:
    """What is said of a process in the cgroup ``path``, where systemd runs and these unit files are."""
    tree = {**v2(path), **level_v2(f"/sys/fs/cgroup{path}"), "/run/systemd/system/x": ""}
    root = plant(folder, {**tree, **files})
    return unit_that_stops(root, find_place(root))


@pytest.mark.trap(35)
@pytest.mark.parametrize(
    ("path", "files", "unit"),
    [
        (SCOPE, {f"{AT_USER}/run-r1.scope": "[Scope]\nMemoryMax=1\n"}, "run-r1.scope"),
        (f"{SCOPE}/below", {f"{AT_USER}/run-r1.scope": ""}, "run-r1.scope"),
        (SCOPE, {f"{AT_USER}/run-r1.scope": "[Scope]\nOOMPolicy=continue\n"}, ""),
        (SCOPE, {f"{AT_USER}/run-r1.scope": "", "/etc/systemd/user.conf": "DefaultOOMPolicy=continue\n"}, ""),
        (
            SCOPE,
            {f"{AT_USER}/run-r1.scope": "", "/etc/systemd/system.conf": "DefaultOOMPolicy=continue\n"},
            "run-r1.scope",
        ),
        (SCOPE, {f"{AT_USER}/run-r1.scope": "[Scope]\nDelegate=yes\n"}, ""),
        (SCOPE, {f"{AT_USER}/run-r1.scope": "[Scope]\nDelegate=memory pids\n"}, ""),
        (SCOPE, {f"{AT_USER}/run-r1.scope": "[Scope]\nDelegate=No\n"}, "run-r1.scope"),
        (SCOPE, {f"{AT_USER}/run-r1.scope": "[Scope]\nDelegate=yes\nOOMPolicy=stop\n"}, "run-r1.scope"),
        (
            SCOPE,
            {f"{AT_USER}/run-r1.scope": "Delegate=yes\n", "/etc/systemd/user.conf": "DefaultOOMPolicy=stop\n"},
            "",
        ),
        (SCOPE, {f"{AT_SYSTEM}/run-r1.scope": "[Scope]\nMemoryMax=1\n"}, ""),
        (SCOPE, {f"{AT_USER}/run-r1.scope": "", f"{AT_USER}/run-r1.scope.d/50.conf": "OOMPolicy = continue\n"}, ""),
        (SESSION, {f"{AT_SYSTEM}/session-2.scope": "[Scope]\nOOMPolicy=continue\n"}, ""),
        (
            "/system.slice/ci@3.service",
            {"/etc/systemd/system/ci@.service": "[Service]\nOOMPolicy=stop\n"},
            "ci@3.service",
        ),
        ("/system.slice/ci.service", {"/etc/systemd/system/ci.service": "OOMPolicy=kill\n"}, ""),
        ("/system.slice/ci.service", {}, ""),
        ("/kubepods/pod1", {}, ""),
    ],
)
def test_the_nearest_units_own_file_says_it(tmp_path: Path, path: str, files: dict[str, str], unit: str) -> None:
    """systemd's default is stop; a unit whose file is not there is not ours to judge."""
    assert stops(tmp_path, path, files) == unit


def test_without_systemd_nothing_is_said(tmp_path: Path) -> None:
    """A container has its host's names of groups, and no systemd that watches from inside."""
    root = plant(tmp_path, {**v2(SCOPE), **level_v2(f"/sys/fs/cgroup{SCOPE}"), f"{AT_USER}/run-r1.scope": ""})
    assert unit_that_stops(root, find_place(root)) == ""
    assert unit_that_stops(root, None) == ""
