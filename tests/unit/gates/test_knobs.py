"""Parallelism knobs of real projects."""

from __future__ import annotations

import pytest

from builddoctor.gates.knobs import JOB_KNOBS, MOST_THREADS, READ_ONLY, THREAD_KNOBS, settle


def test_all_knobs_are_set_to_the_window_and_the_threads() -> None:
    """Jobs are the open units; threads depend on nothing but the cores."""
    settings = settle({}, window=24, cores=16, ignore_caps=False)
    assert {settings.exports[name] for name in JOB_KNOBS} == {"24"}
    assert {settings.exports[name] for name in THREAD_KNOBS if name not in READ_ONLY} == {str(MOST_THREADS)}
    assert settings.exports.keys() == {*JOB_KNOBS, *THREAD_KNOBS} - READ_ONLY
    assert (settings.window, settings.threads, settings.caps) == (24, MOST_THREADS, ())


def test_what_would_compile_a_servers_kernels_again_is_a_cap_and_never_set() -> None:
    """flashinfer puts its own number into every command line, those of kernels that it has cached too."""
    assert "FLASHINFER_NVCC_THREADS" not in settle({}, window=24, cores=16, ignore_caps=False).exports
    capped = settle({"FLASHINFER_NVCC_THREADS": "1"}, window=24, cores=16, ignore_caps=False)
    assert (capped.threads, capped.caps) == (1, ("FLASHINFER_NVCC_THREADS=1",))
    assert "FLASHINFER_NVCC_THREADS" not in capped.exports


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 2), (4, 4), (144, 4)])
def test_threads_follow_the_cores_up_to_four(cores: int, threads: int) -> None:
    """The same machine always gives the same command lines."""
    assert settle({}, window=200, cores=cores, ignore_caps=False).threads == threads


@pytest.mark.parametrize(
    ("env", "window", "threads", "caps"),
    [
        ({"MAX_JOBS": "2"}, 2, 4, ("MAX_JOBS=2",)),
        ({"MAX_JOBS": " 2 "}, 2, 4, ("MAX_JOBS=2",)),
        ({"MAX_JOBS": "99"}, 24, 4, ()),
        ({"MAX_JOBS": "24"}, 24, 4, ()),
        ({"MAX_JOBS": "8", "CMAKE_BUILD_PARALLEL_LEVEL": "3"}, 3, 4, ("MAX_JOBS=8", "CMAKE_BUILD_PARALLEL_LEVEL=3")),
        ({"NVCC_THREADS": "1"}, 24, 1, ("NVCC_THREADS=1",)),
        ({"NVTE_BUILD_THREADS_PER_JOB": "8"}, 24, 4, ()),
        ({"MAX_JOBS": "0"}, 24, 4, ()),
        ({"MAX_JOBS": "-1"}, 24, 4, ()),
        ({"MAX_JOBS": "many"}, 24, 4, ()),
        ({"MAX_JOBS": ""}, 24, 4, ()),
        ({"MAX_JOBS": "²"}, 24, 4, ()),
    ],
)
def test_a_lower_value_of_the_users_is_a_cap(env: dict, window: int, threads: int, caps: tuple[str, ...]) -> None:
    """The lowest of the user's own values counts for all synonyms; higher ones and nonsense do not."""
    settings = settle(env, window=24, cores=16, ignore_caps=False)
    assert (settings.window, settings.threads, settings.caps) == (window, threads, caps)
    assert settings.exports["NVTE_BUILD_MAX_JOBS"] == str(window)


@pytest.mark.parametrize(
    ("env", "ignore", "most"),
    [
        ({}, False, None),
        ({"NVCC_THREADS": "2"}, False, 2),
        ({"NVCC_THREADS": "2"}, True, None),
        ({"NVCC_THREADS": "8"}, False, None),
        ({"MAX_JOBS": "2"}, False, None),
    ],
)
def test_a_cap_on_threads_holds_at_the_gate_too(env: dict, ignore: bool, most: int | None) -> None:
    """The number that nvcc gets is chosen later; not above what the user allows, where he does."""
    assert settle(env, window=24, cores=16, ignore_caps=ignore).most_threads == most


def test_caps_can_be_ignored() -> None:
    """With ``--ignore-caps`` memory alone decides."""
    settings = settle({"MAX_JOBS": "1", "NVCC_THREADS": "1"}, window=24, cores=16, ignore_caps=True)
    assert (settings.window, settings.threads, settings.caps) == (24, 4, ())
