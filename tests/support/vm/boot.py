"""Boots a machine, runs one command in it, brings back what it said, its exit code, and files.

Covers: a disk with this tree and the command; qemu with or without KVM, without a network; output by serial ports,
as it comes; files from /out. All that a run makes is in one folder, which goes when it ends; disks that are kept are
never written (``snapshot``).
Does *not* cover: what is booted (``support.vm.images``, ``support.vm.machines``).
"""

from __future__ import annotations

import os
import platform
import selectors
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from support.vm.images import GUEST, SOURCES, CannotMakeError, Images, cache_folder, ext4, images
from support.vm.machines import JOB, Machine

JOB_MIB = 2048
ARTIFACTS_MIB = 512
CONSOLE_LINES = 30
KVM_WITHIN_S = 20.0


class MachineFailedError(Exception):
    """The machine ended, or its time did, and no exit code came back; the text ends with its console."""


@dataclass(frozen=True)
class Job:
    """What runs inside. ``files``: folders of this machine, found there under the same path."""

    argv: Sequence[str]
    files: Sequence[Path] = ()
    artifacts: Path | None = None
    """a folder of this machine: what the job leaves in /out lands there"""
    memory_mib: int | None = None
    timeout_s: float = 600.0


def run(machine: Machine, job: Job, *, stdout: BinaryIO, stderr: BinaryIO) -> int:
    """The job's exit code. Raises CannotMakeError and MachineFailedError."""
    base = images(machine)
    with tempfile.TemporaryDirectory(prefix="builddoctor-vm-") as folder:
        at = Path(folder)
        disks = [base.root, _job_disk(machine, job, at), base.packages]
        if job.artifacts is not None:
            disks.append(at / "artifacts")
            with disks[-1].open("wb") as file:
                file.truncate(ARTIFACTS_MIB << 20)
        for number, source in enumerate(job.files):
            disks.append(at / f"files{number}.ext4")
            _disk_of(source, disks[-1])
        argv = _qemu(machine, job, base, disks, at)
        code = _watch(argv, at, job.timeout_s, (stdout, stderr))
        if job.artifacts is not None:
            job.artifacts.mkdir(parents=True, exist_ok=True)
            subprocess.run(["tar", "-C", str(job.artifacts), "-xf", str(at / "artifacts")], check=True)
    return code


def _job_disk(machine: Machine, job: Job, at: Path) -> Path:
    """This tree as it is, without what git ignores; and the job."""
    folder = at / "job"
    tree = folder / "tree"
    tree.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=SOURCES,
        capture_output=True,
        check=True,
    )
    for name in listed.stdout.decode().split("\0"):
        # What is deleted and not yet committed is listed as well.
        if name and (SOURCES / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(SOURCES / name, tree / name)
    guest = folder / "guest"
    shutil.copytree(GUEST, guest)
    (guest / "bin").mkdir()
    (guest / "bin/builddoctor").write_text('#!/bin/sh\nexec python3 -m builddoctor "$@"\n')
    (guest / "bin/builddoctor").chmod(0o755)
    (guest / "first").write_text("/lib/systemd/systemd" if machine.systemd else f"{JOB}/guest/plain-init.sh")
    (guest / "plain-init.sh").chmod(0o755)
    (guest / "ports").write_text(" ".join(f"/dev/{port}" for port in _ports(machine)) + "\n")
    (guest / "prepare.sh").write_text(machine.prepare + "\n")
    (guest / "command.sh").write_text(f"exec {shlex.join([*machine.enter, *job.argv])}\n")
    (guest / "artifacts").write_text("/dev/vdd\n" if job.artifacts is not None else "")
    first = ord("d") + (job.artifacts is not None)
    disks = (f"/dev/vd{chr(first + number)} {source}\n" for number, source in enumerate(job.files))
    (guest / "more-disks").write_text("".join(disks))
    image = at / "job.ext4"
    ext4(folder, image, mib=JOB_MIB, label="job")
    return image


def _disk_of(source: Path, image: Path) -> None:
    used = subprocess.run(["du", "-sxm", str(source)], capture_output=True, text=True, check=True).stdout
    ext4(source, image, mib=int(used.split()[0]) * 5 // 4 + 64, label="files")


def _ports(machine: Machine) -> tuple[str, str, str]:
    """Serial ports of output, errors and exit code; the console has the first."""
    return ("ttyS1", "ttyS2", "ttyS3") if machine.kernel.arch == "amd64" else ("ttyS0", "ttyS1", "ttyS2")


def _qemu(machine: Machine, job: Job, base: Images, disks: Sequence[Path], at: Path) -> list[str]:
    memory_mib = job.memory_mib or machine.memory_mib
    console = "ttyS0" if machine.kernel.arch == "amd64" else "ttyAMA0"
    cmdline = [f"console={console}", "panic=-1", "quiet", "mitigations=off", "random.trust_cpu=on", *machine.cmdline]
    if machine.kernel.arch == "amd64":
        argv = ["qemu-system-x86_64", "-M", "q35", *_acceleration(base.kernel), "-cpu", "max"]
    else:
        argv = [
            "qemu-system-aarch64",
            "-M",
            "virt,gic-version=3",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max,pauth-impdef=on",
        ]
    argv += ["-smp", "2", "-m", f"{memory_mib}M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    argv += ["-kernel", str(base.kernel), "-initrd", str(base.initramfs), "-append", " ".join(cmdline)]
    argv += ["-device", "virtio-rng-pci"]
    argv += ["-serial", f"file:{at / 'console'}"]
    ports = [f"file,id=port{number},path={at / name}" for number, name in enumerate(("stdout", "stderr", "code"))]
    for number, port in enumerate(ports):
        argv += ["-chardev", port]
        device = "isa-serial" if machine.kernel.arch == "amd64" else "pci-serial"
        argv += ["-device", f"{device},chardev=port{number}"]
    for number, disk in enumerate(disks):
        # What the job leaves is to be read afterwards.
        kept = "off" if disk.name == "artifacts" else "on"
        argv += ["-drive", f"if=none,id=disk{number},file={disk},format=raw,snapshot={kept},cache=unsafe"]
        argv += ["-device", f"virtio-blk-pci,drive=disk{number}"]
    for number, mib in enumerate(machine.nodes_mib):
        cpus = f",cpus={number}" if number < 2 else ""
        argv += ["-object", f"memory-backend-ram,id=mem{number},size={mib}M"]
        argv += ["-numa", f"node,nodeid={number},memdev=mem{number}{cpus}"]
    return [*argv, *machine.qemu]


def _acceleration(kernel: Path) -> list[str]:
    """KVM where a machine of it really runs: in some guests /dev/kvm opens, and nothing ever starts."""
    emulated = ["-accel", "tcg,thread=multi"]
    if platform.machine() != "x86_64" or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return emulated
    known = cache_folder() / f"kvm-{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
    if not known.exists():
        argv = ["qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-M", "q35", "-nodefaults", "-display", "none"]
        # Without a root disk the kernel panics, and the machine is off.
        argv += ["-no-reboot", "-kernel", str(kernel), "-append", "panic=-1"]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=KVM_WITHIN_S, check=False)
            works = done.returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            works = False
        known.write_text("yes" if works else "no")
    return ["-accel", "kvm"] if known.read_text() == "yes" else emulated


def _watch(argv: Sequence[str], at: Path, timeout_s: float, outputs: Sequence[BinaryIO]) -> int:
    """Passes on what the job says until the machine is off; its exit code."""
    readers = []
    for name in ("stdout", "stderr", "code"):
        os.mkfifo(at / name)
        readers.append(os.open(at / name, os.O_RDONLY | os.O_NONBLOCK))
    code = b""
    until_s = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as ports, (at / "qemu").open("wb") as said:
        try:
            qemu = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        except FileNotFoundError as error:
            raise CannotMakeError(f"needs {argv[0]}: apt-get install qemu-system-x86 qemu-system-arm") from error
        try:
            for reader, output in zip(readers, (*outputs, None), strict=True):
                ports.register(reader, selectors.EVENT_READ, output)
            while ports.get_map() and time.monotonic() < until_s:
                for key, _ in ports.select(timeout=1.0):
                    data = os.read(key.fd, 1 << 16)
                    if not data and qemu.poll() is not None:
                        ports.unregister(key.fd)
                    elif key.data is None:
                        code += data
                    else:
                        key.data.write(data)
                        key.data.flush()
        finally:
            qemu.kill()
            qemu.wait()
            for reader in readers:
                os.close(reader)
    word = code.strip()
    if not word.isdigit():
        late = (
            f"no exit code after {timeout_s:.0f} s"
            if time.monotonic() >= until_s
            else "it went off without an exit code"
        )
        lines = [*_last(at / "qemu"), *_last(at / "console")]
        raise MachineFailedError("\n".join([f"the machine failed: {late}; its console ends with:", *lines]))
    return int(word)


def _last(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-CONSOLE_LINES:] if path.is_file() else []
