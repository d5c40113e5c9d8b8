"""Replays of traces: the scheduler decides again on what a build saw."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from builddoctor.cli.app import main
from builddoctor.core.errors import TraceError
from builddoctor.core.events import Admit, BuildEnded, BuildEvent, Fact, Kill, TimePassed
from builddoctor.core.phase import Outcome
from builddoctor.core.settings import SchedulerSettings
from builddoctor.estimation.estimator import LearningEstimator
from builddoctor.scheduler.scheduler import Scheduler
from builddoctor.trace.reader import TraceReader
from builddoctor.trace.replay import replay
from unit.builders import asked, ended, header, sampled, summary

SETTINGS = SchedulerSettings(slots=2, budget_mib=3000.0)
REAL = Path(__file__).parents[2] / "data" / "traces"
"""Builds on two cores: `examples/attention_kernels` by nvcc 13.0 in a memory cgroup of 2662 MiB, with one phase redone
and others stopped for a while; a stand-in for cudafe++ that grows for ever (``tests/system/test_runaway.py``). Only
paths were changed."""
FACTS: Sequence[Fact] = (
    asked(1),
    asked(2),
    sampled({1: 900, 2: 20}, headroom_mib=800),
    # Danger: the younger one is ended.
    sampled({1: 1500, 2: 700}, headroom_mib=5),
    ended(2, Outcome.KILLED_BY_US, 700),
    asked(3),
    ended(1, peak_mib=1500),
    sampled({2: 900}, headroom_mib=2000),
    TimePassed(),
    ended(2, peak_mib=900),
)


def build(facts: Sequence[Fact] = FACTS) -> list[BuildEvent]:
    """A trace of these facts, one a second, with what is decided on them."""
    scheduler = Scheduler(SETTINGS, LearningEstimator())
    events: list[BuildEvent] = [header(settings=SETTINGS)]
    for at_s, fact in enumerate(facts, 1):
        timed = msgspec.structs.replace(fact, at_s=float(at_s))
        events += [timed, *scheduler.handle(timed)]
    return [*events, BuildEnded(at_s=60.0, summary=summary())]


def test_the_same_scheduler_decides_the_same() -> None:
    """With kills and second runs in it; all facts are counted, and all decisions."""
    events = build()
    assert any(isinstance(each, Kill) for each in events)
    found = replay(events)
    assert found.agrees
    assert found.facts == len(FACTS)
    assert found.decisions == len(events) - 2 - len(FACTS)


@pytest.mark.parametrize("lost", [Admit, Kill])
def test_the_first_fact_with_another_decision_is_named(lost: type[BuildEvent]) -> None:
    """As it would be, were the rule for it another one today."""
    events = build()
    decision = next(each for each in events if isinstance(each, lost))
    at = events.index(decision)
    found = replay(events[:at] + events[at + 1 :])
    assert found.difference is not None
    assert found.difference.fact.at_s == decision.at_s
    assert decision in found.difference.now
    assert decision not in found.difference.then
    assert found.difference.number == found.facts


def test_a_decision_that_would_not_be_made_is_a_difference() -> None:
    """On the last fact, too."""
    events = build()
    events.insert(-1, Kill(at_s=10.0, phase_id=1, reason=next(e for e in events if isinstance(e, Kill)).reason))
    found = replay(events)
    assert found.difference is not None
    assert found.difference.number == len(FACTS)
    assert len(found.difference.then) == len(found.difference.now) + 1


def test_of_a_trace_that_was_cut_off_the_last_fact_is_left_out() -> None:
    """What was decided on it may be what is missing."""
    events = build()
    for length in range(1, len(events)):
        found = replay(events[:length])
        assert found.agrees
        assert found.facts <= len(FACTS)


def test_a_trace_without_settings_cannot_be_replayed() -> None:
    """Schema 1 did not keep the facts."""
    with pytest.raises(TraceError, match="cannot be replayed"):
        replay([header(), *build()[1:]])


def test_the_command_says_so_and_exits_accordingly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """0 for the same, 1 for a difference; JSON has both."""
    events = build()
    same, other = tmp_path / "same.jsonl", tmp_path / "other.jsonl"
    same.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in events))
    rest = [each for each in events if not isinstance(each, Kill)]
    other.write_bytes(b"".join(msgspec.json.encode(each) + b"\n" for each in rest))
    assert main(["trace", "replay", str(same)]) == 0
    assert "decides as the build did: 10 facts" in capsys.readouterr().out
    assert main(["trace", "replay", str(other)]) == 1
    shown = capsys.readouterr().out
    assert "decides otherwise from fact 4 on, at 0:04" in shown
    assert '"t":"kill"' in shown
    assert main(["trace", "replay", str(other), "--json"]) == 1
    told = msgspec.json.decode(capsys.readouterr().out)
    assert (told["agrees"], told["facts"], told["difference"]["number"]) == (False, 4, 4)


@pytest.mark.parametrize("packed", sorted(REAL.glob("*.jsonl.gz")), ids=lambda each: each.name)
def test_real_builds_are_decided_as_they_were(packed: Path, tmp_path: Path) -> None:
    """Real compilers under real limits. A change of policy shows here: then record the builds again, and say why."""
    path = tmp_path / packed.stem
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    reader = TraceReader(path)
    found = replay(reader)
    assert found.difference is None
    assert found.decisions >= 5
    assert reader.skipped == 0
