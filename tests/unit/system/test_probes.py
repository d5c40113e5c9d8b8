"""Programs that are asked: PATH, deadlines, jobs side by side."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from builddoctor.system.probes import Deadline, first_program, job_pool, path_folders, programs
from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.build_tools import build_python_path
from builddoctor.toolchain.discover import candidates
from builddoctor.toolchain.host_compiler import handed_over, spares


def refuse_threads(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """As ``ulimit -v`` and ``ulimit -u`` do."""
    start = threading.Thread.start
    started: list[threading.Thread] = []

    def refusing(thread: threading.Thread) -> None:
        if len(started) >= after:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_every_job_is_done_once_however_many_threads_start(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """Without one, whoever asks for the result does it."""
    refuse_threads(monkeypatch, after=threads)
    done: list[int] = []

    def work(number: int) -> int:
        done.append(number)
        return number

    with job_pool(Deadline(60.0)) as pool:
        jobs = [pool.submit(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc]
        assert [job.result() for job in jobs] == list(range(20))
    assert sorted(done) == list(range(20))


def test_jobs_are_done_at_the_same_time() -> None:
    """Two that wait for each other come to an end."""
    barrier = threading.Barrier(2, timeout=60)
    with job_pool(Deadline(60.0)) as pool:
        jobs = [pool.submit(barrier.wait) for _ in range(2)]
        assert sorted(job.result() for job in jobs) == [0, 1]


def test_a_job_may_have_jobs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without threads, too, nobody waits for somebody who waits."""
    refuse_threads(monkeypatch)
    deadline = Deadline(60.0)

    def outer() -> int:
        with job_pool(deadline) as inner:
            return inner.submit(lambda: 7).result()

    with job_pool(deadline) as pool:
        assert pool.submit(outer).result() == 7


def test_what_a_job_raises_its_result_raises() -> None:
    """Deadline ends with it: nobody waits for the others."""
    deadline = Deadline(60.0)
    with pytest.raises(ZeroDivisionError), job_pool(deadline) as pool:
        pool.submit(lambda: 1 // 0).result()
    assert deadline.left_s == 0


def test_deadline_runs_out_by_the_clock() -> None:
    """It is never negative, and an end is an end."""
    now = [100.0]
    deadline = Deadline(8.0, clock=lambda: now[0])
    assert deadline.left_s == 8.0
    now[0] = 105.0
    assert deadline.left_s == 3.0
    now[0] = 200.0
    assert deadline.left_s == 0.0
    later = Deadline(8.0, clock=lambda: now[0])
    later.end()
    assert later.left_s == 0.0


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder is a source tree that brings programs along."""
    for name in ("git", "python", "gcc", "g++-13", "nvcc"):
        for place in (tmp_path, tmp_path / "bin"):
            place.mkdir(exist_ok=True)
            (place / name).write_text("")
            (place / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", [".", "", ":", "bin", "./bin", "..:bin:.", "~/bin"])
def test_entries_that_stand_for_the_current_folder_are_passed_over(tree: Path, path: str) -> None:
    """What came with the sources is not asked what it is: it would be run for that."""
    env = {"PATH": f"{path}:/nowhere", "CC": "gcc", "CUDAHOSTCXX": "gcc", "CUDACXX": "nvcc"}
    assert path_folders(env) == ["/nowhere"]
    assert first_program("git", env) == build_python_path(env) == ""
    assert spares(env) == handed_over(env) == []
    assert list(candidates(SystemRoot(tree), env, wanted="", site_folders=[])) == []


def test_all_programs_of_a_name_in_order(tree: Path) -> None:
    """By absolute folders; a name with a slash is itself; a plain file is no program."""
    (tree / "plain").mkdir()
    (tree / "plain/git").write_text("")
    env = {"PATH": f"{tree}/plain:{tree}/bin:{tree}"}
    assert list(programs("git", env)) == [f"{tree}/bin/git", f"{tree}/git"]
    assert first_program(f"{tree}/bin/git", {}) == f"{tree}/bin/git"
    assert first_program(f"{tree}/plain/git", env) == ""


def test_without_a_path_it_is_the_systems_own() -> None:
    """As execvp does."""
    assert path_folders({}) == path_folders({"PATH": ""}) == os.defpath.split(":")
