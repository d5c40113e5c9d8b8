"""``builddoctor plan``: recipes by file, name and project, machines, JSON, errors."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec
import pytest
import tomlkit

from builddoctor.cli.app import main
from builddoctor.core.recipe import Fingerprint, Recipe
from unit.recipes_made import engine, few_of_engine, phase, recipe, unit


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recipes, and no other."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    monkeypatch.setenv("BUILDDOCTOR_RECIPES", str(folder))
    monkeypatch.setenv("BUILDDOCTOR_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return folder


def put(folder: Path, name: str, made: Recipe) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(tomlkit.dumps(msgspec.to_builtins(made)), encoding="utf-8")
    return path


def small(**more: object) -> Recipe:
    return recipe(unit("a.cu", phase(900.0, 20.0)), unit("b.cu", phase(300.0, 20.0)), **more)


def test_json_has_the_keys_that_others_rely_on(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """window, threads, stages[], peak_mib, makespan_s: on stdout, and nothing else there."""
    path = put(shelf, "x", small())
    assert main(["plan", str(path), "--cores", "2", "--memory", "2GiB", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {"window", "threads", "stages", "peak_mib", "makespan_s"} <= told.keys()
    assert told["machine"] == "a container of 2 cores and 2.0 GiB"
    assert [stage["weight"] for stage in told["stages"]] == ["light", "rest"]


def test_this_machine_is_the_default(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Probed as `machine probe` does."""
    assert main(["plan", str(put(shelf, "x", small())), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["machine"] == "this machine"
    assert told["cores"] >= 1


def test_a_project_gets_its_nearest_recipe(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its names and by the architectures wanted; how it differs is said."""
    put(
        shelf,
        "one",
        msgspec.structs.replace(few_of_engine(), fingerprint=Fingerprint(archs=("sm_90",), host_arch="x86_64")),
    )
    put(shelf, "two", few_of_engine())
    assert main(["plan", "TransformerEngine", "--arch", "sm_100", "--on", "gb200-node", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["recipe"], told["machine"], told["archs"]) == ("two", "gb200-node", ["sm_100"])
    assert any("aarch64" in words for words in told["differs"])
    assert told["hazards"][0]["kind"] == "runaway"


def test_a_project_is_planned_for_the_gpus_of_that_machine(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless others are asked for; a recipe by its name stays what it is."""
    hopper = Fingerprint(archs=("sm_90",), host_arch="x86_64")
    put(shelf, "hopper", msgspec.structs.replace(few_of_engine(), fingerprint=hopper))
    put(shelf, "blackwell", few_of_engine())

    def planned(*words: str) -> tuple[str, list[str]]:
        assert main(["plan", *words, "--on", "dgx-h100", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        return told["recipe"], told["archs"]

    assert planned("TransformerEngine") == ("hopper", ["sm_90"])
    assert planned("TransformerEngine", "--arch", "sm_100") == ("blackwell", ["sm_100"])
    assert planned("blackwell") == ("blackwell", ["sm_100"])


def test_a_recipe_is_found_by_its_name(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """That of its file."""
    put(shelf, "mine-2.8", small())
    assert main(["plan", "mine-2.8", "--on", "dgx-h100"]) == 0
    assert "small 1.0 on dgx-h100" in capsys.readouterr().out


def test_a_folder_is_a_project(shelf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By what it calls itself."""
    put(shelf, "x", small())
    (tmp_path / "checkout").mkdir()
    (tmp_path / "checkout" / "pyproject.toml").write_text('[project]\nname = "small"\nversion = "1.0"\n')
    assert main(["plan", "./checkout", "--on", "dgx-h100", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recipe"] == "x"


def test_no_recipe_says_how_to_make_one(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 89, and both commands."""
    assert main(["plan", "natten"]) == 89
    said = capsys.readouterr().err
    assert "no recipe of natten" in said
    assert "builddoctor build natten --trace" in said
    assert "builddoctor recipe from-trace" in said
    assert main(["plan", "nattn"]) == 89
    assert "did you mean natten?" in capsys.readouterr().err
    assert main(["plan", "natten==0.21.1"]) == 89
    assert "`builddoctor plan natten --version 0.21.1`" in capsys.readouterr().err


def test_other_architectures_are_said_and_widen_the_ranges(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recipe for sm_100 is a rough guide to sm_120."""
    path = str(put(shelf, "x", few_of_engine()))
    ranges = []
    for arch in ("sm_100", "sm_120"):
        assert main(["plan", path, "--arch", arch, "--on", "dgx-h100", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        ranges.append(told["makespan_range_s"]["high"])
    assert any("sm_120" in words for words in told["differs"])
    assert ranges[1] > ranges[0]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--on", "no-such-machine"], 81),
        (["--cores", "-1"], 64),
        (["--cores", "1000000"], 64),
        (["--memory", "much"], 64),
        (["--arch", "sm_1"], 64),
    ],
)
def test_what_cannot_be_is_refused(shelf: Path, arguments: list[str], code: int) -> None:
    """With the exit code of its class."""
    assert main(["plan", str(put(shelf, "x", small())), *arguments]) == code


def test_no_name_and_no_file_are_refused(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty name; a recipe's file that is not there."""
    assert main(["plan", " "]) == 64
    assert main(["plan", "no/such.toml"]) == 89


def test_the_page_or_json_goes_to_a_file(shelf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With -o; stdout stays empty."""
    path = str(put(shelf, "x", small()))
    assert main(["plan", path, "--cores", "2", "--memory", "2GiB", "-o", str(tmp_path / "p.txt")]) == 0
    assert "builddoctor build small" in (tmp_path / "p.txt").read_text()
    assert main(["plan", path, "--cores", "2", "--memory", "2GiB", "--json", "-o", str(tmp_path / "p.json")]) == 0
    assert json.loads((tmp_path / "p.json").read_text())["project"] == "small"
    assert capsys.readouterr().out == ""
    assert main(["plan", path, "-o", str(tmp_path / "no" / "p")]) == 76


def test_other_machines_as_run_would_start_them(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is said of them, and else like this machine; local ones have a share of it. A mistype is refused."""
    path = str(put(shelf, "x", small()))

    def nodes(cluster: str) -> list[dict]:
        assert main(["plan", path, "--cores", "4", "--memory", "8GiB", "--cluster", cluster, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["cluster"]["nodes"]

    said = nodes("slurm:nodes=3,cores=2,memory=4GiB")
    assert [node["cores"] for node in said] == [2, 2, 2]
    assert 2048 < said[0]["budget_mib"] < 4096
    (alike,) = nodes("slurm:nodes=1")
    assert alike["cores"] == 4
    assert 4096 < alike["budget_mib"] < 8192
    assert nodes("local:3")[0]["cores"] == 1
    for words in ("slurm:node=3", "slurm:nodes=0", "three", "local:x"):
        assert main(["plan", path, "--cluster", words]) == 64
        assert "hint" in capsys.readouterr().err


def test_a_matrix_is_a_table_and_json(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a cell, what all of them take, and the command that makes a job of them; the last is pasted as it is."""
    put(shelf, "one", engine())
    words = ["plan", "one", "--cores", "8", "--memory", "16GiB", "--matrix", "arch=sm_90,sm_100;sm_90"]
    words += ["--matrix", "python=3.11,3.12", "--exclude", "arch=sm_90,python=3.11", "--time", "1h"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    names = ["sm_90-cp312", "sm_100+90-cp311", "sm_100+90-cp312"]
    assert [cell["name"] for cell in told["cells"]] == names
    assert told["cells"][1]["values"] == [
        {"axis": "arch", "value": "sm_100;sm_90"},
        {"axis": "python", "value": "3.11"},
    ]
    assert (told["longest"], told["time_limit_s"]) == (names[1], 3600.0)
    assert all(cell["attempts"] == 1 for cell in told["cells"])
    assert main(words) == 0
    page = capsys.readouterr().out
    assert [line.split()[0] for line in page.splitlines() if "-cp3" in line][:3] == names
    assert main(following(page)) == 0
    script = capsys.readouterr().out
    assert "#SBATCH --array=0-2\n" in script
    assert asked_mib(script) == pytest.approx(told["memory_mib"], abs=ROUNDED_MIB)


ROUNDED_MIB = 2.0
"""What builds hold and what stays free are whole MiB in a script."""


def asked_mib(script: str) -> int:
    (line,) = [line for line in script.splitlines() if line.startswith("#SBATCH --mem=")]
    return int(line.removeprefix("#SBATCH --mem=").removesuffix("M"))


def following(page: str) -> list[str]:
    """What a matrix's page says comes next, as words of it."""
    (line,) = [line for line in page.splitlines() if line.startswith("next")]
    return shlex.split(line.removeprefix("next"))[1:]


def test_what_follows_a_matrix_is_the_job_that_was_planned(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A recipe in a file, for architectures, a version and a machine that are typed: with the memory that was said."""
    path = str(put(shelf.parent, "mine of two", few_of_engine()))
    for more in (
        ["--arch", "sm_90,sm_100", "--cores", "8", "--memory", "16GiB"],
        ["--version", "1.9", "--cores", "3", "--memory", "20GiB"],
        ["--on", "gb200-node"],
    ):
        words = ["plan", path, "--matrix", "python=3.11,3.12", *more]
        assert main([*words, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert main(words) == 0
        assert main(following(capsys.readouterr().out)) == 0
        script = capsys.readouterr().out
        assert asked_mib(script) == pytest.approx(told["memory_mib"], abs=ROUNDED_MIB)
        assert f"#SBATCH --cpus-per-task={told['cores']}\n" in script
        assert (
            f"# {told['project']} {told['version']} for {', '.join(told['cells'][0]['archs'])} on {told['machine']}"
            in script
        )


def test_no_job_follows_where_a_build_does_not_fit(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(put(shelf, "big", recipe(unit("big.cu", phase(1e6, 9.0)), unit("small.cu", phase(10.0, 9.0)))))
    assert main(["plan", path, "--matrix", "python=3.12", "--cores", "2", "--memory", "4GiB"]) == 0
    page = capsys.readouterr().out
    assert "too big" in page
    assert "recipe render" not in page


def test_what_a_matrix_does_not_go_with_is_refused(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(put(shelf, "x", small()))
    axis = ["--matrix", "python=3.12"]
    for words in (
        ["plan", path, *axis, "--by-arch"],
        ["plan", path, *axis, "--cluster", "local:2"],
        ["plan", path, "--exclude", "python=3.12"],
        ["plan", path, "--time", "18:00"],
        ["recipe", "render", path, *axis, "--to", "sh"],
        ["recipe", "render", path, "--to", "slurm", "--time", "4h"],
        ["recipe", "render", path, "--to", "slurm", "--source", "https://example.org/a.git", "--tag", "v1"],
        ["recipe", "render", path, "--to", "slurm", *axis, "--source", "git@example.org:a.git"],
    ):
        assert main(words) == 64
        said = capsys.readouterr().err
        assert "hint" in said
        assert ("--source FOLDER" in said) == ("--source" in words)


def test_jobs_of_one_plan_are_counted_too(shelf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And a unit that takes longer than one is named."""
    path = str(put(shelf, "x", small()))
    for time, said in (("1h", "with --until: 1"), ("10s", "a.cu takes longer than one")):
        assert main(["plan", path, "--cores", "2", "--memory", "2GiB", "--time", time]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
    assert main(["recipe", "render", path, "--to", "slurm", "--matrix", "python=3.12", "--time", "10s"]) == 0
    assert "a.cu may take longer than a job of 0:10" in " ".join(capsys.readouterr().err.split())
