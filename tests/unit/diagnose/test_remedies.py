"""The ladder of remedies: order, what cannot help, and commands to paste."""

from __future__ import annotations

import shlex

import pytest

from builddoctor.core.verdict import Verdict
from builddoctor.diagnose.remedies import ladder, limit_setter, load_remedies
from builddoctor.diagnose.remedy_facts import GpuOomKind, Need, RemedyFacts, arch_value, lacks, settings_of
from builddoctor.gates.gate_program import THRIFT, THRIFTY
from builddoctor.projects.catalogue import known_names

VERDICTS = list(Verdict)
PLAIN = RemedyFacts()
SUPERVISED = RemedyFacts(
    project="flash_attn",
    cwd="/src/my build; rm -rf ~",
    command=("python", "setup.py", "bdist_wheel", "--dist-dir=/out/$HOME"),
    options=("--arch", "sm_90"),
    supervised=True,
    tool="cicc",
    arch="sm_100",
    archs=("sm_90", "sm_100"),
    threads=4,
    nvcc="13.0.88",
    peak_mib=7000.0,
    limit_mib=8192.0,
    limited_by="/sys/fs/cgroup/memory/slurm/uid_1/job_3/memory.limit_in_bytes",
)


def commands(verdict: Verdict, facts: RemedyFacts) -> list[str]:
    return [fix.command for fix in ladder(verdict, facts) if fix.command]


# -- the file ----------------------------------------------------------------------------------------------------


def test_the_file_is_whole() -> None:
    """Every remedy has a name of its own, a known verdict, a text and a source; reading refuses unknown words."""
    remedies = load_remedies()
    assert len({remedy.name for remedy in remedies}) == len(remedies) > 25
    for remedy in remedies:
        assert remedy.ranks
        assert set(remedy.ranks) <= set(VERDICTS)
        assert remedy.text
        assert remedy.source


def test_every_condition_can_be_asked() -> None:
    """Of facts that are all unknown, too; some remedy names each."""
    named = {need for remedy in load_remedies() for need in remedy.needs}
    assert named == set(Need)
    assert all(isinstance(lacks(need, PLAIN), bool) for need in Need)


@pytest.mark.parametrize("verdict", [each for each in VERDICTS if each != Verdict.GPU_OOM])
@pytest.mark.parametrize("facts", [PLAIN, SUPERVISED], ids=["nothing known", "all known"])
def test_every_verdict_has_a_ladder_without_blanks(verdict: Verdict, facts: RemedyFacts) -> None:
    """Something can be done in each case, and no placeholder is left in what is said."""
    fixes = ladder(verdict, facts)
    assert fixes
    for fix in fixes:
        assert fix.text.strip()
        assert "@" not in fix.text + fix.command + fix.effect
        assert fix.text == fix.text.strip()


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_order_is_that_of_the_ranks(verdict: Verdict) -> None:
    """Cheapest first, whatever the file's order; of two that cost the same, the one that leaves the binary alone."""
    gpu = {"gpu_kind": GpuOomKind.CAPACITY, "gpu_library": "PyTorch"}
    facts = RemedyFacts(tmp_in_memory=True, debug=True, limit_mib=8192.0, **gpu)
    fitting = [each for each in _sorted(verdict) if each.fits(verdict, facts)]
    assert [fix.changes_binary for fix in ladder(verdict, facts)] == [each.changes_binary for each in fitting]
    heads = [each.text.partition("@")[0] for each in fitting]
    assert all(fix.text.startswith(head) for fix, head in zip(ladder(verdict, facts), heads, strict=True))


def _sorted(verdict: Verdict) -> list:
    fitting = [each for each in load_remedies() if verdict in each.ranks]
    return sorted(fitting, key=lambda each: (each.ranks[verdict], each.changes_binary))


def test_without_a_verdict_there_is_nothing_to_do() -> None:
    """A build that went well needs no remedy."""
    assert ladder(None, SUPERVISED) == []


# -- what cannot help is not named ------------------------------------------------------------------------------------


@pytest.mark.parametrize("facts", [PLAIN, SUPERVISED, RemedyFacts(tool="cudafe++", std="c++20", jobs=8, limit_mib=1e6)])
def test_for_a_runaway_neither_memory_nor_jobs_nor_threads(facts: RemedyFacts) -> None:
    """One process took all of it (TransformerEngine#1996): another toolkit first; each way changes the binary.

    But for sending the step to the compiler's maker, which helps later.
    """
    fixes = ladder(Verdict.RUNAWAY, facts)
    assert "version of nvcc" in fixes[0].text
    assert all(fix.changes_binary for fix in fixes if "trace repro" not in fix.command)
    said = " ".join(fix.text + fix.command for fix in fixes)
    assert not any(word in said for word in ("GiB", "MAX_JOBS", "at once", "--threads", "--mem"))


def test_one_architecture_cannot_be_fewer() -> None:
    """Nor compiled one at a time."""
    for verdict in (Verdict.TOO_BIG, Verdict.PARALLEL, Verdict.DISK_FULL, Verdict.TMPFS):
        several = commands_and_texts(verdict, archs=("sm_90", "sm_100"), threads=4)
        one = commands_and_texts(verdict, archs=("sm_90",), threads=4)
        assert "rchitecture" in several
        assert "rchitecture" not in one
        assert "--threads" not in one


def commands_and_texts(verdict: Verdict, **facts: object) -> str:
    return " ".join(f"{fix.text} {fix.command}" for fix in ladder(verdict, RemedyFacts(**facts)))


@pytest.mark.parametrize(
    ("verdict", "facts", "word"),
    [
        (Verdict.PARALLEL, {"threads": 1, "archs": ("sm_90", "sm_100")}, "--threads"),
        (Verdict.PARALLEL, {"jobs": 1}, "at once"),
        (Verdict.PARALLEL, {"supervised": True}, "at once"),
        (Verdict.PARALLEL, {"supervised": True}, "under builddoctor"),
        (Verdict.TOO_BIG, {"supervised": True, "tool": "cicc"}, "--auto-remedy"),
        (Verdict.TOO_BIG, {"tool": "cicc"}, "ggc"),
        (Verdict.TOO_BIG, {"tool": "cicc"}, "--Ofast-compile"),
        (Verdict.RUNAWAY, {"tool": "cicc", "nvcc": "12.8.93"}, "--Ofast-compile"),
        (Verdict.TOO_BIG, {"tool": "ptxas"}, "instantiations"),
        (Verdict.TOO_BIG, {"tool": "cudafe++", "archs": ("sm_90", "sm_100")}, "rchitecture"),
        (Verdict.TOO_BIG, {"tmp_in_memory": False}, "TMPDIR"),
        (Verdict.TOO_BIG, {"debug": False}, "debug"),
        (Verdict.TOO_BIG, {"project": "xformers"}, "without @"),
        (Verdict.RUNAWAY, {"tool": "cudafe++", "std": "c++17"}, "c++17"),
        (Verdict.RUNAWAY, {"tool": "cicc"}, "c++17"),
        (Verdict.NOT_REDOABLE, {"pipes": False}, "-pipe"),
    ],
)
def test_what_cannot_help_is_not_said(verdict: Verdict, facts: dict, word: str) -> None:
    """The fact rules it out."""
    assert word not in commands_and_texts(verdict, **facts)


@pytest.mark.parametrize(
    ("verdict", "facts", "word"),
    [
        (Verdict.PARALLEL, {"threads": 4, "archs": ("sm_90", "sm_100")}, "--threads 1"),
        (Verdict.TOO_BIG, {"supervised": True, "tool": "cc1plus"}, "--auto-remedy"),
        (Verdict.TOO_BIG, {"supervised": True, "tool": "cicc", "tmp_in_memory": True}, "--auto-remedy"),
        (Verdict.TOO_BIG, {"tool": "ptxas"}, "-Xptxas -O1"),
        (Verdict.RUNAWAY, {"tool": "cicc", "nvcc": "13.0.88"}, "NVCC_APPEND_FLAGS --Ofast-compile=min"),
        (Verdict.TOO_BIG, {"tool": "cicc"}, "fewer template instantiations"),
        (Verdict.TOO_BIG, {"tool": "ld"}, "--no-keep-memory"),
        (Verdict.TOO_BIG, {"debug": True, "project": "transformer_engine"}, "NVTE_BUILD_DEBUG=0"),
        (Verdict.TOO_BIG, {"project": "transformer_engine"}, "NVTE_WITH_NCCL_EP=0"),
        (Verdict.TMPFS, {"disk_folder": "/scratch/me/"}, "mktemp -d /scratch/me/build.XXXXXX"),
        (Verdict.RLIMIT, {}, "ulimit -v unlimited"),
        (Verdict.DISK_FULL, {}, "tmpxft_*"),
        (Verdict.DISK_FULL, {}, "df -i"),
        (Verdict.NUMA_POLICY, {"command": ("make",)}, "numactl --localalloc make"),
        (Verdict.OOMD, {}, "ManagedOOMPreference=avoid"),
        (Verdict.CGROUP_PARENT, {"limit_mib": 10240.0}, "--memory 8.0GiB"),
        (Verdict.NOT_REDOABLE, {}, "--cores 1"),
    ],
)
def test_what_can_help_is_said_as_it_is_to_be_typed(verdict: Verdict, facts: dict, word: str) -> None:
    """Each with its setting."""
    assert word in commands_and_texts(verdict, **facts)


def test_what_was_tried_is_not_advised_again() -> None:
    """It did not help."""
    facts = RemedyFacts(tool="cc1plus", supervised=True, auto_remedied=True)
    said = " ".join(commands(Verdict.TOO_BIG, facts))
    assert "--auto-remedy" not in said
    assert "ggc" not in said


# -- in the words of the build ------------------------------------------------------------------------------------


def test_commands_are_quoted_for_a_shell() -> None:
    """Nothing in a folder's name or an argument is run."""
    for verdict in VERDICTS:
        for command in commands(verdict, SUPERVISED):
            if "setup.py" in command:
                words = shlex.split(command)
                assert words[:3] == ["cd", "/src/my build; rm -rf ~", "&&"]
                assert words[-1] == "--dist-dir=/out/$HOME"
                assert "builddoctor" in words


def test_options_are_kept_and_not_said_twice() -> None:
    """The build is asked for as it was, but for what is to be different."""
    found = commands(Verdict.TOO_BIG, SUPERVISED)
    toolkit = next(each for each in found if "--toolkit" in each)
    assert "builddoctor run --arch sm_90 --toolkit VERSION -- python" in toolkit
    fewer = next(each for each in commands(Verdict.TMPFS, SUPERVISED) if "--arch" in each)
    assert fewer.count("--arch") == 1


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"project": "flash_attn"}, "MAX_JOBS=1"),
        ({"project": "natten"}, "NATTEN_N_WORKERS=1"),
        ({"project": "transformer_engine", "jobs": 16}, "NVTE_BUILD_MAX_JOBS=8"),
        ({"command": ("ninja",), "peak_mib": 3000.0, "limit_mib": 16000.0, "jobs": 16}, "ninja -j5"),
        ({"command": ("make", "-j64"), "jobs": 64}, "make -j64 -j32"),
        ({}, "CMAKE_BUILD_PARALLEL_LEVEL=1"),
    ],
)
def test_fewer_jobs_are_said_in_the_projects_own_words(facts: dict, word: str) -> None:
    """Its variable, or the build tool's option; as many as fit, where sizes are known."""
    assert any(word in each for each in commands(Verdict.PARALLEL, RemedyFacts(**facts)))


@pytest.mark.parametrize(
    ("limited_by", "around", "name"),
    [
        ("--memory", {}, "flag"),
        ("SLURM_MEM_PER_NODE", {}, "slurm"),
        ("LSB_CG_MEMLIMIT", {}, "lsf"),
        ("PBS_RESC_MEM", {}, "pbs"),
        ("/sys/fs/cgroup/kubepods.slice/pod1.slice/memory.max", {}, "kubernetes"),
        ("/sys/fs/cgroup/system.slice/docker-1f.scope/memory.max", {}, "docker"),
        ("/sys/fs/cgroup/user.slice/user-0.slice/memory.max", {}, "systemd"),
        ("/sys/fs/cgroup/user.slice/user-0.slice/memory.high", {}, "systemd-high"),
        ("/sys/fs/cgroup/job/memory.high", {"container": "docker"}, "memory-high"),
        ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", {}, "cgroup"),
        ("/sys/fs/cgroup/memory.max", {"container": "docker"}, "docker"),
        ("/sys/fs/cgroup/memory.max", {"scheduler": "slurm"}, "slurm"),
        ("/proc/meminfo CommitLimit", {}, "overcommit"),
        ("/proc/meminfo MemAvailable", {}, "host"),
        ("", {}, ""),
    ],
)
def test_more_memory_is_asked_of_whoever_set_the_limit(limited_by: str, around: dict, name: str) -> None:
    """By the limit's own name; inside a container by what is around."""
    assert limit_setter(RemedyFacts(limited_by=limited_by, **around)).name == name


def test_how_much_more_memory_is_said() -> None:
    """A quarter above what it held when it was killed, and the reserve, in whole GiB."""
    facts = RemedyFacts(peak_mib=8000.0, limit_mib=8192.0, reserve_mib=1024.0, limited_by="SLURM_MEM_PER_NODE")
    fix = next(each for each in ladder(Verdict.TOO_BIG, facts) if "Slurm" in each.text)
    assert fix.text.startswith("11 GiB or more")
    assert fix.command == "sbatch --mem=11G"


# -- settings of projects, and the gate's own list ------------------------------------------------------------------


def test_a_project_is_known_by_its_name_and_by_the_title_of_its_build() -> None:
    """The catalogue's facts, as variables: CMake's own settings are none."""
    for said in ("transformer_engine", "transformer-engine", "TransformerEngine 2.8", "te"):
        assert settings_of(said).threads == "NVTE_BUILD_THREADS_PER_JOB"
    assert {settings_of(name).name for name in known_names()} == set(known_names())
    assert settings_of("sgl_kernel").threads == ""
    assert settings_of("sgl_kernel").off == 'CMAKE_ARGS="$CMAKE_ARGS -DENABLE_BELOW_SM90=OFF"'
    assert settings_of("ninja -C build").name == ""


@pytest.mark.parametrize(
    ("project", "archs", "value"),
    [
        ("transformer_engine", ("sm_90", "sm_100a"), "90;100"),
        ("xformers", ("sm_90", "sm_100a"), "9.0;10.0a"),
        ("flashinfer", ("sm_90a", "sm_120"), "9.0a 12.0"),
        ("xformers", ("native",), ""),
    ],
)
def test_architectures_are_spelt_as_the_project_wants_them(project: str, archs: tuple[str, ...], value: str) -> None:
    """Numbers or dotted, with its separator; nothing for a word that is none."""
    assert arch_value(settings_of(project), archs) == value


def test_what_is_advised_for_gcc_is_what_auto_remedy_does() -> None:
    """The same parameters, for the same programs."""
    (ggc,) = (each for each in load_remedies() if each.name == "ggc")
    assert set(ggc.tools) == THRIFTY
    said = commands_and_texts(Verdict.TOO_BIG, tool="cc1plus", source="a.cu")
    assert f"-Xcompiler {','.join(THRIFT)}" in said
