"""One line of a log as the tool itself wrote it."""

from __future__ import annotations

import pytest

from builddoctor.diagnose.log_lines import LONGEST_LINE, Blocks, Lines, Sieve, clean, text_of

KILLED = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "{}\r\n",
        "    {}",
        "\x1b[01m\x1b[K{}\x1b[m\x1b[K",
        "\x1b]0;building\x07{}",
        "\x1b]8;;https://x.example\x1b\\{}\x1b]8;;\x1b\\",
        "\x1b_bk;t=1712345678901\x07{}",
        "\x1b(B{}",
        "[31m{}[0m",
        "  1% ━━━━━━━━\r 99% ━━━━━━━━\r{}",
        "2025-01-01T00:00:00.1234567Z {}",
        "23:03:45 {}",
        "\ufeff2025-01-01T00:00:00.1234567Z {}",
        "build\tCompile\t2025-01-01T00:00:00.1234567Z {}",
        "2025-01-01T00:00:00.1234567Z ##[error]{}",
        "::error file=x.cu,line=3::{}",
        "2025-01-01T00:00:00.123456Z 01O {}",
        "2025-01-01T00:00:00.123456789Z stderr F {}",
        "#12 34.56 {}",
        "25:31.16 {}",
        " 0:31.18   {}",
        "#12 34.56 2025-01-01T00:00:00Z {}",
        "345.678 {}",
        " => => # {}",
        "builder-1  | {}",
        "[2025-01-01T00:00:00.123Z] {}",
        "[12:34:56] {}",
        "12:34:56 {}",
        "[Container] 2025/01/01 00:00:00 {}",
        "0: {}",
        "12: {}",
        "[node01]: {}",
        "[rank0]: {}",
        "[1,0]<stderr>:{}",
        "(pid=1234) {}",
        "(RayWorker pid=1234, ip=10.0.0.1) {}",
        "Jan  1 00:00:00 host build[812]: {}",
        "2025-01-01T00:00:00+0000 host build[812]: {}",
        "      │ {}",
        "  ╰─> {}",
        "> {}",
        "19>{}",
        "stderr: {}",
        "STDOUT: {}",
        "0: [12:34:56] \x1b[31m{}\x1b[0m\r",
        "12.8\t{}",
    ],
)
def test_what_others_put_around_a_line_is_taken_away(line: str) -> None:
    """CI, containers, schedulers, journals, pip, terminals: the tool's own line is left."""
    assert text_of(line.format(KILLED).encode()) == KILLED


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("error: nvcc fatal   : Unsupported gpu", "nvcc fatal   : Unsupported gpu"),
        ("CUDACOMPILE : nvcc error : 'cicc' died", "nvcc error : 'cicc' died"),
        ("[12345.678901] cicc invoked oom-killer: gfp_mask=0x1", "cicc invoked oom-killer: gfp_mask=0x1"),
        ("<6>[    1.000001] cicc invoked oom-killer: x", "cicc invoked oom-killer: x"),
        ("Jan 02 03:04:05 host kernel: [ 12.345678] Out of memory: x", "Out of memory: x"),
        ("host kernel: Out of memory: x", "Out of memory: x"),
        ("kernel: Out of memory: x", "Out of memory: x"),
        ("[Thu Jan  2 03:04:05 2025] Out of memory: x", "Out of memory: x"),
        ("Jan 02 03:04:05 host earlyoom[812]: low memory!", "low memory!"),
    ],
)
def test_the_heads_of_kernel_lines_are_taken_away(line: str, text: str) -> None:
    """dmesg, dmesg -T, journalctl, syslog, a console."""
    assert text_of(line.encode()) == text


@pytest.mark.parametrize(
    "line",
    [
        "make[2]: *** [x.o] Error 1",
        "[3/9] nvcc -c x.cu",
        "[100%] Built target x",
        "x.cpp:12:5: error: y",
        "12 |   throw std::bad_alloc();",
        "FAILED: [code=137] x.o",
        "# --error 0x89 --",
        "-- The CUDA compiler identification is unknown",
        "arch_list[-1] += '+PTX'",
    ],
)
def test_what_a_tool_wrote_itself_stays(line: str) -> None:
    """Numbers and brackets at the beginning may be its own; a line of source keeps its number."""
    assert text_of(line.encode()) == line


def test_a_message_that_a_terminal_broke_off_is_whole_again() -> None:
    assert text_of(b"x.cu:3:10: fatal error: moon.h: No such file or") == (
        "x.cu:3:10: fatal error: moon.h: No such file or directory"
    )


def test_bytes_of_another_encoding_are_shown_as_escapes() -> None:
    """A log in Latin-1 or GBK is read all the same."""
    assert text_of("Gerät: Killed".encode("latin-1")) == "Ger\\xe4t: Killed"
    assert text_of(b"\xff\xfe\x00Killed") == "\\xff\\xfe Killed"


def test_nothing_of_a_line_moves_the_cursor() -> None:
    """Control characters become blanks, those of Unicode that turn the direction too."""
    assert clean(b"a\x08b\x0bc\x1bcd\x9be").isprintable()
    assert clean("a\u202eb\u200fc\u2028d".encode()) == "a b c d"


@pytest.mark.parametrize(
    "line",
    [
        "pip install https://me:hunter2@pypi.example/simple",
        "curl -H 'Authorization: Bearer hunter2hunter2hunter2'",
        "export HF_TOKEN=hunter2",
        "docker login --password hunter2",
        "git clone https://x.example/a.git?token=hunter2",
    ],
)
def test_credentials_are_not_shown(line: str) -> None:
    """A log is sent to others."""
    assert "hunter2" not in clean(line.encode())
    assert "hunter2" in text_of(line.encode())


# -- a stream of lines, and many words in it --------------------------------------------------------------------


def test_lines_are_given_back_whole_and_no_longer_than_they_may_be() -> None:
    """Of a progress bar the last state counts."""
    lines = Lines()
    assert lines.feed(b"ab") == b""
    assert lines.feed(b"c\nd\re") == b"abc\n"
    assert lines.feed(b"\n" + b"y" * (LONGEST_LINE + 9) + b"\nz") == b"d\re\n" + b"y" * LONGEST_LINE + b"\n"
    assert lines.rest() == b"z"


def test_a_sieve_finds_exactly_the_texts_that_are_there() -> None:
    """Whole words, parts of words, signs, and letters of other alphabets."""
    texts = {b"Killed", b": error ", b": *** [", "已杀死".encode(), b"died due to", b"FAILED: "}
    sieve = Sieve(texts)
    assert sieve.texts_in(b"xKilledx\n") == {b"Killed"}
    assert sieve.texts_in(b"a: error b\n") == {b": error "}
    assert sieve.texts_in(b"errors: error-prone\n") == set()
    assert sieve.texts_in("gcc: 已杀死\nmake: *** [x]\n".encode()) == {"已杀死".encode(), b": *** ["}
    assert sieve.texts_in("已 杀死\n".encode()) == set()
    sieve.without(b"Killed")
    assert sieve.texts_in(b"Killed\n") == set()


@pytest.mark.parametrize("size", [1 << 17, 1 << 20, 3 << 20])
def test_blocks_are_the_same_whatever_the_chunks_were(size: int) -> None:
    """Whole lines without the sequences of terminals, cut in the same places; a last line without an end gets one."""
    text = b"\x1b[31mred\x1b[0m\n" + b"a line of a log\n" * 150_000 + b"the last"
    blocks = Blocks()
    whole = [*blocks.feed(text), *blocks.rest()]
    parts = Blocks()
    cut = [block for at in range(0, len(text), size) for block in parts.feed(text[at : at + size])]
    assert [*cut, *parts.rest()] == whole
    assert b"".join(whole) == text.replace(b"\x1b[31m", b"").replace(b"\x1b[0m", b"") + b"\n"
    assert all(block.endswith(b"\n") for block in whole)


# -- what lines have in common -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            r'{"log":"x.cu(3): error: \u0022a\u0022 is undefined\n","stream":"stderr","time":"2026"}',
            'x.cu(3): error: "a" is undefined',
        ),
        (
            r'{"level":"error","msg":"ninja: build stopped: subcommand failed."}',
            "ninja: build stopped: subcommand failed.",
        ),
        (r'{"insertId":"1","textPayload":"Killed"}', "Killed"),
        (r'{"message":"one\n two\r\n"}', "one  two"),
        (r'{"reason":"compiler-message","message":{"rendered":"error"}}', None),
        (r'{"log":"no end', None),
        (r'{"log":no}', None),
        ('{"log":' + "[" * 20_000 + "]" * 20_000 + "}", None),
        ("{ok}", None),
    ],
)
def test_a_message_is_taken_out_of_its_line_of_json(line: str, text: str | None) -> None:
    """As Docker keeps what a container prints, and cloud services give it; one line stays one."""
    blocks = Blocks()
    given = f"first\n{line}\nlast\n".encode()
    assert (
        b"".join((*blocks.feed(given), *blocks.rest())).decode() == f"first\n{line if text is None else text}\nlast\n"
    )


@pytest.mark.parametrize(
    "fronts",
    [
        ("[build] ", "[build] ", "[build] "),
        ("<worker-3@pool> ", "<worker-3@pool> ", "<worker-12@pool> "),
        ("stage two | ", "stage two | ", "stage two | "),
        ("2025-01-01T00:00:00Z agent 7 » ", "2025-01-01T00:00:01Z agent 7 » ", "2025-01-01T00:00:02Z agent 7 » "),
        ("ERROR 06-29 13:20:49 [core.py:500] ",) * 3,
        ("515.6 ", "515.7 ", "1380.2 "),
    ],
)
def test_what_all_lines_have_in_front_is_no_part_of_them(fronts: tuple[str, str, str]) -> None:
    """Told by the lines themselves, however it looks: two or three are enough."""
    inner = ("FAILED: x.o", KILLED, "ninja: build stopped: subcommand failed.")
    log = "".join(f"{front}{line}\n" for front, line in zip(fronts, inner, strict=True)).encode()
    assert [text_of(line) for line in lines_of(log)] == list(inner)


@pytest.mark.parametrize(
    "lines",
    [
        ("x.cu(12): error: foo", "x.cu(13): error: bar"),
        ("[1/4] Building a.o", "[2/4] Building b.o"),
        ("   12 |   foo();", "   13 |   bar();"),
        ("make[1]: *** [a.o] Error 1", "make[1]: *** [b.o] Error 1"),
        ("/usr/bin/ld: cannot find -lfoo", "/usr/bin/ld: cannot find -lbar"),
        ("error: [foo] is wrong", "error: [bar] is wrong"),
        ("(gelu.cu) compiled", "(gelu.cu) linked"),
    ],
)
def test_what_lines_say_alike_is_theirs(lines: tuple[str, ...]) -> None:
    """Tools begin their lines alike, too."""
    log = "".join(f"{line}\n" for line in (*lines, "another")).encode()
    assert [text_of(line) for line in lines_of(log)][:-1] == [text_of(line.encode()) for line in lines]


def test_ants_task_comes_off_with_mavens_mark() -> None:
    assert text_of(b"[INFO]      [exec]   Unknown CMake command") == "Unknown CMake command"
    assert text_of(b"     [exec] make: *** [all] Error 2") == "make: *** [all] Error 2"
    assert text_of(b"[INFO] [stdout] x") != "x"


def test_what_stands_in_front_of_empty_lines_too() -> None:
    """It lost its blank there, and is the same for all that."""
    said = ["a", "", "CMake Error at x.cmake:4 (f):", "  Could not find it", "", "", "b"]
    log = "".join(f"[Build] {line}".rstrip() + "\n" for line in said).encode()
    assert [line.decode() for line in lines_of(log)] == said
    assert text_of(b"web-1  |") == text_of(b"(raylet pid=4711)") == ""


def lines_of(log: bytes) -> list[bytes]:
    blocks = Blocks()
    return b"".join([*blocks.feed(log), *blocks.rest()]).splitlines()
