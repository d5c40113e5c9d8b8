"""The parallelism knobs of real projects: what they are set to, and the user's own values as caps. Pure.

Under gates these are no safety knobs any more: they say how many units a build tool may start (the window), and the
scheduler decides how many of them are begun, how many of their phases run, and with how many threads. Job knobs may
change between builds; thread knobs end up in command lines (TransformerEngine, flash-attention), where another value
would rebuild everything, so theirs depends on nothing but the number of cores: what nvcc gets in the end is set at its
gate (``scheduler.unit_release``), whatever the command line says.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

JOB_KNOBS = (
    "MAX_JOBS",
    "NVTE_BUILD_MAX_JOBS",
    "CMAKE_BUILD_PARALLEL_LEVEL",
    "FLASHINFER_JIT_PREBUILD_MAX_JOBS",
    "NATTEN_N_WORKERS",
)
"""Jobs of torch extensions, TransformerEngine, CMake, flashinfer, NATTEN."""

THREAD_KNOBS = ("NVTE_BUILD_THREADS_PER_JOB", "NVCC_THREADS", "FLASHINFER_NVCC_THREADS", "DS_NVCC_THREADS")
"""nvcc's ``--threads`` in TransformerEngine, flash-attention and vLLM, flashinfer, DeepSpeed."""

READ_ONLY = frozenset(("FLASHINFER_NVCC_THREADS",))
"""A cap where the user has set it, and never set by us: flashinfer compiles in the process that serves a model, and
another value would compile every kernel again that it has cached, when builddoctor is there and when it is not."""

MOST_THREADS = 4


class KnobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What to export, and what the user's own values did to it."""

    window: int
    """units that a build tool may start"""
    threads: int
    """nvcc's ``--threads`` in command lines"""
    most_threads: int | None
    """what the user allows at most; None where nothing was said"""
    exports: dict[str, str]
    caps: tuple[str, ...]
    """the user's own lower values that were kept, as ``MAX_JOBS=2``"""


def settle(env: Mapping[str, str], *, window: int, cores: int, ignore_caps: bool) -> KnobSettings:
    """Values for all knobs. A lower value of the user's is a cap, unless ``ignore_caps``."""
    jobs_cap, job_caps = _lowest(env, JOB_KNOBS, window, ignore_caps=ignore_caps)
    threads_cap, thread_caps = _lowest(env, THREAD_KNOBS, max(1, min(MOST_THREADS, cores)), ignore_caps=ignore_caps)
    exports = dict.fromkeys(JOB_KNOBS, str(jobs_cap)) | {
        name: str(threads_cap) for name in THREAD_KNOBS if name not in READ_ONLY
    }
    return KnobSettings(
        window=jobs_cap,
        threads=threads_cap,
        most_threads=threads_cap if thread_caps else None,
        exports=exports,
        caps=(*job_caps, *thread_caps),
    )


def _lowest(
    env: Mapping[str, str], names: tuple[str, ...], value: int, *, ignore_caps: bool
) -> tuple[int, tuple[str, ...]]:
    caps: list[str] = []
    lowest = value
    for name in names:
        text = env.get(name, "").strip()
        if not ignore_caps and text.isascii() and text.isdigit() and 0 < int(text) < value:
            caps.append(f"{name}={text}")
            lowest = min(lowest, int(text))
    return lowest, tuple(caps)
