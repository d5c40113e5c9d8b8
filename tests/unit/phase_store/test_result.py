"""What is kept of a phase, read again: whole, or no result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from builddoctor.phase_store.result import packed, unpacked
from support.messages import no_text, too_deep, whole
from unit.phase_store.test_folder import result

PLAIN: Mapping[str, object] = msgspec.to_builtins(result(1), builtin_types=(bytes,))


def test_it_comes_as_it_was_packed() -> None:
    assert unpacked(packed(result(1)), result(1).key) == result(1)
    assert unpacked(bytearray(packed(result(1))), result(1).key) == result(1)
    assert unpacked(whole(msgspec.msgpack.encode(PLAIN)), result(1).key) == result(1)


def test_another_keys_is_none() -> None:
    assert unpacked(packed(result(2)), result(1).key) is None


@pytest.mark.parametrize("wrong", [no_text, too_deep])
def test_what_cannot_be_read_is_none(wrong: Callable[[Mapping[str, object]], bytes]) -> None:
    assert unpacked(whole(wrong(PLAIN)), result(1).key) is None


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("field", ["peak_mib", "cpu_s"])
def test_figures_that_cannot_be_make_it_none(field: str, figure: float) -> None:
    assert unpacked(whole(msgspec.msgpack.encode({**PLAIN, field: figure})), result(1).key) is None
