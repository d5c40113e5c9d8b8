"""Named machines: figures with sources, names, files, pages."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import MachineNotFoundError
from builddoctor.core.limits import LevelKind, MemoryLevel
from builddoctor.core.machine import HostMemory, Machine, Platform
from builddoctor.machines.named import (
    LARGEST_FILE,
    SYSTEM_SHARE,
    MachineList,
    MachineProfile,
    NominalMachine,
    find_machine,
    load_machine,
    nearest_machines,
    nominal,
    profiles,
)
from builddoctor.ui.machine_page import profile_page

GIB = 1024.0
DEFINITION = "by definition"
NAMES = [profile.name for profile in profiles()]
WANTED = "gb200-node gh200 dgx-h100 dgx-b200 dgx-spark github-runner laptop-32g"
FIGURES = (
    "architecture",
    "cores",
    "memory_mib",
    "page_kib",
    "gpus",
    "hbm_mib_as_numa",
    "unified_memory",
    "ci_runner",
    "whole_vm",
)

every_profile = pytest.mark.parametrize("profile", profiles(), ids=NAMES)


def found(**changes: object) -> Machine:
    """A machine as the sensors give it."""
    level = MemoryLevel(source="/sys/fs/cgroup/memory.max", kind=LevelKind.CGROUP_V2, limit_mib=8192, headroom_mib=6000)
    known: dict = {
        "cores": 4,
        "cores_source": "affinity",
        "limit_mib": 8192.0,
        "headroom_mib": 6000.0,
        "budget_mib": 5180.8,
        "reserve_mib": 819.2,
        "limited_by": level.source,
        "levels": (level,),
        "host": HostMemory(total_mib=16000, free_mib=9000, available_mib=12000),
        "platform": Platform(kernel="6.1.0", architecture="x86_64"),
    }
    return Machine(**{**known, **changes})


@every_profile
def test_every_figure_has_a_source(profile: MachineProfile) -> None:
    """What a profile says, one of its sources says too; the sources speak for nothing that is not there."""
    given = {name for name in FIGURES if getattr(profile, name)}
    assert {figure for source in profile.sources for figure in source.figures} == given
    assert {"architecture", "cores", "memory_mib"} <= given


@every_profile
def test_every_source_can_be_looked_up(profile: MachineProfile) -> None:
    """An address and what it says there; only computers that are their own definition have none."""
    for source in profile.sources:
        assert source.where.startswith("https://") or source.where == DEFINITION
        assert source.says
    own = profile.name.startswith(("laptop-", "wsl2-"))
    assert any(source.where == DEFINITION for source in profile.sources) == own


@every_profile
def test_what_a_source_says_holds_the_number(profile: MachineProfile) -> None:
    """Cores and memory of the profile can be read in the words of its sources, or are a part of them that is named."""
    words = " ".join(source.says for source in profile.sources).replace(",", "")
    gib = profile.memory_mib / GIB
    numbers = {f"{profile.memory_mib:.0f}", f"{gib:.0f}", f"{gib / 1024:.0f} TB", f"{2 * gib:.0f} GB"}
    assert any(number in words for number in numbers)
    halves = {str(profile.cores), f"{profile.cores // 2} cores", f"0 to {profile.cores - 1}"}
    assert any(number in words for number in halves)


def test_names_are_unique_and_can_be_typed() -> None:
    """Lower case, digits and dashes; those that the documentation promises are there."""
    assert len(set(NAMES)) == len(NAMES)
    assert all(name.replace("-", "").isalnum() and name == name.lower() for name in NAMES)
    assert set(WANTED.split()) <= set(NAMES)


def test_a_key_that_is_misspelled_is_refused() -> None:
    """In the files of this package; a user's own file may hold more."""
    machine = '[[machine]]\nname = "x"\ntitle = "X"\narchitecture = "x86_64"\ncores = 1\ncores_are = "cores"\n'
    with pytest.raises(msgspec.ValidationError, match="memory_gib"):
        msgspec.toml.decode(machine + "memory_mib = 1\nmemory_gib = 1\n", type=MachineList)


@every_profile
def test_the_budget_is_below_what_is_built_in(profile: MachineProfile) -> None:
    """Headroom is the memory less the system's share, the budget that less the reserve; all of it called nominal."""
    machine = nominal(profile)
    assert machine.limit_mib == profile.memory_mib
    assert machine.headroom_mib == pytest.approx(profile.memory_mib * (1 - SYSTEM_SHARE), abs=0.1)
    assert machine.budget_mib == pytest.approx(machine.headroom_mib - machine.reserve_mib, abs=0.2)
    assert 0 < machine.budget_mib < machine.headroom_mib < machine.limit_mib
    assert machine.confidence == "nominal"


def test_gpu_memory_is_never_part_of_the_memory() -> None:
    """A GB200 node has 960 GB for builds; the 744 GB of its GPUs are said and not counted."""
    node = nominal(find_machine("gb200-node"))
    assert (node.memory_mib, node.hbm_mib_as_numa) == (960 * GIB, 744 * GIB)
    assert node.budget_mib < 960 * GIB
    half = find_machine("gb200-superchip")
    assert (half.cores, half.memory_mib, half.hbm_mib_as_numa) == (72, node.memory_mib / 2, node.hbm_mib_as_numa / 2)


def test_surroundings_raise_the_reserve() -> None:
    """8 GiB where CPU and GPU share one pool, 1 GiB more beside a CI agent than on a laptop of the same size."""
    assert nominal(find_machine("jetson-agx-orin")).reserve_mib == 8 * GIB
    assert nominal(find_machine("dgx-spark")).reserve_mib > 8 * GIB
    runner, laptop = nominal(find_machine("github-runner")), nominal(find_machine("laptop-16g"))
    assert runner.memory_mib == laptop.memory_mib
    assert runner.reserve_mib == laptop.reserve_mib + GIB


def test_wsl_has_half_of_the_computer() -> None:
    """That is what Windows gives its virtual machine by itself; twice as much of it is kept free as of a laptop's."""
    wsl, laptop = nominal(find_machine("wsl2-32g")), nominal(find_machine("laptop-16g"))
    assert wsl.memory_mib == find_machine("laptop-32g").memory_mib / 2 == laptop.memory_mib
    assert wsl.reserve_mib == 2 * laptop.reserve_mib


@pytest.mark.parametrize("name", [*NAMES, " GB200-node ", "DGX-H100"])
def test_a_machine_is_found_by_its_name(name: str) -> None:
    """Case and blanks around it do not matter."""
    assert find_machine(name).name == name.strip().lower()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gb200", "gb200-node"),
        ("gh20", "gh200"),
        ("dgxh100", "dgx-h100"),
        ("grace-cpu", "grace-cpu-240g"),
        ("github-runer", "github-runner"),
        ("gh200-node", "gh200"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(typed: str, meant: str) -> None:
    """The message names what may have been meant, the hint the list."""
    with pytest.raises(MachineNotFoundError, match=meant) as caught:
        find_machine(typed)
    assert meant in nearest_machines(typed)
    assert "builddoctor machine list" in caught.value.hint


@pytest.mark.parametrize("typed", ["", " ", "zzzz", "\x1b[31m", "x" * 100_000])
def test_a_name_that_is_like_none_gets_no_guess(typed: str) -> None:
    """Nothing is suggested, the message stays one short line, and no control character is in it."""
    with pytest.raises(MachineNotFoundError) as caught:
        find_machine(typed)
    assert "did you mean" not in str(caught.value)
    assert len(str(caught.value)) < 120
    assert str(caught.value).isprintable()


@every_profile
def test_a_profile_survives_json(profile: MachineProfile, tmp_path: Path) -> None:
    """What `machine show --json` prints is a file that `machine show FILE` reads, with the same figures."""
    file = tmp_path / "machine.json"
    file.write_bytes(msgspec.json.encode(nominal(profile)))
    assert load_machine(str(file)) == nominal(profile)


def test_a_probed_machine_survives_json(tmp_path: Path) -> None:
    """It is told apart from a profile by its memory levels."""
    file = tmp_path / "machine.json"
    file.write_bytes(msgspec.json.encode(found()))
    assert load_machine(str(file)) == found()


def test_a_profile_written_by_hand_needs_five_figures(tmp_path: Path) -> None:
    """Name, title, architecture, cores, memory; sources are wanted of us, not of a user. The budget is ours to say."""
    file = tmp_path / "mine.json"
    file.write_text(
        '{"name": "mine", "title": "under the desk", "architecture": "x86_64", "cores": 6, "cores_are": "cores", '
        '"memory_mib": 65536, "budget_mib": 1e9}'
    )
    mine = load_machine(str(file))
    assert isinstance(mine, NominalMachine)
    assert mine.budget_mib < 65536
    assert "none" in profile_page(mine)[-1].plain


def test_a_name_goes_before_a_file_that_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stray file cannot change what a named machine is; a file with a name of its own needs no suffix."""
    monkeypatch.chdir(tmp_path)
    profile = msgspec.structs.replace(find_machine("gh200"), cores=1)
    for name in ("gh200", "mine"):
        (tmp_path / name).write_bytes(msgspec.json.encode(profile))
    assert (load_machine("gh200").cores, load_machine("mine").cores) == (72, 1)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b'{"x": ' + b"[" * 100_000,
        b'{"levels": []}',
        b'{"levels": null, "name": 7}',
        b'{"schema": 99}',
        b'{"schema": "1"}',
        b'{"name": "a", "title": "b", "architecture": "\\u001b[31m", "cores": 1, "cores_are": "cores"}',
        b'{"name": "a", "title": "b", "architecture": "x86_64", "cores": 0, "cores_are": "cores", "memory_mib": 1}',
        b'{"name": "a", "title": "b", "architecture": "x86_64", "cores": 1, "cores_are": "cores", "memory_mib": -1}',
        b'{"name": "a", "title": "b", "architecture": "x86_64", "cores": 1, "cores_are": "cores", "memory_mib": 1e999}',
        b"{" + b" " * LARGEST_FILE + b"}",
    ],
)
def test_a_file_that_holds_no_machine_is_refused(content: bytes, tmp_path: Path) -> None:
    """With its name and a way on; never with a traceback, and nothing in it reaches the terminal as it is."""
    file = tmp_path / "machine.json"
    file.write_bytes(content)
    with pytest.raises(MachineNotFoundError, match=r"machine\.json") as caught:
        load_machine(str(file))
    assert str(caught.value).isprintable()
    assert caught.value.hint


@pytest.mark.parametrize("name", ["/no/such/file", "missing.json", "/", "a\0b.json", "/dev/null"])
def test_what_is_no_file_is_refused(name: str) -> None:
    """A missing file, a folder, a device, a path that cannot be."""
    with pytest.raises(MachineNotFoundError):
        load_machine(name)
