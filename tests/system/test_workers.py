"""Workers of one test run: a test that is marked ``alone`` has the machine for itself."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from support.workers import turn

PATIENCE_S = 30.0


class Worker:
    """One test at a time, for as long as it is told; locks are those of a process of its own."""

    def __init__(self, folder: Path, log: list[str], name: str, *, alone: bool) -> None:
        self.began, self._go = threading.Event(), threading.Event()
        self._folder, self._log, self._name, self._alone = folder, log, name, alone
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with turn(self._folder, alone=self._alone):
            self._log.append(f"{self._name} begins")
            self.began.set()
            assert self._go.wait(PATIENCE_S)
            self._log.append(f"{self._name} ends")

    def end(self) -> None:
        self._go.set()
        self._thread.join()


@pytest.mark.parametrize("others", [1, 3])
def test_a_test_that_runs_alone_waits_for_the_others_and_they_for_it(tmp_path: Path, others: int) -> None:
    """Those that run end first; it runs; those that came later run after it."""
    log: list[str] = []
    first = [Worker(tmp_path, log, "first", alone=False) for _ in range(others)]
    assert all(each.began.wait(PATIENCE_S) for each in first)
    alone = Worker(tmp_path, log, "alone", alone=True)
    assert not alone.began.wait(0.2)
    later = [Worker(tmp_path, log, "later", alone=False) for _ in range(others)]
    for each in first:
        each.end()
    assert alone.began.wait(PATIENCE_S)
    assert not later[0].began.is_set()
    alone.end()
    for each in later:
        each.end()
    at = log.index("alone begins")
    assert log[:at] == ["first begins"] * others + ["first ends"] * others
    assert log[at + 1] == "alone ends"
