"""What a build says of its store: at its start, and at its end of what it did not get."""

from __future__ import annotations

from builddoctor.phase_store.result import Result
from builddoctor.runtime.stored_phases import StoredPhases


class Planted:
    """A store that was asked before."""

    def __init__(self, *, problem: str = "", unanswered: int = 0, refused: int = 0) -> None:
        self.problem, self.unanswered, self.refused = problem, unanswered, refused
        self.resting = False
        self.closed = False

    def find(self, key: str) -> Result | None:
        raise AssertionError(key)

    def refuse(self, key: str) -> None:
        raise AssertionError(key)

    def put(self, result: Result) -> None:
        raise AssertionError(result)

    def close(self) -> None:
        self.closed = True


def test_a_store_that_answered_all_is_not_spoken_of() -> None:
    said: list[str] = []
    store = Planted()
    StoredPhases(store, tell=said.append).close()
    assert store.closed
    assert said == []


def test_one_that_was_late_is_spoken_of_once() -> None:
    """It was not there at first; each question that it was asked then had its answer."""
    said: list[str] = []
    StoredPhases(Planted(problem="tls://a:1: Connection refused"), tell=said.append).close()
    assert len(said) == 1
    assert said[0].startswith("no store at tls://a:1: Connection refused")


def test_what_had_no_answer_is_counted_at_the_end() -> None:
    for unanswered, words in ((1, "no answer once"), (3, "no answer 3 times")):
        said: list[str] = []
        store = Planted()
        stored = StoredPhases(store, tell=said.append)
        store.problem, store.unanswered = "tls://a:1: no answer in 10 s", unanswered
        stored.close()
        assert len(said) == 1
        assert words in said[0]
        assert "tls://a:1: no answer in 10 s" in said[0]
