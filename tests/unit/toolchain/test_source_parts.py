"""A source cut into top-level parts, and the sweep that leaves out what a trial does not need."""

from __future__ import annotations

import pytest

from builddoctor.toolchain.source_parts import needed_parts, top_level_parts

HEADER = b"""\
# 1 "a.h"
typedef int a_t;
namespace deep
{
  struct Pair {
    char open = '{'; const char *text = "};";
  };
  int two();
}
extern "C" {
extern int three(void);
}
template <class T>
int four(T)
{
  return 4;
}
"""


def test_parts_are_whole_declarations_and_lose_no_byte() -> None:
    """Braces in literals count for nothing; what a namespace or extern "C" holds is cut too where that is wanted."""
    whole = top_level_parts(HEADER)
    assert [part.split(b"\n")[0] for part in whole] == [
        b'# 1 "a.h"',
        b"typedef int a_t;",
        b"namespace deep",
        b'extern "C" {',
        b"template <class T>",
    ]
    parts = top_level_parts(HEADER, into_blocks=True)
    assert b"".join(parts) == b"".join(whole) == HEADER
    assert [part.split(b"\n")[0].strip() for part in parts] == [
        b'# 1 "a.h"',
        b"typedef int a_t;",
        b"namespace deep",
        b"{",
        b"struct Pair {",
        b"int two();",
        b"}",
        b'extern "C" {',
        b"extern int three(void);",
        b"}",
        b"template <class T>",
    ]


def test_functions_of_ptx_are_parts() -> None:
    """Directives each by itself, a function as one."""
    entry = b".visible .entry a(\n\t.param .u64 a_0\n)\n{\n\tret;\n}\n"
    text = b".version 9.0\n.target sm_90\n" + entry + b".entry b()\n{\n\tret;\n}\n"
    assert [part.split()[0] for part in top_level_parts(text)] == [b".version", b".target", b".visible", b".entry"]


@pytest.mark.parametrize("needed", [[0], [999], [0, 500, 999], [100, 101, 102], []])
def test_a_sweep_keeps_what_is_needed_and_nothing_else(needed: list[int]) -> None:
    """Of a thousand parts, after far fewer trials than parts."""
    parts = [b"%d;" % number for number in range(1000)]
    trials = 0

    def still(text: bytes) -> bool:
        nonlocal trials
        trials += 1
        return {b"%d" % number for number in needed} <= set(text.split(b";"))

    assert needed_parts(parts, still) == [b"%d;" % number for number in needed]
    assert trials < 80


def test_users_go_before_what_they_use() -> None:
    """Each part needs the one before it, the trial needs the first alone: one sweep leaves it."""
    parts = [b"%d;" % number for number in range(64)]
    texts = {b"".join(parts[:count]) for count in range(1, 65)}
    assert needed_parts(parts, lambda text: text in texts) == parts[:1]


def test_a_sweep_ends_where_it_stands_when_it_is_told_to() -> None:
    """What was not tried stays."""
    parts = [b"a;", b"b;", b"c;", b"d;"]
    left = iter((True, False))
    assert needed_parts(parts, lambda text: True, go_on=lambda: next(left)) == parts[:3]
