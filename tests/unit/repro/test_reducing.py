"""What a reduction keeps true, in which bounds; which file it is about; what is said of it."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.core.errors import ReproError
from builddoctor.gates.phase_replay import Repro
from builddoctor.repro.reducing import Reduced, choose_bounds, reduced_lines, text_to_reduce

CICC = Repro(
    what="cicc sm_90 of a.cu",
    happened=(),
    tool="/cuda/nvvm/bin/cicc",
    argv=("--module_id_file_name", "a.module_id", "a.cpp1.ii", "-o", "a.ptx"),
    files=("a.module_id", "a.cpp1.ii"),
    versions=(),
)
RESULT = Reduced(
    file="reduced-a.cpp1.ii",
    script="reduced.sh",
    before_bytes=1_188_765,
    before_lines=33_766,
    after_bytes=543,
    after_lines=14,
    beyond_mib=400,
    peak_mib=800.4,
    wall_s=6.04,
    grows_on=True,
    ended="done",
    trials=95,
)


@pytest.mark.parametrize(
    ("peak_mib", "endless", "beyond_mib"),
    [(2005, True, 1203), (24_000, True, 2048), (24_000, False, 14_400), (500, False, 300)],
)
def test_too_much_is_a_share_of_what_was_seen(peak_mib: float, endless: bool, beyond_mib: float) -> None:
    """60 % of the peak; what grew without end need not be followed for long."""
    bounds = choose_bounds(peak_mib=peak_mib, endless=endless, memory_mib=60_000, cores=2)
    assert (bounds.beyond_mib, bounds.note) == (beyond_mib, "")


def test_trials_side_by_side_fit_into_the_memory() -> None:
    """As many as there are cores, and no more than the hard bounds of all add up to."""
    for memory_mib in (1100, 1500, 4000, 30_000, 300_000):
        bounds = choose_bounds(peak_mib=2000, endless=True, memory_mib=memory_mib, cores=16)
        assert 1 <= bounds.parallel <= 16
        assert bounds.parallel * bounds.address_mib <= memory_mib
        assert 1.5 * bounds.furthest_mib + 512 <= memory_mib + 1
    assert choose_bounds(peak_mib=2000, endless=True, memory_mib=30_000, cores=16).parallel == 12
    assert choose_bounds(peak_mib=2000, endless=True, memory_mib=300_000, cores=16).parallel == 16


def test_a_phase_that_no_longer_fits_is_followed_as_far_as_memory_goes() -> None:
    """And that is said."""
    bounds = choose_bounds(peak_mib=24_000, endless=False, memory_mib=3512, cores=2)
    assert (bounds.beyond_mib, bounds.parallel) == (2000, 1)
    assert bounds.note == "14.1 GiB in a trial would not fit into the free memory"


def test_what_was_asked_for_is_taken_or_refused() -> None:
    """A size of the user's is never lowered; nothing runs where even the smallest has no room."""
    assert choose_bounds(peak_mib=0, endless=False, memory_mib=9000, cores=2, wanted_mib=500).beyond_mib == 500
    with pytest.raises(ReproError, match=r"may need 6\.4 GiB, and may have 3\.9 GiB") as refused:
        choose_bounds(peak_mib=24_000, endless=True, memory_mib=4000, cores=2, wanted_mib=4000)
    assert "--beyond" in refused.value.hint
    with pytest.raises(ReproError, match="may need 608 MiB, and may have 400 MiB"):
        choose_bounds(peak_mib=24_000, endless=True, memory_mib=400, cores=2)
    with pytest.raises(ReproError, match="does not say what it took") as unknown:
        choose_bounds(peak_mib=0, endless=False, memory_mib=9000, cores=2)
    assert "--beyond 500MiB" in unknown.value.hint


def test_the_text_is_reduced_and_not_what_goes_with_it() -> None:
    """The source of a front end, PTX of ptxas; of a link there is none."""
    assert text_to_reduce(CICC) == "a.cpp1.ii"
    ptxas = msgspec.structs.replace(CICC, tool="/cuda/bin/ptxas", files=("a.ptx",), argv=("a.ptx",))
    assert text_to_reduce(ptxas) == "a.ptx"
    for tool, files in (("/cuda/bin/nvlink", ()), ("/usr/libexec/collect2", ()), ("/cuda/bin/fatbinary", ("a.cubin",))):
        with pytest.raises(ReproError, match="no text to be reduced"):
            text_to_reduce(msgspec.structs.replace(CICC, tool=tool, files=files, argv=files))


def test_before_and_after_are_said_in_lines_and_bytes() -> None:
    """With what the compiler takes on what is left."""
    assert reduced_lines(RESULT) == (
        "reduced-a.cpp1.ii: 14 lines (543 bytes), of 33766 lines (1,188,765 bytes)",
        "with it the compiler took 800 MiB after 6.0 s, and still grew",
    )
    ended = msgspec.structs.replace(RESULT, grows_on=False, ended="time", notes=("a note",))
    assert reduced_lines(ended)[1:] == (
        "with it the compiler took 800 MiB in 6.0 s",
        "the time was up: this is the best so far",
        "a note",
    )
    assert "interrupted" in reduced_lines(msgspec.structs.replace(RESULT, ended="interrupted"))[2]
