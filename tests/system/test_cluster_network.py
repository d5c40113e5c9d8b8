"""A node on a network of its own, which is cut in mid-phase and comes back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from builddoctor.cluster.keys import make_keys
from builddoctor.core.events import NodeLost, NodeSeen, PhaseEnded
from builddoctor.core.phase import Outcome
from support.bridge import HERE, Bridge
from support.nodes import Meeting, Place, await_that

pytestmark = [pytest.mark.slow, pytest.mark.needs_unshare]


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    with contextlib.closing(Bridge()) as made:
        yield made


def test_a_network_that_is_cut_and_comes_back(tmp_path: Path, bridge: Bridge) -> None:
    """The phase runs again, on the node that is left; the one that was cut off ends its compiler, and itself."""
    make_keys(tmp_path / "keys")
    place = Place(tmp_path, waits=True)
    here, there = bridge.add(), bridge.add()
    meeting = Meeting(tmp_path / "meeting", keys=tmp_path / "keys", host=HERE, prefix=here.prefix)
    try:
        far = meeting.worker("far", "--toolkit", str(place.toolkit), prefix=there.prefix)
        build = place.program.start([*here.prefix, *place.build(meeting)])
        (began,) = place.began()
        meeting.worker("near", "--toolkit", str(place.toolkit), prefix=here.prefix)
        place.program.await_record(NodeSeen, build, node=lambda name: "#" in name)
        bridge.cut(there)
        place.program.await_record(NodeLost, build)
        place.began(2)
        bridge.plug_in(there)
        await_that(lambda: None if psutil.pid_exists(began) else [began])
        await_that(lambda: None if far.poll() is None else [far.pid])
        place.go()
        output, _ = build.communicate(timeout=60)
    finally:
        meeting.close()
    assert build.returncode == 0, output
    place.check()
    ends = [each for each in place.program.records() if isinstance(each, PhaseEnded)]
    assert [each.outcome for each in ends] == [Outcome.NODE_LOST, Outcome.OK]
    assert ends[0].node != ends[1].node
