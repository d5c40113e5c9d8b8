"""Virtual machines of clouds. Their cores are vCPUs; AWS writes memory in MiB, Azure and Google in GiB.

Does *not* cover: runners of CI services (``machines.small``).
"""

from __future__ import annotations

from builddoctor.machines.profile import gib
from builddoctor.machines.sources import GRACE_PAGES, X86_PAGES, azure, karpenter
from builddoctor.model.profile import MachineProfile, Source

_AWS = (
    ("aws-g5-xlarge", "g5.xlarge", 4, 16384, "1 x NVIDIA A10G", "cpu 4, memory 16384, gpu a10g x 1, amd64"),
    ("aws-g6-xlarge", "g6.xlarge", 4, 16384, "1 x NVIDIA L4", "cpu 4, memory 16384, gpu l4 x 1, amd64"),
    ("aws-p4d", "p4d.24xlarge", 96, 1179648, "8 x NVIDIA A100 40 GB", "cpu 96, memory 1179648, gpu a100 x 8, amd64"),
    ("aws-p5", "p5.48xlarge", 192, 2097152, "8 x NVIDIA H100 80 GB", "cpu 192, memory 2097152, gpu h100 x 8, amd64"),
    ("aws-p5en", "p5en.48xlarge", 192, 2097152, "8 x NVIDIA H200", "cpu 192, memory 2097152, gpu h200 x 8, amd64"),
    (
        "aws-p6-b200",
        "p6-b200.48xlarge",
        192,
        2097152,
        "8 x NVIDIA B200",
        "cpu 192, memory 2097152, gpu b200 x 8, amd64",
    ),
)

CLOUDS = (
    *(
        MachineProfile(
            name=name,
            title=f"AWS {instance}",
            architecture="x86_64",
            cores=cores,
            cores_are="threads",
            memory_mib=memory_mib,
            page_kib=4,
            gpus=gpus,
            sources=(karpenter(instance, says), X86_PAGES),
        )
        for name, instance, cores, memory_mib, gpus, says in _AWS
    ),
    MachineProfile(
        name="azure-nd-h100-v5",
        title="Azure Standard_ND96isr_H100_v5",
        architecture="x86_64",
        cores=96,
        cores_are="threads",
        memory_mib=gib(1900),
        page_kib=4,
        gpus="8 x NVIDIA H100 80 GB",
        sources=(
            azure("ndh100v5-series", "96 vCPUs, Intel Xeon (Sapphire Rapids) [x86-64]; 1,900 GiB; 8 x H100 (80GB)"),
            X86_PAGES,
        ),
    ),
    MachineProfile(
        name="azure-nd-gb200-v6",
        title="Azure Standard_ND128isr_NDR_GB200_v6",
        architecture="aarch64",
        cores=128,
        cores_are="threads",
        memory_mib=gib(900),
        page_kib=64,
        gpus="4 x NVIDIA GB200",
        sources=(
            azure("nd-gb200-v6-series", "128 vCPUs, NVIDIA Grace; 900 GiB LPDDR5X; 4 Blackwell GPUs"),
            GRACE_PAGES,
        ),
    ),
    MachineProfile(
        name="gcp-a3-high",
        title="Google Cloud a3-highgpu-8g",
        architecture="x86_64",
        cores=208,
        cores_are="threads",
        memory_mib=gib(1872),
        page_kib=4,
        gpus="8 x NVIDIA H100",
        sources=(
            Source(
                figures=("cores", "memory_mib"),
                says="Google's list of machine types: a3-highgpu-8g;208;False;1872.00",
                where="https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator/issues/116",
            ),
            Source(
                figures=("architecture", "gpus"),
                says="8 NVIDIA H100 GPUs per a3-highgpu-8g VM",
                where="https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/main/examples/machine-learning/"
                "a3-highgpu-8g/README.md (Set cluster size)",
            ),
            X86_PAGES,
        ),
    ),
)
