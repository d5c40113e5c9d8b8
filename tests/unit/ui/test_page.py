"""The page as a document: escaped, closed to the network, small, and the same each time."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import BuildDoctorError
from builddoctor.core.events import NodeSeen
from builddoctor.core.phase import STORE
from builddoctor.core.verdict import Fix
from builddoctor.diagnose.from_trace import judge
from builddoctor.trace.analysis import read_build, take_picture
from builddoctor.trace.picture import Picture
from builddoctor.trace.reader import TraceReader
from builddoctor.ui.page import Library, digest_of, page, plotly
from builddoctor.ui.page.payload import encoded, payload, short_names, units_of
from builddoctor.ui.page.sections import about, started, text
from builddoctor.ui.page.words import Words, words_of
from support import trace_events as tr
from support.made_traces import Made, many_units, unit_of, usual_units, write_trace
from unit.builders import header

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028\u2029&\"'\x1b[31m\u202e"
SMALL = Library(packed="", digest="sha256-none")
WORDS = Words(state="bad", label=EVIL, headline=EVIL, because=EVIL, time=EVIL, fixes=[Fix(text=EVIL, command=EVIL)] * 3)


class Tags(HTMLParser):
    """All tags of a document with their attributes, and what stands in scripts."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._in_script = False
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in_script = tag == "script"

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts.append(data)
            self._in_script = False


def _picture(folder: Path, build: Made) -> Picture:
    return take_picture(TraceReader(write_trace(folder / "t.jsonl", build)))


def _evil_page(folder: Path) -> str:
    units = [unit_of(f"{number}/{EVIL}", device_mib=300.0, wall_s=3.0, arch=EVIL) for number in range(4)]
    return page(_picture(folder, Made(units=units, title=EVIL)), WORDS, None, SMALL)


def test_names_from_a_trace_stay_text(tmp_path: Path) -> None:
    """No tag, no attribute and no script comes of a name; no control character gets through."""
    document = _evil_page(tmp_path)
    tags = Tags(document)
    assert [tag for tag, _ in tags.found if tag in ("img", "link", "iframe", "object", "embed")] == []
    assert len([tag for tag, _ in tags.found if tag == "script"]) == 3
    assert {name for _, attributes in tags.found for name in attributes if name.startswith("on")} == set()
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u2028\u2029\u202e]", document)


def test_data_can_stand_in_any_page(tmp_path: Path) -> None:
    """The signs that HTML or script could stumble over are escapes, and it reads back as it was."""
    picture = _picture(tmp_path, Made(units=[unit_of(EVIL, device_mib=300.0, wall_s=3.0)]))
    data = payload(picture, units_of(picture))
    written = encoded(data)
    assert not set("<>&\u2028\u2029") & set(written)
    assert msgspec.json.decode(written)["units"] == data.units


def test_policy_names_each_script_and_forbids_all_else(tmp_path: Path) -> None:
    """The hash of our script is the one in the policy, and so is the library's; nothing may be fetched."""
    document = _evil_page(tmp_path)
    policy = next(each["content"] for tag, each in Tags(document).found if each.get("http-equiv") and tag == "meta")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    script = Tags(document).scripts[-1]
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    assert SMALL.digest in policy
    assert "unsafe-eval" not in policy
    assert not re.search(r"script-src[^;]*unsafe-inline", policy)
    assert "connect-src" not in policy


def test_page_has_no_address_of_anywhere(tmp_path: Path) -> None:
    """Outside the packed library there is not one link or source that leads away."""
    for _, attributes in Tags(_evil_page(tmp_path)).found:
        for name in ("src", "href", "action", "srcset", "data"):
            assert (attributes.get(name) or "#").startswith("#"), attributes


def test_large_build_stays_below_six_megabytes(tmp_path: Path) -> None:
    """5,000 phases over more than an hour and a half, a tick each second, with the real library."""
    build = Made(units=list(many_units(1000)), cores=6, limit_mib=16384, budget_mib=15000)
    picture = _picture(tmp_path, build)
    assert len(picture.runs) == 5000
    assert len(page(picture, WORDS, None, plotly()).encode()) < 6_000_000


def test_same_trace_gives_the_same_page(tmp_path: Path) -> None:
    """Byte for byte: pages can be compared and kept."""
    picture = _picture(tmp_path, Made(units=usual_units()))
    assert page(picture, WORDS, None, plotly()) == page(picture, WORDS, None, plotly())


def test_library_is_the_installed_one() -> None:
    """What is packed is the package's own file, and its hash is that of what the browser will run."""
    found = plotly()
    script = gzip.decompress(base64.b64decode(found.packed))
    assert b"plotly.js" in script[:200]
    assert found.digest == digest_of(script)


def test_missing_library_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that is not whole gives an error with a line to paste."""
    monkeypatch.setattr("builddoctor.ui.page.find_spec", lambda _: None)
    with pytest.raises(BuildDoctorError) as caught:
        plotly.__wrapped__()
    assert caught.value.hint == "pip install -U plotly"


@pytest.mark.parametrize("build", [Made(units=[]), Made(units=usual_units(), stop_at_s=0.05)])
def test_traces_with_next_to_nothing_have_a_page(build: Made, tmp_path: Path) -> None:
    """A header alone, and a trace that was cut before any phase began."""
    trace = write_trace(tmp_path / "t.jsonl", build)
    report = read_build(trace)
    document = page(take_picture(TraceReader(trace)), words_of(report, judge(report)), None, SMALL)
    assert "No compiler ran." in document


def test_words_of_each_end(tmp_path: Path) -> None:
    """Built, failed, cut off: a label, a sentence on what died, a sentence on why."""
    ends = {
        "good": Made(units=usual_units()),
        "bad": Made(units=usual_units(gelu={"cudafe": "runaway"})),
        "torn": Made(units=usual_units(), stop_at_s=40.0),
    }
    for state, build in ends.items():
        report = read_build(write_trace(tmp_path / f"{state}.jsonl", build))
        words = words_of(report, judge(report))
        assert words.state == state
        assert words.headline.endswith(".")
        assert words.because.endswith(".")
        assert bool(words.fixes) == (state != "good")
        assert words.time.endswith(".") == (state == "good")


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["/src/a/x.cu", "/src/b/y.cu"], ["a/x.cu", "b/y.cu"]),
        (["/src/x.cu"], ["x.cu"]),
        (["/src/x.cu", "rel/y.cu", ""], ["x.cu", "rel/y.cu", ""]),
        (["/a/x.cu", "/b/y.cu"], ["/a/x.cu", "/b/y.cu"]),
        ([], []),
    ],
)
def test_names_lose_the_folder_that_all_share(names: list[str], short: list[str]) -> None:
    """Absolute names only, and never down to nothing."""
    assert short_names(names) == short


def test_text_is_fit_for_tags_and_quotes() -> None:
    """Both quotes, both brackets, and the ampersand; control characters are blanks."""
    assert text("<a b=\"c\" d='e'>&\x1b") == "&lt;a b=&quot;c&quot; d=&#x27;e&#x27;&gt;&amp; "


def test_start_is_written_as_people_do() -> None:
    """In UTC; what is no time stays what it is."""
    assert started("2025-06-01T12:00:00+02:00") == "2025-06-01 10:00 UTC"
    assert started("yesterday") == "yesterday"
    assert header().started_at == "2025-01-01T00:00:00+00:00"


def test_where_phases_ran_is_told() -> None:
    """Nodes with their size and what they did, the store apart; a phase says where it ran and how it came back."""
    picture = take_picture(
        tr.events(
            header(),
            NodeSeen(at_s=0.1, node="<gpu2>", cores=8, budget_mib=4096.0, tools=("cicc",)),
            *(_asked(1), tr.admitted(1.0, 1, 900, node="<gpu2>")),
            tr.phase_ended(61.0, 1, "node-lost", peak_mib=0, wall_s=0, cpu_s=0, node="<gpu2>"),
            tr.requeued(at_s=61.0, phase_id=1, reserve_mib=900, solo=False, lost_s=60.0),
            tr.admitted(62.0, 1, 900, node=STORE),
            tr.phase_ended(63.0, 1, peak_mib=800, wall_s=58, cpu_s=0, node=STORE),
        )
    )
    told = about(picture)
    assert "<dt>Node &lt;gpu2&gt;</dt><dd>8 cores, 4.0 GiB for phases; 1 phase, 1:00 with the way</dd>" in told
    assert "<dt>Store</dt><dd>1 phase, 0:01 with the way</dd>" in told
    data = payload(picture, units_of(picture))
    assert data.runs.place == ["on <gpu2>", "from the store"]
    assert data.outcomes[data.runs.outcome[0]] == "lost with the machine that it was sent to"
    assert "on &lt;gpu2&gt;" in page(picture, WORDS, None, SMALL)


def _asked(phase_id: int) -> tr.Events:
    return tr.phase_asked(
        at_s=0.5,
        phase_id=phase_id,
        unit_id=f"u{phase_id}",
        kind="cicc",
        tool="cicc",
        source="src/a.cu",
        arch="sm_90",
        estimate_mib=100.0,
        reserve_mib=120.0,
        estimate_source="prior",
    )
