"""Recipe files: what is read, and what is refused with file, line, key and a hint."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
import pytest

from builddoctor.core.errors import RecipeError
from builddoctor.core.recipe import LARGEST_FILE, MOST_PHASES, MOST_UNITS, Recipe
from builddoctor.recipes.recipe_file import (
    LONGEST_LOCATED,
    MOST_MARKS,
    checked,
    explained,
    line_of,
    parse_recipe,
    read_recipe,
)

TEXT = """\
schema = 2

[project]
name = "gemm"

[fingerprint]
archs = ["sm_90"]

[origin]
provenance = "measured"
date = "2026-01-31"

[[environment]]
name = "MAX_JOBS"
value = "4"

[[hazards]]
kind = "runaway"
text = "cudafe++ grows without end"

[[units]]
place = "src/gemm.cu"
output = "gemm.o"
archs = ["sm_90"]
phases = [
    { kind = "cudafe++", peak_mib = 412, cpu_s = 2.1 },
    { kind = "cicc", arch = "sm_90", peak_mib = 812.4, high_mib = 815, cpu_s = 9.1 },
]

[[units]]
place = "link libgemm.so"
after_all = true
phases = [{ kind = "link", peak_mib = 60.0, cpu_s = 0.5 }]
"""


def refusal(text: str) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(text, "gemm.toml")
    assert caught.value.exit_code == 89
    assert caught.value.hint
    assert f"{caught.value}{caught.value.hint}".isprintable()
    return caught.value


def changed(old: str, new: str) -> str:
    assert TEXT.count(old) == 1, old
    return TEXT.replace(old, new)


def test_a_recipe_is_read() -> None:
    """Every table arrives as the model has it; whole numbers serve as sizes; what is left out is as its default."""
    recipe = parse_recipe(TEXT, "gemm.toml")
    assert recipe.project.name == "gemm"
    assert [unit.place for unit in recipe.units] == ["src/gemm.cu", "link libgemm.so"]
    assert [phase.peak_mib for phase in recipe.units[0].phases] == [412.0, 812.4]
    assert recipe.fingerprint.page_kib == 4
    assert recipe.units[1].after_all


@pytest.mark.parametrize("text", [TEXT.replace("\n", "\r\n"), f"\ufeff{TEXT}", f"{TEXT}# the end", TEXT.rstrip()])
def test_a_recipe_saved_by_any_editor_is_the_same(text: str) -> None:
    """Windows' line ends, a byte order mark, and a missing last newline change nothing."""
    assert parse_recipe(text, "gemm.toml") == parse_recipe(TEXT, "gemm.toml")


WRONG = [
    # old text, new text, line, key, what, hint
    (
        "peak_mib = 412",
        "peek_mib = 412",
        26,
        "units[1] (src/gemm.cu), phases[1], peek_mib",
        "no such key",
        "`peak_mib`",
    ),
    ("peak_mib = 412", "peak_mib = nan", 26, "phases[1], peak_mib", "NaN is not a size in MiB", "recipe.md"),
    ("cpu_s = 2.1", "cpu_s = nan", 26, "phases[1], cpu_s", "NaN is not seconds of one core", "recipe.md"),
    ("peak_mib = 412", "peak_mib = -1", 26, "phases[1], peak_mib", "-1 is not a size in MiB, from 0 to", "recipe.md"),
    (
        "peak_mib = 412",
        "peak_mib = inf",
        26,
        "phases[1], peak_mib",
        "inf is not a size in MiB",
        "recipe.md",
    ),
    ("peak_mib = 412", 'peak_mib = "412"', 26, "phases[1], peak_mib", '"412" is not a size in MiB', "recipe.md"),
    ("peak_mib = 412", "peak_mib = true", 26, "phases[1], peak_mib", "true is not a size in MiB", "recipe.md"),
    ("peak_mib = 412, ", "", 26, "units[1] (src/gemm.cu), phases[1]", "`peak_mib` is missing", "peak_mib = "),
    ('"cicc"', '"ciccc"', 27, "phases[2], kind", "is not one of preprocess, cudafe++, cicc", '"cicc"'),
    ("high_mib = 815", "high_mib = 800", 27, "phases[2], high_mib", "below peak_mib", "the largest of all runs"),
    ("high_mib = 815", "high_s = 0.5", 27, "phases[2], high_s", "below cpu_s", "the largest of all runs"),
    (
        '"src/gemm.cu"',
        '"/etc/passwd"',
        22,
        "units[1] (/etc/passwd), place",
        "is not a path below",
        "src/",
    ),
    ('"src/gemm.cu"', '"../gemm.cu"', 22, "units[1] (../gemm.cu), place", "without ..", "src/"),
    ('"src/gemm.cu"', '"src/../../gemm.cu"', 22, "place", "without ..", "src/"),
    ('"src/gemm.cu"', '"src/$(reboot).cu"', 22, "place", "a shell reads", "src/"),
    ('"src/gemm.cu"', '"src/a\\nb.cu"', 22, "units[1] (src/a\\nb.cu), place", "a shell reads", "src/"),
    ('"src/gemm.cu"', '"-rf"', 22, "place", "a path below", "src/"),
    ('"src/gemm.cu"', '""', 22, "place", "it is empty", "link NAME"),
    ('place = "src/gemm.cu"', "place = 3", 22, "units[1], place", "3 is not a path below", "quotes"),
    (
        'archs = ["sm_90"]\nphases',
        'archs = ["sm_9"]\nphases',
        24,
        "archs[1]",
        '"sm_9" is not one architecture',
        "sm_100a",
    ),
    ('archs = ["sm_90"]\nphases', 'archs = ["sm_90", "sm_90"]\nphases', 24, "archs[2]", "there twice", "keep one"),
    ('archs = ["sm_90"]\nphases', 'archs = "sm_90"\nphases', 24, "archs", '"sm_90" is not a list', "recipe.md"),
    ('archs = ["sm_90"]\n\n', 'archs = [\n  "sm_80",\n  ""\n]\n\n', 9, "fingerprint, archs[2]", "it is empty", "sm_90"),
    ('name = "gemm"', 'name = ""', 4, "project, name", "it is empty", "as it is imported"),
    ('name = "gemm"', 'name = "gemm\\ntwo"', 4, "project, name", "a name or version", "13.0.88"),
    ('name = "gemm"', 'name = "gemm"\n"na\\u006de " = 1', 5, 'project, "name "', "no such key", "version"),
    ('[project]\nname = "gemm"', 'project = "gemm"', 3, "project", '"gemm" is not a table', "recipe.md"),
    ("[[hazards]]", "[hazards]", 17, "hazards", "a table is not a list", "`[[hazards]]`"),
    ("[[hazards]]", "[[hazard]]", 17, "hazard", "no such key", "`hazards`"),
    ('"MAX_JOBS"', '"LD_PRELOAD"', 14, "environment[1] (LD_PRELOAD), name", "may not set LD_PRELOAD", "MAX_JOBS"),
    ('"MAX_JOBS"', '"MAX_JOB"', 14, "environment[1] (MAX_JOB), name", "may not set MAX_JOB", "mean `MAX_JOBS`"),
    ('"MAX_JOBS"', '"max_jobs"', 14, "name", "capitals, digits", "MAX_JOBS"),
    ('value = "4"', 'value = "$(reboot)"', 15, "environment[1] (MAX_JOBS), value", "a variable's value", "9.0;10.0"),
    ('value = "4"', "value = 4", 15, "value", "4 is not a variable's value", "quotes"),
    ('"2026-01-31"', '"2026-02-30"', 11, "origin, date", "no day of the calendar", "2026-01-31"),
    ('"2026-01-31"', "2026-01-31", 11, "origin, date", "2026-01-31 is not a day as text", "quotes"),
    ('"measured"', '"guessed"', 10, "origin, provenance", "is not one of derived, emulated, measured", "one of them"),
    (
        "after_all = true",
        "after_all = 1",
        32,
        "units[2] (link libgemm.so), after_all",
        "1 is not true or false",
        "without quotes",
    ),
    (
        "peak_mib = 412",
        'peak_mib = 412, course = "500:1"',
        26,
        "units[1] (src/gemm.cu), phases[1], course",
        "do not rise to 1000",
        "anew",
    ),
    (
        "peak_mib = 412",
        'peak_mib = 412, course = "1000:99"',
        26,
        "units[1] (src/gemm.cu), phases[1], course",
        "reach 1000",
        "anew",
    ),
    (
        "peak_mib = 412",
        'peak_mib = 412, course = "9 : 9"',
        26,
        "units[1] (src/gemm.cu), phases[1], course",
        "steps of a course",
        "125:310",
    ),
    ("cudafe++ grows", "\\u202e grows", 19, "hazards[1] (runaway), text", "one line of text", "GiB"),
    ("schema = 2", "schema = 3", 1, "schema", "made by a newer builddoctor: version 3", "pip install -U"),
    ("schema = 2", "schema = 0", 1, "schema", "never was such a version", "schema = 2"),
    ("schema = 2", "schema = -9000000000000000000", 1, "schema", "never was such a version", "schema = 2"),
    ("schema = 2", "schema = true", 1, "schema", "no whole number", "schema = 2"),
    ("schema = 2", 'schema = "1"', 1, "schema", "no whole number", "schema = 2"),
    ("schema = 2", "", 1, "", "`schema` is missing", "schema = 2"),
    ('name = "gemm"', 'name = "gemm"\nname = "gemm"', 5, "", "not TOML", "once"),
    ("[origin]", "[project]", 9, "", "not TOML", "once"),
    ('name = "gemm"', 'name = "gemm', 4, "", "not TOML", "quotes"),
    ('name = "gemm"', 'name = "ge\x00mm"', 4, "", "not TOML", "quotes"),
    (
        "peak_mib = 412",
        f"peak_mib = {'9' * 390}",
        26,
        "phases[1], peak_mib",
        "a number of more than 20 digits",
        "recipe.md",
    ),
    ("peak_mib = 412", "peak_mib = 1e300", 26, "phases[1], peak_mib", "1e+300 is not a size", "recipe.md"),
    ("peak_mib = 412", f"peak_mib = {'[' * 20}", 26, "", "not TOML", "quotes"),
    ("peak_mib = 412", f"peak_mib = {'[' * 20}{']' * 20}", 26, "peak_mib", "a list of 1 is not a size", "recipe.md"),
    ("peak_mib", ".".join("abcdefghijklmnopqrstuvw"), 26, "", "dots", "recipe.md"),
    ("peak_mib", " . ".join(["'a'", '"b"', "c"] * 6), 26, "", "dots", "recipe.md"),
]


@pytest.mark.parametrize(
    ("old", "new", "line", "key", "what", "hint"),
    WRONG,
    ids=[f"{number}-{each[4][:30]}" for number, each in enumerate(WRONG)],
)
def test_what_is_wrong_is_said_with_line_key_and_hint(
    old: str, new: str, line: int, key: str, what: str, hint: str
) -> None:
    """One wrong thing in a right recipe: file, line, the key as a person writes it, what is wrong, and a way out."""
    error = refusal(TEXT.replace(old, new, 1))
    assert str(error).startswith(f"gemm.toml:{line}: ")
    assert key in str(error)
    assert what in str(error)
    assert hint in error.hint


def test_units_that_are_there_twice_are_refused() -> None:
    """The later one's line, and the number of the first."""
    again = '\n[[units]]\nplace = "src/gemm.cu"\noutput = "gemm.o"\nphases = []\n'
    error = refusal(TEXT + again)
    assert str(error).startswith("gemm.toml:36: units[3] (src/gemm.cu), place: units[1] ")
    assert parse_recipe(TEXT + again.replace("gemm.o", "other.o"), "x").units[2].output == "other.o"


def test_variables_that_are_there_twice_are_refused() -> None:
    """Two values for one variable: nobody can tell which is meant."""
    error = refusal(changed("[[hazards]]", '[[environment]]\nname = "MAX_JOBS"\nvalue = "5"\n\n[[hazards]]'))
    assert "gemm.toml:18: environment[2] (MAX_JOBS), name: environment[1] sets it too" in str(error)


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "\ufeff"])
def test_an_empty_file_is_said_to_be_empty(text: str) -> None:
    """Not that some key is missing."""
    assert str(refusal(text)) == "gemm.toml: it is empty"


BOMBS = {
    "brackets": "[" * 1_000_000,
    "tables in tables": "a={" * 300_000,
    "dots": "a." * 1_000_000 + "b=1",
    "quotes": '"' * 1_000_000,
    "backslashes": 'x="' + "\\" * 1_000_000,
    "backslashes on lines": 'x="""' + "\\" * 1_000_000,
    "quoted dots": "'a'." * 1_000_000 + "b=1",
    "digits": "x=" + "1" * 1_000_000,
    "hexadecimal digits": "x=0x" + "1" * 1_000_000,
    "nested lists": "x=" + "[" * 100_000 + "]" * 100_000,
    "units": "schema=1\n" + "[[units]]\n" * (MOST_UNITS + 1),
    "units inline": "schema=1\nunits=[" + "{}," * (MOST_UNITS + 1) + "]",
    "phases": "schema=1\n[[units]]\nplace='a'\nphases=[" + "{}," * (MOST_PHASES + 1) + "]",
    "values": "x=[" + "1," * MOST_MARKS + "]",
    "size": "#" * (LARGEST_FILE + 1),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_text_that_would_cost_too_much_is_refused(name: str) -> None:
    """Depth, dotted keys, digits, units, values and size have bounds."""
    refusal(BOMBS[name])


def test_a_message_shows_little_of_a_long_value() -> None:
    """A megabyte in a value, or as a key, is a few words in the message."""
    assert len(str(refusal(changed('"src/gemm.cu"', f'"{"../" * 300_000}"')))) < 500
    assert len(str(refusal(changed('name = "gemm"', f'name = "gemm"\n"{"k" * 300_000}" = 1')))) < 300


def test_a_message_moves_no_cursor() -> None:
    """Keys, values and the file's own name are shown without control characters."""
    error = refusal(changed('name = "gemm"', 'name = "gemm"\n"\\u001b[2J" = 1'))
    assert "\\x1b[2J" in str(error)
    with pytest.raises(RecipeError) as caught:
        parse_recipe("x", "a\x1b[2J.toml")
    assert str(caught.value).isprintable()


def test_what_msgspec_refuses_is_said_in_words_of_ours() -> None:
    """Its patterns and its names of types never show."""
    for old, new, *_ in WRONG:
        error = str(refusal(TEXT.replace(old, new, 1)))
        assert not re.search(r"regex|`str`|`\$|Expected", error), error


def test_a_key_cannot_pass_for_a_place() -> None:
    """A key at the top that looks like the end of a message of msgspec's."""
    error = refusal(f'"x` - at `$.units[9]" = 1\n{TEXT}')
    assert len(str(error)) < 300
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert([], Recipe)
    assert explained(caught.value, []).path == ()


def test_a_line_is_told_where_that_is_cheap() -> None:
    """In a long file a message names the key alone; what is no TOML at all has no line of a key."""
    assert line_of(TEXT, ("units", 1)) == 30
    assert line_of(TEXT, ("units", 0, "phases", 1, "arch")) == 27
    assert line_of(TEXT, ("units", 5)) is None
    assert line_of("[", ("units", 1)) is None
    long = f"{'# more' * (LONGEST_LOCATED // 6)}\n{TEXT.replace('peak_mib = 412', 'peak_mib = -1')}"
    assert str(refusal(long)).startswith("gemm.toml: units[1] (src/gemm.cu), phases[1], peak_mib: ")


def test_a_recipe_that_was_made_is_checked_as_strictly() -> None:
    """Structures are not validated when they are made; this finds what a file would be refused for."""
    recipe = parse_recipe(TEXT, "gemm.toml")
    assert checked(recipe, "made") == recipe
    unit = msgspec.structs.replace(recipe.units[0], place="../up.cu")
    with pytest.raises(RecipeError, match=r"^made: units\[1\] \(../up.cu\), place: "):
        checked(msgspec.structs.replace(recipe, units=(unit,)), "made")


def read(path: Path) -> RecipeError:
    with pytest.raises(RecipeError) as caught:
        read_recipe(path)
    assert caught.value.exit_code == 89
    assert caught.value.hint
    assert str(path) in str(caught.value)
    return caught.value


def test_a_file_is_read(tmp_path: Path) -> None:
    """A plain file, also by a link."""
    (tmp_path / "a.toml").write_text(TEXT)
    (tmp_path / "b.toml").symlink_to("a.toml")
    assert isinstance(read_recipe(tmp_path / "b.toml"), Recipe)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """Missing, a folder, a pipe, a device, a loop of links: at once, and nothing is waited for."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    assert "No such file" in str(read(tmp_path / "missing.toml"))
    assert "no plain file" in str(read(tmp_path))
    assert "no plain file" in str(read(tmp_path / "pipe"))
    assert "no plain file" in str(read(Path("/dev/zero")))
    assert "cannot be read" in str(read(tmp_path / "loop"))


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    """100 MB that take no room on the disk, and would take much in memory."""
    with (tmp_path / "huge.toml").open("wb") as file:
        file.truncate(100_000_000)
    assert "more than 16 MiB" in str(read(tmp_path / "huge.toml"))


def test_a_file_in_another_encoding_is_refused_with_its_line(tmp_path: Path) -> None:
    """Latin-1 and UTF-16 alike."""
    (tmp_path / "latin.toml").write_bytes(TEXT.replace("without end", "ohne Maß").encode("latin-1"))
    (tmp_path / "wide.toml").write_bytes(TEXT.encode("utf-16"))
    assert "latin.toml:19: not UTF-8" in str(read(tmp_path / "latin.toml"))
    assert "wide.toml:1: not UTF-8" in str(read(tmp_path / "wide.toml"))
