"""Nodes that a build starts itself: what the user wrote after ``--cluster``, and the commands that start them.

``local:4``, ``ssh:hosts.txt`` and ``slurm:nodes=4,partition=gpu``, each with further ``key=value`` after commas.
Covers: reading these, and the words of ``ssh`` and ``sbatch``. Does *not* cover: starting and ending them
(``gates.companions``), or when (``runtime.fleet``). Needs no Dask.
"""

from __future__ import annotations

import difflib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from builddoctor.core.cluster import Fleet
from builddoctor.core.errors import UsageError
from builddoctor.core.units import parse_size_mib, whole_number

SLURM_OPTIONS = ("partition", "time", "account", "qos", "constraint", "reservation")
"""Of sbatch, passed on as they are."""

_OF_A_JOB = ("SLURM_", "SBATCH_")

_COMMON = ("memory", "cores")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "local": _COMMON,
    "ssh": (*_COMMON, "host"),
    "slurm": ("nodes", *_COMMON, "host", *SLURM_OPTIONS),
}
MOST_NODES = 1000
EXAMPLES = "`local:4`, `ssh:hosts.txt`, `slurm:nodes=4,partition=gpu`, or an address such as `tls://build-host:8786`"


def read_fleet(text: str) -> Fleet | None:
    """What the user wants started; None for what may be an address. Reads the file of hosts. Raises UsageError."""
    kind, colon, rest = text.partition(":")
    if not colon or rest.startswith("//") or "." in kind:
        return None
    if kind == "local":
        count, *words = rest.split(",")
        return _fleet("local", text, words, nodes=_count("nodes", count, text))
    if kind == "ssh":
        name, *words = rest.split(",")
        hosts = _hosts(Path(name), text)
        return msgspec.structs.replace(_fleet("ssh", text, words, nodes=len(hosts)), hosts=hosts)
    if kind == "slurm":
        return _fleet("slurm", text, rest.split(",") if rest else [], nodes=1)
    raise UsageError(f"--cluster {text}: nothing starts nodes by {kind!r}", hint=f"it may be {EXAMPLES}")


def _fleet(kind: Literal["local", "ssh", "slurm"], text: str, words: Sequence[str], *, nodes: int) -> Fleet:
    values: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in _KEYS[kind] or not value or not value.isprintable():
            near = difflib.get_close_matches(name, _KEYS[kind], 1) if name not in _KEYS[kind] else []
            raise UsageError(
                f"--cluster {text}: {word!r} is no setting of {kind} nodes",
                hint=f"did you mean {near[0]}={value or '…'}?"
                if near
                else f"there are {', '.join(_KEYS[kind])}, each =VALUE",
            )
        if name in values:
            raise UsageError(f"--cluster {text}: {name} is said twice", hint="leave one out")
        values[name] = value
    return Fleet(
        kind=kind,
        nodes=_count("nodes", values["nodes"], text) if "nodes" in values else nodes,
        memory_mib=parse_size_mib(values["memory"]) if "memory" in values else None,
        cores=_count("cores", values["cores"], text) if "cores" in values else None,
        host=values.get("host", ""),
        job=tuple((name, values[name]) for name in SLURM_OPTIONS if name in values),
    )


def _count(what: str, word: str, text: str) -> int:
    number = whole_number(word)
    if number is None or not 1 <= number <= MOST_NODES:
        raise UsageError(f"--cluster {text}: {word!r} is no number of {what}", hint=f"it may be {EXAMPLES}")
    return number


def _hosts(path: Path, text: str) -> tuple[tuple[str, ...], ...]:
    """A host in each line, and what its worker is to be told beside; ``#`` begins a comment."""
    try:
        lines = path.read_text().splitlines() if str(path) != "." else []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--cluster {text}: cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}",
            hint="write the hosts into a file, one in a line, as `ssh` takes them; then `--cluster ssh:FILE`",
        ) from error
    found = []
    for line in lines:
        try:
            words = tuple(shlex.split(line, comments=True))
        except ValueError as error:
            raise UsageError(f"{path}: {line!r}: {error}", hint="a line is `HOST` or `HOST --memory 64GiB`") from error
        if words and words[0].startswith("-"):
            raise UsageError(f"{path}: {words[0]!r} is no host", hint="a line is `HOST` or `HOST --memory 64GiB`")
        found += [words] if words else []
    if not found:
        raise UsageError(f"--cluster {text}: no host is named", hint="`--cluster ssh:FILE`, with a host in each line")
    return tuple(found)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a node is told, wherever it is."""

    address: str
    toolkit: str
    """folder of this machine's: the same there, if it is there"""
    memory_mib: float | None
    cores: int | None

    def words(self) -> list[str]:
        """Of ``builddoctor``, but for keys and toolkit."""
        words = ["worker", self.address]
        words += ["--memory", f"{self.memory_mib:.0f}MiB"] if self.memory_mib is not None else []
        return words + (["--cores", str(self.cores)] if self.cores is not None else [])


def ssh_words(host: str) -> list[str]:
    """The command that runs a script there, given on its standard input. It asks for no password."""
    return ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--", host, "sh", "-s"]


def sbatch_words(fleet: Fleet, script: Path) -> list[str]:
    """The command that queues the nodes: a job each, which start when they can."""
    words = ["sbatch", "--parsable", "--job-name=builddoctor-node", f"--array=1-{fleet.nodes}", "--requeue"]
    # What the script prints it writes to a file itself: where that is none, the job would fail.
    words += ["--nodes=1", "--ntasks=1", "--output=/dev/null"]
    words += ["--exclusive"] if fleet.cores is None else [f"--cpus-per-task={fleet.cores}"]
    if fleet.memory_mib is not None:
        words.append(f"--mem={fleet.memory_mib:.0f}M")
    elif fleet.cores is None:
        words.append("--mem=0")
    return [*words, *(f"--{name}={value}" for name, value in fleet.job), str(script)]


def slurm_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Without what a job that we run in has set: its figures are not those of the nodes' jobs."""
    if "SLURM_JOB_ID" not in env:
        return dict(env)
    return {name: value for name, value in env.items() if name == "SLURM_CONF" or not name.startswith(_OF_A_JOB)}


def node_script(start: Start, keys: Path, *, more: Sequence[str] = (), log: str = "") -> str:
    """A script for ``sh`` that makes the machine it runs on a node. It holds the node's keys: for our eyes only.

    ``more``: further words for the worker. ``log``: a file for what it prints, renamed to ``.ended`` if it fails; its
    name may hold variables of the shell. Raises OSError where the keys cannot be read.
    """
    lines = ["#!/bin/sh", "umask 077"]
    if log:
        lines += [f'log="{log}"', '( : >"$log" ) 2>/dev/null && exec >"$log" 2>&1']
    lines += ["keys=$(mktemp -d) || exit", "trap 'rm -rf \"$keys\"' EXIT", "trap 'exit 143' HUP INT TERM"]
    for name in ("ca.pem", "node.pem"):
        lines += [f"cat >\"$keys/{name}\" <<'{_END}'", (keys / name).read_text().rstrip("\n"), _END]
    lines += [
        f"toolkit={shlex.quote(start.toolkit)}",
        'if [ -x "$toolkit/bin/nvcc" ]; then set -- --toolkit "$toolkit"; else set --; fi',
        f"PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH",
        f'builddoctor {shlex.join(start.words())} --keys "$keys" "$@" {shlex.join(more)} </dev/null',
        "status=$?",
    ]
    if log:
        lines.append('[ "$status" = 0 ] || mv "$log" "$log.ended"')
    return "\n".join([*lines, 'exit "$status"', ""])


_END = "end-of-key"
