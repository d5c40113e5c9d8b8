"""Folders that a build writes to, and their mounts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.core.machine import Place
from builddoctor.system.root import SystemRoot
from builddoctor.system.storage import Mount, mount_of, read_mounts, read_place, read_places
from unit.trees import TextRoot, plant

MOUNTINFO = "/proc/self/mountinfo"
DISK = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"


def mount(
    number: int,
    point: str,
    kind: str = "tmpfs",
    *,
    parent: int = 24,
    options: str = "rw",
    inner: str = "rw",
    source: str = "none",
) -> str:
    return f"{number} {parent} 0:{number} / {point} {options} shared:{number} - {kind} {source} {inner}\n"


def tree(tmp_path: Path, mountinfo: str, *folders: str) -> SystemRoot:
    """A root with these mounts, and folders that exist."""
    for folder in folders:
        (tmp_path / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
    return plant(tmp_path, {MOUNTINFO: mountinfo})


def held_by(mountinfo: str, path: str) -> Mount | None:
    return mount_of(read_mounts(TextRoot({MOUNTINFO: mountinfo})), path)


def point_of(mountinfo: str, path: str) -> str:
    found = held_by(mountinfo, path)
    assert found is not None
    return found.point


def test_the_deepest_mount_holds_a_path() -> None:
    """/tmp/build lies on the mount at /tmp, /tmpx and / on the root."""
    text = mount(30, "/tmp") + DISK
    assert [point_of(text, path) for path in ("/tmp/build", "/tmp", "/tmpx", "/")] == ["/tmp", "/tmp", "/", "/"]


def test_of_two_mounts_on_one_folder_the_later_is_seen() -> None:
    """A tmpfs over a disk's /tmp is a tmpfs, and the other way round."""
    over = DISK + mount(30, "/tmp", "ext4") + mount(31, "/tmp", parent=30)
    under = DISK + mount(30, "/tmp") + mount(31, "/tmp", "xfs", parent=30)
    assert getattr(held_by(over, "/tmp/x"), "kind", "") == "tmpfs"
    assert getattr(held_by(under, "/tmp/x"), "kind", "") == "xfs"


def test_a_later_mount_above_hides_one_below() -> None:
    """/scratch/job was mounted, then /scratch itself: what is seen at /scratch/job is the second one."""
    hidden = DISK + mount(30, "/scratch/job") + mount(31, "/scratch", "ext4")
    assert point_of(hidden, "/scratch/job/x") == "/scratch"


def test_a_mount_stands_on_its_parent_whatever_the_order() -> None:
    """The kernel may list /proc before / and /a/b before /a: a parent never hides its child."""
    text = mount(31, "/a/b", parent=30) + mount(30, "/a", "ext4") + DISK
    assert point_of(text, "/a/b/c") == "/a/b"


def test_the_root_hides_nothing() -> None:
    """A mount whose parent is not in the table is no older than the root that is listed after it."""
    assert point_of(mount(30, "/tmp", parent=7) + DISK, "/tmp/x") == "/tmp"


@pytest.mark.parametrize("turned", [False, True])
def test_stacked_mounts_are_told_apart_by_their_parents(turned: bool) -> None:
    """The upper of two mounts on one folder is the one that stands on the other, in whatever order they are listed."""
    for point in ("/", "/tmp"):
        lines = [mount(30, point, "rootfs", parent=1), mount(31, point, "ext4", parent=30)]
        found = held_by("".join(reversed(lines) if turned else lines), "/tmp/x")
        assert found is not None
        assert found.kind == "ext4"


def test_escaped_mount_points_are_found() -> None:
    """Blanks, tabs and backslashes stand as octal numbers in mountinfo."""
    text = DISK + mount(30, r"/my\040build\011x\134y")
    assert point_of(text, "/my build\tx\\y/z") == "/my build\tx\\y"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "24 1 8:1 / / rw - \n",
        "24 1 8:1 / /",
        "30 30 0:1 / /tmp rw - tmpfs none rw\n31 31 0:1 / /tmp rw - tmpfs none\n" + DISK,
        "1 2 0:1 / /tmp rw - tmpfs none rw\n2 1 0:1 / / rw - ext4 x rw\n3 1 0:1 / /tmp/a rw - ext4 x rw\n",
        "\0\x01 - \x02",
        "a b c d relative rw - tmpfs none rw\n",
    ],
    ids=["empty", "blank", "short-tail", "cut", "own-parent", "cycle", "binary", "relative"],
)
def test_odd_mountinfo_crashes_nothing(text: str) -> None:
    """Cut, cyclic or absurd tables give some mount or none."""
    found = held_by(text, "/tmp/a/b")
    assert found is None or found.point in ("/tmp/a", "/tmp", "/")


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs", "devtmpfs", "rootfs"])
def test_file_systems_in_memory_are_named(tmp_path: Path, kind: str) -> None:
    """A tmpfs /tmp is in memory, and its type and mount point are said."""
    root = tree(tmp_path, DISK + mount(30, "/tmp", kind), "/tmp/mine")
    place = read_place(root, "/tmp/mine", role="TMPDIR")
    assert (place.in_memory, place.filesystem, place.mount) == (True, kind, "/tmp")


def test_a_disk_is_not_memory(tmp_path: Path) -> None:
    """A folder on ext4 is on disk, with the size and room that statvfs gives there."""
    root = tree(tmp_path, DISK, "/tmp")
    place = read_place(root, "/tmp", role="TMPDIR")
    seen = os.statvfs(tmp_path)
    assert (place.in_memory, place.filesystem, place.device) == (False, "ext4", "8:1")
    assert place.total_mib == pytest.approx(seen.f_blocks * seen.f_frsize / 1024**2)
    assert place.free_mib == pytest.approx(seen.f_bavail * seen.f_frsize / 1024**2, rel=0.05)


def test_a_compressed_memory_disk_is_memory(tmp_path: Path) -> None:
    """ext4 on /dev/zram1 is a disk in name only."""
    root = tree(tmp_path, DISK + mount(30, "/tmp", "ext4", source="/dev/zram1"), "/tmp")
    assert read_place(root, "/tmp", role="TMPDIR").in_memory


def test_an_overlay_on_tmpfs_is_memory(tmp_path: Path) -> None:
    """The upper layer takes what is written: where that is a tmpfs, it is memory."""
    overlay = mount(31, "/build", "overlay", inner=r"rw,lowerdir=/a:/b,upperdir=/run/up\040per,workdir=/run/w")
    root = tree(tmp_path, DISK + mount(30, "/run") + overlay, "/run/up per", "/build")
    assert read_place(root, "/build", role="build folder").in_memory


def test_an_overlay_on_disk_is_not(tmp_path: Path) -> None:
    """An upper layer on ext4 is a disk."""
    overlay = mount(31, "/build", "overlay", inner="rw,lowerdir=/a,upperdir=/upper,workdir=/w")
    root = tree(tmp_path, DISK + overlay, "/upper", "/build")
    assert not read_place(root, "/build", role="build folder").in_memory


def test_a_containers_upper_layer_is_the_hosts_name(tmp_path: Path) -> None:
    """The upper folder of a container's root is no folder in here, even when a tmpfs of ours has that name's start."""
    overlay = "24 1 0:50 / / rw - overlay overlay rw,lowerdir=/l,upperdir=/run/containers/diff,workdir=/run/w\n"
    root = tree(tmp_path, overlay + mount(30, "/run"), "/run", "/build")
    assert not read_place(root, "/build", role="build folder").in_memory


def test_links_are_followed_before_the_mount_is_looked_up(tmp_path: Path) -> None:
    """/tmp -> /dev/shm/tmp, absolute, and a relative one behind it, lie on the tmpfs."""
    root = tree(tmp_path, DISK + mount(30, "/dev/shm"), "/dev/shm/real")
    (tmp_path / "tmp").symlink_to("/dev/shm/alias")
    (tmp_path / "dev/shm/alias").symlink_to("../shm/real")
    place = read_place(root, "/tmp", role="TMPDIR")
    assert (place.in_memory, place.mount, place.missing, place.path) == (True, "/dev/shm", False, "/tmp")


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A link to itself is a folder that does not exist."""
    root = tree(tmp_path, DISK)
    (tmp_path / "tmp").symlink_to("/tmp")
    assert read_place(root, "/tmp", role="TMPDIR").missing


def test_a_missing_folder_is_described_by_the_nearest_above(tmp_path: Path) -> None:
    """A build folder that is not made yet lies on the tmpfs that its parent lies on."""
    root = tree(tmp_path, DISK + mount(30, "/ram"), "/ram/project")
    place = read_place(root, "/ram/project/build/x", role="build folder")
    assert (place.missing, place.in_memory, place.writable, place.path) == (True, True, True, "/ram/project/build/x")
    assert place.free_mib is not None


def test_a_file_in_the_way_is_a_missing_folder(tmp_path: Path) -> None:
    """TMPDIR=/etc/passwd names no folder."""
    root = plant(tmp_path, {MOUNTINFO: DISK, "/etc/passwd": "x"})
    assert read_place(root, "/etc/passwd", role="TMPDIR").missing


def test_mount_options_are_seen(tmp_path: Path) -> None:
    """noexec and read-only are told, be they the mount's or the file system's."""
    text = DISK + mount(30, "/a", "ext4", options="rw,nosuid,noexec") + mount(31, "/b", "ext4", inner="ro")
    root = tree(tmp_path, text, "/a", "/b")
    first, second = (read_place(root, path, role="x") for path in ("/a", "/b"))
    assert (first.noexec, first.read_only) == (True, False)
    assert (second.noexec, second.read_only) == (False, True)


def test_nothing_known_is_not_a_disk_without_room(tmp_path: Path) -> None:
    """Without mountinfo the type is unknown and the size still there; a folder that cannot exist crashes nothing."""
    place = read_place(plant(tmp_path, {"/tmp/x": ""}), "/tmp", role="TMPDIR")
    assert (place.filesystem, place.in_memory, place.mount) == ("", False, "")
    assert place.free_mib is not None
    assert read_place(SystemRoot(tmp_path), "/a\0b", role="TMPDIR").missing
    assert read_place(SystemRoot(tmp_path), "/" + "x" * 300, role="TMPDIR").missing


def test_a_file_system_without_blocks_or_inodes_has_no_number() -> None:
    """/proc says 0 of 0: that is no full disk."""
    place = read_place(SystemRoot(), "/proc", role="x")
    assert (place.total_mib, place.free_mib, place.free_inodes) == (None, None, None)


def test_room_kept_for_root_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """f_bavail and f_favail count, not f_bfree and f_ffree."""
    figures = os.statvfs_result((4096, 4096, 1000 * 256, 500 * 256, 100 * 256, 90, 80, 70, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: figures)
    place = read_place(tree(tmp_path, DISK, "/tmp"), "/tmp", role="TMPDIR")
    assert (place.total_mib, place.free_mib, place.free_inodes) == (1000, 100, 70)


def test_a_relative_folder_is_below_the_working_directory(tmp_path: Path) -> None:
    """`TMPDIR=tmp` is looked for where the process stands."""
    root = tree(tmp_path, DISK + mount(30, "/ram"), "/ram/project/tmp", "/proc/self")
    (tmp_path / "proc/self/cwd").symlink_to("/ram/project")
    assert read_place(root, "tmp", role="TMPDIR").in_memory


def test_usual_places_have_their_roles(tmp_path: Path) -> None:
    """TMPDIR first, then what the caller asks for, then /dev/shm, /var/tmp and home where they exist."""
    root = tree(tmp_path, DISK, "/tmp", "/var/tmp", "/home/me", "/p")
    places = read_places(root, {"HOME": "/home/me"}, [("build folder", Path("/p/build"))])
    assert [(place.role, place.path, place.missing) for place in places] == [
        ("TMPDIR", "/tmp", False),
        ("build folder", "/p/build", True),
        ("/var/tmp", "/var/tmp", False),
        ("home", "/home/me", False),
    ]


def test_tmpdir_of_the_environment_counts(tmp_path: Path) -> None:
    """TMPDIR=/fast is read, not /tmp; an empty one means /tmp."""
    root = tree(tmp_path, DISK, "/tmp", "/fast")
    assert read_places(root, {"TMPDIR": "/fast"}, [])[0].path == "/fast"
    assert read_places(root, {"TMPDIR": ""}, [])[0].path == "/tmp"


def test_names_that_are_no_text_can_be_printed(tmp_path: Path) -> None:
    """A TMPDIR of bytes that are no UTF-8 is shown escaped."""
    place = read_place(tree(tmp_path, DISK), "/tmp/\udcff", role="TMPDIR")
    assert place.path == "/tmp/\\udcff"
    assert isinstance(place, Place)
