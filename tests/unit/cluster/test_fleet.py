"""What the user writes after ``--cluster``, and the commands that start nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from builddoctor.cluster.fleet import Start, node_script, read_fleet, sbatch_words, slurm_environment, ssh_words
from builddoctor.core.cluster import Fleet
from builddoctor.core.errors import UsageError

START = Start(address="tls://10.0.0.1:4711", toolkit="/opt/cuda 13", memory_mib=2048.0, cores=4)


def test_an_address_is_none() -> None:
    for text in ("tls://build-host:8786", "tcp://127.0.0.1:8786", "build.host:8786", "build-host"):
        assert read_fleet(text) is None


@pytest.mark.parametrize(
    ("text", "fleet"),
    [
        ("local:4", Fleet(kind="local", nodes=4)),
        ("local:2,memory=4GiB,cores=3", Fleet(kind="local", nodes=2, memory_mib=4096.0, cores=3)),
        ("slurm:", Fleet(kind="slurm", nodes=1)),
        (
            "slurm:partition=gpu,nodes=4,time=2:00:00,host=10.0.0.1",
            Fleet(kind="slurm", nodes=4, host="10.0.0.1", job=(("partition", "gpu"), ("time", "2:00:00"))),
        ),
    ],
)
def test_nodes_that_are_started(text: str, fleet: Fleet) -> None:
    assert read_fleet(text) == fleet


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("local:", "local:4"),
        ("local:0", "local:4"),
        ("local:4,partition=gpu", "memory, cores"),
        ("local:4,memory=lots", "24GiB"),
        ("slurm:nodes=4,partiton=gpu", "did you mean partition=gpu?"),
        ("slurm:4", "nodes"),
        ("slurm:nodes=2,nodes=3", "leave one out"),
        ("slurm:nodes=1001", "nodes=4"),
        ("slurm:partition=a\nb", "nodes"),
        ("kubernetes:4", "slurm:nodes=4"),
    ],
)
def test_what_cannot_be_understood_is_refused(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_fleet(text)
    assert hint in refused.value.hint


def test_hosts_of_a_file(tmp_path: Path) -> None:
    """One in a line, with words for its worker; comments and empty lines are none."""
    file = tmp_path / "hosts"
    file.write_text("# ours\n\nnode1\nme@node2 --memory '64 GiB' --cores 16 # large\n")
    found = read_fleet(f"ssh:{file},cores=8")
    assert found == Fleet(
        kind="ssh", nodes=2, cores=8, hosts=(("node1",), ("me@node2", "--memory", "64 GiB", "--cores", "16"))
    )


@pytest.mark.parametrize("content", [None, "", "# nobody\n", "-oProxyCommand=touch\n", "'node\n"])
def test_a_file_without_hosts_is_refused(tmp_path: Path, content: str | None) -> None:
    """Nor is a word of a file taken for an option of ssh."""
    file = tmp_path / "hosts"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError):
        read_fleet(f"ssh:{file}")
    with pytest.raises(UsageError):
        read_fleet("ssh:")


def test_a_whole_node_unless_something_is_said(tmp_path: Path) -> None:
    whole = sbatch_words(Fleet(kind="slurm", nodes=3), tmp_path)
    assert {"--exclusive", "--mem=0", "--array=1-3"} <= set(whole)
    part = sbatch_words(Fleet(kind="slurm", nodes=1, cores=4, memory_mib=2048.0, job=(("qos", "low"),)), tmp_path)
    assert {"--cpus-per-task=4", "--mem=2048M", "--qos=low"} <= set(part)
    assert "--exclusive" not in part
    some = sbatch_words(Fleet(kind="slurm", nodes=1, cores=4), tmp_path)
    assert not [word for word in some if word.startswith("--mem")]


def test_a_job_around_the_build_says_nothing_of_its_nodes() -> None:
    env = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_MEM_PER_NODE": "100", "PATH": "/bin"}
    assert slurm_environment(env) == env
    assert slurm_environment({**env, "SLURM_JOB_ID": "1"}) == {"SLURM_CONF": "/etc/slurm.conf", "PATH": "/bin"}


def test_the_script_of_a_node_holds_its_keys_alone(tmp_path: Path) -> None:
    for name in ("ca", "node", "client", "server", "ca-key"):
        (tmp_path / f"{name}.pem").write_text(f"of {name}\n")
    script = node_script(START, tmp_path, more=["--cores", "a b"])
    assert "of ca\n" in script
    assert "of node\n" in script
    assert not any(f"of {name}\n" in script for name in ("client", "server", "ca-key"))
    assert "toolkit='/opt/cuda 13'" in script
    assert "--cores 'a b' </dev/null" in script
    assert str(tmp_path) not in script
    assert not any("of " in word for word in ssh_words("node1"))
