"""Machines on one: network namespaces with memory cgroups of their own, joined by cables (veth) at a bridge.

Covers: making and removing them, cutting a cable, and what went over it. This machine's own network is left alone: the
bridge lies in the first namespace. Needs root.
Does *not* cover: how fast a cable is. Where the kernel has `tbf` it carries 1 Gbit/s; a delay would need `netem`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess

from support.memcg import MIB, MemoryCgroup, memory_cgroup

NET = "198.51.100"
"""TEST-NET-2 (RFC 5737)."""
HERE = f"{NET}.1"
"""the first machine"""

_number = itertools.count(1)


class Machine:
    """One network namespace. ``prefix`` starts a command there."""

    def __init__(self, namespace: str, address: str, cable: str, group: MemoryCgroup | None) -> None:
        self.namespace, self.address, self.group = namespace, address, group
        self._cable = cable

    @property
    def entered(self) -> list[str]:
        """The same, outside its memory cgroup."""
        # Not `ip netns exec`, which mounts another /sys: cgroups would be missing in it.
        return ["nsenter", f"--net=/run/netns/{self.namespace}"]

    @property
    def prefix(self) -> list[str]:
        return self.entered if self.group is None else self.group.wrapped(self.entered)


class Bridge:
    """The first machine is where the bridge is; each other one has a cable to it."""

    def __init__(self, *, shaped: bool = False) -> None:
        self._stack = contextlib.ExitStack()
        self._machines: list[Machine] = []
        self.shaped = shaped
        """each cable carries 1 Gbit/s and no more, where the kernel can"""

    def close(self) -> None:
        self._stack.close()

    def add(self, *, limit_bytes: int = 0) -> Machine:
        """Another machine; with a memory cgroup where there is a limit."""
        namespace = f"bd-{os.getpid() % 100_000}-{next(_number)}"
        address = f"{NET}.{len(self._machines) + 1}"
        _ip("netns", "add", namespace)
        self._stack.callback(_ip, "netns", "del", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        group = self._stack.enter_context(memory_cgroup(limit_bytes)) if limit_bytes else None
        made = Machine(namespace, address, f"cable{len(self._machines)}", group)
        if self._machines:
            here = self._machines[0].namespace
            _ip("-n", here, "link", "add", made._cable, "type", "veth", "peer", "name", "end", "netns", namespace)
            _ip("-n", here, "link", "set", made._cable, "master", "bridge")
            self._ready(namespace, "end", address)
            self.plug_in(made)
            self.shaped = self.shaped and _shaped(here, made._cable) and _shaped(namespace, "end")
        else:
            _ip("-n", namespace, "link", "add", "bridge", "type", "bridge")
            self._ready(namespace, "bridge", address)
        self._machines.append(made)
        return made

    def plug_in(self, machine: Machine) -> None:
        _ip("-n", self._machines[0].namespace, "link", "set", machine._cable, "up")

    def cut(self, machine: Machine) -> None:
        _ip("-n", self._machines[0].namespace, "link", "set", machine._cable, "down")

    def carried_mib(self, machine: Machine) -> float:
        """Over its cable so far, both ways, headers and all."""
        (link,) = json.loads(_ip("-n", machine.namespace, "-j", "-s", "link", "show", "end"))
        return sum(link["stats64"][way]["bytes"] for way in ("rx", "tx")) / MIB

    @staticmethod
    def _ready(namespace: str, link: str, address: str) -> None:
        _ip("-n", namespace, "addr", "add", f"{address}/24", "dev", link)
        _ip("-n", namespace, "link", "set", link, "up")


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _shaped(namespace: str, link: str) -> bool:
    """Whether the kernel can do it; there is no delay, for which it needs another module."""
    rate = ["tbf", "rate", "1gbit", "burst", "128kb", "latency", "50ms"]
    words = ["ip", "netns", "exec", namespace, "tc", "qdisc", "add", "dev", link, "root", *rate]
    return subprocess.run(words, check=False, capture_output=True).returncode == 0
