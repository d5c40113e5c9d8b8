"""Runners of CI services, and computers that are their own definition.

Does *not* cover: larger runners, whose size is chosen by whoever pays; ``--cores`` and ``--memory`` say that.
"""

from __future__ import annotations

from typing import Literal

from builddoctor.machines.profile import gib
from builddoctor.machines.sources import DEFINITION, X86_PAGES, github
from builddoctor.model.profile import MachineProfile, Source

_DISK = "14 GB of disk for the whole job"

_GITHUB: tuple[tuple[str, str, Literal["x86_64", "aarch64"], int, int, str, str], ...] = (
    ("github-runner", "ubuntu-24.04", "x86_64", 4, 16, "public", "Linux, 4, 16 GB, 14 GB, x64"),
    ("github-runner-private", "ubuntu-24.04", "x86_64", 2, 8, "private", "Linux, 2, 8 GB, 14 GB, x64"),
    ("github-runner-slim", "ubuntu-slim", "x86_64", 1, 5, "public", "Linux, 1, 5 GB, 14 GB, x64, ubuntu-slim"),
    ("github-arm-runner", "ubuntu-24.04-arm", "aarch64", 4, 16, "public", "Linux, 4, 16 GB, 14 GB, arm64"),
    ("github-arm-runner-private", "ubuntu-24.04-arm", "aarch64", 2, 8, "private", "Linux, 2, 8 GB, 14 GB, arm64"),
)

_GITLAB = (
    ("gitlab-small", "small", 2, 8, "Linux small machine type: 2vCPUs, 8GB RAM", "388162"),
    ("gitlab-medium", "medium", 4, 16, "saas-linux-medium-amd64: 4 vCPUs and 16 GB RAM", "418124"),
)

RUNNERS = (
    *(
        MachineProfile(
            name=name,
            title=f"GitHub's own runner for {section} repositories ({label})",
            architecture=architecture,
            cores=cores,
            cores_are="threads",
            memory_mib=gib(memory_gb),
            page_kib=4 if architecture == "x86_64" else None,
            ci_runner=True,
            notes=(_DISK, "a container on a shared machine") if label == "ubuntu-slim" else (_DISK,),
            sources=(github(section, says), X86_PAGES) if architecture == "x86_64" else (github(section, says),),
        )
        for name, label, architecture, cores, memory_gb, section, says in _GITHUB
    ),
    *(
        MachineProfile(
            name=name,
            title=f"GitLab.com's own runner, Linux {size}",
            architecture="x86_64",
            cores=cores,
            cores_are="threads",
            memory_mib=gib(memory_gb),
            page_kib=4,
            ci_runner=True,
            sources=(
                Source(
                    figures=("architecture", "cores", "memory_mib", "ci_runner"),
                    says=says,
                    where=f"https://gitlab.com/gitlab-org/gitlab/-/issues/{issue}",
                ),
                X86_PAGES,
            ),
        )
        for name, size, cores, memory_gb, says, issue in _GITLAB
    ),
)

_OWN = (
    "a desktop and a browser take memory of their own: `builddoctor machine probe` on the machine itself knows better"
)

COMPUTERS = (
    *(
        MachineProfile(
            name=f"laptop-{memory_gb}g",
            title=f"a computer with {memory_gb} GB and {cores} logical CPUs",
            architecture="x86_64",
            cores=cores,
            cores_are="threads",
            memory_mib=gib(memory_gb),
            page_kib=4,
            notes=(_OWN,),
            sources=(
                Source(
                    figures=("architecture", "cores", "memory_mib"),
                    says=f"{memory_gb} GB, {cores} logical CPUs, x86_64",
                    where=DEFINITION,
                ),
                X86_PAGES,
            ),
        )
        for memory_gb, cores in ((16, 8), (32, 16))
    ),
    MachineProfile(
        name="wsl2-32g",
        title="WSL 2 on a Windows computer with 32 GB and 16 logical CPUs",
        architecture="x86_64",
        cores=16,
        cores_are="threads",
        memory_mib=gib(32) / 2,
        page_kib=4,
        notes=(
            "half of the computer's memory, unless `memory=` in .wslconfig says more",
            "running out can end the whole virtual machine, with every shell in it",
        ),
        sources=(
            Source(
                figures=("memory_mib", "cores"),
                says="memory: 50% of total memory on Windows; processors: as many as Windows has",
                where="https://github.com/MicrosoftDocs/WSL/blob/main/WSL/wsl-config.md (Main WSL settings)",
            ),
            Source(
                figures=("architecture", "cores", "memory_mib"),
                says="32 GB, 16 logical CPUs, x86_64",
                where=DEFINITION,
            ),
            X86_PAGES,
        ),
    ),
)
