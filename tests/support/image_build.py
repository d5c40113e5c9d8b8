"""A Dockerfile carried out without a container engine: its instructions, in a root folder of its own.

The file is parsed by BuildKit's parser (package ``dockerfile``). COPY copies, ENV and WORKDIR hold for what follows,
and each RUN is a shell in a chroot of its own mount namespace: the host's programs read-only, everything else fresh.
What an image would bring (apt-get, python3, nvcc) are stand-ins that record how they were called.
Does *not* cover: FROM (the base is this machine), layers, cache mounts (they begin empty), ARG beyond its default,
ENTRYPOINT and CMD.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

import dockerfile
import ninja

from support.memcg import MemoryCgroup

OWN = frozenset(("opt", "tmp", "src", "wheels", "var", "root", "home", "proc", "mnt", "run", "srv", "lost+found"))
"""Top folders of which the image has its own."""

_IN_ROOT = r"""
root=$1 script=$2
shift 2
for each in "$@"; do
  mkdir -p "$root/$each"
  mount --rbind "/$each" "$root/$each"
  mount -o remount,bind,ro "$root/$each" 2>/dev/null || :
done
while read -r each; do
  mkdir -p "$root/$each"
  mount --rbind "/$each" "$root/$each"
done <"$root/opt/binds"
mkdir -p "$root/proc"
mount --rbind /proc "$root/proc"
exec chroot "$root" /usr/bin/env -i sh "$script"
"""

PYTHON = r"""
printf '%s\n' "$*" >>/opt/calls/python
if [ "${1:-}" = -m ] && [ "${2:-}" = venv ]; then
  mkdir -p "$3/bin"
  cp /opt/stand-ins/python3 "$3/bin/python"
  cp /opt/stand-ins/pip "$3/bin/pip"
elif [ "${2:-}" = pip ] && [ "${3:-}" = wheel ]; then
  ninja -C build/cmake
  mkdir -p "$WHEELS"
  cp build/cmake/lib.so "$WHEELS/demo.whl"
fi
"""
"""Builds like a setup.py that calls Ninja, and fails where there is no library after that."""


class ImageBuild:
    """One build of an image below ``folder``."""

    def __init__(self, folder: Path, text: str, context: Path) -> None:
        self.root = folder / "root"
        self.context = context
        self.env = {"PATH": "/opt/stand-ins:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.workdir = "/"
        self.commands = list(dockerfile.parse_string(text))
        for each in ("opt/stand-ins", "opt/calls", "tmp", "var/lib/apt/lists", "root", "wheels"):
            (self.root / each).mkdir(parents=True)
        self.stand_in("python3", PYTHON)
        (self.root / "opt/binds").touch()
        for name in ("apt-get", "pip", "git", "nvcc"):
            self.stand_in(name, f"printf '%s\\n' \"$*\" >>/opt/calls/{name}")
        shutil.copy2(Path(ninja.BIN_DIR) / "ninja", self.root / "opt/stand-ins/ninja")

    def stand_in(self, name: str, script: str) -> None:
        """A program of the image."""
        path = self.root / "opt/stand-ins" / name
        path.write_text(f"#!/bin/sh\nset -eu\n{script}\n")
        path.chmod(0o755)

    def real(self, *names: str) -> None:
        """These are this machine's own, and no stand-ins."""
        for name in names:
            (self.root / "opt/stand-ins" / name).unlink()

    def bind(self, *folders: Path) -> None:
        """Folders of this machine that the image has at the same place."""
        theirs = [folder for folder in dict.fromkeys(folders) if folder.parts[1] in OWN]
        (self.root / "opt/binds").write_text("".join(f"{str(folder)[1:]}\n" for folder in theirs))

    def calls(self, name: str) -> list[str]:
        """How a stand-in was called."""
        file = self.root / "opt/calls" / name
        return file.read_text().splitlines() if file.exists() else []

    def run(self, *, group: MemoryCgroup | None = None) -> list[subprocess.CompletedProcess[str]]:
        """Carry out the first stage of the file, up to and with the first RUN that fails; all RUNs in order."""
        done = []
        froms = 0
        for command in self.commands:
            name = command.cmd.upper()
            froms += name == "FROM"
            if froms > 1:
                break
            if name == "RUN":
                done.append(self._run(command, group))
                if done[-1].returncode:
                    break
            elif name == "COPY":
                self._copy(command)
            elif name == "ENV":
                for key, value in zip(command.value[::2], command.value[1::2], strict=False):
                    self.env[key] = value.replace("$PATH", self.env["PATH"])
            elif name == "WORKDIR":
                self.workdir = command.value[0]
                self._in_root(self.workdir).mkdir(parents=True, exist_ok=True)
            elif name == "ARG" and froms:
                key, _, value = command.value[0].partition("=")
                self.env[key] = value
            else:
                assert name in ("FROM", "ARG", "ENTRYPOINT", "CMD"), f"{name} is not carried out here"
        return done

    def _in_root(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _copy(self, command: dockerfile.Command) -> None:
        target = self._in_root(command.value[-1])
        if command.heredocs:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(command.heredocs[0].content)
            return
        for pattern in command.value[:-1]:
            for source in map(Path, glob.glob(str(self.context / pattern))):
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)
                    continue
                into = target if command.value[-1].endswith("/") else target.parent
                into.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)

    def _bring(self, command: dockerfile.Command) -> None:
        """The context, where a RUN mounts it. What it writes there would be gone after it; here it stays."""
        for flag in command.flags:
            words = dict(each.partition("=")[::2] for each in flag.removeprefix("--mount=").split(","))
            if words["type"] == "bind":
                shutil.copytree(self.context, self._in_root(words["target"]), symlinks=True)

    def _run(self, command: dockerfile.Command, group: MemoryCgroup | None) -> subprocess.CompletedProcess[str]:
        assert not command.heredocs, "a RUN with a here-document is not carried out here"
        (text,) = command.value
        self._bring(command)
        script = self.root / "tmp" / "run.sh"
        exports = "".join(f"export {key}='{value}'\n" for key, value in self.env.items())
        script.write_text(f"{exports}cd {self.workdir}\n{text}\n")
        theirs = [each.name for each in Path("/").iterdir() if each.is_dir() and each.name not in OWN]
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _IN_ROOT, "sh", str(self.root)]
        # Links such as /bin to usr/bin are the same in there.
        for name in [each for each in theirs if Path("/", each).is_symlink()]:
            theirs.remove(name)
            if not (self.root / name).is_symlink():
                (self.root / name).symlink_to(os.readlink(f"/{name}"))
        argv += ["/tmp/run.sh", *theirs]
        return subprocess.run(
            group.wrapped(argv) if group is not None else argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
