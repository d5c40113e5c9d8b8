"""What comes from a node, before anything of it is used: its answer to this very parcel, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from builddoctor.cluster.client import answer_to, said_by_node
from builddoctor.core.cluster import Answer, NodeFacts, Parcel
from builddoctor.core.errors import ClusterError
from support.messages import no_text, too_deep

PARCEL = Parcel(parcel_id="p1", tool="ptxas", program="d1", words=(), inputs=(), outputs=())
ANSWER = {"parcel_id": "p1", "status": 0, "printed": b"", "outputs": [], "folder": "/n", "peak_mib": 1.5}


def test_an_answer() -> None:
    assert answer_to(PARCEL, msgspec.msgpack.encode(ANSWER)) == Answer(
        parcel_id="p1", status=0, folder="/n", peak_mib=1.5
    )


@pytest.mark.parametrize(
    "other",
    [
        {"status": "well"},
        {"status": -1},
        {"status": 1 << 40},
        {"peak_mib": float("nan")},
        {"cpu_s": float("inf")},
        {"wall_s": -1.0},
        {"outputs": [b"x"]},
        {"printed": 5},
    ],
)
def test_an_answer_that_cannot_be(other: dict[str, object]) -> None:
    with pytest.raises(ClusterError, match="no answer"):
        answer_to(PARCEL, msgspec.msgpack.encode({**ANSWER, **other}))


@pytest.mark.parametrize("returned", [None, "well done", b"", b"\xc1", Answer(parcel_id="p1", status=0)])
def test_what_is_no_answer(returned: object) -> None:
    with pytest.raises(ClusterError, match="no answer"):
        answer_to(PARCEL, returned)


def test_the_answer_to_another_parcel() -> None:
    with pytest.raises(ClusterError, match="what it was sent before"):
        answer_to(PARCEL, msgspec.msgpack.encode({**ANSWER, "parcel_id": "p0"}))


@pytest.mark.parametrize("wrong", [no_text, too_deep])
def test_what_msgspec_has_no_error_of_its_own_for(wrong: Callable[[Mapping[str, object]], bytes]) -> None:
    with pytest.raises(ClusterError, match="no answer"):
        answer_to(PARCEL, wrong(ANSWER))
    with pytest.raises(ClusterError, match="no answer"):
        said_by_node(NodeFacts, wrong({**FACTS, "budget_mib": 512}))


FACTS = {"host": "n", "builddoctor": "1", "machine": "x86_64", "programs": [["ptxas", "d1"]], "cores": 2}


def test_facts_of_a_node() -> None:
    facts = said_by_node(NodeFacts, msgspec.msgpack.encode({**FACTS, "budget_mib": 512}))
    assert (facts.programs, facts.budget_mib) == ((("ptxas", "d1"),), 512.0)


@pytest.mark.parametrize("other", [{"budget_mib": float("nan")}, {"cores": 0}, {"programs": None}, {"host": 3}])
def test_facts_that_cannot_be(other: dict[str, object]) -> None:
    with pytest.raises(ClusterError, match="no answer"):
        said_by_node(NodeFacts, msgspec.msgpack.encode({**FACTS, "budget_mib": 512, **other}))
