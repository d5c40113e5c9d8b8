"""Traces with any damage, and command lines with any secrets."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builddoctor.core.errors import TraceError
from builddoctor.core.events import Note, Status
from builddoctor.trace.masking import MASK, mask_argv
from builddoctor.trace.reader import TraceReader
from support import trace_events as tr
from support.told import digest
from unit.builders import header

RECORDS = [
    header(),
    tr.unit_began(at_s=1.0, unit_id="u1", source="a.cu", archs=["sm_90"]),
    tr.admitted(at_s=2.0, phase_id=1, reserve_mib=150, waited_s=0.5, running=1),
    Note(at_s=3.0, text="hältö"),
    Status(
        at_s=4.0, budget_mib=1, limit_mib=2, headroom_mib=3, ours_mib=4, running=1, waiting=0, open_units=1, oom_kills=0
    ),
    tr.phase_ended(at_s=5.0, phase_id=1, outcome="ok", exit_code=0, peak_mib=100, wall_s=5, cpu_s=4),
]
LINES = [msgspec.json.encode(record) + b"\n" for record in RECORDS]
WHOLE = b"".join(LINES)
LINE_OF = [number for number, line in enumerate(LINES) for _ in line]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "t.jsonl"


def read(file: Path, content: bytes) -> list | None:
    """The records of a file with this content; None when it is said to be no trace."""
    file.write_bytes(content)
    reader = TraceReader(file)
    try:
        records = list(reader)
        digest(reader)
    except TraceError:
        return None
    return records


@pytest.mark.parametrize("bad", [b"\x00", b"\n", b"\xff", b'"', b"}", b"0", b"\\"])
def test_one_bad_byte_anywhere_costs_no_other_line(file: Path, bad: bytes) -> None:
    """Only the line it is in is lost, and the next one where it was the newline; a damaged header may be refused."""
    for position, number in enumerate(LINE_OF):
        records = read(file, WHOLE[:position] + bad + WHOLE[position + 1 :])
        joined = WHOLE[position : position + 1] == b"\n"
        kept = [
            record for other, record in enumerate(RECORDS) if other != number and not (joined and other == number + 1)
        ]
        if records is None:
            assert number == 0
        else:
            assert [record for record in records if record in kept] == kept


def test_a_trace_cut_off_anywhere_keeps_all_whole_lines(file: Path) -> None:
    """The death of everything that writes leaves at most one line torn."""
    for size in range(len(LINES[0]), len(WHOLE)):
        records = read(file, WHOLE[:size])
        assert records is not None
        whole = WHOLE[: size + 1].count(b"\n")
        assert records[:whole] == RECORDS[:whole]


@given(start=st.integers(0, len(WHOLE)), size=st.integers(0, 400), hole=st.binary(max_size=60))
def test_a_hole_with_anything_in_it_never_breaks_the_reader(file: Path, start: int, size: int, hole: bytes) -> None:
    """Whole lines before the damage are read; what follows never raises anything but a TraceError."""
    records = read(file, WHOLE[:start] + hole + WHOLE[start + size :])
    before = [record for number, record in enumerate(RECORDS) if start > len(b"".join(LINES[: number + 1]))]
    if before:
        assert records is not None
        assert records[: len(before)] == before


@given(content=st.binary(max_size=200))
def test_any_file_is_read_or_refused(file: Path, content: bytes) -> None:
    """Random bytes are no trace."""
    assert read(file, content) is None


@given(st.lists(st.text(max_size=40), max_size=6))
def test_masking_takes_any_arguments(argv: list[str]) -> None:
    """Nothing is raised, and no argument is added or lost."""
    assert len(mask_argv(argv)) == len(argv)


SECRETS = st.text(
    st.characters(codec="utf-8", categories=("L", "N"), include_characters="!$%^*()+_~.-{}"), min_size=8
).map(lambda text: f"S3{text}")
FORMS = st.sampled_from(
    [
        "--token={}",
        "--password={}",
        "-DMY_API_KEY={}",
        "HF_TOKEN={}",
        "https://user:{}@host.example/x",
        "https://{}@host.example/x",
        "--extra-index-url=https://__token__:{}@host.example/simple",
        "https://host.example/x?access_token={}&other=1",
    ]
)


@given(secret=SECRETS, form=FORMS, around=st.lists(st.sampled_from(["pip", "-v", "--token", "x=y"]), max_size=2))
def test_secrets_disappear(secret: str, form: str, around: list[str]) -> None:
    """Wherever a secret stands, nothing of it is left."""
    masked = mask_argv([*around, form.format(secret), *around])
    assert secret not in " ".join(masked)
    assert MASK in " ".join(masked)


@given(secret=SECRETS, flag=st.sampled_from(["--token", "--password", "--client-secret"]))
def test_secrets_in_a_word_of_their_own_disappear(secret: str, flag: str) -> None:
    """The word after a flag that names a secret is hidden, whatever it is."""
    assert mask_argv([flag, secret]) == [flag, MASK]
