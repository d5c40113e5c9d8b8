"""The page of traces that no build would write."""

from __future__ import annotations

import enum
import functools
import re
import tempfile
from pathlib import Path
from typing import TypeVar

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.events import BuildEvent, Header
from builddoctor.diagnose.from_trace import judge
from builddoctor.simulate.what_if import what_if
from builddoctor.trace.analysis import take_picture
from builddoctor.trace.reader import TraceReader
from builddoctor.ui.page import Library, page
from builddoctor.ui.page.words import words_of
from support.examples import examples
from support.made_traces import Made, usual_units, write_trace
from support.told import digest
from unit.builders import header

Altered = TypeVar("Altered", bound=msgspec.Struct)

NUMBERS = st.floats(-1e9, 1e9, allow_nan=False) | st.sampled_from([0.0, -1e9, 1e9])
WHOLE = st.integers(-(2**53), 2**53)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["</script>", "cicc", "ok", "killed-by-us"]
)


@functools.cache
def _records() -> tuple[BuildEvent, ...]:
    build = Made(units=usual_units(gelu={"cicc": "killed-once"}, relu={"ptxas": "too-big"})[4:8])
    with tempfile.TemporaryDirectory() as folder:
        return tuple(TraceReader(write_trace(Path(folder) / "t.jsonl", build)))


@st.composite
def damaged(draw: st.DrawFn) -> list[BuildEvent]:
    """Records of a build: some with values of chance, some moved, some gone."""
    records = list(_records()[1:])
    places = st.integers(0, len(records) - 1)
    for place in draw(st.lists(places, max_size=8)):
        records[place] = draw(_altered(records[place]))
    for one, other in draw(st.lists(st.tuples(places, places), max_size=4)):
        records[one], records[other] = records[other], records[one]
    gone = draw(st.sets(places, max_size=8))
    end = draw(places | st.just(len(records)))
    return [record for place, record in enumerate(records[:end]) if place not in gone]


@st.composite
def _altered(draw: st.DrawFn, record: Altered) -> Altered:
    """Some value of it, or of a struct in it, is another; where only a few are possible, one of them."""
    if not record.__struct_fields__:
        return record
    field = draw(st.sampled_from(record.__struct_fields__))
    value = getattr(record, field)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(record, **{field: draw(_altered(value))})
    if isinstance(value, enum.Enum):
        return msgspec.structs.replace(record, **{field: draw(st.sampled_from(type(value)))})
    kinds = ((bool, st.booleans()), (float, NUMBERS), (int, WHOLE), (str, TEXTS))
    strategy = next((of for kind, of in kinds if isinstance(value, kind)), st.just(value))
    return msgspec.structs.replace(record, **{field: draw(strategy)})


@examples(150)
@given(first=_altered(header()), records=damaged())
def test_any_records_make_a_page_of_words(first: Header, records: list[BuildEvent]) -> None:
    """No record, wherever it stands and whatever it holds, stops the page or gets a tag or a control sign into it."""
    report = digest([first, *records])
    picture = take_picture([first, *records])
    document = page(picture, words_of(report, judge(report)), what_if(picture), Library(packed="", digest="sha256-x"))
    assert document.count("<script") == 3
    assert document.count("</script") == 3
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]", document)
    assert len(picture.moments) < 3100
    assert all(run.end_s >= run.start_s or run.end_s == picture.last_at_s for run in picture.runs)
