"""The shapes that everything else is made of."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.events import Summary
from builddoctor.core.limits import LevelKind, MemoryLevel, MemoryReading
from builddoctor.core.phase import Estimate, Outcome
from builddoctor.core.request import RunRequest
from builddoctor.core.toolchain import Toolkit
from unit.builders import phase, summary


def level(limit_mib: float, headroom_mib: float) -> MemoryLevel:
    return MemoryLevel(source="file", kind=LevelKind.CGROUP_V2, limit_mib=limit_mib, headroom_mib=headroom_mib)


def test_the_tightest_level_is_the_one_with_least_headroom() -> None:
    """What will kill is where the least is left, not where the limit is smallest."""
    reading = MemoryReading(levels=(level(8192, 7000), level(16384, 500)))
    assert reading.tightest.limit_mib == 16384
    assert reading.limit_mib == 8192


def test_used_memory_of_a_level_is_never_negative() -> None:
    """A level that reports more headroom than limit counts as unused."""
    assert level(100, 40).used_mib == 60
    assert level(100, 140).used_mib == 0


def test_a_reserve_is_peak_and_spread() -> None:
    """Admission sets aside the median and the spread above it."""
    assert Estimate(peak_mib=1000, spread_mib=150, source="prior").reserve_mib == 1150


@pytest.mark.parametrize(
    ("here", "home"), [("/usr/local/cuda/bin", "/usr/local/cuda"), ("/opt/conda/bin", "/opt/conda"), ("/bin", "/")]
)
def test_cuda_home_is_the_folder_above_nvccs_own(here: str, home: str) -> None:
    """A toolkit's home is one up from its programs, and the root for /bin."""
    toolkit = Toolkit(nvcc=f"{here}/nvcc", version="13.0.88", here=here, top=f"{here}/..", cicc="/x/cicc", tools=())
    assert toolkit.home == home


def test_structs_cannot_be_changed() -> None:
    """What has been decided on stays what it was."""
    with pytest.raises(AttributeError):
        phase().source = "other.cu"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        RunRequest(command=("ninja",), cwd="/").command = ()  # type: ignore[misc]


def test_the_summary_has_the_keys_that_others_rely_on() -> None:
    """One JSON object whose keys are the documented ones, null verdict included."""
    told = msgspec.json.decode(msgspec.json.encode(summary()))
    documented = (
        *("schema", "result", "exit_code", "verdict", "wall_s", "cpu_s", "budget_mib", "limit_mib", "peak_mib"),
        *("kernel_oom_kills", "requeued", "killed", "runaways", "units", "phases", "effective_jobs_mean"),
        *("effective_jobs_max", "gate_overhead_s", "trace"),
    )
    assert set(documented) <= told.keys()
    assert told["verdict"] is None
    assert told["schema"] == 1
    assert msgspec.json.decode(msgspec.json.encode(summary()), type=Summary) == summary()


def test_outcomes_are_told_apart_by_their_words() -> None:
    """Every outcome has a word of its own, which is what a trace holds."""
    assert len({outcome.value for outcome in Outcome}) == len(Outcome) == 8
    assert Outcome("killed-by-kernel") is Outcome.KILLED_BY_KERNEL
