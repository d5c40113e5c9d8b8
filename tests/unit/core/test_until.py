"""Times that ``--until`` takes."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from builddoctor.core.errors import UsageError
from builddoctor.core.units import parse_until_s

NOW = datetime(2026, 11, 25, 17, 30, 10, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5h20m", 19200),
        ("45m", 2700),
        ("45min", 2700),
        ("90s", 90),
        (" 1h 5m 1s ", 3901),
        ("18:00", 1790),
        ("17:30", 86390),
        ("00:00", 23390),
    ],
)
def test_spans_and_times_of_day(text: str, seconds: float) -> None:
    assert parse_until_s(text, NOW) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5", "0m", "24:00", "12:60", "5h20", "-5m", "1.5h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a time"):
        parse_until_s(text, NOW)
