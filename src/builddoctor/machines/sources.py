"""Sources that speak for several profiles, each written once.

Does *not* cover: what only one profile needs; that stands beside its figures.
"""

from __future__ import annotations

from builddoctor.model.profile import Figure, Source

DEFINITION = "by definition"

_MLPERF = "https://github.com/mlcommons/"
_KARPENTER = (
    "https://github.com/aws/karpenter-provider-aws/blob/main/website/content/en/docs/reference/instance-types.md"
)
_GITHUB = "https://docs.github.com/en/actions/reference/runners/github-hosted-runners"

WHOLE: tuple[Figure, ...] = ("architecture", "cores", "memory_mib", "gpus")

GRACE_PAGES = Source(
    figures=("page_kib",),
    says="Grace supports 64K and 4K pages; the recommended default is 64K",
    where="https://docs.nvidia.com/grace-perf-tuning-guide/os-settings.html (Page Size)",
)
X86_PAGES = Source(
    figures=("page_kib",),
    says="on x86_64 only 4k can be given; on AArch64 4k or 64k",
    where="https://docs.redhat.com/ja/documentation/openshift_container_platform/4.19/html/scalability_and_performance/"
    "cnf-configuring-kernal-page-size_cnf-low-latency-perf-profile (17.8.1)",
)
NUMA_MODE = Source(
    figures=("hbm_mib_as_numa",),
    says="GH200, GB200, GB300: NUMA mode shows all memory of the GPUs to the operating system, CDMM mode none",
    where="https://developer.nvidia.com/blog/understanding-memory-management-on-hardware-coherent-platforms",
)


def mlperf(results: str, path: str, says: str, *figures: Figure) -> Source:
    """A system description that came with MLPerf results."""
    return Source(figures=figures or WHOLE, says=says, where=f"{_MLPERF}{results}/blob/main/{path}")


def karpenter(instance: str, says: str) -> Source:
    """AWS's own list of instance types. Its memory is in MiB."""
    return Source(figures=WHOLE, says=says, where=f"{_KARPENTER} ({instance})")


def azure(page: str, says: str) -> Source:
    """Microsoft's page of a size series. Its memory is in GiB."""
    folder = (
        "https://github.com/MicrosoftDocs/azure-compute-docs/blob/main/articles/virtual-machines/sizes/gpu-accelerated/"
    )
    return Source(figures=WHOLE, says=says, where=f"{folder}includes/{page}-specs.md")


def github(section: str, says: str) -> Source:
    """GitHub's page of its runners."""
    return Source(
        figures=("architecture", "cores", "memory_mib", "ci_runner"),
        says=says,
        where=f"{_GITHUB} (Standard GitHub-hosted runners for {section} repositories)",
    )
