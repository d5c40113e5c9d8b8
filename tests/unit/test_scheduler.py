"""What batch schedulers say in the environment."""

from __future__ import annotations

import pytest

from builddoctor.sensors.limits import MemorySensor
from builddoctor.sensors.scheduler import allotment
from unit.trees import GIB, V2, TextRoot, level_v2, meminfo, v2

SLURM = {"SLURM_JOB_ID": "812"}


@pytest.mark.trap(16)
@pytest.mark.parametrize(
    ("env", "memory_mib", "source"),
    [
        ({"SLURM_MEM_PER_NODE": "65536"}, 65536, "SLURM_MEM_PER_NODE"),
        ({"SLURM_MEM_PER_CPU": "4000", "SLURM_CPUS_ON_NODE": "72"}, 288000, "SLURM_MEM_PER_CPU x SLURM_CPUS_ON_NODE"),
        (
            {"SLURM_MEM_PER_CPU": "4000", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"},
            32000,
            "SLURM_MEM_PER_CPU x SLURM_JOB_CPUS_PER_NODE",
        ),
        ({"SLURM_MEM_PER_GPU": "100000", "SLURM_GPUS_ON_NODE": "4"}, 400000, "SLURM_MEM_PER_GPU x SLURM_GPUS_ON_NODE"),
        (
            {"SLURM_MEM_PER_GPU": "100000", "SLURM_GPUS_PER_NODE": "h100:2"},
            200000,
            "SLURM_MEM_PER_GPU x SLURM_GPUS_PER_NODE",
        ),
        ({"SLURM_MEM_PER_GPU": "100000", "SLURM_JOB_GPUS": "0,1,5"}, 300000, "SLURM_MEM_PER_GPU x SLURM_JOB_GPUS"),
    ],
)
def test_slurm_says_its_memory_in_three_ways(env: dict[str, str], memory_mib: float, source: str) -> None:
    """For the node, for each CPU or for each GPU; in MiB."""
    found = allotment(SLURM | env)
    assert found is not None
    assert (found.memory_mib, found.source) == (memory_mib, source)


@pytest.mark.trap(16)
@pytest.mark.parametrize(
    "env",
    [
        SLURM,
        SLURM | {"SLURM_MEM_PER_NODE": "0"},
        SLURM | {"SLURM_MEM_PER_NODE": "lots"},
        SLURM | {"SLURM_MEM_PER_CPU": "4000"},
        SLURM | {"SLURM_MEM_PER_CPU": "0", "SLURM_CPUS_ON_NODE": "4"},
        {"SLURM_MEM_PER_NODE": "1000"},
        {"LSB_JOBID": "1", "LSB_CG_MEMLIMIT": "not hex"},
        {"LSB_JOBID": "1", "LSB_CG_MEMLIMIT": ""},
        {"PBS_JOBID": "1"},
    ],
)
def test_the_whole_node_and_no_job_are_no_cap(env: dict[str, str]) -> None:
    """``--mem=0`` gives everything; variables left over outside of a job mean nothing; nor does what is no number."""
    assert allotment(env) is None


def test_lsf_and_pbs_say_bytes() -> None:
    """LSF in hexadecimal."""
    lsf = allotment({"LSB_JOBID": "1", "LSB_CG_MEMLIMIT": "0x400000000"})
    pbs = allotment({"PBS_JOBID": "1.host", "PBS_RESC_MEM": str(8 * GIB)})
    assert lsf is not None
    assert pbs is not None
    assert (lsf.memory_mib, pbs.memory_mib) == (16384, 8192)


@pytest.mark.trap(16)
@pytest.mark.parametrize(
    ("limit", "kinds"),
    [(None, ["host", "scheduler"]), (16 * GIB, ["host", "cgroup-v2", "scheduler"]), (8 * GIB, ["host", "cgroup-v2"])],
)
def test_the_allotment_counts_only_where_no_cgroup_keeps_it(limit: int | None, kinds: list[str]) -> None:
    """A cgroup at or below it says the same with the use of all; above it (AllowedRAMSpace), the cap stays."""
    files = meminfo(24, 20) | v2("/job")
    files |= level_v2(f"{V2}/job", limit="max" if limit is None else limit)
    reading = MemorySensor(TextRoot(files), env=SLURM | {"SLURM_MEM_PER_NODE": "8192"}).read(3000)
    assert [level.kind for level in reading.levels] == kinds
    if "scheduler" in kinds:
        assert (reading.tightest.headroom_mib, reading.tightest.confidence) == (8192 - 3000, "medium")
