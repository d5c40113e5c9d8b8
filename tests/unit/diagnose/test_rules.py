"""The table from facts to verdicts: every row fires for facts of its own, in the right order, with a whole sentence."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from builddoctor.core.events import (
    BuildEnded,
    BuildResult,
    OutputFinding,
    OutputTail,
    SceneMoment,
    SceneSeen,
    UnitCommand,
)
from builddoctor.core.evidence import Folder, Group, ProcessLimits, Scene
from builddoctor.core.verdict import Diagnosis, Verdict, Weight
from builddoctor.core.word import Confidence
from builddoctor.diagnose.from_trace import judge, why
from builddoctor.diagnose.kernel_log import OomReport
from builddoctor.diagnose.rules import RULES, decide, opposite
from builddoctor.diagnose.rules import failed as has_failed
from builddoctor.diagnose.trace_facts import Facts, Parent, Printed, ProcessLimit, gather_facts, is_exhausted, is_full
from builddoctor.trace.report import Attempt, Journey, PhaseRow
from support import trace_events as tr
from unit.builders import summary
from unit.small_traces import admitted, asked, ended, read, tick, unit

FULL = Folder(role="TMPDIR", path="/tmp/t", filesystem="ext4", free_mib=0.0, total_mib=900.0, free_inodes=9)
SHORT = msgspec.structs.replace(FULL, free_mib=10.0, total_mib=90000.0)
ROOMY = Folder(role="TMPDIR", path="/tmp/t", filesystem="ext4", free_mib=9000.0, total_mib=90000.0)
AS = ProcessLimit(name="RLIMIT_AS", flag="-v", size=195.0)
PARENT = Parent(directory="/sys/fs/cgroup/pod", limit_mib=4096.0, others_mib=3000.0)
COUNTED = Scene(host_kills=0, groups=(Group(directory="/sys/fs/cgroup/pod/ours", kills=0, reached=0),))


def facts(**fields: Any) -> Facts:
    return Facts(**{"result": BuildResult.FAILED, "exit_code": 1, "limit_mib": 4096.0, **fields})


def phase(outcome: str, *, peak_mib: float = 100.0, **run: Any) -> dict[str, Any]:
    """A phase that died, as facts have it."""
    last = Attempt(admitted_at_s=1.0, ended_at_s=5.0, reserve_mib=100, running=1, wall_s=4.0, outcome=outcome, **run)
    row = PhaseRow(phase_id=1, kind="cicc", tool="cicc", arch="sm_90", reserve_mib=100, peak_mib=peak_mib)
    row.attempts, row.outcome = [last], outcome
    return {"phase": row, "last": last}


def gave_up(verdict: str, **fields: Any) -> Facts:
    return facts(**{**phase("killed-by-kernel", peak_mib=1000.0, signal=9), "gave_up": verdict, **fields})


def failed(**fields: Any) -> Facts:
    run = {name: fields.pop(name) for name in ("signal", "exit_code", "peak_mib", "cpu_s") if name in fields}
    return facts(**phase("failed", **{"exit_code": None if "signal" in run else 2, **run}), **fields)


def text(verdict: str, *, says: bool = True) -> Printed:
    words = "what was printed"
    return Printed(entry="an-entry", verdict=verdict, says=says, text=words, line=7, cause="The catalogue's sentence.")


ERROR = text(Verdict.UNKNOWN, says=False)
NINJAS = msgspec.structs.replace(ERROR, entry="ninja-stopped")

ROWS: dict[str, Facts] = {
    "runaway": gave_up(Verdict.RUNAWAY),
    "oomd": gave_up(Verdict.EXTERNAL_KILL, **phase("killed-outside", signal=9, cause="oomd")),
    "nodes-by-kernel": gave_up(
        Verdict.TOO_BIG, kernel=OomReport(line=1, text="Killed", victim="cicc", pid=7, constraint="MEMORY_POLICY")
    ),
    "parent-filled-by-others": gave_up(Verdict.TOO_BIG, parent=PARENT),
    "tmpfs-filled": gave_up(Verdict.TOO_BIG, tmpfs_mib=2000.0),
    "nodes-left-out": gave_up(Verdict.TOO_BIG, scene=Scene(nodes_allowed="0", policy="bind:0", available_mib=90000.0)),
    "parent-unseen": gave_up(Verdict.TOO_BIG, **phase("killed-by-kernel", peak_mib=250.0, signal=9, cause="ancestor")),
    "too-big": gave_up(Verdict.TOO_BIG),
    "too-big-elsewhere": gave_up(
        Verdict.TOO_BIG, **phase("killed-there", peak_mib=900.0, signal=9, elsewhere=Journey(node="gpu-07"))
    ),
    "too-big-at-memory-high": gave_up(
        Verdict.TOO_BIG,
        **phase("killed-by-us", peak_mib=790.0, signal=9),
        limited_by="/sys/fs/cgroup/a/memory.high",
    ),
    "not-redoable": gave_up(Verdict.NOT_REDOABLE),
    "processor-time-used-up": gave_up(
        Verdict.EXTERNAL_KILL,
        **phase("killed-outside", signal=9, cause="outside", cpu_s=1.0),
        cpu=ProcessLimit(name="RLIMIT_CPU", flag="-t", size=1.0),
    ),
    "allotment-used-up": gave_up(Verdict.EXTERNAL_KILL, job="slurm job 4711", scene=Scene(allotted_mib=1024.0)),
    "killed-from-outside": gave_up(Verdict.EXTERNAL_KILL, **phase("killed-outside", signal=9, cause="outside")),
    "given-up": gave_up("of a newer builddoctor", **phase("withdrawn")),
    "unit-ended": facts(
        result=BuildResult.INTERRUPTED,
        exit_code=143,
        job="slurm job 4711",
        kernel_kills=1,
        scene=Scene(unit_stops="run-u0.service"),
    ),
    "told-to-end-in-a-job": facts(result=BuildResult.INTERRUPTED, exit_code=143, job="slurm job 4711"),
    "interrupted": facts(result=BuildResult.INTERRUPTED, exit_code=130, job="slurm job 4711", wall_s=90.0),
    "unseen-kill-in-company": facts(kernel_kills=1, unexplained_kills=1, most_running=4),
    "unseen-kill-alone": facts(kernel_kills=1, unexplained_kills=1, most_running=1),
    "processor-time-signal": failed(signal=24),
    "file-size-signal": failed(signal=25),
    "ended-in-a-job": failed(signal=15, job="slurm job 4711"),
    "ended-from-outside": failed(signal=15),
    "disk-full-said": failed(full=FULL, text=text(Verdict.DISK_FULL)),
    "address-space-said": failed(cap=AS, text=text(Verdict.RLIMIT)),
    "processes-said": failed(
        processes=ProcessLimit(name="RLIMIT_NPROC", flag="-u", size=50), text=text(Verdict.RLIMIT)
    ),
    "disk-full-at-phase": failed(full=FULL, at_phase=True),
    "disk-full-at-end": facts(full=FULL),
    "crash-near-cap": failed(signal=11, cap=AS, peak_mib=150.0),
    "crash-in-kernel-log": failed(signal=11, crash_line="cicc[7]: segfault at 0"),
    "crash": failed(signal=11),
    "kill-denied": failed(text=text(Verdict.PARALLEL), scene=COUNTED),
    "kill-said": failed(text=text(Verdict.PARALLEL), scene=Scene()),
    "disk-full-denied": failed(text=text(Verdict.DISK_FULL), scene=Scene(folders=(ROOMY,)), at_phase=True),
    "disk-full-gone": facts(text=text(Verdict.DISK_FULL), scene=Scene(folders=(ROOMY,))),
    "address-space-denied": failed(text=text(Verdict.RLIMIT), scene=COUNTED),
    "text-at-failure": failed(text=text(Verdict.SOURCE)),
    "text-says": facts(text=text(Verdict.TOOLCHAIN)),
    "cap-near": failed(cap=AS, peak_mib=150.0),
    "text-hints": failed(text=text(Verdict.TOOLCHAIN, says=False)),
    "failed-with-ample-memory": failed(least_free_share=0.8),
    "failed": failed(least_free_share=0.02),
    "nothing-seen": facts(),
}


@pytest.mark.parametrize("rule", RULES, ids=[rule.name for rule in RULES])
def test_every_row_says_what_it_is_for(rule: Any) -> None:
    """For facts of its own, and none before it takes them; its sentence has a word for every blank."""
    assert decide(ROWS[rule.name]).name == rule.name
    sentence = why(rule, ROWS[rule.name])
    assert "{" not in sentence
    assert "  " not in sentence
    assert "None" not in sentence


def test_names_are_unique_and_every_row_is_tried() -> None:
    """Facts of its own for each row; the last one has no condition, so that there is always a row."""
    assert {rule.name for rule in RULES} == set(ROWS)
    assert len(RULES) == len(ROWS)
    assert [rule.name for rule in RULES if not rule.when] == [RULES[-1].name]


def test_every_condition_holds_for_some_facts() -> None:
    """A condition that is never true is a mistake in the table."""
    for condition in {condition for rule in RULES for condition in rule.when}:
        assert any(condition(found) for found in ROWS.values()), condition


def test_a_condition_turned_round() -> None:
    """Where it does not hold."""
    assert has_failed(failed())
    assert not opposite(has_failed)(failed())
    assert opposite(has_failed)(facts())


@pytest.mark.parametrize(
    ("found", "row"),
    [
        # Its growth is known from before the kill; whoever filled the parent did not make it grow.
        (gave_up(Verdict.RUNAWAY, parent=PARENT, tmpfs_mib=2000.0), "runaway"),
        # Others hold less than what was killed: it was ours that filled the parent.
        (gave_up(Verdict.TOO_BIG, parent=msgspec.structs.replace(PARENT, others_mib=900.0)), "too-big"),
        # No limit that can be seen was reached, but what was killed held nearly all of the one that can.
        (
            gave_up(Verdict.TOO_BIG, **phase("killed-by-kernel", peak_mib=3900.0, signal=9, cause="ancestor")),
            "too-big",
        ),
        # A tmpfs that filled this machine did not end what ran on another.
        (msgspec.structs.replace(ROWS["too-big-elsewhere"], tmpfs_mib=2000.0), "too-big-elsewhere"),
        # A tmpfs with a little in it did not fill anything.
        (gave_up(Verdict.TOO_BIG, tmpfs_mib=200.0), "too-big"),
        # A bound process on a machine whose own group was full: the group's limit it was.
        (
            gave_up(
                Verdict.TOO_BIG,
                scene=Scene(
                    nodes_allowed="0", available_mib=90000.0, groups=(Group(directory="/g", reached=3, limit_mib=4096),)
                ),
            ),
            "too-big",
        ),
        # A full disk, but the compiler says clearly what it did not like.
        (failed(full=FULL, at_phase=True, text=text(Verdict.SOURCE)), "text-at-failure"),
        # A full disk, and a compiler whose error the catalogue only hints at, or does not know.
        (failed(full=FULL, at_phase=True, text=text(Verdict.SOURCE, says=False), root=ERROR), "text-hints"),
        (failed(full=FULL, at_phase=True, root=ERROR, least_free_share=0.8), "failed-with-ample-memory"),
        (facts(full=FULL, root=ERROR), "nothing-seen"),
        # make and ninja only say that something failed; what a signal ended could say nothing.
        (failed(full=FULL, at_phase=True, root=NINJAS), "disk-full-at-phase"),
        (failed(full=FULL, at_phase=True, root=ERROR, signal=11), "disk-full-at-phase"),
        # Little room is no evidence by itself, but says which disk it was.
        (failed(full=SHORT, at_phase=True, least_free_share=0.8), "failed-with-ample-memory"),
        (facts(full=SHORT), "nothing-seen"),
        (failed(full=SHORT, text=text(Verdict.DISK_FULL)), "disk-full-said"),
        # A signal that was sent from outside counts more than any words.
        (failed(signal=15, text=text(Verdict.TOOLCHAIN)), "ended-from-outside"),
        # A limit that is far away from what was held refused nothing.
        (failed(cap=msgspec.structs.replace(AS, size=64000.0), least_free_share=0.5), "failed-with-ample-memory"),
        # A kernel kill that a redone phase explains is not another's.
        (facts(kernel_kills=3, most_running=2), "nothing-seen"),
        # Ctrl-C in a job is a person's.
        (facts(result=BuildResult.INTERRUPTED, exit_code=130, job="slurm job 1"), "interrupted"),
        # SIGTERM without a scheduler: nothing to explain.
        (facts(result=BuildResult.INTERRUPTED, exit_code=143), "interrupted"),
    ],
)
def test_evidence_goes_before_words_and_near_misses_are_missed(found: Facts, row: str) -> None:
    """The order of the table, where two rows could fire, and facts just beside a row."""
    assert decide(found).name == row


@pytest.mark.parametrize(
    "verdict", [Verdict.PARALLEL, Verdict.TOO_BIG, Verdict.TMPFS, Verdict.OOMD, Verdict.EXTERNAL_KILL]
)
def test_no_text_says_a_kill_that_the_counters_deny(verdict: str) -> None:
    """Whatever the compiler prints: with counters that did not rise it is unknown, and hardly sure."""
    rule = decide(failed(text=text(verdict), scene=COUNTED))
    assert (rule.verdict, rule.confidence) == (Verdict.UNKNOWN, Confidence.LOW)


@pytest.mark.parametrize(
    ("folder", "full", "exhausted"),
    [
        (FULL, True, True),
        (SHORT, True, False),
        (ROOMY, False, False),
        (Folder(role="x", path="/x", free_mib=500.0, total_mib=900.0, free_inodes=0), True, True),
        (Folder(role="x", path="/x", free_mib=0.0, total_mib=900.0, missing=True), False, False),
        (Folder(role="x", path="/x", free_mib=None, total_mib=None, free_inodes=None), False, False),
        (Folder(role="x", path="/x", free_mib=0.02, total_mib=0.9), True, True),
        (Folder(role="x", path="/x", free_mib=0.2, total_mib=0.9), False, False),
        (Folder(role="x", path="/x", free_mib=0.2, total_mib=90000.0), True, True),
        (Folder(role="x", path="/x", free_mib=0.3, total_mib=90000.0), True, False),
        (Folder(role="x", path="/x", free_mib=10.0, total_mib=1e6), True, False),
        (Folder(role="x", path="/x", free_mib=100.0, total_mib=1e6), False, False),
    ],
)
def test_what_is_full_and_where_nothing_fits(folder: Folder, *, full: bool, exhausted: bool) -> None:
    """By bytes, by inodes, on small disks and large ones; what is not known is not full; little room is not none."""
    assert (is_full(folder), is_exhausted(folder)) == (full, exhausted)


# -- from records ------------------------------------------------------------------------------------------------


def judged(*records: tr.Events, **fields: Any) -> Diagnosis:
    end = BuildEnded(at_s=20.0, summary=summary(**{"result": BuildResult.FAILED, "exit_code": 2, **fields}))
    return judge(read(unit(), *records, end))


def died(*, outcome: str = "failed", **more: Any) -> list[tr.Events]:
    return [asked(1), admitted(1), ended(1, 6.0, outcome, **{"exit_code": 1, **more})]


def seen(at_s: float = 6.0, phase_id: int | None = 1, **fields: Any) -> SceneSeen:
    when = SceneMoment.END if phase_id is None else SceneMoment.PHASE
    return SceneSeen(at_s=at_s, phase_id=phase_id, when=when, scene=Scene(**fields))


def said(entry: str, verdict: str, words: str = "as it was printed", at_s: float = 6.1, line: int = 3) -> OutputFinding:
    return OutputFinding(
        at_s=at_s, entry=entry, verdict=verdict, weight=Weight.SAYS, line=line, text=words, stream="stderr"
    )


def test_a_disk_that_was_full_explains_nvccs_silence() -> None:
    """With --threads 4 nvcc says nothing and exits with 255: the look at TMPDIR, taken while the gate waited, does."""
    told = judged(*died(), seen(folders=(FULL,)))
    assert (told.verdict, told.confidence) == (Verdict.DISK_FULL, Confidence.HIGH)
    assert "TMPDIR /tmp/t is full" in told.why or "TMPDIR /tmp/t was full" in told.why
    assert any("/tmp/t (ext4): 0 MiB of 900 MiB free" in line for line in told.evidence)


def test_the_disk_without_room_is_named_before_one_with_little() -> None:
    """Whatever their order."""
    told = judged(*died(), seen(folders=(msgspec.structs.replace(SHORT, role="objects", path="/o"), FULL)))
    assert told.verdict == Verdict.DISK_FULL
    assert "TMPDIR /tmp/t was full" in told.why


def test_the_look_at_another_phase_is_not_taken_for_its_own() -> None:
    """The first failure counts, with the look that was taken then."""
    told = judged(*died(), seen(folders=(ROOMY,)), seen(7.0, 2, folders=(ROOMY,)), tick(5.0, 500))
    assert told.verdict == Verdict.SOURCE


def test_a_text_that_the_counters_deny_is_told_with_the_denial() -> None:
    """Both are evidence, and the reader sees why the verdict does not follow the words."""
    words = "nvcc error   : 'cicc' died due to signal 9 (Kill signal)"
    told = judged(*died(), seen(host_kills=0), said("nvcc-phase-killed", Verdict.PARALLEL, words))
    assert (told.verdict, told.confidence, told.cause) == (Verdict.UNKNOWN, Confidence.LOW, "")
    grounds = "\n".join(told.evidence)
    assert words in grounds
    assert "no kernel counter rose" in grounds


def test_a_line_after_the_death_counts_before_one_of_the_configure_step() -> None:
    """What a configure step printed long before is another matter."""
    early = said("an-old-warning", Verdict.TOOLCHAIN, "long before", at_s=1.0, line=1)
    told = judged(*died(), early, said("the-error", Verdict.SOURCE, "error: no such thing"))
    assert (told.verdict, told.cause, told.confidence) == (Verdict.SOURCE, "the-error", Confidence.HIGH)


def test_without_a_phase_the_first_failing_step_tells_which_line_counts() -> None:
    """ninja's FAILED stands in line 9: what came before is not what failed."""
    tail = OutputTail(at_s=19.0, lines=["last words"], stream="stderr", read=20, failing=9)
    told = judged(said("before", Verdict.TOOLCHAIN, line=2), said("after", Verdict.SOURCE, line=10), tail)
    assert (told.verdict, told.cause) == (Verdict.SOURCE, "after")


@pytest.mark.parametrize(
    ("command", "line", "setting"),
    [
        ("pip wheel .", "FAILED: [code=1] CMakeFiles/x.dir/a.cu.o", "export CMAKE_ARGS=-DCMAKE_CUDA_ARCHITECTURES=90"),
        (
            *("ninja", "FAILED: [code=1] CMakeFiles/x.dir/a.cu.o"),
            "rm -rf build && cmake -B build -DCMAKE_CUDA_ARCHITECTURES=90",
        ),
        ("pip wheel .", "nvcc -I/venv/torch/include -c CMakeFiles/a.cu", "export TORCH_CUDA_ARCH_LIST=9.0"),
    ],
)
def test_a_setting_is_spelt_for_what_builds(command: str, line: str, setting: str) -> None:
    """By the command and the last lines: torch's variable is nothing to CMake, and pip starts CMake itself."""
    text = "nvcc fatal   : Unsupported gpu architecture 'compute_60'"
    entry = said("arch-unknown-to-nvcc", Verdict.TOOLCHAIN, text)
    entry = msgspec.structs.replace(entry, captured={"arch": "compute_60"})
    report = read(
        unit(),
        *(OutputTail(at_s=19.0, lines=[line, text], failing=1), entry),
        BuildEnded(at_s=20.0, summary=summary(result=BuildResult.FAILED, exit_code=1)),
        command=command.split(),
        nvcc="13.0.88",
        archs=["sm_90"],
    )
    assert judge(report).fixes[0].command == setting


def test_a_build_of_which_nothing_is_known_shows_its_last_lines() -> None:
    """The reader may know them better than we do."""
    told = judged(OutputTail(at_s=19.0, lines=["one", "", "make: *** [all] Error 2"]))
    assert (told.verdict, told.confidence) == (Verdict.UNKNOWN, Confidence.LOW)
    assert "the build printed last: make: *** [all] Error 2" in told.evidence


def test_the_schedulers_verdict_is_read_from_its_own_record() -> None:
    """The summary has the verdict that was judged from it, which may be another: judging twice gives the same."""
    groups = (
        Group(directory="/pod/ours", used_mib=100.0, reached=0, kills=1),
        Group(directory="/pod", used_mib=3500.0, limit_mib=4096.0, reached=2),
    )
    records = [
        *died(outcome="killed-by-kernel", peak_mib=600.0, exit_code=None, signal=9, cause="cgroup"),
        seen(groups=groups, ours_mib=600.0),
        tr.gave_up(at_s=6.2, phase_id=1, verdict=Verdict.TOO_BIG, reason="killed while it ran alone"),
    ]
    for verdict in (Verdict.TOO_BIG, Verdict.CGROUP_PARENT):
        told = judged(*records, verdict=verdict, kernel_oom_kills=1)
        assert (told.verdict, told.confidence) == (Verdict.CGROUP_PARENT, Confidence.HIGH)
    assert any(line.startswith("/pod: its limit of 4.0 GiB was reached") for line in told.evidence)


def test_the_own_group_at_its_limit_is_not_the_parents() -> None:
    """Only the lowest group that was full can be the one that killed."""
    groups = (
        Group(directory="/pod/ours", used_mib=100.0, limit_mib=600.0, reached=9),
        Group(directory="/pod", used_mib=3500.0, limit_mib=4096.0, reached=2),
    )
    report = read(
        unit(), *died(), seen(groups=groups), BuildEnded(at_s=9.0, summary=summary(result=BuildResult.FAILED))
    )
    assert gather_facts(report).parent is None


def test_the_seed_case() -> None:
    """One unit, cudafe++ grows without a plateau, one job (TransformerEngine#1996): runaway, and no word of fewer jobs.

    The toolchain is the first way out, and one command makes what its maker needs.
    """
    command = UnitCommand(at_s=0.4, unit_id="u1", tool="nvcc", cwd="/src", argv=["-c", "a.cu", "-o", "a.o"])
    grows = [tr.sampled(at_s=2.0 + step, phase_id=1, rss_mib=14000.0 * step) for step in range(1, 11)]
    told = judge(
        read(
            *(command, unit(), asked(1, kind="cudafe++"), admitted(1), *grows),
            ended(1, 13.0, "killed-by-us", 140000.0, exit_code=None, signal=9),
            tr.gave_up(
                at_s=13.0,
                phase_id=1,
                verdict=Verdict.RUNAWAY,
                reason="140000 MiB, 9 times what was expected, and rising",
            ),
            BuildEnded(at_s=20.0, summary=summary(result=BuildResult.FAILED, exit_code=137, verdict=Verdict.RUNAWAY)),
            caps=["MAX_JOBS=1"],
        )
    )
    assert (told.verdict, told.confidence) == (Verdict.RUNAWAY, Confidence.HIGH)
    assert "Fewer jobs cannot help, nor can a lower MAX_JOBS" in told.why
    assert told.fixes[0].text.startswith("another minor version of nvcc")
    assert any(fix.command.startswith("builddoctor trace repro ") for fix in told.fixes)
    advice = " ".join(f"{fix.text} {fix.command}" for fix in told.fixes)
    for words in ("MAX_JOBS", "--cores", "-j", "--memory", "memory limit"):
        assert words not in advice


def test_limits_are_named_as_a_shell_sets_them() -> None:
    """The figure, the name, and the letter of ulimit."""
    limits = ProcessLimits(address_space_mib=195.3)
    told = judged(
        *died(peak_mib=150.0), seen(limits=limits), said("no-memory", Verdict.RLIMIT, "virtual memory exhausted")
    )
    assert (told.verdict, told.confidence) == (Verdict.RLIMIT, Confidence.HIGH)
    assert any("RLIMIT_AS (`ulimit -v`) of 195 MiB" in line for line in told.evidence)
