"""An ssh server of our own on loopback, with a key of its own, and an ``ssh`` that knows the way to it."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

from support.capabilities import SBIN
from support.program import PATIENCE_S


class SshServer:
    """``client``: a folder for PATH whose ``ssh`` is the real one, with our settings."""

    host = "node-by-ssh"

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.client = folder / "bin"
        self.client.mkdir()
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        shutil.copy(folder / "user_key.pub", folder / "authorized")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        (folder / "sshd").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized\n"
            f"PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n"
            f"SetEnv TMPDIR={self.temporary} PATH=/usr/bin:/bin\n"
        )
        (folder / "config").write_text(
            f"Host {self.host}\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {folder}/user_key\n"
            f"  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        )
        real = shutil.which("ssh")
        (self.client / "ssh").write_text(f'#!/bin/sh\nexec {real} -F {folder}/config "$@"\n')
        (self.client / "ssh").chmod(0o755)
        # It wants a folder of its own, and its full path.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        program = shutil.which("sshd", path=SBIN) or "sshd"
        words = [program, "-D", "-e", "-f", str(folder / "sshd")]
        with (folder / "log").open("wb") as log:
            self._server = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        # It answers once it listens.
        asking = [str(self.client / "ssh"), self.host, "true"]
        if not any(subprocess.run(asking, capture_output=True, check=False).returncode == 0 for _ in range(100)):
            self.close()
            raise AssertionError((folder / "log").read_text())

    def close(self) -> None:
        self._server.terminate()
        self._server.wait(PATIENCE_S)
