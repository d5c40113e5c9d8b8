"""Jobs in threads, and without any."""

from __future__ import annotations

import threading

import pytest

from builddoctor.intercept.side_by_side import Patience, side_by_side


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

    with side_by_side(Patience(60.0)) as together:
        jobs = [together.submit(lambda number=number: work(number)) for number in range(20)]  # type: ignore[misc]
        assert [job.result() for job in jobs] == list(range(20))
    assert sorted(done) == list(range(20))


def test_jobs_are_done_at_the_same_time() -> None:
    """Two that wait for each other come to an end."""
    barrier = threading.Barrier(2, timeout=60)
    with side_by_side(Patience(60.0)) as together:
        jobs = [together.submit(barrier.wait) for _ in range(2)]
        assert sorted(job.result() for job in jobs) == [0, 1]


def test_a_job_may_have_jobs_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without threads, too, nobody waits for somebody who waits."""
    refuse_threads(monkeypatch)
    patience = Patience(60.0)

    def outer() -> int:
        with side_by_side(patience) as inner:
            return inner.submit(lambda: 7).result()

    with side_by_side(patience) as together:
        assert together.submit(outer).result() == 7


def test_what_a_job_raises_its_result_raises() -> None:
    """Patience ends with it: nobody waits for the others."""
    patience = Patience(60.0)
    with pytest.raises(ZeroDivisionError), side_by_side(patience) as together:
        together.submit(lambda: 1 // 0).result()
    assert patience.left_s == 0


def test_patience_runs_out_by_the_clock() -> None:
    """It is never negative, and an end is an end."""
    now = [100.0]
    patience = Patience(8.0, clock=lambda: now[0])
    assert patience.left_s == 8.0
    now[0] = 105.0
    assert patience.left_s == 3.0
    now[0] = 200.0
    assert patience.left_s == 0.0
    later = Patience(8.0, clock=lambda: now[0])
    later.end()
    assert later.left_s == 0.0
