"""Machines of NVIDIA's: Grace with and without GPUs, DGX, and those whose GPU shares the CPU's memory.

1 GB of memory is 1024 MiB here (``machines.profile`` says why).
"""

from __future__ import annotations

from builddoctor.machines.profile import gib
from builddoctor.machines.sources import GRACE_PAGES, NUMA_MODE, WHOLE, X86_PAGES, mlperf
from builddoctor.model.profile import MachineProfile, Source

_NUMA_NOTE = "in the driver's NUMA mode `free` counts the GPUs' memory too: a build that goes there starves GPU jobs"
_PHYSICAL = "cores are physical: where hyper-threading is on, a process sees twice as many"
_SHARED = "CPU and GPU share this memory: running out freezes the machine, so 8 GiB or 7 % stay free"

_GB200 = mlperf(
    "inference_results_v5.1",
    "closed/NVIDIA/systems/GB200-NVL72_GB200-186GB_aarch64x4_TRT.json",
    "one node: 2 Grace CPUs, 144 cores, host memory 960 GB, 4 x GB200 of 186 GB",
    *WHOLE,
    "hbm_mib_as_numa",
)

GRACE = (
    MachineProfile(
        name="gb200-node",
        title="one compute tray of a GB200 NVL72: two superchips",
        architecture="aarch64",
        cores=144,
        cores_are="cores",
        memory_mib=gib(960),
        page_kib=64,
        gpus="4 x NVIDIA GB200 186 GB",
        hbm_mib_as_numa=gib(4 * 186),
        notes=(_NUMA_NOTE, "two NUMA nodes of 480 GB: a job bound to one of them has half"),
        sources=(_GB200, NUMA_MODE, GRACE_PAGES),
    ),
    MachineProfile(
        name="gb200-superchip",
        title="half a GB200 compute tray: one Grace CPU and two GPUs",
        architecture="aarch64",
        cores=72,
        cores_are="cores",
        memory_mib=gib(480),
        page_kib=64,
        gpus="2 x NVIDIA GB200 186 GB",
        hbm_mib_as_numa=gib(2 * 186),
        notes=(_NUMA_NOTE, "what a job on a GB200 node gets that is bound to one NUMA node"),
        sources=(
            _GB200,
            Source(
                figures=("cores", "gpus"),
                says="two NUMA nodes: node 0 has GPUs 0 and 1 and cores 0 to 71, node 1 GPUs 2 and 3 and the others",
                where="https://github.com/ishandhanani/srt-slurm/pull/164",
            ),
            NUMA_MODE,
            GRACE_PAGES,
        ),
    ),
    MachineProfile(
        name="gb300-node",
        title="one compute tray of a GB300 NVL72: two superchips",
        architecture="aarch64",
        cores=144,
        cores_are="cores",
        memory_mib=gib(960),
        page_kib=64,
        gpus="4 x NVIDIA GB300 288 GB",
        hbm_mib_as_numa=gib(4 * 288),
        notes=(_NUMA_NOTE,),
        sources=(
            mlperf(
                "inference_results_v5.1",
                "closed/NVIDIA/systems/GB300-NVL72_GB300-288GB_aarch64x72_TRT.json",
                "each of 18 nodes: 2 Grace CPUs, 144 cores, host memory 960 GB, 4 x GB300 of 288 GB",
                *WHOLE,
                "hbm_mib_as_numa",
            ),
            NUMA_MODE,
            GRACE_PAGES,
        ),
    ),
    MachineProfile(
        name="gh200",
        title="GH200 Grace Hopper superchip, 480 GB",
        architecture="aarch64",
        cores=72,
        cores_are="cores",
        memory_mib=gib(480),
        page_kib=64,
        gpus="1 x NVIDIA GH200 144 GB",
        hbm_mib_as_numa=gib(144),
        notes=(_NUMA_NOTE,),
        sources=(
            mlperf(
                "inference_results_v4.1",
                "closed/NVIDIA/systems/GH200-GraceHopper-Superchip_GH200-144GB_aarch64x1_TRT.json",
                "1 Grace CPU, 72 cores, host memory 480 GB, 1 x GH200 of 144 GB",
                *WHOLE,
                "hbm_mib_as_numa",
            ),
            NUMA_MODE,
            GRACE_PAGES,
        ),
    ),
    MachineProfile(
        name="grace-cpu-240g",
        title="Grace CPU superchip, 240 GB, no GPU (MareNostrum 5)",
        architecture="aarch64",
        cores=144,
        cores_are="cores",
        memory_mib=gib(240),
        page_kib=64,
        notes=("1.7 GB for each core: a job for every core does not fit",),
        sources=(
            Source(
                figures=("architecture", "cores", "memory_mib"),
                says="each node: 2 x NVIDIA Grace 72C (ARM), 2 x 120 GB LPDDR5, 144 cores and 240 GB",
                where="https://www.bsc.es/supportkc/docs/Grace/overview (System overview)",
            ),
            GRACE_PAGES,
        ),
    ),
    MachineProfile(
        name="grace-cpu-960g",
        title="Grace CPU superchip with the most memory that it is made with, no GPU",
        architecture="aarch64",
        cores=144,
        cores_are="cores",
        memory_mib=gib(960),
        page_kib=64,
        sources=(
            Source(
                figures=("architecture", "cores", "memory_mib"),
                says="NVIDIA's table: Armv9 Neoverse V2, core count 144, memory size up to 960 GB",
                where="https://hardwaretimes.com/nvidia-announces-grace-cpu-up-2x-faster-than-amd-epyc-and-intel-xeon-"
                "parts-with-better-power-efficiency/",
            ),
            GRACE_PAGES,
        ),
    ),
)

_BASEPOD = "https://docs.nvidia.com/dgx-basepod/reference-architecture-infrastructure-foundation-enterprise-ai/latest/"

DGX = (
    MachineProfile(
        name="dgx-b200",
        title="DGX B200",
        architecture="x86_64",
        cores=112,
        cores_are="cores",
        memory_mib=gib(2048),
        page_kib=4,
        gpus="8 x NVIDIA B200 180 GB",
        notes=(_PHYSICAL,),
        sources=(
            mlperf(
                "inference_results_v5.1",
                "closed/NVIDIA/systems/B200-SXM-180GBx8_TRT.json",
                "DGX B200: 2 x Xeon Platinum 8570 of 56 cores, 2 TB in 32 modules of 64 GB, 8 x B200 of 180 GB",
            ),
            X86_PAGES,
        ),
    ),
    *(
        MachineProfile(
            name=name,
            title=title,
            architecture="x86_64",
            cores=112,
            cores_are="cores",
            memory_mib=gib(2048),
            page_kib=4,
            gpus=gpus,
            notes=(_PHYSICAL,),
            sources=(
                Source(
                    figures=WHOLE,
                    says=f"dual Xeon Platinum 8480C, 112 cores total; 2 TB of DDR5 system memory; {gpu_memory}",
                    where=f"{_BASEPOD}core-components.html (NVIDIA DGX H200 and H100 Systems)",
                ),
                X86_PAGES,
            ),
        )
        for name, title, gpus, gpu_memory in (
            ("dgx-h200", "DGX H200", "8 x NVIDIA H200 141 GB", "eight Hopper GPUs, 1,128 GB total"),
            ("dgx-h100", "DGX H100", "8 x NVIDIA H100 80 GB", "eight Hopper GPUs, 640 GB total"),
        )
    ),
    MachineProfile(
        name="dgx-a100",
        title="DGX A100 with GPUs of 80 GB",
        architecture="x86_64",
        cores=128,
        cores_are="cores",
        memory_mib=gib(2048),
        page_kib=4,
        gpus="8 x NVIDIA A100 80 GB",
        notes=(_PHYSICAL,),
        sources=(
            mlperf(
                "training_results_v2.1",
                "NVIDIA/systems/dgxa100_n128_ngc22.04_pytorch.json",
                "each node: 2 x AMD EPYC 7742 of 64 cores, host memory 2 TB, 8 x A100-SXM4 of 80 GB",
            ),
            X86_PAGES,
        ),
    ),
)

_ALL_SHARED = (*WHOLE, "unified_memory")

UNIFIED = (
    MachineProfile(
        name="dgx-spark",
        title="DGX Spark (GB10)",
        architecture="aarch64",
        cores=20,
        cores_are="cores",
        memory_mib=gib(128),
        gpus="1 x NVIDIA GB10, in the CPU's memory",
        unified_memory=True,
        notes=(_SHARED, "10 fast cores and 10 slow ones"),
        sources=(
            Source(
                figures=("architecture", "cores", "memory_mib", "gpus", "unified_memory"),
                says="a 20-core ARM64 chip that shares 128GB of LPDDR5x with the integrated GPU",
                where="https://docs.nvidia.com/dgx/dgx-spark-porting-guide/overview.html (CPU Architecture)",
            ),
        ),
    ),
    MachineProfile(
        name="jetson-agx-thor",
        title="Jetson AGX Thor developer kit, 128 GB",
        architecture="aarch64",
        cores=14,
        cores_are="cores",
        memory_mib=gib(128),
        gpus="1 x NVIDIA Jetson AGX Thor, in the CPU's memory",
        unified_memory=True,
        notes=(_SHARED,),
        sources=(
            mlperf(
                "inference_results_v5.1",
                "open/NVIDIA/systems/Jetson-Thor_TRT.json",
                "14-core ARM CPU, 128GB LPDDR5X, memory of the accelerator: shared with host",
                *_ALL_SHARED,
            ),
        ),
    ),
    MachineProfile(
        name="jetson-agx-orin",
        title="Jetson AGX Orin developer kit, 64 GB",
        architecture="aarch64",
        cores=12,
        cores_are="cores",
        memory_mib=gib(64),
        gpus="1 x NVIDIA Jetson AGX Orin, in the CPU's memory",
        unified_memory=True,
        notes=(_SHARED,),
        sources=(
            mlperf(
                "inference_results_v5.1",
                "closed/NVIDIA/systems/backup_systems/Orin_TRT.json",
                "12-core ARM Cortex-A78AE, 64GB LPDDR5, memory of the accelerator: shared with host",
                *_ALL_SHARED,
            ),
        ),
    ),
)
