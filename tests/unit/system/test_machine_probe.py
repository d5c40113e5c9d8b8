"""Out-of-memory killers and core dumps on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.core.machine import CoreDumps, Neighbours
from builddoctor.system.machine_probe import MOST_PROCESSES, read_neighbours
from builddoctor.system.root import SystemRoot
from unit.trees import TextRoot, plant

DISK = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
SYSTEMD = "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h"
DEBIAN = "|/lib/systemd/systemd-coredump %P %u %g %s %t 9223372036854775808 %h"
APPORT = "|/usr/share/apport/apport -p%p -s%s -c%c -d%d -P%P -u%u -g%g -- %E"


def limits(soft: object) -> str:
    head = "Limit                     Soft Limit           Hard Limit           Units"
    return f"{head}\nMax core file size        {soft}    unlimited    bytes\n"


def dumps(tmp_path: Path, pattern: object, soft: object = "unlimited", *folders: str) -> CoreDumps:
    for folder in ("/build", *folders):
        (tmp_path / folder.lstrip("/")).mkdir(parents=True)
    files = {
        "/proc/self/mountinfo": DISK,
        "/proc/sys/kernel/core_pattern": pattern,
        "/proc/self/limits": limits(soft),
    }
    found = read_neighbours(plant(tmp_path, files), "/build").dumps
    assert found is not None
    return found


def processes(**comms: str) -> dict[str, str | None]:
    return {f"/proc/{pid.lstrip('p')}/comm": f"{comm}\n" for pid, comm in comms.items()}


@pytest.mark.parametrize("name", ["earlyoom", "nohang", "systemd-oomd", "oomd"])
def test_daemons_are_found_by_name(name: str) -> None:
    """Each of the four is found among other processes, with its pid."""
    found = read_neighbours(TextRoot(processes(p1="systemd", p77=name, p90="oomd-helper")), "/")
    assert [(daemon.name, daemon.pid) for daemon in found.daemons] == [(name, 77)]


def test_no_daemon_is_found_where_there_is_none() -> None:
    """Names that only resemble one do not count."""
    found = read_neighbours(TextRoot(processes(p1="init", p2="oomd2", p3="vim earlyoom")), "/")
    assert found == Neighbours()


def test_one_of_a_kind_is_enough() -> None:
    """nohang's threads and helpers are one daemon."""
    found = read_neighbours(TextRoot(processes(p20="nohang", p3="nohang")), "/")
    assert [daemon.pid for daemon in found.daemons] == [3]


@pytest.mark.parametrize(
    ("arguments", "percent"),
    [
        ("earlyoom\0-r\x003600\0-m\x005,2\0-s\x00100\0", 5.0),
        ("earlyoom\0-m4.5\0", 4.5),
        ("earlyoom\0-m\x005\0-m\x007\0", 7.0),
        ("earlyoom\0-r\x000\0", None),
        ("earlyoom\0-m\0", None),
        ("earlyoom\0-m\0nonsense\0", None),
        ("earlyoom\0-m\x00900\0", None),
        ("", None),
    ],
)
def test_threshold_of_earlyoom_is_read(arguments: str, percent: float | None) -> None:
    """-m PERCENT[,KILL_PERCENT] says when it acts; unreadable arguments say nothing."""
    root = TextRoot({**processes(p5="earlyoom"), "/proc/5/cmdline": arguments})
    assert read_neighbours(root, "/").daemons[0].acts_below_percent == percent


def test_hidden_processes_are_said() -> None:
    """With hidepid a daemon may run unseen: that is told, not taken for none."""
    proc = "30 24 0:5 / /proc rw - proc proc rw,hidepid={}\n"
    hidden = {
        value: read_neighbours(
            TextRoot({**processes(p9="bash"), "/proc/self/mountinfo": DISK + proc.format(value)}), "/"
        )
        for value in ("0", "off", "1", "2", "invisible", "ptraceable")
    }
    assert [bool(each.unread) for each in hidden.values()] == [False, False, True, True, True, True]


def test_a_proc_that_cannot_be_listed_is_said() -> None:
    """No process seen at all is not the same as none there."""
    assert read_neighbours(TextRoot({}), "/").unread == ("/proc: no process can be seen",)


def test_the_search_is_bounded() -> None:
    """Of more than 5000 processes those with the lowest numbers are looked at, and the rest is said."""
    crowd = {f"/proc/{pid}/comm": "sh\n" for pid in range(10, 10 + MOST_PROCESSES)}
    root = TextRoot({**crowd, **processes(p2="earlyoom", p99999="nohang")})
    found = read_neighbours(root, "/")
    assert [daemon.name for daemon in found.daemons] == ["earlyoom"]
    assert found.unread == ("/proc: 2 processes of 5002 were not looked at",)


@pytest.mark.parametrize(
    ("cgroup", "scope"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope"),
        ("0::/user.slice/user@1000.service/app.slice/tmux-spawn-1.scope/x\n", "tmux-spawn-1.scope"),
        ("0::/\n", ""),
        ("", ""),
    ],
)
def test_the_scope_of_this_process_is_read(cgroup: str, scope: str) -> None:
    """systemd-oomd ends whole cgroups: the one that we are in is named."""
    assert read_neighbours(TextRoot({"/proc/self/cgroup": cgroup}), "/").scope == scope


def test_plain_core_files_land_where_compilers_run(tmp_path: Path) -> None:
    """`core` is a file in the working folder of who crashed."""
    found = dumps(tmp_path, "core\n")
    assert (found.piped_to, found.written) == ("", True)
    assert found.place is not None
    assert found.place.path == "/build"


def test_core_files_in_a_fixed_folder(tmp_path: Path) -> None:
    """The folder ends before the first % that the kernel fills in."""
    found = dumps(tmp_path, "/var/cores/%h/core.%e.%p\n", "unlimited", "/var/cores")
    assert found.written
    assert found.place is not None
    assert found.place.path == "/var/cores"


def test_core_files_in_a_folder_that_is_missing_are_not_written(tmp_path: Path) -> None:
    """The kernel makes no folders."""
    assert not dumps(tmp_path, "/var/cores/core.%p\n").written


@pytest.mark.parametrize("page_bytes", [4096, 65536])
@pytest.mark.parametrize(("pages", "written"), [(0, False), (0.5, False), (1, True), (2, True), (None, True)])
def test_the_limit_keeps_files_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page_bytes: int, pages: float | None, written: bool
) -> None:
    """RLIMIT_CORE of 0 (and of less than a page of this kernel) is no dump."""
    monkeypatch.setattr(SystemRoot, "page_bytes", lambda _: page_bytes)
    soft = "unlimited" if pages is None else int(pages * page_bytes)
    assert dumps(tmp_path, "core\n", soft).written is written


@pytest.mark.parametrize(
    ("pattern", "soft", "written"),
    [
        (SYSTEMD, "unlimited", True),
        (SYSTEMD, 0, False),
        (DEBIAN, 0, True),
        (APPORT, 0, True),
        (APPORT, 1, False),
        (DEBIAN, 1, False),
    ],
    ids=["systemd", "systemd-0", "debian-0", "apport-0", "apport-1", "debian-1"],
)
def test_the_limit_means_little_to_a_pipe(tmp_path: Path, pattern: str, soft: object, written: bool) -> None:
    """The kernel pipes at a limit of 0 too, only not at 1; systemd-coredump keeps the limit when it is told of it."""
    assert dumps(tmp_path, pattern, soft).written is written


def test_folders_of_known_handlers_are_found(tmp_path: Path) -> None:
    """systemd-coredump and apport keep dumps in folders of their own."""
    first = dumps(tmp_path / "a", SYSTEMD, "unlimited", "/var/lib/systemd/coredump")
    second = dumps(tmp_path / "b", APPORT, "unlimited", "/var/crash")
    assert (first.piped_to, getattr(first.place, "path", "")) == ("systemd-coredump", "/var/lib/systemd/coredump")
    assert (second.piped_to, getattr(second.place, "path", "")) == ("apport", "/var/crash")


def test_an_unknown_handler_has_no_folder(tmp_path: Path) -> None:
    """Where somebody's own program puts dumps, and where a container's host does, is not guessed."""
    assert dumps(tmp_path / "a", "|/opt/crash %p").place is None
    assert dumps(tmp_path / "b", SYSTEMD).place is None


@pytest.mark.parametrize("pattern", ["|", "| ", "@", "%", "/", "", b"\xff\xfe|", "|" + "x" * 5000])
def test_odd_patterns_crash_nothing(tmp_path: Path, pattern: object) -> None:
    """Whatever stands in core_pattern is read; an empty one writes nothing."""
    found = dumps(tmp_path, pattern)
    assert found.written is (pattern != "")


def test_an_unreadable_pattern_is_unknown() -> None:
    """No core_pattern is not the same as no dumps."""
    assert read_neighbours(TextRoot({}), "/").dumps is None
