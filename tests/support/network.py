"""Networks of their own: one where builds and their meeting point are, one for each node, and cables that can be cut.

This machine's own network is left alone. Addresses are of TEST-NET-2 (RFC 5737). Needs root and iproute2.
"""

from __future__ import annotations

import itertools
import os
import subprocess

HERE = "198.51.100.1"
"""Where all nodes reach what is here."""

_number = itertools.count(1)


class Network:
    """Network namespaces, and a cable to each node."""

    def __init__(self, nodes: int = 1) -> None:
        mark = f"{os.getpid() % 100_000}-{next(_number)}"
        self._here = f"bd-here{mark}"
        self._there = [f"bd-there{mark}-{number}" for number in range(nodes)]
        for name in (self._here, *self._there):
            self._ip("netns", "add", name)
            self._ip("-n", name, "link", "set", "lo", "up")
        for number, name in enumerate(self._there):
            near, far = (f"198.51.100.{4 * number + end}" for end in (1, 2))
            cable = f"cable{number}"
            self._ip("-n", self._here, "link", "add", cable, "type", "veth", "peer", "name", "end", "netns", name)
            self._ip("-n", self._here, "addr", "add", f"{near}/30", "dev", cable)
            self._ip("-n", name, "addr", "add", f"{far}/30", "dev", "end")
            self._ip("-n", name, "link", "set", "end", "up")
            self.plug_in(number)
            self._ip("-n", name, "route", "add", "default", "via", near)

    def plug_in(self, number: int = 0) -> None:
        self._ip("-n", self._here, "link", "set", f"cable{number}", "up")

    def cut(self, number: int = 0) -> None:
        self._ip("-n", self._here, "link", "set", f"cable{number}", "down")

    @property
    def here(self) -> list[str]:
        return self._in(self._here)

    def there(self, number: int = 0) -> list[str]:
        return self._in(self._there[number])

    def close(self) -> None:
        for name in (self._here, *self._there):
            self._ip("netns", "del", name)

    @staticmethod
    def _in(name: str) -> list[str]:
        # `ip netns exec` lays another /sys over this one, and memory cgroups would not be seen.
        return ["nsenter", f"--net=/run/netns/{name}"]

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)
