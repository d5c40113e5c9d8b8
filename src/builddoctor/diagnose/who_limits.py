"""Who sets a memory limit, from the name of the file, variable or flag that says it, and how to ask that one for more.

Pure. Does *not* cover: finding the limit (``sensors.limits``), or how much more is needed (``diagnose.remedy_words``).
"""

from __future__ import annotations

import re

import msgspec

from builddoctor.diagnose.remedy_facts import RemedyFacts


class WhoLimits(msgspec.Struct, frozen=True, kw_only=True):
    """One who sets limits. ``@gib@`` stands for the number of GiB to ask for."""

    name: str
    marks: str
    """in the limit's source"""
    text: str
    command: str = ""


_KNOWN = (
    WhoLimits(
        name="flag",
        marks=r"^--memory",
        text="it is your own `--memory`: leave it out, or name more",
    ),
    WhoLimits(
        name="slurm",
        marks=r"^SLURM_|/slurm|/job_\d+",
        text="the job has what it asked Slurm for: ask for more (a partition's MaxMemPerNode is the most there is)",
        command="sbatch --mem=@gib@G",
    ),
    WhoLimits(
        name="lsf",
        marks=r"^LSB_|/lsf",
        text="the job has what it asked LSF for: ask for more",
        command="bsub -M @gib@GB",
    ),
    WhoLimits(
        name="pbs",
        marks=r"^PBS_|/pbs",
        text="the job has what it asked PBS for: ask for more",
        command="qsub -l mem=@gib@gb",
    ),
    WhoLimits(
        name="kubernetes",
        marks=r"/kubepods|Inactive\(file\)",
        text="in the pod's manifest: `resources.limits.memory: @gib@Gi` of the container that builds",
    ),
    WhoLimits(
        name="docker",
        marks=r"/docker[/-]",
        text="the container was started with it: start it with more, or raise it from outside",
        command="docker update --memory=@gib@g --memory-swap=@gib@g CONTAINER",
    ),
    WhoLimits(
        name="podman",
        marks=r"/libpod-",
        text="the container was started with it: start it with more, or raise it from outside",
        command="podman update --memory=@gib@g CONTAINER",
    ),
    WhoLimits(
        name="systemd",
        marks=r"\.(?:slice|scope|service)/[^/]*\Z",
        text="systemd set it as MemoryMax or MemoryHigh of that unit",
        command="systemctl set-property --runtime UNIT MemoryMax=@gib@G",
    ),
    WhoLimits(
        name="overcommit",
        marks=r"CommitLimit",
        text="vm.overcommit_memory is 2, and promises count in full: an administrator raises vm.overcommit_ratio",
    ),
    WhoLimits(
        name="numa",
        marks=r"Mems_allowed|/node/|numa",
        text="the process may use these NUMA nodes only: start it without numactl or --mem-bind, on all nodes",
    ),
    WhoLimits(
        name="host",
        marks=r"^/proc/meminfo",
        text="it is all the memory that the machine has: build on one of at least @gib@ GiB",
    ),
    WhoLimits(
        name="cgroup",
        marks=r"/cgroup|memory\.(?:max|high|limit_in_bytes|stat)",
        text="a cgroup's limit: whoever made that group can raise it",
    ),
)
"""The first whose mark is there; the more particular ones first."""

_NOBODY = WhoLimits(
    name="", marks="", text="who set the limit is not known: `builddoctor doctor` shows all that are in force"
)


def who_limits(facts: RemedyFacts) -> WhoLimits:
    """The one who set the limit that was in force."""
    by_source = next((each for each in _KNOWN if facts.limited_by and re.search(each.marks, facts.limited_by)), None)
    if by_source is None or by_source.name in ("cgroup", "systemd"):
        # Inside a container its cgroup has no name that tells; a batch system's neither, everywhere.
        around = facts.scheduler or facts.container
        by_source = next((each for each in _KNOWN if each.name == around), by_source)
    return by_source or _NOBODY
