"""What is found, and what the doctor says, in the places that people ask about: kernel files in, its words out."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.machine import Machine
from builddoctor.doctor.memory_checks import HeavyPhase, memory_checks
from builddoctor.doctor.more_memory import more_memory
from builddoctor.doctor.storage_checks import BUILD, SOURCES, storage_checks
from builddoctor.scheduler.budget import MOST_RESERVED_SHARE
from builddoctor.system.cgroup import look_for_place
from builddoctor.system.machine_probe import probe_machine
from builddoctor.ui.machine_page import machine_page
from unit.platform_trees import (
    MadePlace,
    colab,
    github_hosted,
    gitlab_hosted,
    gitlab_pod,
    jetson,
    runner_pod,
    runpod,
    wsl1,
    wsl2,
    wsl2_with_cgroups,
)
from unit.trees import MIB, level_v2, plant

GIB = 1024.0
NOTHING_SPECIAL = "a machine or container with more memory"


def probe(
    place: MadePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, sources: str = "/home/me/te", build: str = ""
) -> Machine:
    """That place, with sources in a folder of it."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(place.cores)))
    root = plant(tmp_path, place.files)
    build = build or f"{sources}/build"
    for folder in (build, sources, "/tmp"):
        root.at(folder).mkdir(parents=True, exist_ok=True)
    folders = [(SOURCES, Path(sources)), (BUILD, Path(build))]
    return probe_machine(root, place.env, folders=folders, sleep=lambda _seconds: None)


def said(machine: Machine) -> dict[str, Check]:
    """The doctor's lines by name."""
    checks = memory_checks(machine, HeavyPhase())
    checks += storage_checks(machine.places, limit_mib=machine.limit_mib, wsl2=machine.platform.wsl_version == 2)
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("place", "limited_by", "limit_gib", "cores", "budget_gib"),
    [
        (wsl2(), "/proc/meminfo MemAvailable", 11.6, 16, 9.07),
        (wsl2_with_cgroups(), "/proc/meminfo MemAvailable", 11.6, 16, 9.07),
        (jetson(), "/proc/meminfo MemAvailable", 7.4, 6, 1.6),
        pytest.param(colab(), "/var/colab/cgroup/jupyter-children/memory.max", 12, 2, 10.25, marks=pytest.mark.trap(4)),
        pytest.param(
            runpod(), "/sys/fs/cgroup/memory/memory.limit_in_bytes", 116.4, 28, 108.6, marks=pytest.mark.trap(5)
        ),
        (runner_pod(), "/sys/fs/cgroup/memory.max", 0.78, 4, 0.22),
        (gitlab_pod(), "/sys/fs/cgroup/memory.max", 4, 8, 3.15),
        (github_hosted(), "/proc/meminfo MemAvailable", 15.6, 4, 12.3),
        (gitlab_hosted(), "/proc/meminfo MemAvailable", 7.8, 2, 6.2),
    ],
    ids=["wsl2", "wsl2-cgroups", "jetson", "colab", "runpod", "runner-pod", "gitlab-pod", "github", "gitlab"],
)
def test_limit_cores_and_budget_are_those_of_the_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: MadePlace,
    limited_by: str,
    limit_gib: float,
    cores: int,
    budget_gib: float,
) -> None:
    """Whatever `free` and `nproc` say: the level that binds, and what is left of it for compilers. All can be read."""
    machine = probe(place, tmp_path, monkeypatch)
    assert (machine.limited_by, machine.cores, machine.unread) == (limited_by, cores, ())
    assert machine.limit_mib / GIB == pytest.approx(limit_gib, abs=0.06)
    assert machine.budget_mib / GIB == pytest.approx(budget_gib, abs=0.06)


@pytest.mark.parametrize("place", [wsl2(), wsl2_with_cgroups()], ids=["before", "with-cgroups"])
def test_wsl2_keeps_twice_as_much_and_gives_numbers_for_wslconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: MadePlace
) -> None:
    """12 of Windows's 24 GB: 18 are proposed, with the file, the section and the command that makes it count."""
    machine = probe(place, tmp_path, monkeypatch)
    assert machine.reserve_mib == pytest.approx(2 * GIB)
    check = said(machine)["memory-wsl"]
    assert "every shell" in check.text
    for part in ("24 GB in Windows", "memory=18GB", "[wsl2]", r"%UserProfile%\.wslconfig", "wsl.exe --shutdown"):
        assert part in check.hint


def test_wslconfig_is_no_advice_where_memory_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores and 9 GiB: what memory ends with is said all the same."""
    machine = probe(msgspec.structs.replace(wsl2(), cores=2), tmp_path, monkeypatch)
    assert said(machine)["memory-wsl"].hint == ""


def test_a_container_in_wsl2_has_its_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """.wslconfig does not raise it; and one kill there ends a compiler, not the virtual machine."""
    place = wsl2()
    limited = level_v2("/sys/fs/cgroup", limit=3072 * MIB, usage=60 * MIB)
    machine = probe(
        msgspec.structs.replace(place, files={**place.files, **limited, "/.dockerenv": ""}), tmp_path, monkeypatch
    )
    checks = said(machine)
    assert machine.reserve_mib == pytest.approx(307.2)
    assert checks["memory-wsl"].hint == ""
    assert checks["cores-memory"].hint == NOTHING_SPECIAL


def test_wsl1_has_windows_memory_and_no_wslconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is said of a virtual machine that is not there, nor of drives, which are not as slow as WSL2's."""
    machine = probe(wsl1(), tmp_path, monkeypatch, sources="/mnt/c/src/te")
    checks = said(machine)
    assert "memory-wsl" not in checks
    assert "windows-drive" not in checks
    assert not machine.surroundings.whole_vm


@pytest.mark.parametrize("drives", ["9p", "virtiofs"])
def test_sources_on_a_drive_of_windows_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drives: str) -> None:
    """By whatever file system WSL shows it, once, with a copy to where Linux is fast."""
    machine = probe(wsl2(drives=drives), tmp_path, monkeypatch, sources="/mnt/c/src/my te")
    check = said(machine)["windows-drive"]
    assert check.status is Status.WARNING
    assert f"sources: /mnt/c/src/my te is on a drive of Windows ({drives})" in check.text
    assert check.hint == "cp -r '/mnt/c/src/my te' ~/ && cd ~/'my te'"


def test_a_build_folder_alone_on_a_drive_of_windows_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its objects go through Windows; the sources need not move."""
    check = said(probe(wsl2(), tmp_path, monkeypatch, build="/mnt/c/out"))["windows-drive"]
    assert check.text.startswith("build folder: /mnt/c/out is")
    assert "your home" in check.hint


def test_a_folder_of_linux_and_a_9p_mount_elsewhere_are_no_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WSL's own disk; and 9p outside of WSL, as some sandboxes have it."""
    assert "windows-drive" not in said(probe(wsl2(), tmp_path, monkeypatch))
    place = wsl2()
    plain = {name: text for name, text in place.files.items() if "WSLInterop" not in name}
    plain["/proc/sys/kernel/osrelease"] = "6.8.0-60-generic\n"
    machine = probe(
        msgspec.structs.replace(place, files=plain), tmp_path / "plain", monkeypatch, sources="/mnt/c/src/te"
    )
    assert "windows-drive" not in said(machine)


def test_a_jetson_is_told_what_else_holds_its_one_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of 8 GB is the reserve, zram counts as nothing, and the desktop can end."""
    machine = probe(jetson(), tmp_path, monkeypatch)
    checks = said(machine)
    assert machine.reserve_mib == pytest.approx(MOST_RESERVED_SHARE * machine.limit_mib, abs=1)
    assert "freezes the machine" in checks["memory-unified"].text
    assert "counts as nothing" in checks["memory-swap"].text
    assert checks["cores-memory"].hint.startswith("sudo systemctl isolate multi-user.target")


@pytest.mark.trap(4)
def test_colabs_processes_are_in_a_group_that_a_second_mount_shows(tmp_path: Path) -> None:
    """/sys/fs/cgroup is the container's group, which holds other processes and has no limit."""
    found = look_for_place(plant(tmp_path, colab().files))
    assert found.place is not None
    assert found.place.directories == ("/var/colab/cgroup/jupyter-children",)
    assert (found.place.complete, found.unread) == (True, ())


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (wsl2(), "memory=18GB"),
        (wsl2_with_cgroups(), "memory=18GB"),
        (wsl1(), NOTHING_SPECIAL),
        (jetson(), "multi-user.target"),
        (colab(), "High-RAM"),
        (runpod(), NOTHING_SPECIAL),
        (runner_pod(), "resources.limits.memory"),
        (gitlab_pod(), "KUBERNETES_MEMORY_LIMIT"),
        (github_hosted(), "larger runner"),
        (gitlab_hosted(), NOTHING_SPECIAL),
    ],
    ids=["wsl2", "wsl2-cgroups", "wsl1", "jetson", "colab", "runpod", "runner-pod", "gitlab-pod", "github", "gitlab"],
)
def test_where_more_memory_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: MadePlace, words: str
) -> None:
    """By what sets the limit there; nothing is made up where no setting is known."""
    assert words in more_memory(probe(place, tmp_path, monkeypatch))


def test_the_machine_full_is_no_matter_of_a_pods_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container without a limit, and a user's own --memory: raising the place's changes nothing."""
    place = gitlab_pod()
    without = msgspec.structs.replace(place, files={**place.files, "/sys/fs/cgroup/memory.max": "max\n"})
    assert more_memory(probe(without, tmp_path, monkeypatch)) == NOTHING_SPECIAL
    for number, limited in enumerate((place, wsl2())):
        root = plant(tmp_path / f"flag{number}", limited.files)
        assert more_memory(probe_machine(root, limited.env, memory_mib=1024)) == NOTHING_SPECIAL


@pytest.mark.parametrize(
    ("place", "name", "agent"),
    [
        (github_hosted(), "github-hosted", True),
        (runner_pod(), "github", True),
        (gitlab_pod(), "gitlab", False),
        (gitlab_hosted(), "gitlab", False),
    ],
    ids=["github", "runner-pod", "gitlab-pod", "gitlab"],
)
def test_only_an_agent_that_shares_the_memory_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: MadePlace, name: str, agent: bool
) -> None:
    """GitHub's, with the words that a starved one leaves; GitLab's runs elsewhere."""
    machine = probe(place, tmp_path, monkeypatch)
    check = said(machine).get("memory-ci")
    assert (check is not None) is agent
    if check is not None:
        assert "lost communication" in check.text
        assert "shutdown signal" in check.text
    line = next(line.plain for line in machine_page(machine) if line.plain.split()[:1] == ["CI"])
    assert line.split(maxsplit=1)[1] == (f"{name}: the agent lives in the same memory" if agent else name)
