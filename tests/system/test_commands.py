"""Any command: its exit code, its output, its leftovers, and what is said when it cannot be run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from builddoctor.core.errors import exit_codes
from builddoctor.core.events import BuildEnded, Note
from support.nodes import await_that
from support.program import PATIENCE_S, Program

CODES = {name: code for code, name, _ in exit_codes()}


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_exit_code_passes_through(program: Program, code: int) -> None:
    """A build's own exit code is builddoctor's."""
    assert program.run("run", "--", "sh", "-c", f"exit {code}").returncode == code


def test_death_by_signal_is_128_plus_its_number(program: Program) -> None:
    """A build that dies of a signal gives the shell's code for it."""
    assert program.run("run", "--", "sh", "-c", "kill -TERM $$").returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_told_to_end_while_it_starts_it_leaves_nothing(program: Program, number: int) -> None:
    """Its folder is there, its build is not: as a job that is cancelled while it starts."""
    process = program.start(program.argv("run", "--", "sleep", "600"))
    await_that(lambda: list(program.folder.glob("builddoctor-*")) or None)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + number, output
    assert not list(program.folder.glob("builddoctor-*"))


def test_told_over_and_over_it_leaves_nothing(program: Program) -> None:
    """What it tidies up at its end is tidied up. Sent without a pause signals would keep it from doing anything."""
    process = program.start(program.argv("run", "--", "sh", "-c", "touch started && exec sleep 600"))
    await_that(lambda: list(program.folder.glob("started")) or None)
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.0005)
    process.communicate()
    assert not list(program.folder.glob("builddoctor-*"))


def test_stdout_is_the_builds_alone(program: Program) -> None:
    """Nothing of ours goes to stdout, and what the build prints comes through as it is."""
    done = program.run("run", "--no-doctor", "--", "sh", "-c", "printf 'a\\0b'; printf c >&2")
    assert done.stdout == "a\0b"
    assert done.stderr.startswith("c")


def test_summary_has_the_keys_that_others_rely_on(program: Program) -> None:
    """`--summary` writes one JSON object, the same as the trace's last record."""
    done = subprocess.run(program.supervised("true"), env=program.env, capture_output=True, check=False)
    assert done.returncode == 0
    summary = program.summary()
    expected = (
        "schema result exit_code verdict wall_s cpu_s budget_mib limit_mib peak_mib kernel_oom_kills requeued killed "
        "runaways units phases effective_jobs_mean effective_jobs_max gate_overhead_s trace"
    )
    assert set(expected.split()) <= set(summary)
    last = program.records()[-1]
    assert isinstance(last, BuildEnded)
    assert json.loads(program.trace_file.read_text().splitlines()[-1])["summary"] == summary


def test_what_the_build_leaves_behind_is_ended(program: Program) -> None:
    """A background process of the build, even in a session of its own, does not outlive it."""
    left = "setsid sh -c 'echo $$; : > begun; exec sleep 1000' & while [ ! -e begun ]; do sleep 0.01; done"
    done = program.run("run", "--", "sh", "-c", left)
    assert done.returncode == 0
    assert not psutil.pid_exists(int(done.stdout))
    assert "left behind" in done.stderr


def test_death_of_the_guardian_ends_the_build(program: Program) -> None:
    """kill -9 of the process that guards the build: the build is ended, with a code of its own."""
    done = program.run("run", "--", "sh", "-c", "kill -9 $PPID; exec sleep 1000")
    assert done.returncode == CODES["BuildLostError"]


def test_a_supervised_build_inside_another_uses_its_gates(program: Program) -> None:
    """builddoctor inside builddoctor becomes the command: two schedulers would both spend the memory."""
    done = program.run("run", "--", *program.argv("run", "--", "sh", "-c", "exit 5"))
    assert done.returncode == 5
    assert "already inside a supervised build" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["run", "--", "/no/such/command"], "CommandNotFoundError"),
        (["run", "--", "/etc/passwd"], "CommandNotExecutableError"),
        (["run", "--toolkit", "99.9", "--", "true"], "ToolkitNotFoundError"),
        (["run", "--toolkit", "/no/such/toolkit", "--", "true"], "ToolkitNotFoundError"),
        (["run", "--trace", "/no/such/folder/trace", "--", "true"], "FolderNotWritableError"),
        (["run", "--summary", "/no/such/folder/summary", "--", "true"], "FolderNotWritableError"),
        (["run", "--memory", "0", "--", "true"], "UsageError"),
        (["run", "--memory", "12XB", "--", "true"], "UsageError"),
        (["run", "--cores", "-2", "--", "true"], "UsageError"),
        (["run"], "UsageError"),
        (["run", "--", ""], "UsageError"),
        (["rnu", "--", "true"], "UsageError"),
        (["build", "/no/such/project"], "ProjectNotFoundError"),
        (["build", "."], "NoBuildSystemError"),
        (["trace", "units", "nothing"], "TraceError"),
    ],
)
def test_bad_input_gets_one_line_a_hint_and_its_own_code(program: Program, arguments: list[str], error: str) -> None:
    """What is wrong is said on stderr in one line with a hint, and nothing is started."""
    done = program.run(*arguments)
    assert done.returncode == CODES[error]
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert len(lines) == 2
    assert lines[0].startswith("builddoctor: ")
    assert lines[1].startswith("hint: ")


def test_a_broken_nvcc_is_named(program: Program) -> None:
    """An nvcc that cannot run is refused before the build, with what it said."""
    nvcc = program.folder / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho wrong architecture >&2\nexit 1\n")
    nvcc.chmod(0o755)
    done = program.run("run", "--toolkit", str(nvcc.parent.parent), "--", "true")
    assert done.returncode == CODES["ToolkitBrokenError"]
    assert "wrong architecture" in done.stderr


@pytest.mark.needs_memcg
def test_a_machine_without_nvcc_is_told_how_to_get_one(program: Program) -> None:
    """`build` needs a CUDA compiler; `run` goes on with host compilers and says so."""
    (program.folder / "CMakeLists.txt").write_text("project(nothing)\n")
    hidden = "mount -t tmpfs none /usr/local && "
    without = {**program.env, "PATH": "/usr/bin:/bin"}
    for arguments, code in ((["build", "."], CODES["ToolkitNotFoundError"]), (["run", "--", "true"], 0)):
        # A mount namespace of its own, in which /usr/local is empty: needs root, as memory cgroups do.
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", hidden + 'exec "$@"', "sh", *program.argv(*arguments)],
            cwd=program.folder,
            env=without,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert "no CUDA compiler (nvcc) found" in done.stderr
        assert ("supervises host compilers only" in done.stderr) == (code == 0)


@pytest.mark.parametrize("variable", ["BUILDDOCTOR_CACHE_DIR", "BUILDDOCTOR_STATE_DIR"])
def test_unwritable_folders_are_named(program: Program, variable: str) -> None:
    """A cache or state folder that cannot be made is said before the build."""
    done = program.run("run", "--", "true", env={variable: "/dev/null/folder"})
    assert done.returncode == CODES["FolderNotWritableError"]
    assert "/dev/null/folder" in done.stderr
    assert variable in done.stderr


def test_a_full_disk_for_the_trace_does_not_stop_the_build(program: Program) -> None:
    """The build goes on without its trace, with one warning."""
    done = program.run("run", "--trace", "/dev/full", "--", "sh", "-c", "echo built")
    assert done.returncode == 0
    assert done.stdout == "built\n"
    assert done.stderr.count("the trace cannot be written (No space left on device)") == 1


def test_secrets_on_the_command_line_are_masked(program: Program) -> None:
    """The trace's header shows no password."""
    command = program.supervised("sh", "-c", "true", "--token=hunter2", "https://me:hunter2@example.org/simple")
    assert subprocess.run(command, env=program.env, capture_output=True, check=False).returncode == 0
    assert "hunter2" not in program.trace_file.read_text()


def test_users_own_caps_are_kept_and_reported(program: Program) -> None:
    """A lower MAX_JOBS of the user's caps the window, and is said; --ignore-caps lifts it."""
    show = ["sh", "-c", "echo $MAX_JOBS $NVTE_BUILD_MAX_JOBS $CMAKE_BUILD_PARALLEL_LEVEL"]
    capped = program.run("run", "--cores", "8", "--", *show, env={"MAX_JOBS": "1"})
    assert capped.stdout == "1 1 1\n"
    assert "keeps your MAX_JOBS=1" in capped.stderr
    free = program.run("run", "--cores", "8", "--ignore-caps", "--", *show, env={"MAX_JOBS": "1"})
    assert int(free.stdout.split()[0]) > 8


def test_ninja_without_jobs_gets_the_window(program: Program) -> None:
    """Where no -j is given, ninja opens as many units as the window; a -j of the user's stands."""
    (program.folder / "build.ninja").write_text(
        "rule show\n  command = tr '\\0' ' ' < /proc/$$PPID/cmdline\nbuild it: show\n"
    )
    # Of 1 GiB a tenth is the reserve, and 5 % of the rest are seven units of 6 MiB.
    argv = program.argv("run", "--cores", "4", "--memory", "1GiB", "--", "ninja", "-v")
    free = subprocess.run(argv, cwd=program.folder, env=program.env, capture_output=True, text=True, check=True)
    assert "ninja -v -j 7 " in free.stdout
    capped = subprocess.run(
        [*argv, "-j2"], cwd=program.folder, env=program.env, capture_output=True, text=True, check=True
    )
    assert "ninja -v -j2 \n" in capped.stdout


def test_a_machine_without_ninja_gets_ours(program: Program) -> None:
    """ninja comes with builddoctor, for builds on machines that have none."""
    (program.folder / "build.ninja").write_text("rule show\n  command = echo works\nbuild it: show\n")
    tools = program.folder / "tools"
    tools.mkdir()
    for name in ("sh", "echo", "env"):
        (tools / name).symlink_to(Path("/bin") / name)
    done = program.run("run", "--", "ninja", env={"PATH": str(tools)})
    assert done.returncode == 0, done.stderr
    assert "works" in done.stdout


def test_response_files_of_a_running_ninja_are_left_alone(program: Program) -> None:
    """Counting the units of a build only reads: a rule's response file is there as long as its command runs."""
    edges = "".join(f"build o{n}: use\n" for n in range(30))
    (program.folder / "build.ninja").write_text(
        "rule use\n  command = test -e $out.rsp && sleep 0.1 && cat $out.rsp > $out\n"
        f"  rspfile = $out.rsp\n  rspfile_content = words -c of $out\n{edges}"
    )
    done = program.run("run", "--cores", "4", "--", "ninja")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("question", [["-t", "targets"], ["-ttargets"], ["-n"], ["--version"]])
def test_questions_to_ninja_are_asked_as_they_are(program: Program, question: list[str]) -> None:
    """Nothing is added to a ninja that does not build."""
    (program.folder / "build.ninja").write_text("rule show\n  command = echo works\nbuild it: show\n")
    assert program.run("run", "--", "ninja", *question).returncode == 0


def test_a_pipeline_in_the_build_ends_as_it_does_without_us(program: Program) -> None:
    """`yes | head` under make under builddoctor: yes dies of SIGPIPE."""
    (program.folder / "Makefile").write_text("all:\n\t@yes | head -1\n")
    done = program.run("run", "--", "make")
    assert (done.returncode, done.stdout) == (0, "y\n")


def test_a_closed_stderr_does_not_swallow_the_build(program: Program) -> None:
    """With stderr closed the command runs all the same, and its exit code comes through."""
    argv = program.argv("run", "--", "sh", "-c", "echo hi > out.txt; exit 3")
    done = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", *argv], cwd=program.folder, env=program.env, check=False)
    assert done.returncode == 3
    assert (program.folder / "out.txt").read_text() == "hi\n"


def test_several_builds_share_new_overlays(program: Program) -> None:
    """Four first builds at once, with an empty cache: all are served."""
    running = [program.start(program.argv("run", "--", "sh", "-c", "ninja --version")) for _ in range(4)]
    outputs = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0, 0], outputs


def test_python_module_form_and_version(program: Program) -> None:
    """`python -m builddoctor --version` says which one it is."""
    done = subprocess.run(
        [sys.executable, "-m", "builddoctor", "--version"], env=os.environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("builddoctor 0.")


def test_traces_are_listed_newest_first(program: Program) -> None:
    """`trace list` shows how each build ended, and `trace units` takes the id."""
    assert program.run("run", "--", "sh", "-c", "exit 3").returncode == 3
    (program.folder / "one.cpp").write_text("int one() { return 1; }\n")
    assert program.run("run", "--", "g++", "-c", "one.cpp").returncode == 0
    rows = program.run("trace", "list").stdout.splitlines()
    assert [("ok" in row.split(), "exit 3" in row) for row in rows[1:]] == [(True, False), (False, True)]
    told = json.loads(program.run("trace", "units", rows[1].split()[0], "--json").stdout)
    assert [unit["unit"] for unit in told] == ["one.cpp"]
    assert told[0]["peak_mib"] > 0
    assert [phase["kind"] for phase in told[0]["phases"]] == ["host"]


def test_holds_and_warnings_are_in_the_trace(program: Program) -> None:
    """What was told to the user is in the trace too."""
    done = subprocess.run(
        program.supervised("true"), env={**program.env, "MAX_JOBS": "1"}, capture_output=True, check=False
    )
    assert done.returncode == 0
    assert any("MAX_JOBS=1" in note.text for note in program.records() if isinstance(note, Note))
