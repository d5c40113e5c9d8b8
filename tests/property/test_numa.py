"""NUMA and platform sensors on any content of the files they read."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.machine import Numa, NumaNode
from builddoctor.system.numa import NumaSensor, numa_level, read_numa
from builddoctor.system.platform import read_platform, surroundings
from builddoctor.system.root import labelled, parse_list
from support.examples import examples
from unit.numa_trees import NODE, cxl, dgx_spark, gb200_tray, gh200, node, node_sets, process, system, two_sockets
from unit.trees import TextRoot

TREES = [
    gb200_tray(),
    gb200_tray(mode="driver"),
    gb200_tray(policy="bind:0"),
    gh200(),
    dgx_spark(),
    cxl(),
    cxl(gpu=True),
    two_sockets(allowed="0"),
    two_sockets(policy="bind=static:1"),
]
FIGURES = st.one_of(
    st.integers(0, 2**65).map(str),
    st.sampled_from(["", "-1", "²", "1e9", "0x10", " 7 ", "9" * 21, "9" * 5000, "0-3", "kB"]),
    st.text(max_size=5),
)
BYTES = st.binary(max_size=80).map(lambda data: data.decode(errors="replace"))
POLICIES = st.sampled_from(
    ["default", "bind:0", "bind:0-33", "bind=static|balancing:1", "prefer (many):0", "bind:", ":"]
)
SETS = st.one_of(
    st.sampled_from(["", "0", "0-1", "1", "0-33", "0-999999999999", "5-2", ",,", "0-2,10,18,26", "7"]),
    st.text(alphabet="0123456789,- \n", max_size=14),
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, str | None]:
    """A real tree with some files gone, unreadable, cut short, replaced, or with a figure changed."""
    files: dict[str, str | None] = dict(draw(st.sampled_from(TREES)))
    names = sorted(files)
    for name in draw(st.lists(st.sampled_from(names), max_size=5)):
        text = files.get(name) or ""
        change = draw(st.integers(0, 5))
        if change == 0:
            files.pop(name, None)
        elif change == 1:
            files[name] = None
        elif change == 2:
            files[name] = text[: draw(st.integers(0, len(text)))]
        elif change == 3:
            files[name] = draw(BYTES)
        elif change == 4:
            words = text.split(" ")
            words[draw(st.integers(0, len(words) - 1))] = draw(FIGURES)
            files[name] = " ".join(words)
        else:
            files[name] = draw(SETS)
    return files


def real_total_mib(files: dict[str, str | None]) -> float:
    """Everything that any node's file calls MemTotal, read as plainly as can be."""
    total = 0
    for name, text in files.items():
        if name.startswith(f"{NODE}/node") and name.endswith("/meminfo"):
            for line in (text or "").splitlines():
                words = line.split()
                if words[2:3] == ["MemTotal:"] and words[3:4] and re.fullmatch(r"[0-9]{1,20}", words[3]):
                    total += int(words[3])
    return total / 1024


def check_numa(numa: Numa, total_mib: float) -> None:
    for each in numa.nodes:
        assert 0 <= each.available_mib <= each.total_mib
    level = numa_level(numa)
    if level is not None:
        assert level.kind == "numa"
        assert 0 <= level.headroom_mib <= level.limit_mib
        assert level.limit_mib <= total_mib * (1 + 1e-9)
        assert level.source


@examples(900)
@given(files=mutated())
def test_no_broken_tree_yields_more_than_there_is(files: dict[str, str | None]) -> None:
    """Nothing is raised; no headroom is above the sum of what the nodes say they have; both readings agree."""
    total_mib = real_total_mib(files)
    numa = read_numa(TextRoot(files))
    check_numa(numa, total_mib)
    sensor = NumaSensor(TextRoot(files))
    assert sensor.level() == numa_level(numa)
    assert all(isinstance(name, str) for name in sensor.unread)


@examples(500)
@given(files=mutated())
def test_any_broken_tree_is_some_platform(files: dict[str, str | None]) -> None:
    """Nothing is raised, and what is not read stays empty."""
    platform = read_platform(TextRoot(files), {}, page_bytes=65536)
    assert platform.page_kib == 64
    assert all(model.strip() for model in platform.gpus)
    assert surroundings(platform, group_kill=False).unified_memory is bool(platform.unified_memory)


@examples(500)
@given(
    memory=SETS,
    cpu=SETS,
    allowed=SETS,
    policy=POLICIES,
    total=st.integers(0, 2**40),
    counters=st.lists(st.integers(0, 2**64), min_size=4, max_size=4),
    kept=st.tuples(FIGURES, FIGURES),
    names=st.lists(BYTES, max_size=2),
)
def test_any_counters_stay_within_the_node(
    memory: str,
    cpu: str,
    allowed: str,
    policy: str,
    total: int,
    counters: list[int],
    kept: tuple[str, str],
    names: list[str],
) -> None:
    """Whatever is free, cached, kept back, allowed and bound: between nothing and all."""
    keys = ("MemFree", "Active(file)", "Inactive(file)", "SReclaimable")
    text = f"Node 0 MemTotal: {total} kB\n" + "".join(
        f"Node 0 {key}: {value} kB\n" for key, value in zip(keys, counters, strict=True)
    )
    files: dict[str, str | None] = {**system("aarch64"), **node_sets("0-1", memory=memory, cpu=cpu)}
    files |= process(allowed, policy=policy) | node(1, 4.0)
    files |= {f"{NODE}/node0/meminfo": text}
    files |= {"/proc/sys/vm/min_free_kbytes": kept[0], "/proc/sys/vm/watermark_scale_factor": kept[1]}
    files |= {f"/proc/driver/nvidia/gpus/{name}/numa_status": name for name in names}
    check_numa(read_numa(TextRoot(files)), real_total_mib(files))


@examples(500)
@given(text=st.one_of(SETS, BYTES, st.lists(st.integers(0, 9000)).map(lambda numbers: ",".join(map(str, numbers)))))
def test_any_text_is_some_set_of_numbers(text: str) -> None:
    """Small numbers only, and each of them can be traced to the text."""
    found = parse_list(text)
    assert all(0 <= number < 8192 for number in found)
    if "-" not in text:
        assert found == {number for number in found if str(number) in text}


@examples(300)
@given(text=BYTES, name=st.sampled_from(["Node", "Model", "", "CoherentGPUMemoryMode"]))
def test_any_text_has_a_value_or_none(text: str, name: str) -> None:
    """And a line of that name has its value."""
    assert isinstance(labelled(text, name), str)
    assert labelled(f"other\n{name}: x:y \n{text}", name) == "x:y"


@examples(300)
@given(
    kinds=st.lists(st.tuples(st.sampled_from(["dram", "hbm", "cxl"]), st.booleans(), st.floats(0, 1e6)), max_size=6),
    allowed=SETS,
    policy=POLICIES,
)
def test_any_topology_is_a_level_or_none(kinds: list[tuple[str, bool, float]], allowed: str, policy: str) -> None:
    """A level says no more than the nodes that count; none is left out without one."""
    nodes = tuple(
        NumaNode(node=number, kind=kind, cpus=0, total_mib=size, available_mib=size / 2, allowed=may)  # type: ignore[arg-type]
        for number, (kind, may, size) in enumerate(kinds)
    )
    level = numa_level(Numa(nodes=nodes, allowed=allowed, policy=policy))
    counted = [each for each in nodes if each.allowed and each.kind != "hbm"]
    assert (level is None) == (len(counted) == len(nodes))
    if level is not None:
        assert level.limit_mib == sum(each.total_mib for each in counted)
        assert level.headroom_mib == sum(each.available_mib for each in counted)
