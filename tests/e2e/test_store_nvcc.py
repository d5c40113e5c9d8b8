"""A store of phases with real nvcc and gcc: what one build has kept, the next one takes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from builddoctor.cluster.keys import make_keys
from builddoctor.core.events import PhaseAsked, PhaseEnded
from builddoctor.core.phase import STORE, Outcome, PhaseKind
from builddoctor.toolchain.travelling import TRAVELLERS
from support.failures import on_tmpfs, run
from support.memcg import memory_cgroup
from support.nodes import Meeting
from support.objects import objects_of
from support.program import Program

pytestmark = [pytest.mark.needs_nvcc]

HEADER = "#pragma once\nstatic __device__ float f(int i) { int unused_here; return i * 2.0f; }\n"
UNIT = """#include <h.h>
#include <cstdio>
namespace { __device__ int calls; }
__global__ void k(float *x, int n) { calls++; x[threadIdx.x] += f(n); printf("%d\\n", n); }
int main() { k<<<1, 2>>>(nullptr, 4); return 0; }
"""
HOST = """#include <vector>
#warning look at this
int sum(std::vector<int> const &v) { int s = 0; for (int each : v) s += each; return s; }
"""
BUILD = """
mkdir -p "$1"
nvcc -arch=sm_90 -lineinfo -I"$2" -c line.cu -o "$1/line.o"
nvcc -arch=sm_90 -I"$2" -c k.cu -o "$1/k.o"
g++ -O2 -c host.cpp -o "$1/host.o"
"""


class Sources:
    """Two CUDA units and one of C++, and the same header in two folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = Program(folder)
        self.store = ["--store", str(folder / "store")]
        for name in ("python3.11", "python3.12"):
            (folder / name).mkdir()
            (folder / name / "h.h").write_text(HEADER)
        for name, text in (("k.cu", UNIT), ("line.cu", UNIT), ("host.cpp", HOST), ("build.sh", f"set -e{BUILD}")):
            (folder / name).write_text(text)

    def build(self, into: str, headers: str = "python3.11", *, store: bool = True, prefix: Sequence[str] = ()) -> str:
        """Gives what was printed. ``prefix``: what starts it."""
        options = [*(self.store if store else ()), "--no-doctor"]
        command = self.program.supervised("bash", "build.sh", into, str(self.folder / headers), options=options)
        process = self.program.start([*prefix, *command], cwd=self.folder)
        printed, _ = process.communicate()
        assert process.returncode == 0, printed
        self.program.check_traces()
        return printed

    def objects(self, into: str) -> dict[str, bytes]:
        return objects_of(self.folder / into)

    def phases(self) -> dict[str, set[tuple[str, str]]]:
        """Of the last build, by where they came from: (source, tool) of those that a store can have."""
        asked = {each.phase.phase_id: each.phase for each in self.program.records() if isinstance(each, PhaseAsked)}
        found: dict[str, set[tuple[str, str]]] = {"": set(), STORE: set()}
        for each in self.program.records():
            if isinstance(each, PhaseEnded) and each.outcome is Outcome.OK:
                phase = asked[each.phase_id]
                if phase.tool in TRAVELLERS and phase.kind is not PhaseKind.PREPROCESS:
                    found[each.node].add((Path(phase.source).name, phase.tool))
        return found


CUDA_PHASES = {(name, tool) for name in ("k.cu", "line.cu") for tool in ("cudafe++", "cicc", "ptxas", "cc1plus")}
ALL = {*CUDA_PHASES, ("host.cpp", "cc1plus")}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path)


def test_a_second_build_takes_all_from_the_store_and_says_the_same(sources: Sources) -> None:
    """Other output folders, the same bytes, the same warnings, each as often."""
    plain = sources.build("plain", store=False)
    first = sources.build("first")
    assert sources.phases()[""] >= ALL - {("line.cu", "cudafe++"), ("k.cu", "cudafe++")}
    second = sources.build("second")
    assert sources.phases() == {"": set(), STORE: ALL}
    assert sources.program.summary()["stored"] == len(ALL)
    assert f"{len(ALL)} phases from the store" in second
    for printed in (first, second):
        for warning in ("unused_here", "look at this"):
            assert printed.count(warning) == plain.count(warning) > 0
    assert sources.objects("plain") == sources.objects("first") == sources.objects("second")


def test_a_second_python_hits_where_paths_are_not_part_of_the_result(sources: Sources) -> None:
    """Its headers lie elsewhere. Line numbers for the device name the folder, so that unit is compiled."""
    sources.build("first")
    printed = sources.build("second", "python3.12")
    found = sources.phases()
    assert found[STORE] >= {("k.cu", "cudafe++"), ("k.cu", "cicc"), ("k.cu", "ptxas"), ("k.cu", "cc1plus")}
    assert ("line.cu", "cicc") in found[""]
    assert "python3.12/h.h" in printed
    assert "python3.11" not in printed
    sources.build("plain", "python3.12", store=False)
    assert sources.objects("plain") == sources.objects("second")


def test_what_was_altered_is_not_used(sources: Sources) -> None:
    """Each file of the store, in one way or another: removed, said, and the build is that of before."""
    sources.build("first")
    files = [path for path in (sources.folder / "store").rglob("*") if path.is_file()]
    for number, path in enumerate(files):
        body = path.read_bytes()
        path.write_bytes(body[: len(body) // 2] if number % 2 else body[:-1] + bytes([body[-1] ^ 1]))
    printed = sources.build("second")
    assert f"{len(files)} of the store's files were torn or altered" in printed
    assert sources.phases()[STORE] <= {("line.cu", "cudafe++"), ("k.cu", "cudafe++")}
    assert sources.objects("first") == sources.objects("second")
    sources.build("third")
    assert sources.phases() == {"": set(), STORE: ALL}


def test_a_store_that_cannot_be_written_costs_nothing_but_a_line(sources: Sources) -> None:
    """Its folder for these keys is a file: as on a full disk, nothing is kept, and the build goes on."""
    (sources.folder / "store").mkdir(mode=0o755)
    for number in range(256):
        (sources.folder / "store" / f"{number:02x}").write_bytes(b"")
    printed = sources.build("first")
    assert "could not be kept" in printed
    assert (sources.folder / "first" / "k.o").is_file()


@pytest.mark.needs_unshare
def test_what_a_full_disk_has_torn_is_not_kept(sources: Sources) -> None:
    """The first build's cubin finds 4 KiB of room, and fails. The second one runs ptxas, and has it whole."""
    program = sources.program
    cubin = ["nvcc", "-arch=sm_90", "-Ipython3.11", "-cubin", "k.cu", "-o"]
    command = program.supervised(*cubin, "disk/k.cubin", options=[*sources.store, "--no-doctor"])
    filled = ["sh", "-c", 'head -c 1044480 /dev/zero > disk/filler && exec "$@"', "sh", *command]
    first = run(program, on_tmpfs(program.folder / "disk", filled, mib=1))
    assert first.returncode == 1, first.output
    assert first.verdict == "disk-full"
    assert "disk/k.cubin is missing" in first.output
    second = run(program, command)
    assert second.returncode == 0, second.output
    assert sources.phases() == {"": {("k.cu", "ptxas")}, STORE: {("k.cu", "cicc")}}
    subprocess.run([*cubin, "plain.cubin"], cwd=program.folder, env=program.env, check=True)
    assert (program.folder / "disk" / "k.cubin").read_bytes() == (program.folder / "plain.cubin").read_bytes()


@pytest.mark.needs_memcg
@pytest.mark.slow
def test_two_machines_share_what_a_third_one_offers(tmp_path: Path, sources: Sources) -> None:
    """Each with its own memory, cache and state: the second takes what the first has compiled. Without the third
    one they build by themselves."""
    make_keys(tmp_path / "keys")
    sources.build("plain", store=False)
    meeting = Meeting(tmp_path / "meeting", keys=tmp_path / "keys", serve=["--store", str(tmp_path / "offered")])
    with closing(meeting), memory_cgroup(2 << 30) as one, memory_cgroup(2 << 30) as other:
        address = meeting.await_line("serve", "--store ").rpartition("--store ")[2].strip("`")
        sources.store = ["--store", address, *meeting.options]
        for name, cgroup in (("one", one), ("other", other)):
            (tmp_path / name).mkdir()
            sources.program = Program(tmp_path / name)
            sources.build(name, prefix=cgroup.wrapped([]))
            assert sources.objects(name) == sources.objects("plain")
        assert sources.phases() == {"": set(), STORE: ALL}
        assert one.kernel_kills == other.kernel_kills == 0
        meeting.close()
        printed = sources.build("alone", prefix=other.wrapped([]))
    assert f"no store at {address}" in printed
    assert sources.phases()[STORE] == set()
    assert sources.objects("alone") == sources.objects("plain")


def test_an_error_is_said_once_and_ends_the_build(sources: Sources) -> None:
    """Of a source that cannot be preprocessed, and of one that cannot be compiled; neither is kept."""
    for text, error in (
        ("#include <nowhere.h>\n", "nowhere.h: No such file"),
        ("int f() { return }\n", "primary-expression"),
    ):
        (sources.folder / "host.cpp").write_text(text)
        command = sources.program.supervised(
            "g++", "-c", "host.cpp", "-o", "host.o", options=["--store", str(sources.folder / "store"), "--no-doctor"]
        )
        for _ in range(2):
            process = sources.program.start(command, cwd=sources.folder)
            printed, _ = process.communicate()
            assert process.returncode == 1
            assert sum(error in line and "error:" in line for line in printed.split("✗")[0].splitlines()) == 1
            assert not (sources.folder / "host.o").exists()
    assert not [path for path in sources.folder.iterdir() if path.suffix == ".ii"]


def test_one_of_the_architectures_that_were_built(sources: Sources) -> None:
    """All of it but what the host code embeds; and the same bytes as without a store."""

    def build(into: str, archs: str, *, store: bool = True) -> None:
        (sources.folder / "build.sh").write_text(f'set -e\nmkdir -p "$1"\nnvcc {archs} -I"$2" -c k.cu -o "$1/k.o"\n')
        sources.build(into, store=store)

    one, other = (f"-gencode arch=compute_{arch},code=sm_{arch}" for arch in (90, 100))
    build("both", f"{one} {other}")
    build("one", one)
    found = sources.phases()
    assert found == {"": {("k.cu", "cc1plus")}, STORE: {("k.cu", tool) for tool in ("cudafe++", "cicc", "ptxas")}}
    build("plain", one, store=False)
    assert sources.objects("one") == sources.objects("plain")
