"""Limits that two builds have in common have one name."""

from __future__ import annotations

from pathlib import Path

from builddoctor.model.limits import LevelKind, MemoryLevel
from builddoctor.sensors.root import SystemRoot
from builddoctor.sensors.scopes import Scopes, boot_id
from unit.trees import TextRoot


def level(source: str, kind: LevelKind = "cgroup-v2") -> MemoryLevel:
    return MemoryLevel(source=source, kind=kind, limit_mib=1.0, headroom_mib=1.0)


def test_a_cgroup_has_one_name_however_it_is_reached(tmp_path: Path) -> None:
    """By device and inode: two mounts of one hierarchy name the same directory differently."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    scopes = Scopes(SystemRoot(tmp_path))
    assert scopes.of(level("/one/memory.max")) == scopes.of(level("/two/memory.high")) != ""
    assert scopes.of(level("/one/memory.stat hierarchical_memory_limit")) == scopes.of(level("/one/memory.max"))
    assert scopes.of(level("/none/memory.max")) == ""


def test_what_holds_for_one_build_alone_has_no_name(tmp_path: Path) -> None:
    """``--memory``, and a scheduler's allotment; the machine's own memory is everybody's."""
    scopes = Scopes(SystemRoot(tmp_path))
    assert scopes.of(level("--memory", "flag")) == scopes.of(level("SLURM_MEM_PER_NODE", "scheduler")) == ""
    assert scopes.of(level("/proc/meminfo", "host")) == scopes.of(level("x", "overcommit")) == "host"


def test_the_boot_is_known_by_its_number() -> None:
    """Empty when it cannot be read: then all records without one belong together."""
    assert boot_id(TextRoot({"/proc/sys/kernel/random/boot_id": "abc-def\n"})) == "abc-def"
    assert boot_id(TextRoot({})) == ""
