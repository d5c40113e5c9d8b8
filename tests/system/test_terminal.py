"""The live board in a real terminal: what one sees at any size, keys, output of any kind, and modes put back."""

from __future__ import annotations

import functools
import re
import select
import shlex
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from builddoctor.core.events import Status
from builddoctor.trace.reader import TraceReader
from support.program import PATIENCE_S, Program
from support.stand_ins import HOG, stand_in
from support.tmux import PROMPT, Tmux, terminal
from support.waiting_build import SMALL, waiting_build

pytestmark = [pytest.mark.slow, pytest.mark.needs_tmux]


def command(program: Program, *words: str, options: tuple[str, ...] = ()) -> str:
    """``builddoctor run`` as one types it."""
    return shlex.join(program.supervised(*words, options=options))


def running(text: str) -> bool:
    """One runs, two wait, and memory was measured."""
    return "waits " in text and re.search(r"2[45]\d MiB (of ~|over )", text) is not None


def running_within(text: str, columns: int) -> bool:
    """On a board that is narrower than this."""
    return running(text) and max(map(len, foot(text.split("\n")))) < columns


def foot(screen: list[str]) -> list[str]:
    """The lines of the board."""
    first = next(index for index, line in enumerate(screen) if line.startswith("units ")) - 1
    return screen[first:]


@pytest.fixture
def tmux(program: Program) -> Iterator[Tmux]:
    # The shell's PATH has the folder of stand-ins from the beginning.
    stand_in(program, "exit 0")
    with terminal(program.folder, program.env) as tmux:
        yield tmux


@pytest.mark.parametrize(("columns", "rows"), [(200, 50), (100, 30), (60, 20)])
def test_the_board_fits_the_terminal_and_says_what_counts(program: Program, columns: int, rows: int) -> None:
    """Units, memory, jobs, who holds how much, and why others wait, at every size; then it is gone, the cursor back."""
    build = waiting_build(program)
    with terminal(program.folder, program.env, columns=columns, rows=rows) as tmux:
        tmux.type("clear; " + command(program, *build, options=SMALL))
        tmux.wait_for(running)
        board = foot(tmux.screen())
        assert len(board) <= rows // 2
        assert max(map(len, board)) < columns
        text = "\n".join(board)
        assert re.search(r"^memory +▕█+·*│─*▏  0\.\d of [01]\.\d GiB budget", text, re.MULTILINE)
        assert re.search(r"^jobs +now 1   so far 1\.0, most 1", text, re.MULTILINE)
        row = next(line for line in board if line.startswith("  host"))
        assert re.search(r"_cuda_kernel\.cpp|gelu\.cpp", row)
        assert re.search(r" 2[45]\d MiB (of ~|over )\S+ [GM]iB +\d:\d\d$", row)
        waits = next(line for line in board if line.startswith("waits"))
        assert re.match(r"waits     to run alone: \S+\.cpp host code, once the o", waits)
        assert not tmux.cursor()
        (program.folder / "done").touch()
        text = tmux.wait_for_prompt()
        assert "all built" in text
        assert "GiB budget" not in text
        assert "now 1" not in text
        assert tmux.cursor()


def test_the_screen_at_a_usual_size_reads_as_it_was_meant(program: Program, tmux: Tmux) -> None:
    """Whole lines in their order, and what was on the terminal before is still there."""
    tmux.type("clear; echo earlier; " + command(program, *waiting_build(program), options=SMALL))
    tmux.wait_for(lambda text: running(text) and "1 more wait" in text)
    screen = tmux.screen()
    assert any(line == "earlier" for line in screen)
    board = foot(screen)
    assert re.match(r"builddoctor  sh -c .* \d:\d\d elapsed$", board[0])
    assert [line.split(maxsplit=1)[0] for line in board if line] == [
        "builddoctor",
        "units",
        "memory",
        "jobs",
        "host",
        "waits",
        "d",
    ]
    assert board[-1] == "d details   q closes the board, the build goes on"
    assert board[-2].endswith("; 1 more wait")
    (program.folder / "done").touch()
    tmux.wait_for_prompt()


def test_without_colour_there_is_none(program: Program, tmux: Tmux) -> None:
    """NO_COLOR: no foreground and no background is set; the same picture is there, and there is one with colours."""
    colours = re.compile(r"\x1b\[[\d;]*\b(?:3[0-7]|4[0-7]|9[0-7]|38;5;\d+)m")
    build = waiting_build(program)
    tmux.type("clear; NO_COLOR=1 " + command(program, *build, options=SMALL))
    tmux.wait_for(running)
    assert not colours.search(tmux.styled())
    (program.folder / "done").touch()
    tmux.wait_for_prompt()
    (program.folder / "done").unlink()
    tmux.type("clear; " + command(program, *build, options=SMALL))
    tmux.wait_for(running)
    assert colours.search(tmux.styled())
    (program.folder / "done").touch()
    tmux.wait_for_prompt()


@pytest.mark.parametrize("setting", ["LC_ALL=C", "TERM=linux"])
def test_without_unicode_all_is_ascii(program: Program, tmux: Tmux, setting: str) -> None:
    """The board and the last words, in signs that every terminal has."""
    tmux.type(f"clear; {setting} " + command(program, *waiting_build(program), options=SMALL))
    tmux.wait_for(running)
    screen = tmux.screen()
    assert "\n".join(screen).isascii()
    assert re.search(r"^memory +\[#+ *\|-+\] ", "\n".join(screen), re.MULTILINE)
    (program.folder / "done").touch()
    assert tmux.wait_for_prompt().isascii()


def test_d_shows_more_and_less(program: Program, tmux: Tmux) -> None:
    """Estimates, what they rest on, and everybody who waits."""
    tmux.type("clear; " + command(program, *waiting_build(program), options=SMALL))
    tmux.wait_for(lambda text: running(text) and "1 more wait" in text)
    tmux.key("d")
    text = tmux.wait_for(lambda text: "fewer details" in text)
    assert (
        len(re.findall(r"to run alone: \S+\.cpp host code, once the others have ended +\d:\d\d$", text, re.MULTILINE))
        == 2
    )
    tmux.resize(160, 40)
    assert re.search(r"reserve \d\.\d GiB +\w", tmux.wait_for(lambda text: "reserve " in text))
    tmux.key("d")
    tmux.wait_for(lambda text: "fewer details" not in text and "1 more wait" in text)
    (program.folder / "done").touch()
    tmux.wait_for_prompt()


def test_q_closes_the_board_and_not_the_build(program: Program, tmux: Tmux) -> None:
    """It says so and how to see it again; the build's output goes on, keys are the shell's again."""
    modes = tmux.modes()
    _, _, script = waiting_build(program)
    tmux.type(command(program, "sh", "-c", f"{script}; stty -g <{tmux_tty(tmux)} >in_build", options=SMALL))
    tmux.wait_for(running)
    tmux.key("q")
    text = tmux.wait_for(lambda text: "the board is closed" in text and "d details" not in text)
    assert "builddoctor watch" in text
    assert tmux.cursor()
    (program.folder / "done").touch()
    text = tmux.wait_for_prompt()
    assert "all built" in text
    assert program.summary()["result"] == "ok"
    assert (program.folder / "in_build").read_text() == modes


def tmux_tty(tmux: Tmux) -> str:
    """The terminal's device."""
    return tmux._run("display-message", "-p", "#{pane_tty}").strip()


def test_a_flood_of_output_is_all_there(program: Program, tmux: Tmux) -> None:
    """100,000 lines, in order, none lost or doubled, and none of the board among them."""
    tmux.type("clear; " + command(program, "seq", "-f", "line %g of the flood", "100000"))
    tmux.wait_for(lambda text: "line 100000 of the flood" in text and PROMPT.strip() in text.split("\n")[-1])
    lines = [line for line in tmux.everything() if line.endswith("of the flood") and line.startswith("line")]
    assert lines == [f"line {number:g} of the flood" for number in range(1, 100_001)]
    assert not any(line.startswith(("memory ", "units ")) for line in tmux.everything())


def test_output_of_any_kind_scrolls_above_the_board(program: Program, tmux: Tmux) -> None:
    """Long lines, tabs, colours over several lines, escape sequences that would move the cursor."""
    (program.folder / "output").write_bytes(
        b"long " + b"x" * 250 + b" end\n"
        b"\x1b[31mred one\nred two\x1b[0m\nplain\n"
        b"a\tb\tc\n"
        b"\x1b[2J\x1b[5A\x1b[?1049hcleared nothing\n"
        b"\x1b]0;no title\x07titled\n"
        b"caf\xc3\xa9 \xe2\x82\xac caf\xe9\n"
        b"windows line\r\n"
    )
    stand_in(program, f"exec {HOG} 40 0 {program.folder}/done")
    tmux.type("clear; " + command(program, "sh", "-c", "cat output; clang++ -c a.cpp; cat output"))
    tmux.wait_for(lambda text: "windows line" in text and "MiB o" in text)
    styled = tmux.styled()
    assert re.search(r"\x1b\[31mred one", styled)
    assert re.search(r"\x1b\[31mred two|^red two", styled, re.MULTILINE)
    assert re.search(r"(?:\x1b\[[0-9;]*m)*\x1b\[(?:0|39)?(?:;\d+)*m(?:\x1b\(B)?\s*plain|^plain", styled, re.MULTILINE)
    (program.folder / "done").touch()
    tmux.wait_for_prompt()
    lines = tmux.everything()
    for line in (
        "long " + "x" * 250 + " end",
        "red one",
        "red two",
        "plain",
        "a       b       c",
        "cleared nothing",
        "titled",
        "windows line",
    ):
        assert lines.count(line) == 2, line
    assert sum(line.startswith("café €") for line in lines) == 2


def test_a_line_without_end_is_seen_at_once(program: Program, tmux: Tmux) -> None:
    """A question, a bar of progress that writes over itself; when the line ends, it stands there once."""
    script = (
        "printf 'fetching... '; while [ ! -e one ]; do sleep 0.05; done; echo done;"
        "printf '10%%\\r20%%\\r30%%'; while [ ! -e two ]; do sleep 0.05; done; printf '\\r100%%\\n'; printf 'no end'"
    )
    tmux.type("clear; " + command(program, "sh", "-c", script))
    tmux.wait_for(lambda text: re.search(r"^fetching\.\.\.\nbuilddoctor  ", text, re.MULTILINE) is not None)
    (program.folder / "one").touch()
    tmux.wait_for(lambda text: re.search(r"^fetching\.\.\. done\n30%\nbuilddoctor  ", text, re.MULTILINE) is not None)
    (program.folder / "two").touch()
    tmux.wait_for_prompt()
    lines = tmux.everything()
    assert lines.count("fetching... done") == 1
    assert lines.count("100%") == 1
    assert lines.count("no end") == 1


def test_a_build_that_asks_gets_no_answer_and_no_keys(program: Program, tmux: Tmux) -> None:
    """It reads the end of its input; what is typed is the board's."""
    tmux.type("clear; " + command(program, "sh", "-c", "printf 'sure? '; read answer; echo \"got '$answer' $?\""))
    text = tmux.wait_for_prompt()
    assert "sure? got '' 1" in text


def test_ctrl_c_ends_the_build_and_puts_the_terminal_back(program: Program, tmux: Tmux) -> None:
    """Modes as before, the cursor to be seen, the code 130."""
    modes = tmux.modes()
    tmux.type(command(program, *waiting_build(program), options=SMALL))
    tmux.wait_for(running)
    tmux.key("C-c")
    tmux.wait_for_prompt()
    tmux.type("echo code $?")
    tmux.wait_for(lambda text: "code 130" in text)
    assert tmux.modes() == modes
    assert tmux.cursor()


@pytest.mark.parametrize("victim", ["guardian", "builddoctor"])
def test_after_a_sigkill_the_terminal_can_be_used(program: Program, tmux: Tmux, victim: str) -> None:
    """Of the process that guards the build, and even of builddoctor itself, after which the shell puts things right."""
    modes = tmux.modes()
    tmux.type(command(program, *waiting_build(program), options=SMALL))
    tmux.wait_for(running)
    itself = builddoctor_in(tmux)
    (guardian,) = [child for child in itself.children() if "guardian_program" in " ".join(child.cmdline())]
    everything = [itself, *itself.children(recursive=True)]
    (guardian if victim == "guardian" else itself).send_signal(signal.SIGKILL)
    psutil.wait_procs(everything, timeout=PATIENCE_S)
    tmux.type("clear; echo usable")
    tmux.wait_for(lambda text: "\nusable" in f"\n{text}")
    assert tmux.modes() == modes


def builddoctor_in(tmux: Tmux) -> psutil.Process:
    """The supervisor that runs in the terminal's shell."""
    shell = psutil.Process(int(tmux._run("display-message", "-p", "#{pane_pid}")))
    (itself,) = [child for child in shell.children() if "builddoctor" in " ".join(child.cmdline())]
    return itself


def test_ctrl_z_and_fg(program: Program, tmux: Tmux) -> None:
    """The shell has its terminal as it was; afterwards the board is there again, and keys are heard."""
    modes = tmux.modes()
    tmux.type(command(program, *waiting_build(program), options=SMALL))
    tmux.wait_for(running)
    tmux.key("C-z")
    text = tmux.wait_for_prompt()
    assert "Stopped" in text
    assert "GiB budget" not in text
    assert tmux.modes() == modes
    tmux.type("fg")
    tmux.wait_for(running)
    tmux.key("d")
    tmux.wait_for(lambda text: "fewer details" in text)
    (program.folder / "done").touch()
    tmux.wait_for_prompt()
    assert tmux.modes() == modes


def test_in_the_background_there_is_no_board_and_no_key_is_read(program: Program, tmux: Tmux) -> None:
    """The shell's own line is left alone; ``fg`` brings the board."""
    modes = tmux.modes()
    _, _, script = waiting_build(program)
    tmux.type("clear; " + command(program, "sh", "-c", f"echo begins; {script}", options=SMALL) + " &")
    tmux.wait_for(lambda text: "begins" in text)
    wait_for_ticks(program, 2)
    tmux.type("echo typed dq")
    text = tmux.wait_for(lambda text: "\ntyped dq" in text)
    assert "GiB budget   limit" not in text
    assert builddoctor_in(tmux).status() != psutil.STATUS_STOPPED
    assert tmux.modes() == modes
    tmux.type("fg")
    tmux.wait_for(running)
    (program.folder / "done").touch()
    tmux.wait_for_prompt()


def wait_for_ticks(program: Program, number: int) -> None:
    """The supervisor goes on: its trace has this many more looks at memory."""
    deadline = time.monotonic() + PATIENCE_S
    before = None
    while time.monotonic() < deadline:
        if program.trace_file.exists() and program.trace_file.stat().st_size:
            ticks = sum(isinstance(record, Status) for record in TraceReader(program.trace_file))
            before = ticks if before is None else before
            if ticks >= before + number:
                return
        select.select([], [], [], 0.1)
    raise AssertionError("no new look at memory")


def test_another_size_in_the_middle(program: Program, tmux: Tmux) -> None:
    """Narrower, lower, wider: the board fits again, and nothing of what was printed above is lost or doubled."""
    _, _, script = waiting_build(program)
    printed = "seq -f 'printed line %g of many words that make it as long as it needs to be' 8"
    tmux.type("clear; " + command(program, "sh", "-c", f"{printed}; {script}", options=SMALL))
    tmux.wait_for(running)
    for columns, rows in ((60, 20), (100, 30), (40, 12), (120, 40)):
        tmux.resize(columns, rows)
        tmux.wait_for(functools.partial(running_within, columns=columns))
        lines = "\n".join(tmux.everything())
        assert lines.count("\nunits ") == 1, lines
    (program.folder / "done").touch()
    tmux.wait_for_prompt()
    everything = "\n".join(tmux.everything())
    for number in range(1, 9):
        assert everything.count(f"printed line {number} of many words") == 2 - (number > 0), number
    assert "GiB budget" not in everything


def test_a_terminal_narrower_than_it_said_yet(program: Program, tmux: Tmux) -> None:
    """It tells its size some time after that changed, over ssh a round trip: what is drawn till then leaves nothing."""
    _, _, script = waiting_build(program)
    tmux.resize(40, 20)
    tmux.type("clear; stty cols 100 rows 30; " + command(program, "sh", "-c", f"echo begins; {script}", options=SMALL))
    tmux.wait_for(lambda text: "\njobs      now 1" in text)
    wait_for_ticks(program, 4)
    tmux.tell_size(40, 20)
    tmux.wait_for(functools.partial(running_within, columns=40))
    lines = "\n".join(tmux.everything())
    assert lines.count("\nunits ") == 1, lines
    (program.folder / "done").touch()
    tmux.wait_for_prompt()
    assert "units " not in "\n".join(tmux.everything())


def test_a_terminal_that_is_stopped_does_not_stop_the_supervisor(program: Program, tmux: Tmux) -> None:
    """Ctrl-S while the build floods: memory is looked at all the same; after Ctrl-Q nothing is missing."""
    tmux.type("clear; stty ixon; " + command(program, "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; seq 60000"))
    tmux.wait_for(lambda text: "GiB budget" in text)
    tmux.key("C-s")
    (program.folder / "go").touch()
    wait_for_ticks(program, 3)
    tmux.key("C-q")
    tmux.wait_for_prompt()
    assert [line for line in tmux.everything() if line.isdigit()] == [str(number) for number in range(1, 60_001)]


def test_where_another_program_shows_the_output_there_is_no_board(program: Program, tmux: Tmux) -> None:
    """``| tee``: it writes to the same terminal, and a board would be in the way of its lines."""
    stand_in(program, "exit 0")
    tmux.type("clear; " + command(program, "sh", "-c", "echo printed; clang++ -c a.cpp") + " | tee log")
    text = tmux.wait_for_prompt()
    assert text.split("\n").count("printed") == 1
    assert (program.folder / "log").read_text() == "printed\n"
    assert "memory" not in text
