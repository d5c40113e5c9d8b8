"""Why something failed, from its log alone: which line counts, how sure one may be, and what is said of the rest."""

from __future__ import annotations

import pytest

from builddoctor.core.verdict import Diagnosis, Verdict
from builddoctor.core.word import Confidence
from builddoctor.diagnose.log_facts import what_document
from support.told import explain

NVCC = (
    "/usr/local/cuda/bin/nvcc --threads {threads} -O3 -std=c++17 -gencode arch=compute_90,code=sm_90 -x cu -c {source}"
)
SIGNAL_9 = "nvcc error   : '{tool}' died due to signal 9 (Kill signal)"
STOPPED = "ninja: build stopped: subcommand failed."
BACKEND = "ERROR Backend subprocess exited when trying to invoke build_wheel"
TOP = "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND"


def told(*lines: str) -> Diagnosis:
    return explain(["\n".join(lines).encode() + b"\n"]).diagnosis


def edge(
    *said: str, source: str = "/src/gelu.cu", threads: int = 1, status: str = "[12/45]", code: str = ""
) -> list[str]:
    failed = f"FAILED: {code}CMakeFiles/te.dir/gelu.cu.o"
    return [f"{status} Building CUDA object", failed, NVCC.format(threads=threads, source=source), *said]


def top(gib: float, tool: str = "cudafe++") -> str:
    return f" 911842 user      20   0  {gib + 0.1:.1f}g {gib:.1f}g   3072 R 100.0   8.4  18:51.20 {tool}"


def commands(verdict: Diagnosis) -> str:
    return " ".join(fix.command for fix in verdict.fixes)


# -- the seed ----------------------------------------------------------------------------------------------------


@pytest.mark.trap(36)
def test_the_seeds_case_is_a_runaway() -> None:
    """One unit, MAX_JOBS=1, cudafe++ growing without plateau: fewer jobs cannot help, the toolchain comes first."""
    lines = [
        "MAX_JOBS=1 NVTE_BUILD_THREADS_PER_JOB=1 python3 setup.py bdist_wheel",
        TOP,
        *map(top, (12.1, 62.1, 142.1)),
    ]
    verdict = told(*lines, *edge(SIGNAL_9.format(tool="cudafe++")), STOPPED)
    assert (verdict.verdict, verdict.confidence) == (Verdict.RUNAWAY, Confidence.MEDIUM)
    assert "Lowering MAX_JOBS cannot help" in verdict.why
    assert verdict.died == "cudafe++ of /src/gelu.cu"
    assert verdict.fixes[0].text.startswith("another minor version of nvcc")
    assert "builddoctor trace repro" in commands(verdict)
    assert "MAX_JOBS" not in commands(verdict)
    assert any("from 12.1 GiB to 142.1 GiB" in line for line in verdict.evidence)
    assert any("MAX_JOBS=1" in line for line in verdict.evidence)


@pytest.mark.parametrize(
    "words", ["memory of cudafe++ keeps growing until the kill", "RES grows continuously, there is no plateau"]
)
def test_growth_in_words_counts_as_growth(words: str) -> None:
    """Who asks for help writes what they saw in top."""
    verdict = told("MAX_JOBS=1 pip install .", words, *edge("Killed"))
    assert verdict.verdict == Verdict.RUNAWAY
    assert any(words in line for line in verdict.evidence)


def test_a_process_that_grows_before_anything_failed_is_said_to() -> None:
    """Only a table of processes: nothing died yet, and 142 GiB of cudafe++ need no more proof."""
    verdict = told(TOP, top(142.1), top(149.5))
    assert (verdict.verdict, verdict.died) == (Verdict.RUNAWAY, "")


# -- killed, and a log to say so ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "status", "verdict", "confidence"),
    [
        ([], "[12/45]", Verdict.PARALLEL, Confidence.LOW),
        (["MAX_JOBS=16 pip install ."], "[12/45]", Verdict.PARALLEL, Confidence.MEDIUM),
        ([], "[41/66 r7]", Verdict.PARALLEL, Confidence.MEDIUM),
        ([], "[41/66 r1]", Verdict.TOO_BIG, Confidence.MEDIUM),
        (["MAX_JOBS=1 pip install ."], "[12/45]", Verdict.TOO_BIG, Confidence.MEDIUM),
        (["Running: cmake --build . --parallel 1"], "[12/45]", Verdict.TOO_BIG, Confidence.MEDIUM),
        (["running ['cmake', '--build', '.', '--', '-j', '1']"], "[12/45]", Verdict.TOO_BIG, Confidence.MEDIUM),
        (["running ['ninja', '-j16', 'install']"], "[12/45]", Verdict.PARALLEL, Confidence.MEDIUM),
        (["MAX_JOBS=8 pip install .", "MAX_JOBS=1 pip install ."], "[12/45]", Verdict.TOO_BIG, Confidence.MEDIUM),
    ],
)
def test_what_a_log_shows_of_company_decides(before: list[str], status: str, verdict: str, confidence: str) -> None:
    """Jobs that were asked for, the last time; edges in flight, as ninja counts them. Text alone is never sure."""
    said = told(*before, *edge(SIGNAL_9.format(tool="cicc"), status=status), STOPPED)
    assert (said.verdict, said.confidence) == (verdict, confidence)


def test_several_kills_are_company() -> None:
    """Two edges died of it: more than one ran."""
    said = told(*edge(SIGNAL_9.format(tool="cicc")), *edge(SIGNAL_9.format(tool="ptxas"), source="/src/b.cu"))
    assert (said.verdict, said.confidence) == (Verdict.PARALLEL, Confidence.MEDIUM)


def test_one_program_that_was_too_big_has_ways_out_of_its_own() -> None:
    """Its text knows more than the ladder does, which thinks of compilers."""
    said = told("Solving environment: ...working... Killed")
    assert said.verdict is Verdict.TOO_BIG
    assert "mamba" in said.fixes[0].command


def test_who_sent_the_kill_stays_open() -> None:
    """A SIGKILL has no sender: the alternatives stand in the evidence."""
    assert any("dmesg" in line for line in told(*edge(SIGNAL_9.format(tool="cicc"))).evidence)


def test_the_kernels_line_makes_it_sure() -> None:
    """The same kill, with the kernel's report in the same text."""
    kernel = [
        "[1.000000] memory: usage 8388608kB, limit 8388608kB, failcnt 9",
        "[1.000000] [  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name",
        "[1.000000] [     11]     0    11   900000   700000    40960        0             0 cicc",
        "[1.000000] [     12]     0    12   900000   700000    40960        0             0 cicc",
        "[1.000000] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/j,task_memcg=/j,task=cicc,pid=11",
        "[1.000000] Memory cgroup out of memory: Killed process 11 (cicc) total-vm:3600000kB, anon-rss:2800000kB",
    ]
    said = told(*edge(SIGNAL_9.format(tool="cicc")), STOPPED, *kernel)
    assert (said.verdict, said.confidence) == (Verdict.PARALLEL, Confidence.HIGH)
    assert "2 large compilers" in said.why


def test_a_kernels_kill_of_somebody_else_does_not_explain_a_missing_header() -> None:
    """An old kill in the same text: the step that failed says itself why."""
    killed = "[1.000000] Out of memory: Killed process 11 (chrome) total-vm:9kB, anon-rss:900000kB, file-rss:0kB"
    said = told(killed, *edge("/src/gelu.cu:3:10: fatal error: cudnn.h: No such file or directory"))
    assert said.verdict == Verdict.TOOLCHAIN


# -- which line counts -------------------------------------------------------------------------------------------


def test_the_first_failing_step_is_the_cause() -> None:
    """What fails after it is mostly collateral."""
    first = edge("nvcc fatal   : Unsupported gpu architecture 'compute_120'")
    said = told(*first, *edge(SIGNAL_9.format(tool="cicc")), *edge(SIGNAL_9.format(tool="cicc")), STOPPED)
    assert (said.verdict, said.confidence) == (Verdict.TOOLCHAIN, Confidence.HIGH)
    assert "compute_120" in said.evidence[0]


def test_what_says_it_beats_what_hints_at_it() -> None:
    """A status of 137 stands first, and fits several causes; the line after names one."""
    said = told(*edge(SIGNAL_9.format(tool="ptxas"), code="[code=137] "))
    assert said.evidence[0].endswith("died due to signal 9 (Kill signal)")


def test_a_trailer_is_never_a_cause() -> None:
    """Only what comes after any failure: unknown, with the lines that the log ends with, and no guess."""
    said = told("weird tool: frobnication impossible", "make: *** [Makefile:3: all] Error 3", STOPPED)
    assert (said.verdict, said.confidence) == (Verdict.UNKNOWN, Confidence.LOW)
    assert any("frobnication impossible" in line for line in said.evidence)


def test_evidence_quotes_line_and_text() -> None:
    """The number is the line's in the file."""
    said = told("one", "two", *edge("nvcc fatal   : Unsupported gpu architecture 'compute_120'"))
    assert said.evidence[0] == "line 6: nvcc fatal   : Unsupported gpu architecture 'compute_120'"


# -- silence -----------------------------------------------------------------------------------------------------


def test_silence_of_nvcc_with_threads_has_two_causes() -> None:
    """255 and no text: killed for memory, or TMPDIR full. Both are named, and how to tell them apart."""
    said = told(*edge(threads=4, code="[code=255] "), STOPPED)
    assert (said.verdict, said.cause) == (Verdict.UNKNOWN, "silent-255")
    assert "killed for memory, or TMPDIR was full" in said.why
    assert "oom_kill" in commands(said)
    assert "df -h" in commands(said)


def test_255_with_a_text_is_no_silence() -> None:
    """With --threads a phase's own words still count."""
    said = told(*edge("x.ii: fatal error: when writing output to /tmp/x.ii: No space left on device", threads=4,
                      code="[code=255] "))  # fmt: skip
    assert said.verdict == Verdict.DISK_FULL


def test_255_after_an_error_that_nobody_knows_is_no_silence() -> None:
    """make ends with 255 after each of nvcc's errors: the error is what counts."""
    said = told("nvcc fatal   : Cannot do that today", "make[1]: *** [Makefile:9: loader.so] Error 255")
    assert said.root == "line 1: nvcc fatal   : Cannot do that today"
    assert said.cause != "silent-255"


# -- errors that build files follow --------------------------------------------------------------------------------


def test_cmake_writes_build_files_after_an_error_that_it_finds_while_it_generates_them() -> None:
    said = told(
        "-- Configuring done",
        "CMake Error at app/CMakeLists.txt:5 (add_executable):",
        '  Target "Viewer" is in two places at once',
        "",
        "-- Generating done",
        "-- Build files have been written to: /b",
    )
    assert said.verdict is Verdict.UNKNOWN
    assert said.root.startswith("line 2: CMake Error at app/CMakeLists.txt:5")


def test_an_error_of_cmake_before_it_was_configured_did_not_stop_it() -> None:
    """Another run has come to its end since."""
    went_on = ("-- Configuring done", "-- Generating done", "-- Build files have been written to: /b")
    assert told("CMake Error at app/CMakeLists.txt:5 (find):", "  no such thing", "", *went_on).verdict is None


# -- nothing to explain ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        [],
        ["all is fine"],
        ["[45/45] Linking CXX shared library libte.so", "Successfully built te"],
        [*edge(SIGNAL_9.format(tool="cicc")), "again with fewer jobs", "Successfully built te"],
        ["Successfully built te", "slurmstepd: error: Step 1.0 hit memory limit at least once during execution."],
        ["# Out of memory", "", "If you see `Killed`, use fewer jobs:", "", "- `MAX_JOBS=2`", "", "Killed"],
        ["configure:12: gcc -c conftest.c", "conftest.c:1:10: fatal error: nope.h: No such file or directory",
         "configure: creating ./config.status"],
    ],
)  # fmt: skip
def test_a_text_without_a_failure_has_no_verdict(lines: list[str]) -> None:
    """Success, documentation, what configure tries out, and Slurm's remark about a full page cache."""
    verdict = told(*lines)
    assert verdict.verdict is None
    assert verdict.why
    assert verdict.fixes == []


def test_the_last_words_of_a_log_without_an_end_are_shown() -> None:
    """Neither that it failed nor that it went well; of one that went well there is nothing to show."""
    assert told("compiling a", "", "40 % of b", "----").root == "line 3: 40 % of b"
    assert told("[45/45] Linking CXX shared library libte.so", "Successfully built te").root == ""


# -- the GPU's memory, and the host's in a training --------------------------------------------------------------

GPU_OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 194.00 MiB. GPU 1 has a total capacity of 139.81 "
    "GiB of which 153.19 MiB is free. Process 4788 has 139.64 GiB memory in use."
)


def test_the_traceback_around_a_gpus_message_is_read() -> None:
    """The frames before it show that a graph of the backward pass was captured."""
    lines = ["Traceback (most recent call last):", '  File "g.py", line 1, in make_graphed_callables']
    said = told("epoch 1", *lines, "    grads = torch.autograd.grad(", GPU_OOM)
    assert (said.verdict, said.cause) == (Verdict.GPU_OOM, "gpu-graph-capture")
    assert "GPU 1" in said.died


def test_frames_of_an_earlier_traceback_do_not_count() -> None:
    """Capture failed and was caught; what ran out later is another matter."""
    earlier = ["Traceback (most recent call last):", "  in make_graphed_callables", "ValueError: shapes"]
    said = told(*earlier, "Traceback (most recent call last):", "  in forward", GPU_OOM)
    assert said.cause == "gpu-capacity"


def test_a_message_that_was_broken_into_lines_is_put_together() -> None:
    """A terminal of 80 columns, and the bars of a box."""
    words = GPU_OOM.split(" ")
    said = told(*("│ " + " ".join(words[at : at + 9]) + " │" for at in range(0, len(words), 9)))
    assert said.verdict == Verdict.GPU_OOM
    assert any("139.8 GiB" in line for line in said.evidence)


def test_other_ranks_follow_the_first() -> None:
    """Eight ranks fail alike: one verdict, and the number of the others."""
    said = told(*(f"[rank{rank}]: {GPU_OOM}" for rank in range(8)))
    assert any(line.startswith("7 more such messages") for line in said.evidence)


@pytest.mark.parametrize(
    "lines",
    [
        ["RuntimeError: DataLoader worker (pid 19597) is killed by signal: Killed."],
        ["torchrun --nproc_per_node 8 train.py", "epoch 3 loss: 1.25", "Killed"],
        ["exitcode  : -9 (pid: 412)"],
    ],
)
def test_the_hosts_memory_in_a_training_is_told_from_the_gpus(lines: list[str]) -> None:
    """A kill without a traceback: fewer workers, and no word of batches' size or of builds."""
    said = told(*lines)
    assert said.verdict == Verdict.NOT_A_BUILD
    assert "not the GPU's" in said.why
    assert "dmesg" in said.fixes[0].command
    assert "builddoctor run" not in commands(said)


def test_ways_out_stand_once() -> None:
    """Those of the text and those of the verdict, none twice."""
    for lines in (
        ["Killed"],
        [SIGNAL_9.format(tool="cicc")],
        ["a.cu:1:10: fatal error: cudnn.h: No such file or directory"],
    ):
        fixes = told(*edge(*lines)).fixes
        assert fixes
        assert len({fix.text for fix in fixes}) == len(fixes)
        given = [fix.command for fix in fixes if fix.command]
        assert len(set(given)) == len(given)


# -- texts that are no logs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        ("<!doctype html>\n<p>Killed</p>", "a web page"),
        ("commit 9a0c11f2\nAuthor: a\n\n    c++: fatal error: Killed signal", "a history of changes"),
        ("jobs:\n  build:\n    runs-on: x\n    steps:\n      - run: make", "a workflow's file"),
        ("docs/a.md:1:Killed\ndocs/b.md:2:Killed", "a search through files"),
        ("import re\nKILLED = 'Killed'", "a source"),
        ("# FAQ\n\n- `Killed`\n- fewer jobs", "a document"),
    ],
)
def test_texts_about_failures_are_known_by_their_beginning(head: str, kind: str) -> None:
    """Nothing died in them, whatever they quote."""
    assert what_document(head) == kind
    assert kind in told(head).why


@pytest.mark.parametrize(
    "line", ["FAILED: a.o", "[3/9] nvcc a.cu", "Traceback (most recent call last):", "[ 40%] Building CUDA object"]
)
def test_a_report_that_holds_a_log_is_a_log(line: str) -> None:
    """An issue has headings and lists as well; its log is what counts."""
    assert what_document(f"# It fails\n\n- `MAX_JOBS=2`\n- 16 GB\n\n{line}\nKilled\n") == ""


# -- the root line -----------------------------------------------------------------------------------------------


def test_the_innermost_error_is_shown_whatever_is_known() -> None:
    """Below pip, setup.py's traceback, ninja: the first error of what ninja started."""
    verdict = told(
        "  error: subprocess-exited-with-error",
        *edge("the frobnicator is closed", "fatal: frobnicator gave up"),
        STOPPED,
        "Traceback (most recent call last):",
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        "RuntimeError: Error compiling objects for extension",
        "ERROR: Failed building wheel for foo",
    )
    assert (verdict.verdict, verdict.root) == (Verdict.UNKNOWN, "line 6: fatal: frobnicator gave up")
    assert verdict.why == "the build itself says: fatal: frobnicator gave up"


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        (["make: *** [Makefile:2: all] Error 3"], "make -j1 "),
        (["[2/9] Building CUDA object a.o", STOPPED], "ninja "),
        (['3 errors detected in the compilation of "a.cu".'], "COMMAND "),
        (["ERROR: Failed building wheel for foo-ops"], "pip install -v foo-ops "),
        (["error: could not compile `foo` (lib)"], "cargo build -vv "),
        (["The command '/bin/sh -c npm install' returned a non-zero code: 1"], "docker build --progress=plain"),
    ],
)
def test_where_only_that_it_failed_was_copied_the_answer_says_how_to_get_the_reason(
    lines: list[str], command: str
) -> None:
    """Its words would find nothing in any search: they are in every failure of that tool."""
    verdict = told(*lines)
    assert (verdict.verdict, verdict.root) == (Verdict.UNKNOWN, f"line {len(lines)}: {lines[-1]}")
    assert verdict.why == f"the build itself says: {lines[-1].rstrip('.')}, and not why"
    assert verdict.fixes[0].command.startswith(command)
    assert verdict.fixes[0].command.endswith("2>&1 | tee build.log; builddoctor explain build.log")


@pytest.mark.parametrize(
    ("lines", "command"),
    [
        (
            ["Error! Bad return status for module build on kernel: 6.1", "Consult /var/lib/dkms/foo/1/build/make.log"],
            "builddoctor explain /var/lib/dkms/foo/1/build/make.log",
        ),
        (
            ["Error: Failed to build foo: command execution failed", "Error: See /opt/logs/main.log for details."],
            "builddoctor explain /opt/logs/main.log",
        ),
        (
            ["extconf failed, exit code 1", "check the mkmf.log which can be found here:", "  /gems/foo-1.0/mkmf.log"],
            "builddoctor explain /gems/foo-1.0/mkmf.log",
        ),
        (
            ["configure: error: the frobnicator gave up", "See `config.log' for more details"],
            "tail -n 60 config.log",
        ),
        (
            ["error: builder for '/nix/store/1a-foo.drv' failed with exit code 2;", "  nix log /nix/store/1a-foo.drv"],
            "nix log /nix/store/1a-foo.drv | builddoctor explain -",
        ),
    ],
)
def test_the_file_that_holds_the_reason_is_opened_first(lines: list[str], command: str) -> None:
    """A tool that keeps what failed for itself says where."""
    verdict = told("Building foo", *lines)
    assert verdict.fixes[0].command == command


def test_two_lines_side_by_side_that_both_may_be_the_reason_are_both_said() -> None:
    """Which of them it is the log does not tell: one alone would hide the other."""
    said = ["error: unable to load Jamfile.", "error: Could not find a Jamfile in directory '/usr/share/boost'."]
    verdict = told("Building foo", *said)
    assert verdict.why == f"the build itself says: {said[0]}; below it: {said[1]}"
    verdict = told("rm: a: Permission denied", "rm: b: Permission denied")
    assert verdict.why == "the build itself says: rm: a: Permission denied"


def test_an_exception_that_says_nothing_is_told_with_the_line_of_source_that_raised_it() -> None:
    """Its name alone is in every failure, and a command that was typed after it is none of its words."""
    frames = [
        "Traceback (most recent call last):",
        '  File "setup.py", line 4, in <module>',
        '    assert mode == "ALL"',
    ]
    marks = "           ^^^^^^^^^^^^^^^"
    verdict = told(*frames, marks, "AssertionError", "", r"(env) E:\src>set MODE=ALL", "", r"(env) E:\src>python x.py")
    assert verdict.why == 'the build itself says: AssertionError; above it: assert mode == "ALL"'


def test_the_words_of_a_warning_of_cmakes_are_not_the_reason() -> None:
    """What a frontend hands on begins with warnings; none of them ended the build."""
    warning = ["CMake Warning at cuda.cmake:33 (message):", "  torch is not compatible with `FOO` and ignores it", ""]
    raised = "subprocess.CalledProcessError: Command '['cmake', '--build', '.']' returned non-zero exit status 1."
    frame = ['File "/usr/lib/python3.12/subprocess.py", line 413, in check_call', "  raise CalledProcessError(x)"]
    hint = "hint: This usually indicates a problem with the package or the build environment."
    verdict = told("[stderr]", *warning, "Traceback (most recent call last):", *frame, raised, "", hint)
    assert verdict.root == f"line 8: {raised}"
    assert verdict.fixes[0].command == "uv pip install -v . 2>&1 | tee build.log; builddoctor explain build.log"


def test_how_to_get_the_reason_is_said_in_the_words_of_what_started_the_build() -> None:
    """`pip install -v` would not do it again where `python -m build` was typed."""
    lines = [STOPPED, "RuntimeError: Error compiling objects for extension", "", BACKEND]
    assert told(*lines).fixes[0].command.startswith("python -m build --wheel 2>&1 | tee build.log")


def test_an_exception_of_setup_py_is_the_root_where_nothing_inner_failed() -> None:
    """What a project's own check says in words: never "nothing failed", never the wrapper."""
    said = "RuntimeError: NCCL submodule not found at 3rdparty/nccl. Run git submodule update --init --recursive"
    verdict = told("Traceback (most recent call last):", '  File "setup.py", line 3, in <module>', said, "exit code: 1")
    assert verdict.root == f"line 3: {said}"


def test_cmake_says_its_message_below_its_line() -> None:
    verdict = told(
        "-- Found Python3",
        "CMake Error at CMakeLists.txt:12 (message):",
        "  The frobnicator is",
        "  closed",
        "",
        "-- Configuring incomplete, errors occurred!",
    )
    assert verdict.root == "line 2: CMake Error at CMakeLists.txt:12 (message): The frobnicator is closed"


def test_of_trailers_alone_the_one_that_names_most() -> None:
    verdict = told("ninja: build stopped: subcommand failed.", "make: *** [Makefile:7: wheel] Error 1")
    assert verdict.root == "line 2: make: *** [Makefile:7: wheel] Error 1"


def test_no_more_than_three_ways_out() -> None:
    verdict = told("MAX_JOBS=16 pip install .", *edge(SIGNAL_9.format(tool="cicc"), threads=4), STOPPED)
    assert verdict.verdict is Verdict.PARALLEL
    assert len(verdict.fixes) == 3


# -- errors of which only the kind is known ----------------------------------------------------------------------------


def test_where_no_line_says_more_an_error_is_told_by_its_kind() -> None:
    """What mostly is behind it, with medium confidence, and the line itself."""
    verdict = told("error[E0432]: unresolved import `foo::bar`", "error: could not compile `x` (lib)")
    assert (verdict.verdict, verdict.confidence, verdict.cause) == (Verdict.SOURCE, Confidence.MEDIUM, "rustc-said")
    assert "unresolved import" in verdict.root
    assert verdict.fixes


def test_what_cmake_or_python_say_of_their_own_has_no_kind() -> None:
    """Anything may be behind it: the line is shown, and no cause is guessed."""
    verdict = told("CMake Error at CMakeLists.txt:12 (message):", "  The frobnicator is closed.", "")
    assert verdict.verdict is Verdict.UNKNOWN
    assert "The frobnicator is closed." in verdict.root


def test_any_line_that_says_or_hints_at_a_cause_counts_before_a_kind() -> None:
    """Wherever it stands."""
    first = "error[E0432]: unresolved import `foo::bar`"
    assert told(first, "x.cpp:9:3: error: 'foo' was not declared").cause == "compile-error"


def test_a_kind_of_error_before_a_success_is_none() -> None:
    """What went well in the end has no verdict."""
    assert told("error[E0432]: unresolved import `foo::bar`", "[100%] Built target x").verdict is None


# -- which of several errors -------------------------------------------------------------------------------------


def test_a_full_disk_comes_before_what_follows_from_it() -> None:
    verdict = told(
        "src/x.cpp:12:5: error: 'foo' was not declared in this scope",
        "/tmp/cc1.s: fatal error: error writing to /tmp/cc2.s: No space left on device",
    )
    assert verdict.verdict is Verdict.DISK_FULL


@pytest.mark.parametrize(
    "last", ["make: *** [Makefile:3: all] Error 1", "Process completed with exit code 1.", "Build failed", STOPPED]
)
@pytest.mark.parametrize("between", [0, 40])
def test_an_unknown_failure_always_shows_a_line(between: int, last: str) -> None:
    """Where no entry fits: the line near the end that speaks of failure, else the build tool's own; of CI's own, which
    says nothing, the line above it."""
    said = "the frobnicator has failed to start, code 7"
    verdict = told(said, *(f"part {i} of it" for i in range(between)), last)
    assert verdict.verdict is Verdict.UNKNOWN
    far = "part 39 of it" if last.startswith("Process completed") else last
    assert (far if between else said) in verdict.root


def test_what_is_asked_for_a_purpose_is_no_failure() -> None:
    """A hint at something optional stands at the end of builds that went well."""
    assert told("make: Nothing to be done for 'all'.", "To use the docs, please install frob.").verdict is None
    assert told("Successfully installed frob-1.0", "No broken requirements found.").verdict is None
    assert told("frob 1.0", "No broken requirements found.").verdict is None


def test_an_error_in_the_last_line_is_a_failure() -> None:
    verdict = told("Building the frobnicator", "All parts were found", "frob/x.y: fatal error in part 7")
    assert "fatal error in part 7" in verdict.root


def test_the_inner_error_of_cmakes_compiler_test_is_the_cause() -> None:
    verdict = told(
        "CMake Error at /usr/share/cmake-3.22/Modules/CMakeTestCUDACompiler.cmake:56 (message):",
        "  The CUDA compiler",
        '    "/usr/bin/nvcc"',
        "  is not able to compile a simple test program.",
        "  It fails with the following output:",
        "    nvcc fatal   : Unsupported gpu architecture 'compute_120'",
    )
    assert "compute_120" in verdict.root


def test_an_error_that_names_its_library_counts_before_the_first_that_names_none() -> None:
    """Both follow from the same: headers of another version."""
    first = 'plug/split.hpp(50): error: member function declared with "override" does not override a member'
    named = 'plug/split.hpp(71): error: namespace "nvinfer1" has no member "IPluginV2"'
    assert told(first, "", named).cause == "tensorrt-differs"
    assert told(first, *[""] * 20, named).cause == "compile-error"


def test_a_library_that_code_names_is_the_first_advice() -> None:
    verdict = told("/src/x.cpp:3:12: error: 'SetTotalBytesLimit' is not a member of 'fmt::basic_memory_buffer'")
    assert verdict.fixes[0].text.startswith("take the version of")


# -- the root line: never what only hands on ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "root"),
    [
        pytest.param(
            [
                "  RuntimeError",
                "",
                "  the frobnicator of torch (2.5.1) is closed",
                "",
                "  at ~/x/chooser.py:74 in choose",
            ],
            "line 1: RuntimeError the frobnicator of torch (2.5.1) is closed",
            id="poetry prints the class above its message",
        ),
        pytest.param(
            [
                "Traceback (most recent call last):",
                '  File "setup.py", line 269, in main',
                "    package = best()",
                "__main__.DetectionFailed:",
                "============================================================",
                "No frobnicator was seen.",
                "============================================================",
                "[end of output]",
            ],
            "line 4: __main__.DetectionFailed: No frobnicator was seen.",
            id="a message between rulers",
        ),
        pytest.param(
            [
                "Traceback (most recent call last):",
                '  File "x.py", line 3, in <module>',
                "    main()",
                "foo.Oops: it is shut",
            ],
            "line 4: foo.Oops: it is shut",
            id="an exception that is not called one",
        ),
        pytest.param(
            [
                "  Error:   \N{MULTIPLICATION SIGN} Cannot install environment 'default'",
                "    ├─▶ the frobnicator was asked",
                "    ╰─▶ it is closed on this machine",
            ],
            "line 3: it is closed on this machine",
            id="the last cause of a tree",
        ),
        pytest.param(
            ["error: Cannot frobnicate `x`", "  Caused by: it was asked", "  Caused by: it is closed"],
            "line 3: Caused by: it is closed",
            id="the last of several causes",
        ),
        pytest.param(
            [
                "error: builder for '/nix/store/0a-x.drv' failed with exit code 1;",
                "       last 2 log lines:",
                "       > unpacking sources",
                "       > frobnicator: cannot be opened",
                "       For full logs, run:",
            ],
            "line 4: frobnicator: cannot be opened",
            id="nix",
        ),
        pytest.param(
            [
                "| Error: Return value 4",
                "| cat: /build/out/x.bct: No such file or directory",
                "| ERROR: Function failed: do_compile (log file is located at /build/log.do_compile.17)",
            ],
            "line 2: cat: /build/out/x.bct: No such file or directory",
            id="bitbake",
        ),
        pytest.param(
            [
                "┌ Error: Error building `Frobnicator`: ",
                "│ WARNING: it is deprecated",
                "│ ERROR: LoadError: UndefVarError: @debug not defined",
            ],
            "line 3: ERROR: LoadError: UndefVarError: @debug not defined",
            id="Julia",
        ),
        pytest.param(
            [
                "FAILED: csrc/a.o",
                "/usr/bin/nvcc -Wno-error=foo -c csrc/a.cu",
                "frobnicator: it does not go on",
                STOPPED,
            ],
            "line 3: frobnicator: it does not go on",
            id="ninja, and words that nobody knows",
        ),
        pytest.param(
            [
                "  \N{MULTIPLICATION SIGN} python setup.py egg_info did not run successfully.",
                "  │ exit code: 1",
                "  ╰─> [1 lines of output]",
                "      It frobnicates on the moon alone",
                "      [end of output]",
                "error: metadata-generation-failed",
            ],
            "line 4: It frobnicates on the moon alone",
            id="pip hands on words that nobody knows",
        ),
        pytest.param(
            [
                "  \N{MULTIPLICATION SIGN} Failed to build `frob==1.0`",
                "  ╰─▶ Call to `x.build_wheel` failed (exit status: 1)",
                "",
                "      [stdout]",
                "      running build",
                "      [stderr]",
                "      It frobnicates on the moon alone",
                "",
                "      hint: a problem",
            ],
            "line 7: It frobnicates on the moon alone",
            id="uv hands on words that nobody knows",
        ),
        pytest.param(
            ["python gen.py moon.in", "gen: moon wanted, sun given", "make: *** [Makefile:12: moon.h] Error 1"],
            "line 2: gen: moon wanted, sun given",
            id="make, and words that nobody knows",
        ),
        pytest.param(
            ["Run ./build.sh", "It frobnicates on the moon alone", "Error: Process completed with exit code 1."],
            "line 2: It frobnicates on the moon alone",
            id="CI, and words that nobody knows",
        ),
        pytest.param(
            [
                "Traceback (most recent call last):",
                '  File "setup.py", line 222, in <module>',
                "    raise Closed('%s' % x)",
            ],
            "line 3: raise Closed('%s' % x)",
            id="a traceback that is cut off",
        ),
        pytest.param(
            [
                "Checking whether it is open... TypeError: expected a moon:",
                '  File "/src/SConstruct", line 17:',
                "    if x:",
                '  File "/lib/re.py", line 142:',
                "    return x",
            ],
            "line 1: Checking whether it is open... TypeError: expected a moon:",
            id="an exception above its frames",
        ),
        pytest.param(
            ["x failed to solve the requirements of 'moon'", "  `-> Cannot frobnicate 'moon'"],
            "line 2: Cannot frobnicate 'moon'",
            id="a tree in plain characters",
        ),
        pytest.param(
            [
                "error: the frobnicator is closed",
                "warning: waiting",
                '  Caused by: Cargo build finished with "exit status: 101"',
            ],
            "line 1: error: the frobnicator is closed",
            id="an exit status is no cause",
        ),
        pytest.param(
            ["frob.FrobError: the moon is down", "Error: Command ['sh', '-c', 'frob'] failed with code 1."],
            "line 1: frob.FrobError: the moon is down",
            id="a command that failed is a wrapper",
        ),
        pytest.param(
            ["checking for frob... no", "The frob is wanted here: please install one"],
            "line 2: The frob is wanted here: please install one",
            id="what is asked for at the end",
        ),
        pytest.param(
            [
                "The following frobs are not satisfied:",
                "moon>=2",
                "Diagnostic information:",
                "    FROB_PATH: (not set)",
            ],
            "line 1: The following frobs are not satisfied:",
            id="what a script says of the machine after it gave up",
        ),
        pytest.param(
            ["/usr/lib/frob.rb:12:in `frob': it is closed (FrobError)", "\tfrom /usr/lib/frob.rb:2:in `<main>'"],
            "line 1: /usr/lib/frob.rb:12:in `frob': it is closed (FrobError)",
            id="Ruby",
        ),
        pytest.param(
            [
                "error: The build backend returned an error",
                "  Caused by: Call to `x.build_wheel` failed (exit status: 1)",
                "",
                "[stderr]",
                "Traceback (most recent call last):",
                '  File "<string>", line 9, in <module>',
                "frob.FrobError: the moon is down",
            ],
            "line 7: frob.FrobError: the moon is down",
            id="uv as pip, without its tree",
        ),
        pytest.param(
            [
                "  ChefBuildError",
                "",
                "  Backend subprocess exited when trying to invoke build_wheel",
                "",
                "  frob.FrobError: the moon is down",
            ],
            "line 5: frob.FrobError: the moon is down",
            id="poetry",
        ),
        pytest.param(
            ["Received ExitFailure 1 when running", "Standard error:", "", "frob-pkg: the moon: does not exist"],
            "line 4: frob-pkg: the moon: does not exist",
            id="what a line with a colon announces",
        ),
        pytest.param(
            [
                "23:03:45 CMake Error at cmake/frob.cmake:60 (message):",
                "23:03:45   execute_process(frob) returned error code 1:",
                "23:03:45 ",
                "23:03:45   frob: the moon is down",
                "23:03:45 ",
            ],
            "line 1: CMake Error at cmake/frob.cmake:60 (message): execute_process(frob) returned error code 1: "
            "frob: the moon is down",
            id="a message with empty lines, each behind a time",
        ),
        pytest.param(
            ["ERROR: failed checking for nvcc.", "Makefile:2: ffbuild/config.mak: No such file or directory"],
            "line 1: ERROR: failed checking for nvcc.",
            id="configure's failure before what it did not write",
        ),
        pytest.param(
            [
                "frob.obj : error LNK2001: unresolved external symbol _ev_io_stop",
                "frob.obj : error LNK2001: unresolved external symbol _ev_io_start",
                "frob.obj : error LNK2001: unresolved external symbol _ev_loop_new",
                "frob.obj : error LNK2001: unresolved external symbol _ev_timer_new",
                "frob.obj : error LNK2001: unresolved external symbol _ev_timer_again",
            ],
            "line 1: frob.obj : error LNK2001: unresolved external symbol _ev_io_stop",
            id="an object that all lines name is no wrapping",
        ),
        pytest.param(
            [
                "error: failed to run custom build command for `frob v0.1.0 (/srv/frob)`",
                "Caused by:",
                "  process didn't exit successfully: `/srv/frob-0/build-script-build` (exit status: 1)",
                "  --- stderr",
                "  error running rustfmt: Os { code: 2, kind: NotFound }",
                "warning: build failed, waiting for other jobs to finish...",
                "error: failed to compile `frob v0.1.0 (/srv/frob)`, intermediate artifacts can be found at `/x`",
            ],
            "line 5: error running rustfmt: Os { code: 2, kind: NotFound }",
            id="what a build script of Rust said",
        ),
        pytest.param(
            ["frob.FrobError: the moon is down", "ERROR: the whole of it did not go on"],
            "line 1: frob.FrobError: the moon is down",
            id="an error that may be anybody's, after an exception",
        ),
        pytest.param(
            ["Error: moons: failed", "An exception occurred within a child process:", "  Errno::EMOON: it is down"],
            "line 2: An exception occurred within a child process: Errno::EMOON: it is down",
            id="Homebrew",
        ),
        pytest.param(
            ["probe: cannot run(frob --version), No such file or directory", "frob: error: it is down"],
            "line 2: frob: error: it is down",
            id="what is looked for and not there is weaker than an error",
        ),
        pytest.param(
            ["ERROR: /src/moon/BUILD:4:1: Frobbing moon failed: (Exit 1): frob failed", "frob: no moon was found"],
            "line 2: frob: no moon was found",
            id="Bazel's line of a step that failed",
        ),
        pytest.param(
            [
                "ERROR: /src/moon/BUILD:4:1: in moon rule:",
                "Traceback (most recent call last):",
                "Error in frob: no moon",
            ],
            "line 3: Error in frob: no moon",
            id="a traceback's headline",
        ),
        pytest.param(
            ["Error in fail: Repository command failed", "Two moons: one of them too many"],
            "line 1: Error in fail: Repository command failed Two moons: one of them too many",
            id="Bazel's rules",
        ),
        pytest.param(
            ["configure: error: in `/src/moon':", "configure: error: the moon is down"],
            "line 2: configure: error: the moon is down",
            id="autoconf says first where",
        ),
        pytest.param(
            [
                "CMake Error at C:/My moons/CMakeLists.txt:4 (find_moon):",
                "  Found a moon:",
                "",
                "    /src/moon",
                "",
                "  but it is down",
                "-- Configuring incomplete, errors occurred!",
            ],
            "line 1: CMake Error at C:/My moons/CMakeLists.txt:4 (find_moon): Found a moon: /src/moon but it is down",
            id="CMake's empty lines, and blanks in a path",
        ),
        pytest.param(
            [
                "CMake Error at CMakeLists.txt:4 (message):",
                "  It fails with the following output:",
                "",
                "  frob: moon.c: the moon is missing",
            ],
            "line 4: frob: moon.c: the moon is missing",
            id="the output that a message quotes",
        ),
        pytest.param(
            [
                "Traceback (most recent call last):",
                '  File "/lib/hooks.py", line 9, in call',
                "    raise HookMissing(name)",
                "hooks.impl.HookMissing: build_moon",
                "",
                "The above exception was the direct cause of the following exception:",
                "",
                "frob.FrobError: there is no such hook",
            ],
            "line 4: hooks.impl.HookMissing: build_moon",
            id="the exception that was the cause of another",
        ),
        pytest.param(
            [
                "ERROR: An error occurred during the fetch of repository 'moon':",
                '  File "/src/moon.bzl", line 840',
                "    fail(<1 more arguments>)",
                "",
                "Moon wanted here, and none in sight",
            ],
            "line 5: Moon wanted here, and none in sight",
            id="what stands below frames in no form of Python's",
        ),
        pytest.param(
            ["frob: moon not found", "* removing moon", "FEHLER: no such installation", "make: *** [all] Error 1"],
            "line 1: frob: moon not found",
            id="a tool that names itself, before a word for error",
        ),
        pytest.param(
            ["The frobs were not satisfied", "To get what is missing, run install.sh", "make: *** [all] Error 1"],
            "line 1: The frobs were not satisfied",
            id="advice is no reason",
        ),
        pytest.param(
            [
                "frob.cc:(.text+0x1e7): moon too far",
                "/usr/bin/gcc -o x frob.o",
                "collect2: error: ld returned 1 exit status",
            ],
            "line 1: frob.cc:(.text+0x1e7): moon too far",
            id="above the linker's last word, and no command",
        ),
        pytest.param(
            ["  |", "  = note: moonld: unknown moon", "error: aborting due to previous error"],
            "line 2: moonld: unknown moon",
            id="rustc hands on what its linker said",
        ),
        pytest.param(
            ["error: failed-moon-for-install", "", "\N{MULTIPLICATION SIGN} The moon is not available here"],
            "line 3: The moon is not available here",
            id="pip names a kind of failure, and says it below",
        ),
        pytest.param(
            [
                "moonc.c: In function 'last_error':",
                "/usr/bin/ld: frob.o: moon against `.bss' missing",
                "make: *** [all] Error 1",
            ],
            "line 2: /usr/bin/ld: frob.o: moon against `.bss' missing",
            id="in which function is no reason",
        ),
        pytest.param(
            ["critical libmoon No moon at: 'x'", "/tmp/moon: line 5: x/bin/python: No such file or directory"],
            "line 1: critical libmoon No moon at: 'x'",
            id="mamba's levels",
        ),
        pytest.param(
            ["INFO:moon:This does not look like a moon", 'The command "frob --all" exited with 1.'],
            "line 1: This does not look like a moon",
            id="what a step printed last, in Travis",
        ),
        pytest.param(
            [
                "ERROR: moon-1.0 do_compile: oe_runmake failed",
                "| frob: cannot find the moon",
                "| ERROR: oe_runmake failed",
            ],
            "line 2: frob: cannot find the moon",
            id="bitbake's summary",
        ),
        pytest.param(
            ["make: *** No moon to make.  Stop.", "one", "two"],
            "line 1: make: *** No moon to make.  Stop.",
            id="make itself gives up",
        ),
        pytest.param(
            [
                "error: subprocess-exited-with-error",
                "╰─> [1 lines of output]",
                "    ERROR: the moon is not in the index",
                "    [end of output]",
                "note: This error originates from a subprocess, and is likely not a problem with pip.",
                "error: could not write moon.lock",
                "",
                "Caused by:",
                "    failed to make moon.lock",
            ],
            "line 3: ERROR: the moon is not in the index",
            id="what pip handed on, within another program's chain of causes",
        ),
        pytest.param(
            [
                "CMake Error in /b/CMakeFiles/CMakeScratch/TryCompile-1/CMakeLists.txt:",
                '  Target "cmTC_1" requires the moon, and the compiler does',
                "  not support it.",
                "",
                "CMake Error at /usr/share/cmake/Modules/CMakeTestCUDACompiler.cmake:89 (try_compile):",
                "  Failed to generate test project build system.",
            ],
            "line 1: CMake Error in /b/CMakeFiles/CMakeScratch/TryCompile-1/CMakeLists.txt:"
            ' Target "cmTC_1" requires the moon, and the compiler does not support it.',
            id="what CMake cannot even try out",
        ),
        pytest.param(
            [
                "moonlink: no such moon",
                "make: *** [moon.so] Error 1",
                "ERROR: compilation failed for package 'moon'",
                "* removing 'moon'",
                "Warning: installation of package '/tmp/moon.tar.gz' had non-zero exit status",
            ],
            "line 1: moonlink: no such moon",
            id="R's own words",
        ),
        pytest.param(
            ["moonc: cannot find `crater'", "/usr/bin/moonc returned ExitFailure 1 with error message:"],
            "line 1: moonc: cannot find `crater'",
            id="what a program of Haskell's says of another",
        ),
        pytest.param(
            ["moonas: moon.s: unknown tide", "fatbinary fatal   : Could not open input file '/tmp/moon.cubin'"],
            "line 1: moonas: moon.s: unknown tide",
            id="a file that is not there, for a step before did not make it",
        ),
        pytest.param(
            ["moon.c:3: the moon is not round", "ERROR: `moonize' failed"],
            "line 1: moon.c:3: the moon is not round",
            id="a tool that failed, named in quotes",
        ),
        pytest.param(
            ["[INFO] building", "stderr: frobcc: cannot read moon.o", "error: at /x/moon.sh:183"],
            "line 2: frobcc: cannot read moon.o",
            id="where a script stood when it failed",
        ),
        pytest.param(
            [
                "* What went wrong:",
                "Execution failed for task ':app:linkMoon'.",
                "> moonlink: error: no such moon",
            ],
            "line 3: moonlink: error: no such moon",
            id="gradle's name of the task",
        ),
        pytest.param(
            ["Checking for 'moon' : no", "could not find the moon", "(complete log in /x/build/config.log)"],
            "line 2: could not find the moon",
            id="above where waf's log is",
        ),
        pytest.param(
            [
                " * ERROR: sci-moon/moon-2.8::moons failed (compile phase):",
                " *   the moon is not full",
                " * ",
                " * Call stack:",
                " *     ebuild.sh, line  125:  Called src_compile",
            ],
            "line 2: *   the moon is not full",
            id="what a package of Portage's says",
        ),
        pytest.param(
            ["ImportError: /site/moon.cpython-311-x86_64-linux-gnu.so:", " no such phase: full"],
            "line 1: ImportError: /site/moon.cpython-311-x86_64-linux-gnu.so: no such phase: full",
            id="a message in its own line",
        ),
    ],
)
def test_the_root_line_is_what_the_innermost_layer_said(lines: list[str], root: str) -> None:
    """Not the wrapper above it, and not the class of an exception without its message."""
    assert told(*lines).root == root


PROBE = [
    "gcc -fPIC -I/usr/include/python3.6m -c /tmp/tmpq3kz8a1x.cpp -o tmp/tmpq3kz8a1x.o -std=c++{}",
    'cc1plus: error: unrecognized command line option "-std=c++{}"',
]


def test_a_flag_that_was_tried_out_did_not_fail_the_build() -> None:
    """pybind11's example tries one standard after another; only where a compiler knows none of them, that is it."""
    probe = [line.format(standard) for standard in (17, 14) for line in PROBE]
    real = ["gcc -fPIC -c src/moon.cpp -o src/moon.o -std=c++11", "src/moon.cpp:7:2: error: #error no moon tonight"]
    assert "no moon tonight" in told("running build_ext", *probe, *real, "error: command 'gcc' failed").root
    none = told("running build_ext", *probe, "RuntimeError: Unsupported compiler -- at least C++11 support is needed!")
    assert none.verdict is Verdict.TOOLCHAIN


def test_what_was_said_far_above_the_end_is_still_found() -> None:
    """A hundred lines of traceback after the step that failed hide nothing."""
    frames = [f'  File "/x/setuptools/dist.py", line {number}, in run_command' for number in range(100)]
    lines = ["FAILED: csrc/a.o", "/usr/bin/nvcc -c csrc/a.cu", "frobnicator: cannot be opened", STOPPED, *frames]
    assert told(*lines).root == "line 3: frobnicator: cannot be opened"


def test_a_crash_where_nothing_is_built_is_no_compilers() -> None:
    """The same line below a compiler's command speaks of the compiler."""
    assert told("import 'gi' # <loader>", "Segmentation fault (core dumped)").verdict == Verdict.NOT_A_BUILD
    assert told("nvcc -c x.cu -o x.o", "Segmentation fault (core dumped)").verdict == Verdict.TOOLCHAIN


def test_a_crash_in_a_packages_own_script_is_of_the_package() -> None:
    """It is no program of the user's that crashed there."""
    verdict = told(
        "Processing triggers for libc-bin (2.31-0ubuntu9.12) ...",
        "Segmentation fault (core dumped)",
        "dpkg: error processing package libc-bin (--configure):",
        " installed libc-bin package post-installation script subprocess returned error exit status 139",
    )
    assert verdict.cause == "package-not-set-up"


IGNORED = "ERROR: Ignored the following versions that require a different python version: "


@pytest.mark.parametrize(
    ("ignored", "found", "cause"),
    [
        ("0.36.0 Requires-Python >=3.6,<3.10; 0.52.0 Requires-Python >=3.6,<3.9", "0.4.0", "package-not-found"),
        ("0.3.0 Requires-Python >=3.6,<3.10", "0.4.0", "python-of-another-version"),
        ("0.36.0 Requires-Python >=3.6,<3.10", "none", "python-of-another-version"),
    ],
)
def test_versions_for_other_pythons_count_where_the_one_asked_for_is_among_them(
    ignored: str, found: str, cause: str
) -> None:
    """pip lists those of every package that it looked at."""
    asked = f"ERROR: Could not find a version that satisfies the requirement tools==0.3.0 (from versions: {found})"
    assert told(IGNORED + ignored, asked).cause == cause


RETRYING = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by 'NewConnectionError('<x>: Failed to establish a new connection: {why}')': /simple/setuptools/"
)
NO_SETUPTOOLS = "ERROR: No matching distribution found for setuptools>=61"


@pytest.mark.parametrize("why", ["[Errno -3] Temporary failure in name resolution", "[Errno 111] Connection refused"])
def test_an_index_that_is_not_reached_is_the_networks(why: str) -> None:
    """What pip tried before it says that there is no such package outweighs that; without it, the index has none."""
    assert told(RETRYING.format(why=why), NO_SETUPTOOLS).verdict == Verdict.NETWORK
    assert told(NO_SETUPTOOLS).verdict == Verdict.PYTHON_ENV


def test_where_nothing_is_known_what_stands_around_the_line_is_shown() -> None:
    """Above and below it, other errors, and the end: any of them may say more."""
    verdict = told(
        "[ 10%] Weaving warp.tbl",
        "weaver: loom 7 has no shuttle left",
        "error: the warp is not even",
        "weaver: 3 threads were cut",
        "the loom stands still",
        *[f"[ 1{number % 10}%] Spinning thread {number}" for number in range(30)],
        "gmake: *** [Makefile:9: cloth] Error 4",
    )
    assert verdict.root == "line 3: error: the warp is not even"
    shown = [line.partition(":")[0] for line in verdict.evidence]
    assert shown == [f"near line {number}" for number in (1, 2, 3, 4, 5, 36)]


def test_where_nothing_is_known_lines_in_other_words_of_failure_are_shown_too() -> None:
    """The first in each kind of words, however far from the root line: the cause may be the plainest of them."""
    spinning = [f"[ 1{number % 10}%] Spinning thread {number}" for number in range(4)]
    verdict = told(
        *("weaver: yarn not found", *spinning, "the loom was not set", *spinning, *spinning),
        *("error: the warp is not even", *spinning, "the weft needs to be wound", *spinning),
        "gmake: *** [Makefile:9: cloth] Error 4",
    )
    assert verdict.root == "line 15: error: the warp is not even"
    shown = {line.partition(": ")[2] for line in verdict.evidence}
    assert {"weaver: yarn not found", "the loom was not set", "the weft needs to be wound"} <= shown


@pytest.mark.parametrize(
    "last",
    [
        "Build command did not produce output file!",
        "as: There is not enough space in the file system.",
        "The log length has exceeded the limit of 4 MB",
        "The operation was canceled.",
        "frob: 对\u2018frob_get\u2019未定义的引用",
    ],
)
def test_a_last_line_that_says_of_something_that_it_is_not_so_is_a_failure(last: str) -> None:
    """acquia/moonshot#60, nodejs/build#1951 and others; what CI does when all is over is none of it."""
    assert last in told("Building part 1", last).root
    assert last in told("Building part 1", last, "Post job cleanup.", "Cleaning up orphan processes").root


@pytest.mark.parametrize(
    "last",
    [
        "You do not need to run ldconfig.",
        "This is not an officially supported product.",
        "The following packages were automatically installed and are no longer required:",
        "Stopped ccache server",
        "No changes detected",
        "step 400 loss 2.1 no overflow",
        "Build finished, no conflicts.",
    ],
)
def test_words_that_end_what_went_well_are_no_failure(last: str) -> None:
    assert told("[1/2] Building CXX object a.o", last).verdict is None


@pytest.mark.parametrize("prompt", ["$", "user@host:~/x$", "[ann@moon glsl]$"])
def test_a_prompt_at_the_end_hides_nothing(prompt: str) -> None:
    assert "frobcc" in told("python make.py", "Could not find frobcc's moon", prompt).root


def test_a_box_at_the_end_counts_as_a_whole() -> None:
    ruler = "-" * 40
    verdict = told("$ frobcc", ruler, "The wrapper was unable to find frob-cc", "in your PATH.", "Note this.", ruler)
    assert "unable to find frob-cc" in verdict.root


def test_a_summary_that_counts_what_failed_is_a_failure() -> None:
    """Of colcon's output people paste the end."""
    summary = "  1 package failed: moon_kinematics"
    assert "moon_kinematics" in told("Summary: 3 packages finished [9s]", summary, "  8 packages not processed").root
    assert told("Summary: 3 packages finished [9s]", "  0 packages failed: ").verdict is None


def test_a_reason_goes_before_words_that_only_say_that_something_failed() -> None:
    """fosskers/aura#362."""
    verdict = told(
        "tool >>= Building `frob`...",
        "tool >>= Well, building `frob` failed.",
        "tool >>= Failed to obtain the scripts for `frob`.",
        "tool >>= Building failed.",
    )
    assert "Failed to obtain" in verdict.root


def test_what_node_gyp_says_of_itself() -> None:
    """bnoordhuis/node-buffertools#78."""
    verdict = told(
        "gyp ERR! build error ",
        "gyp ERR! stack Error: the frobnicator is closed",
        "gyp ERR! stack     at F (/usr/lib/node_modules/which.js:63:19)",
        "gyp ERR! not ok ",
    )
    assert verdict.root.endswith("Error: the frobnicator is closed")


def test_a_chain_of_causes_is_followed_to_its_end() -> None:
    """cargo's form: the cause in the line below."""
    verdict = told(
        "error: failed to download `frob v3.2.0`",
        "",
        "Caused by:",
        "  unable to get packages from source",
        "",
        "Caused by:",
        "  the frobnicator of 2024 is required",
    )
    assert "the frobnicator of 2024 is required" in verdict.root


def test_gradles_and_powershells_messages_are_in_the_lines_below() -> None:
    gradle = told(
        "FAILURE: Build failed with an exception.", "", "* What went wrong:", "Could not frob task ':a'.", "> no b"
    )
    assert "Could not frob task" in gradle.root
    shell = told("ParserError: build.ps1:8", "Line |", "   8 | … frob >&2", "     |      ~", "     | Missing frob.")
    assert "Missing frob." in shell.root


def test_an_error_below_ninjas_own_line_where_a_copy_left_out_the_command() -> None:
    verdict = told("FAILED: bin/frob", "a.cpp:12:(.text+0x1): frobbing truncated to fit: R_FROB", STOPPED)
    assert "frobbing truncated to fit" in verdict.root


def test_a_line_of_makes_own_with_its_place() -> None:
    """ETH3D/badslam#72."""
    verdict = told("a/build.make:127: *** target frob has no '%'.  Stop.", "make[2]: *** [all] Error 2")
    assert "target frob has no" in verdict.root


def test_an_editors_name_in_brackets_hides_no_error() -> None:
    """Monitor221hz/CommonLibSSE-NG-Template-Plugin#1."""
    verdict = told(
        "[cmake] CMake Error: the frobnicator is closed", "[cmake] -- Configuring incomplete, errors occurred!"
    )
    assert "the frobnicator is closed" in verdict.root


def test_a_linkers_last_line_is_not_its_first_word() -> None:
    """``final link failed`` says why only of a full disk or memory; what it could not link stands above."""
    why = "/usr/bin/ld: a.o: the thread R_LOOM_9 does not reach `weft', wind it again"
    verdict = told(why, "/usr/bin/ld: final link failed: bad value", "collect2: error: ld returned 1 exit status")
    assert verdict.root == f"line 1: {why}"


def test_what_pip_prints_of_its_own_caller_is_no_message() -> None:
    """`pip --verbose` shows the code with which it runs setup.py after each failure; what that code would print about
    setuptools, nobody printed."""
    lines = [
        '    File "/src/op_builder/cutlass_ops.py", line 75, in extra_ldflags',
        "      import opkernels",
        "  ModuleNotFoundError: No module named 'opkernels'",
        "  error: subprocess-exited-with-error",
        "  full command: /opt/venv/bin/python -c '",
        "  try:",
        "      import setuptools",
        "  except ImportError as error:",
        "      print(",
        '          "ERROR: Can not execute `setup.py` since setuptools is not available in "',
        '          "the build environment.",',
    ]
    assert told(*lines).root == "line 3: ModuleNotFoundError: No module named 'opkernels'"


def test_a_torch_that_pip_got_for_the_build_alone_is_not_the_installed_one() -> None:
    """What differs from nvcc's CUDA then is pip's own, newest torch: the first way out is the one that is there."""
    overlay = "/tmp/pip-build-env-8ipsb7lo/overlay/lib/python3.10/site-packages"
    said = (
        "RuntimeError: ('The detected CUDA version (%s) mismatches the version that was used to compilePyTorch (%s). "
        "Please make sure to use the same CUDA versions.', '11.8', '12.8')"
    )
    isolated = told(f'  File "{overlay}/torch/utils/cpp_extension.py", line 524, in _check_cuda_version', said)
    assert "CUDA 11.8" in isolated.why
    assert "CUDA 12.8" in isolated.why
    assert isolated.fixes[0].command == "python -m pip install --no-build-isolation ."
    assert "isolation" not in commands(told(said))


@pytest.mark.parametrize(
    "lines",
    [
        ["==> ERROR: A failure occurred in build().", "    Aborting..."],
        [
            "BUILD FAILED",
            "build.xml:270: The following error occurred while executing this line:",
            "Total time: 1 second",
        ],
    ],
)
def test_what_stands_below_a_failure_does_not_hide_it(lines: list[str]) -> None:
    """makepkg and ant end with more words."""
    assert told(*lines).verdict is Verdict.UNKNOWN


def test_a_link_is_no_compilation_and_gccs_own_source_not_what_was_compiled() -> None:
    assert told("/usr/bin/ld: x.cpp:(.text+0x5): undefined reference to `f()'").died == "a link"
    crash = told("src/x.cpp:9:3: internal compiler error: in tsubst_copy, at cp/pt.cc:16973")
    assert crash.died == "the compilation of src/x.cpp"


def test_a_module_of_linux_is_made_for_another_kernel() -> None:
    """kbuild does not read CFLAGS, and a warning would not bring the function back."""
    said = "x.c:52:12: error: implicit declaration of function 'f' [-Werror=implicit-function-declaration]"
    module = told("  CC [M]  /var/lib/dkms/x/1.0/build/x.o", f"/var/lib/dkms/x/1.0/build/{said}")
    assert module.fixes[0].command == "uname -r"
    assert "CFLAGS" not in commands(module)
    assert "CFLAGS" in commands(told(f"src/{said}"))


def test_marks_of_markdown_come_off() -> None:
    bold = told("**nvcc fatal   : Unknown option '-march=native'**")
    assert bold.why == told("nvcc fatal   : Unknown option '-march=native'").why
    assert bold.verdict is Verdict.TOOLCHAIN
    assert told("`nvcc fatal   : Unknown option '-march=native'`").why == bold.why


def test_what_uv_puts_before_each_line_of_a_build_comes_off() -> None:
    """SystemPanic/vllm-windows#38: uv -v."""
    said = told(
        "DEBUG running build_ext",
        "DEBUG [3/138] Building CUDA object CMakeFiles/_C.dir/csrc/norm.cu.o",
        "DEBUG FAILED: [code=2] CMakeFiles/_C.dir/csrc/norm.cu.o",
        "DEBUG nvcc fatal   : Unknown option '-march=native'",
    )
    assert said.root == "line 4: nvcc fatal   : Unknown option '-march=native'"


def test_what_people_ask_of_the_system_below_a_failure_does_not_end_the_log() -> None:
    """What they show there went well, and is no part of the build."""
    failed = ("(ml) me@box:~/src$ ./install.sh", "the frobnicator could not be set up: installation failed")
    asked = ("(ml) me@box:~/src$ nvcc --version", "Cuda compilation tools, release 12.4, V12.4.131")
    assert told(*failed, *asked).root == told(*failed).root != ""
    assert told(*failed, *asked).verdict is Verdict.UNKNOWN


def test_a_compilers_last_word_where_a_copy_left_out_its_errors() -> None:
    """A build script that quotes nvcc's command says less, and so does nvcc's own mark below its errors."""
    said = told(
        "error: failed to run custom build command for `kernels v0.3.3`",
        "Caused by:",
        "  --- stderr",
        '  62 errors detected in the compilation of "kernels/a.cu".',
        "  # --error 0x1 --",
        "  thread '<unnamed>' panicked at src/lib.rs:262:21:",
        '  nvcc error while executing compiling: "nvcc" "-c" "kernels/a.cu"',
        "  # stdout",
        "  # stderr",
    )
    assert said.verdict is Verdict.UNKNOWN
    assert said.root.endswith('62 errors detected in the compilation of "kernels/a.cu".')


def test_a_warning_that_only_announces_details_is_not_what_failed() -> None:
    said = told(
        "x.py:50: UserWarning: Failed to build kernels for x. Falling back to the slow ones. Details:",
        "RuntimeError: Error building extension 'x': ninja: error: build.ninja:5: expected '=', got ':'",
    )
    assert said.verdict is Verdict.TOOLCHAIN
    assert "ninja: error: " in said.root


def test_npm_that_was_canceled_has_failed() -> None:
    """Its last words are where its log is."""
    last = "npm ERR!     /home/x/.npm/_logs/2024-08-19T09_11_22_401Z-debug-0.log"
    said = told("npm ERR! canceled", "", "npm ERR! A complete log of this run can be found in:", last)
    assert said.verdict is Verdict.UNKNOWN
    assert said.root == "line 1: canceled"


def test_a_program_that_refuses_its_options_is_inside_of_what_started_it() -> None:
    said = told(
        "curl: option --url: blank argument where content is expected",
        "curl: try 'curl --help' for more information",
        "subprocess.CalledProcessError: Command '['curl', '--url', '']' returned non-zero exit status 2.",
        "CMake Error at CMakeLists.txt:61 (message):",
        "  Failed to fetch third party packages: 1",
    )
    assert "curl: option --url" in said.root


def test_a_cause_within_a_message_of_cmakes_is_shown_with_where_it_was_sent_from() -> None:
    """The line below the first says the cause; the first says in which file."""
    root = told(
        "CMake Error at third/CMakeLists.txt:3 (cmake_minimum_required):",
        "  Compatibility with CMake < 3.5 has been removed from CMake.",
        "",
        "-- Configuring incomplete, errors occurred!",
    ).root
    assert root.startswith("line 1: CMake Error at third/CMakeLists.txt:3 (cmake_minimum_required): Compatibility with")


def test_of_a_chain_that_says_no_more_than_that_a_program_failed_what_cargo_says_above_it_counts() -> None:
    """daijro/camoufox#340: mach's time in front, and the line cut before its signal."""
    root = told(
        "25:31.16 error: could not compile `heron` (lib)",
        "25:31.16 Caused by:",
        "25:31.18   process didn't exit successfully: `/x/rustc --crate-name heron --edition=2018 src/lib.rs -C extra",
    ).root
    assert root == "line 1: error: could not compile `heron` (lib)"


@pytest.mark.parametrize(
    "last",
    [
        "Command '['cl.EXE', 'main.c', '/LD']' returned non-zero exit status 2.",
        "Installation failed: CompletedProcess(args='pip install numpy<2', returncode=1, stdout='', stderr='')",
        "Command CompileMetalFile failed with a nonzero exit code",
    ],
)
def test_what_only_says_that_a_command_failed_is_a_failure_even_after_a_success(last: str) -> None:
    """Triton's, an installer's, Xcode's: a copy may hold no more."""
    said = told("Successfully installed lark-1.2.2", last)
    assert said.verdict is Verdict.UNKNOWN
    assert last in said.root


def test_what_pkg_config_does_not_know_is_no_cause_where_the_build_went_on_without_it() -> None:
    """simonw/llm-mlx#7: asked first, and then built from what came along, for which there is no CMake."""
    asked = "No package 'wrenpiece' found"
    said = told(asked, "./build_bundled.sh: line 19: cmake: command not found")
    assert (said.cause, said.root.partition(":")[0]) == ("cmake-missing", "line 2")
    assert told(asked, "error: command 'x' failed").cause == "pkg-config-finds-nothing"


def test_a_wrapper_of_pythons_that_repeats_the_command_is_no_error_of_its_own() -> None:
    """ROCm/TransformerEngine#439: the first of both is the inner one."""
    ran = "Command '['cmake', '--build', '.']' returned non-zero exit status 1."
    root = told(f"subprocess.CalledProcessError: {ran}", "", f"RuntimeError: Error when running CMake: {ran}").root
    assert root == f"line 1: subprocess.CalledProcessError: {ran}"


def test_nmake_that_stops_has_failed() -> None:
    """It ends with a bare "Stop.", in whatever language it names the error."""
    said = told("cl /c x.c", "NMAKE : fatal error U1077: 'if' : return code '0x1'", "Stop.")
    assert said.verdict is Verdict.UNKNOWN
    assert "U1077" in said.root


def test_a_ruler_behind_the_word_error_says_nothing() -> None:
    said = told(
        "┌ Error: ------------------------------------------------------------",
        "│ # Build failed for Foo",
        "│   exception =",
        "│    LoadError: UndefVarError: Libdl not defined",
        "└ @ Pkg.Entry entry.jl:661",
    )
    assert said.cause == "julia-package-too-old"
    assert "Libdl not defined" in said.root


def test_what_nix_says_of_a_builder_is_one_message_and_what_the_builder_said_counts_more() -> None:
    front = (
        "error: Cannot build '/nix/store/a-foo-1.0.drv'.",
        "       Reason: builder failed with exit code 1.",
        "       Last 2 log lines:",
    )
    bare = told(*front, "       > Running phase: buildPhase", "       > Running phase: checkPhase")
    assert bare.verdict is Verdict.UNKNOWN
    assert "Reason: builder failed" in bare.root
    inner = told(*front, "       > frob: error: the frobnicator is closed", "       > make: *** [frob] Error 1")
    assert "the frobnicator is closed" in inner.root


def test_an_old_docker_names_the_command_of_a_step_in_brackets() -> None:
    said = told(
        "This script is running as root, this is discouraged.",
        "It is recommended to run it as a user as it doesn't need further permissions.",
        "If you want to run it as root, add the -r flag.",
        "The command [/bin/sh -c sh install.sh] returned a non-zero code: 1",
    )
    assert said.verdict is Verdict.UNKNOWN
    assert "recommended" not in said.root


def test_a_warning_about_a_missing_tool_is_no_cause_where_a_compiler_says_more() -> None:
    said = told(
        "WARNING: 'makeinfo' is missing on your system.",
        "main.c:12:5: error: unknown type name 'foo_t'",
        "make: *** [main.o] Error 1",
    )
    assert said.cause != "texinfo-missing"
    alone = told("WARNING: 'makeinfo' is missing on your system.", "make: *** [Makefile:9: x.info] Error 127")
    assert alone.cause == "texinfo-missing"


def test_of_a_wrapper_that_nobody_explains_the_step_of_make_before_it_counts() -> None:
    """sara-vanerp/bayesreg#3: the compiler's words are not in the copy, make's are."""
    step = "make: *** [C:/PROGRA~1/R/R-40~1.4/etc/i386/Makeconf:229: heron.o] Error 1"
    root = told(
        step,
        "rm heron.cc",
        "ERROR: compilation failed for package 'heron'",
        "Error: Failed to install 'heron' from GitHub:",
        "  (converted from warning) installation of package 'heron_0.1.tar.gz' had non-zero exit status",
    ).root
    assert root == f"line 1: {step}"


def test_of_a_bare_number_the_line_above_it_says_whose_it_is() -> None:
    """dolevf/Damn-Vulnerable-GraphQL-Application#27: BuildKit's end of what pip said."""
    root = told(
        "#9 7.518 \N{MULTIPLICATION SIGN} pip subprocess to install build dependencies did not run successfully.",
        "#9 7.518 │ exit code: 1",
        "#9 7.518 ╰─> See above for output.",
        "#9 7.518",
        "executor failed running [/bin/sh -c pip install -r requirements.txt]: exit code: 1",
    ).root
    assert root == "line 1: pip subprocess to install build dependencies did not run successfully."


def test_of_wrappers_alone_the_first_counts() -> None:
    """jokergoo/ComplexHeatmap#128: nothing but R's summary, quoted."""
    said = told(
        "> Warning messages:",
        ">   1: In install.packages(pkgs = doing, lib = lib, ...) :",
        ">   installation of package 'twite' had non-zero exit status",
        "> 2: In install.packages(pkgs = doing, lib = lib, ...) :",
        ">   installation of package 'heron' had non-zero exit status",
    )
    assert said.verdict is Verdict.UNKNOWN
    assert said.root == "line 3: installation of package 'twite' had non-zero exit status"


def test_of_commands_that_were_typed_one_after_the_other_the_first_that_failed_counts() -> None:
    """SystemPanic/vllm-windows#6: what was tried after it failed for itself."""
    said = told(
        "(p311) C:\\src\\wren>python setup.py install",
        "RuntimeError: Unknown runtime environment",
        "",
        "(p311) C:\\src\\wren>cmake 'C:\\src\\my wren' -G Ninja",
        'CMake Error: The source directory "C:/src/wren/\'C:/src/my" does not exist.',
    )
    assert said.root == "line 2: RuntimeError: Unknown runtime environment"


def test_what_was_copied_from_a_web_page_is_read_as_it_was_printed() -> None:
    """Entities of HTML, blanks that do not break."""
    plain = told("nvcc fatal   : Unknown option '-march=native'").why
    assert told("nvcc fatal   : Unknown option &#39;-march=native&#39;").why == plain
    assert told("nvcc fatal\u00a0\u00a0 : Unknown option '-march=native'").why == plain


def test_numbers_of_lines_and_what_loggers_put_before_them_come_off() -> None:
    """As viewers copy a log, as Python's logging and Go's write one."""
    lines = [f"[{number}/9] Building CUDA object x{number}.cu.o" for number in range(1, 9)]
    lines.append("nvcc fatal   : Unknown option '-march=native'")
    plain = told(*lines)
    numbered = told(*(f"{number:>4} {line}" for number, line in enumerate(lines, 311)))
    logged = told(*(f"2026-03-01 12:00:{number:02},123 - build - INFO - {line}" for number, line in enumerate(lines)))
    of_go = told(*(f"2026/03/01 12:00:{number:02} {line}" for number, line in enumerate(lines)))
    bare = told(*(f"INFO:build:{line}" for line in lines))
    assert plain.root == "line 9: nvcc fatal   : Unknown option '-march=native'"
    assert [each.root for each in (numbered, logged, of_go, bare)] == [plain.root] * 4


def test_a_literal_of_what_a_program_on_windows_printed_is_read_line_by_line() -> None:
    """facebookresearch/xformers#885: what an installer's exception holds."""
    said = told(
        r"ProcessException: pip install failed with code 1: 'Collecting wren\r\n  running build_ext\r\n"
        r"  building C:\new\wren\r\n  error: Microsoft Visual C++ 14.0 or greater is required.\r\n'"
    )
    assert said.root == "line 1: error: Microsoft Visual C++ 14.0 or greater is required."


def test_of_a_traceback_that_ran_into_one_line_its_end_is_read() -> None:
    """unslothai/unsloth#210: a mail or a quote lost its line feeds."""
    said = told(
        'Traceback (most recent call last): File "C:\\tune\\sft.py", line 14, in from wren import Model '
        "File \"C:\\site\\wren.py\", line 3, in import triton ModuleNotFoundError: No module named 'triton'"
    )
    assert said.root == "line 1: ModuleNotFoundError: No module named 'triton'"
    assert said.verdict is Verdict.PYTHON_ENV


def test_of_wrappers_alone_pips_note_is_not_the_first() -> None:
    """facebookresearch/sam-3d-objects#89: nor is a warning of Python's."""
    said = told(
        " note: This error originates from a subprocess, and is likely not a problem with pip.",
        "  ERROR: Failed building wheel for wren3d",
        "Failed to build wren3d",
        "/opt/site/wrapt_requests.py:71: UserWarning: Failed to patch SSL settings (unsupported version of urllib3?)",
        "ERROR: Failed to build installable wheels for some pyproject.toml based projects (wren3d)",
    )
    assert said.root == "line 2: ERROR: Failed building wheel for wren3d"


def test_a_label_with_a_dash_is_no_error_of_its_own() -> None:
    """open-mmlab/denseflow#67: "Error -", and below it what CMake said."""
    said = "CMake Error at CMakeLists.txt:280 (message):"
    assert told("Error - ", "", said, "  The heron is closed").root.startswith(f"line 3: {said}")


def test_findcuda_adds_only_the_name_of_the_file_on_which_nvcc_failed() -> None:
    """merzlab/QUICK#326: nvcc's own words, where the log has them, say more."""
    findcuda = (
        "CMake Error at cuda_compile_1_generated_heron.cu.o.RELEASE.cmake:280 (message):",
        "  Error generating file",
    )
    alone = told(*findcuda)
    assert (alone.verdict, alone.root) == (Verdict.UNKNOWN, f"line 1: {findcuda[0]} Error generating file")
    assert "one file at a time" in alone.fixes[0].text
    assert told("nvcc speaks: the heron is not supported", *findcuda).root.startswith("line 1: ")


def test_what_a_failed_program_printed_is_announced_and_not_said_by_its_label() -> None:
    """huggingface/candle#1936: nothing below "# stderr"."""
    panic = "thread 'main' panicked at /x/bindgen_cuda-0.1.4/src/lib.rs:262:21:"
    said = 'nvcc error while executing compiling: "nvcc" "-c" "heron.cu"'
    assert "nvcc error while executing" in told("  --- stderr", panic, said, "", "# stdout", "", "# stderr").root


def test_the_count_of_errors_of_hip_is_no_error_of_its_own() -> None:
    """ggml-org/llama.cpp#18396."""
    said = "error: the heron is not supported on GFX10+"
    assert (
        told(
            "FAILED: heron.o", "clang++ -x hip -c heron.cu", said, "1 error generated when compiling for gfx1100."
        ).root
        == f"line 3: {said}"
    )


@pytest.mark.parametrize("front", ["362 error ", "1751 error gyp ERR! "])
def test_the_front_of_npms_own_log_file_is_taken_off(front: str) -> None:
    """kelektiv/node.bcrypt.js#1014."""
    said = "g++: error: unrecognized command line option '-std=gnu++17'"
    assert told(f"{front}{said}", f"{front}make: *** [x.o] Error 1").root == f"line 1: {said}"
    assert told("x.cu(1): error: expected a ;", '1 error detected in the compilation of "x.cu".').root.startswith(
        "line 1"
    )


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (("tables of this unit are old:", " written", " by an", " older one", "make: *** [tables.c] Error 7"), 1),
        (
            (
                "frob: option --url wants a word",
                "Traceback (most recent call last):",
                '  File "a.py", line 3, in <module>',
                '  File "b.py", line 9, in call',
                "OSError: frob",
            ),
            1,
        ),
    ],
    ids=["a paragraph", "a traceback"],
)
def test_where_the_cause_is_not_known_the_beginning_of_the_message_is_shown(lines: tuple[str, ...], shown: int) -> None:
    """Further above the root line than its neighbours."""
    said = told(*lines)
    assert said.verdict is Verdict.UNKNOWN
    assert said.evidence[0] == f"near line {shown}: {lines[shown - 1]}"


def test_of_a_long_line_the_end_is_shown_too() -> None:
    """A command of 2,000 characters, and behind it why it failed."""
    command = "weaver " + " ".join(f"--thread={number}" for number in range(150))
    said = told("weaving", f"{command}: could not find a shuttle", "gmake: *** [cloth] Error 4")
    assert said.root.endswith("could not find a shuttle")
    assert len(said.root) < 450


def test_what_is_called_an_error_is_shown_wherever_it_stands() -> None:
    """Further from the root line than its neighbours, and in words that nobody knows."""
    spinning = [f"[ 1{number % 10}%] Spinning thread {number}" for number in range(6)]
    said = told("* E loom 7 is", "", *spinning, "error: the warp is not even", *spinning, "make: *** [cloth] Error 4")
    assert "near line 1: * E loom 7 is" in said.evidence


def test_a_fortran_module_is_named_as_its_file_whoever_misses_it() -> None:
    """ifx and Cray's compiler say it in capitals and without its end: what a library brings is looked for."""
    told_of = {
        "x.F90(19): error #7002: Error in opening the compiled module file.  Check INCLUDE paths.   [NETCDF]": "netcdf",
        "./x.F90:9:7: error: Cannot read module file for module 'mpi': Source file 'mpi.mod' was not found": "mpi",
        ' "HDF5" is specified as the module name on a USE statement, but the compiler cannot find it.': "hdf5",
    }
    for line, module in told_of.items():
        assert [fix.command for fix in told(line).fixes] == [f"find / -iname '{module}.mod' 2>/dev/null"]
    own = told(' "GRID_M" is specified as the module name on a USE statement, but the compiler cannot find it.')
    assert [fix.command for fix in own.fixes] == ["make -j1", ""]
    assert "(grid_m.mod)" in own.fixes[0].text
