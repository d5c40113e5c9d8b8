"""Whatever the counters' files say, a cause is named and no kill is counted twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.evidence import Evidence, GroupCounters, KillCause
from builddoctor.runtime.kill_evidence import KillEvidence, compare
from unit.trees import V1, V2, TextRoot, v1, v2

FIGURES = st.none() | st.integers(0, 3)
LINES = st.sampled_from(
    ["oom_kill 0", "oom_kill 1", "oom_kill 9" * 9, "oom 2", "max 1", "oom_kill", "\0", "under_oom 1"]
)
TEXTS = st.none() | st.lists(LINES, max_size=4).map("\n".join) | st.text(max_size=20)
PATHS = st.sampled_from(["/a", "/", "/a/b", "/../x", "/a/../b", "a", "", "/a:b"])


@st.composite
def readings(draw: st.DrawFn) -> Evidence:
    level = GroupCounters(directory="/g", oom=draw(FIGURES), max=draw(FIGURES), oom_kill=draw(FIGURES))
    return Evidence(
        own=draw(st.none() | st.just(level)),
        proven=draw(st.booleans()),
        levels=draw(st.sampled_from([(), (level,)])),
        host_oom_kill=draw(FIGURES),
        oomd_kill=draw(FIGURES),
    )


@given(before=readings(), after=readings(), ample=st.booleans())
def test_nothing_is_the_kernels_without_a_counter_that_rose(before: Evidence, after: Evidence, ample: bool) -> None:
    """Without a rise of our group's kills or of the machine's there is no kernel kill, whatever else happened."""
    rose = [
        later is not None and earlier is not None and later > earlier
        for earlier, later in (
            (before.own.oom_kill if before.own else None, after.own.oom_kill if after.own else None),
            (before.host_oom_kill, after.host_oom_kill),
        )
    ]
    assert not compare(before, after, ample=ample).by_kernel or any(rose)


@given(
    tree=st.sampled_from([v1, v2]),
    here=PATHS,
    there=PATHS,
    files=st.lists(st.dictionaries(st.sampled_from(range(8)), TEXTS, max_size=8), min_size=2, max_size=2),
    deaths=st.integers(0, 4),
)
def test_any_files_give_causes_and_a_count(
    tree: object, here: str, there: str, files: list[dict[int, str | None]], deaths: int
) -> None:
    """Odd, cut and missing files at the start and at a death: never an error, never fewer kills than were claimed."""
    point = V1 if tree is v1 else V2
    member = f"9:memory:{there}\n" if tree is v1 else f"0::{there}\n"
    names = [f"{point}{path}/{name}" for path in ("", "/a") for name in ("memory.oom_control", "memory.events")]
    names += ["/proc/vmstat", f"{point}/a/memory.events.local", f"{point}/a/cgroup.procs", "/proc/12/cgroup"]
    system = TextRoot(tree(here) | {"/proc/12/cgroup": member, f"{point}/memory.max": "max"})  # type: ignore[operator]
    system.files |= {names[index]: text for index, text in files[0].items()}
    evidence = KillEvidence(system)
    before = evidence.baseline(12)
    system.files |= {names[index]: text for index, text in files[1].items()}
    causes = [evidence.claim(before) for _ in range(deaths)]
    assert all(isinstance(cause, KillCause) for cause in causes)
    assert evidence.total() >= sum(cause.by_kernel for cause in causes)
