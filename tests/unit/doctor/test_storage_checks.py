"""What the doctor says of folders, and which one it takes for temporary files."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.check import Check, Status
from builddoctor.core.machine import Place
from builddoctor.doctor.storage_checks import best, export_line, storage_checks, unfit

GIB = 1024.0
TMP = Place(
    role="TMPDIR",
    path="/tmp",
    filesystem="ext4",
    total_mib=100 * GIB,
    free_mib=50 * GIB,
    free_inodes=10**6,
    mount="/",
    device="8:1",
)
BUILD = msgspec.structs.replace(TMP, role="build folder", path="/p/build")
RAM = msgspec.structs.replace(
    TMP, filesystem="tmpfs", in_memory=True, total_mib=12 * GIB, free_mib=10 * GIB, mount="/tmp", device="0:30"
)
VAR_TMP = msgspec.structs.replace(TMP, role="/var/tmp", path="/var/tmp")


def altered(place: Place, **fields: object) -> Place:
    return msgspec.structs.replace(place, **fields)


def checks(*places: Place, **options: object) -> dict[str, Check]:
    """By name; the build's limit is 28 GiB."""
    found = storage_checks(places, limit_mib=28 * GIB, **options)
    assert all(check.topic == "disk" for check in found)
    assert all(check.hint for check in found if check.status is not Status.OK)
    return {check.name: check for check in found}


def test_disks_with_room_are_one_line() -> None:
    """TMPDIR and build folder on one disk with room: one ok line that names both."""
    found = storage_checks([TMP, BUILD, VAR_TMP], limit_mib=28 * GIB)
    assert [(check.name, check.status) for check in found] == [("disk-space", Status.OK)]
    assert found[0].text == "50.0 GiB free for TMPDIR and build folder on / (ext4)"


def test_a_tmpfs_in_the_way_is_a_warning_with_its_cost() -> None:
    """72 open units for one arch, 45 MiB each: 3.2 GiB of the limit, besides the 2 GiB that lie there now."""
    check = checks(RAM, VAR_TMP, open_units=72, archs=1)["tmpdir-memory"]
    assert (check.status, check.fix, check.stops_build) == (Status.WARNING, "tmpdir", False)
    assert "TMPDIR=/tmp is a tmpfs" in check.text
    assert "about 3.2 GiB of nvcc's files with 72 units open, inside the limit of 28.0 GiB" in check.text
    assert "2.0 GiB are in use there now" in check.text
    assert check.hint == "export TMPDIR=$(mktemp -d /var/tmp/build.XXXXXX)"


def test_each_arch_has_its_own_files() -> None:
    """Two archs cost twice as much; without a number of units the cost is told a unit."""
    assert "90 MiB" in checks(RAM, archs=2)["tmpdir-memory"].text
    assert "45 MiB" in checks(RAM)["tmpdir-memory"].text


def test_without_a_disk_nvcc_writes_beside_its_objects() -> None:
    """Where no folder on disk is known the hint is nvcc's own option."""
    assert checks(RAM)["tmpdir-memory"].hint == 'export NVCC_APPEND_FLAGS="$NVCC_APPEND_FLAGS -objtemp"'


def test_an_endless_tmpfs_has_no_space_check() -> None:
    """A tmpfs without a size fills memory, not itself."""
    found = checks(altered(RAM, total_mib=None, free_mib=None, free_inodes=None), VAR_TMP)
    assert list(found) == ["tmpdir-memory"]


@pytest.mark.parametrize(
    ("free_mib", "status", "stops"),
    [
        (5 * GIB, Status.OK, False),
        (5 * GIB - 1, Status.WARNING, False),
        (GIB, Status.WARNING, False),
        (GIB - 1, Status.PROBLEM, False),
        (16.0, Status.PROBLEM, False),
        (0.0, Status.PROBLEM, True),
    ],
)
def test_free_space_is_graded(free_mib: float, status: Status, stops: bool) -> None:
    """Below 5 GiB a warning, below 1 GiB a problem, and with nothing left no build starts."""
    check = checks(altered(BUILD, free_mib=free_mib))["disk-space"]
    assert (check.status, check.stops_build) == (status, stops)


@pytest.mark.parametrize(
    ("inodes", "status"),
    [(0, Status.PROBLEM), (999, Status.PROBLEM), (1000, Status.WARNING), (19_999, Status.WARNING), (20_000, None)],
)
def test_inodes_are_graded(inodes: int, status: Status | None) -> None:
    """Gigabytes free and no inodes: no file can be made. Enough of them are not worth a line."""
    check = checks(altered(BUILD, free_inodes=inodes)).get("disk-inodes")
    assert (check and check.status) == status


def test_no_fixed_number_of_inodes_is_no_shortage() -> None:
    """btrfs makes inodes as they are needed."""
    assert "disk-inodes" not in checks(altered(BUILD, free_inodes=None))


def test_unknown_space_is_said() -> None:
    """A file system that does not answer is not one without room."""
    check = checks(altered(BUILD, total_mib=None, free_mib=None))["disk-space"]
    assert check.status is Status.WARNING
    assert "cannot be asked" in check.text
    # A folder that is not there yet cannot be given to df.
    check = checks(altered(BUILD, total_mib=None, free_mib=None, missing=True))["disk-space"]
    assert check.hint == "df -h /"


def test_a_full_tmpdir_of_its_own_can_be_moved() -> None:
    """TMPDIR on a small disk of its own: the fix is another TMPDIR; a full build folder is nothing we can move."""
    found = storage_checks(
        [altered(TMP, free_mib=100.0, device="8:2", mount="/tmp"), altered(BUILD, free_mib=100.0)], limit_mib=28 * GIB
    )
    assert [(check.status, check.fix) for check in found] == [(Status.PROBLEM, "tmpdir"), (Status.PROBLEM, "")]


@pytest.mark.parametrize("fields", [{"missing": True}, {"writable": False}, {"writable": False, "read_only": True}])
def test_a_tmpdir_that_cannot_be_used_ends_nvcc(fields: dict[str, bool]) -> None:
    """nvcc cannot do without TMPDIR; a build that never calls it can."""
    found = [checks(altered(TMP, **fields), VAR_TMP, needs_nvcc=needs)["tmpdir-usable"] for needs in (True, False)]
    assert [check.status for check in found] == [Status.PROBLEM, Status.PROBLEM]
    assert [check.stops_build for check in found] == [True, False]


def test_a_missing_tmpdir_can_be_made() -> None:
    """The hint makes the folder, quoted for the shell."""
    check = checks(altered(TMP, missing=True, path="/tmp/my own"))["tmpdir-usable"]
    assert check.hint == "mkdir -p '/tmp/my own'"


def test_a_build_folder_that_cannot_be_written_is_a_problem() -> None:
    """Read-only or somebody else's, it is said which."""
    read_only = checks(altered(BUILD, writable=False, read_only=True))["build-folder-usable"]
    foreign = checks(altered(BUILD, writable=False))["build-folder-usable"]
    assert read_only.status is foreign.status is Status.PROBLEM
    assert "read-only" in read_only.text
    assert "read-only" not in foreign.text


def test_noexec_breaks_trial_programs() -> None:
    """configure and CMake run what they compile; our own gates lie in the cache folder."""
    cache = altered(BUILD, role="cache", path="/c", noexec=True)
    found = checks(altered(TMP, noexec=True), altered(BUILD, noexec=True), cache)
    graded = {name: check.status for name, check in found.items() if check.status is not Status.OK}
    assert graded == {
        "tmpdir-noexec": Status.WARNING,
        "build-folder-noexec": Status.WARNING,
        "cache-folder": Status.PROBLEM,
    }


def test_own_folders_that_cannot_be_written_name_their_variable() -> None:
    """An unwritable folder for traces is a problem with the variable that moves it; one not made yet is none."""
    traces = altered(BUILD, role="traces", path="/t")
    assert checks(altered(traces, missing=True)) == {}
    assert checks(altered(traces, writable=False))["traces-folder"].hint == "export BUILDDOCTOR_STATE_DIR=/some/folder"


def test_a_build_folder_in_memory_is_a_warning() -> None:
    """Objects on a tmpfs are memory of the build."""
    assert checks(altered(RAM, role="build folder"))["build-folder-memory"].status is Status.WARNING


@pytest.mark.parametrize(("used_mib", "told"), [(1400.0, False), (1500.0, True)])
def test_what_lies_in_shared_memory_is_told_when_it_counts(used_mib: float, told: bool) -> None:
    """/dev/shm is always a tmpfs: it is mentioned from 5 % of the limit on."""
    shm = altered(RAM, role="/dev/shm", path="/dev/shm", free_mib=12 * GIB - used_mib)
    assert ("shm-in-use" in checks(shm)) is told


def test_the_best_tmpdir_is_a_local_disk_with_room() -> None:
    """Room for a whole build, then local, then the build's own disk, then the most room."""
    tight = altered(TMP, path="/tight", device="1:1", free_mib=2 * GIB)
    network = altered(TMP, path="/net", device="0:9", filesystem="lustre", free_mib=9000 * GIB)
    own = altered(TMP, path="/own", device="2:1", free_mib=20 * GIB)
    roomy = altered(TMP, path="/roomy", device="3:1", free_mib=90 * GIB)
    places = [tight, network, own, roomy]
    assert best(places) is roomy
    assert best(places, build_device="2:1") is own
    assert best(places, build_device="1:1") is roomy
    assert best([tight, network]) is network
    assert best([tight]) is tight


def test_of_one_disk_the_first_folder_is_taken() -> None:
    """Free space read twice differs by what others wrote in between: that decides nothing."""
    second = altered(TMP, path="/second", free_mib=51 * GIB)
    assert best([TMP, second]) is TMP


@pytest.mark.parametrize(
    "fields",
    [
        {"in_memory": True},
        {"noexec": True},
        {"writable": False},
        {"read_only": True},
        {"free_mib": 900.0},
        {"free_mib": None},
        {"path": "/with blank"},
        {"path": "relative"},
    ],
)
def test_folders_that_will_not_do_are_never_chosen(fields: dict[str, object]) -> None:
    """Memory, noexec, foreign, full, unknown or oddly named folders are no way out."""
    assert best([altered(TMP, **fields)]) is None
    assert "-objtemp" in export_line([altered(TMP, **fields)])


def test_a_good_tmpdir_is_left_alone() -> None:
    """A disk with room is fit; each flaw has its word."""
    assert unfit(TMP) == ""
    assert unfit(RAM) == "is a tmpfs in memory"
    assert [unfit(altered(TMP, **{name: True})) for name in ("missing", "noexec")] == [
        "does not exist",
        "is mounted noexec",
    ]
    assert [unfit(altered(TMP, free_mib=mib)) for mib in (None, 10.0)] == ["", "is nearly full"]
