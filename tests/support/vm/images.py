"""What a machine boots from: kernel, initramfs, root disk, disk of Python packages; made once, kept by digest.

Covers: Debian's kernels and programs by mmdebstrap, as root or not; ext4 images by ``mke2fs -d``; a kernel with pages
of 64 KiB, built from Debian's ``linux-source`` (minutes, once). All of it lies in ``~/.cache/builddoctor-vm``, or where
BUILDDOCTOR_VM_CACHE says; what is named by other digests is left alone, and may be deleted.
Does *not* cover: booting (``support.vm.boot``).
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from support.vm.machines import STABLE, Kernel, Machine

GUEST = Path(__file__).parent / "guest"
SOURCES = Path(__file__).parents[3]

PROGRAMS = (
    "bash",
    "coreutils",
    "g++",
    "iproute2",
    "kmod",
    "make",
    "mount",
    "ninja-build",
    "numactl",
    "procps",
    "python3",
)
SERVICES = ("crun", "dbus", "dbus-user-session", "earlyoom", "libpam-systemd", "systemd-oomd", "systemd-sysv")
TOOLS = ("dmsetup", "e2fsprogs", "git", "unzip")
UNUSED_UNITS = (
    "serial-getty@ttyS0.service",
    "getty@tty1.service",
    "systemd-oomd.service",
    "earlyoom.service",
    "systemd-timesyncd.service",
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "e2scrub_reap.service",
    "systemd-update-utmp.service",
    "networking.service",
)
"""A terminal on a serial port that nobody reads costs a boot 80 s; the killers wait for the machine that wants them."""

AT_BOOT = ("virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "crc32c-intel")
LATER = ("overlay", "loop", "zram", "lzo", "lzo-rle", "dm-delay", "dm-mod")
"""Kernel modules: those that the root disk needs, and those that a job may load."""

PACKAGES = ("hypothesis", "msgspec", "psutil", "pytest", "pytest-timeout", "pytest-xdist", "pyyaml", "setuptools")
"""What the tests that run inside need beside builddoctor's own dependencies."""

PYTHON = "3.11"
"""Of Debian stable (bookworm)."""

ROOT_GIB = 8
KERNEL_SOURCE = "linux-source-6.1"


class CannotMakeError(Exception):
    """An image cannot be made here; the text says why, and what would help."""


@dataclass(frozen=True)
class Images:
    """All that a boot needs and does not change."""

    kernel: Path
    initramfs: Path
    root: Path
    packages: Path


def cache_folder() -> Path:
    named = os.environ.get("BUILDDOCTOR_VM_CACHE")
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else caches / "builddoctor-vm"


def images(machine: Machine) -> Images:
    """Made where they are missing. Raises CannotMakeError."""
    kernel = _kernel(machine.kernel)
    return Images(
        kernel=kernel / "vmlinuz",
        initramfs=kernel / "initramfs.gz",
        root=_root(machine.kernel.arch),
        packages=_packages(machine.kernel.arch),
    )


def ext4(folder: Path, image: Path, *, mib: int, label: str) -> None:
    """An ext4 file system with what is in ``folder``, owned by root; the file has holes."""
    with image.open("wb") as file:
        file.truncate(mib << 20)
    # Without the journal's zeroes and with lazy tables: what a throwaway disk needs.
    options = "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0"
    _run(["mke2fs", "-q", "-t", "ext4", "-L", label, "-E", options, "-d", str(folder), str(image)])


# -- kernels -------------------------------------------------------------------------------------------------


def _kernel(kernel: Kernel) -> Path:
    """A folder with ``vmlinuz`` and ``initramfs.gz``."""
    init = (GUEST / "initramfs-init.sh").read_bytes()
    fragment = (GUEST / "kernel-64k.config").read_bytes() if not kernel.package else b""
    name = f"kernel-{kernel.suite}-{kernel.package or '64k'}"
    return _cached(
        name,
        (kernel.arch.encode(), init, fragment, repr((AT_BOOT, LATER)).encode()),
        lambda at: _make_kernel(kernel, at),
    )


def _make_kernel(kernel: Kernel, at: Path) -> None:
    at.mkdir()
    with tempfile.TemporaryDirectory(dir=at.parent, prefix="making-") as scratch:
        tree = Path(scratch) / "tree"
        wanted = ["busybox-static", *([kernel.package] if kernel.package else [])]
        _extract(kernel, wanted, tree)
        initramfs = Path(scratch) / "initramfs"
        (initramfs / "bin").mkdir(parents=True)
        busybox = next(each for each in (tree / "bin/busybox", tree / "usr/bin/busybox") if each.is_file())
        shutil.copy2(busybox, initramfs / "bin/busybox")
        shutil.copy2(GUEST / "initramfs-init.sh", initramfs / "init")
        (initramfs / "init").chmod(0o755)
        (initramfs / "lib/modules").mkdir(parents=True)
        if kernel.package:
            # A merged /usr comes as a link from the package that makes it, which is not asked for.
            base = tree if (tree / "lib/modules").is_dir() else tree / "usr"
            (modules,) = (base / "lib/modules").iterdir()
            image = next(
                each for each in (modules / "vmlinuz", tree / "boot" / f"vmlinuz-{modules.name}") if each.is_file()
            )
            shutil.copy2(image, at / "vmlinuz")
            at_boot = _modules(base, modules.name, initramfs)
        else:
            _build_kernel(Path(scratch), at / "vmlinuz")
            at_boot = []
        (initramfs / "modules-at-boot").write_text("".join(f"{name}\n" for name in at_boot))
        names = "\n".join(str(each.relative_to(initramfs)) for each in sorted(initramfs.rglob("*")))
        archive = _run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], cwd=initramfs, text=names)
        (at / "initramfs.gz").write_bytes(gzip.compress(archive, 6))


def _extract(kernel: Kernel, packages: Sequence[str], tree: Path) -> None:
    """Packages and what they depend on, unpacked and not configured: so another architecture's can be, too."""
    words = ["mmdebstrap", "--quiet", "--variant=extract", f"--architectures={kernel.arch}"]
    # A mirror that lags behind has release files whose time is over.
    words += ['--aptopt=Acquire::Check-Valid-Until "false"', f"--include={','.join(packages)}", kernel.suite]
    if os.geteuid() == 0:
        _run([*words, str(tree)])
        return
    archive = tree.with_suffix(".tar")
    _run([*words, str(archive)])
    tree.mkdir()
    _run(["tar", "-C", str(tree), "--exclude=./dev/*", "-xf", str(archive)])


def _modules(base: Path, version: str, initramfs: Path) -> list[str]:
    """Copies what is needed; the modules to load at boot, in order."""
    _run(["depmod", "-b", str(base), version])
    found: dict[str, list[str]] = {}
    for name in (*AT_BOOT, *LATER):
        shown = subprocess.run(
            ["modprobe", "-d", str(base), "-S", version, "--show-depends", name],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line.split() for line in shown.stdout.splitlines()]
        found[name] = [str(Path(words[1]).relative_to(base)) for words in lines if words[0] == "insmod"]
    unpacked = {"": None, ".xz": "xz", ".zst": "zstd", ".gz": "gzip"}
    for module in {each for modules in found.values() for each in modules}:
        program = unpacked[Path(module).suffix.replace(".ko", "")]
        target = initramfs / module.removesuffix(Path(module).suffix if program else "")
        target.parent.mkdir(parents=True, exist_ok=True)
        content = (base / module).read_bytes()
        target.write_bytes(_run([program, "-dc"], data=content) if program else content)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy2(base / "lib/modules" / version / name, initramfs / "lib/modules" / version / name)
    _run(["depmod", "-b", str(initramfs), version])
    at_boot = dict.fromkeys(module for name in AT_BOOT for module in found[name])
    return [f"/{module[: module.index('.ko') + 3]}" for module in at_boot]


def _build_kernel(scratch: Path, vmlinuz: Path) -> None:
    """Pages of 64 KiB, from Debian's source; all drivers that a machine of ours has, and no modules."""
    archive = Path(f"/usr/src/{KERNEL_SOURCE}.tar.xz")
    if not archive.is_file() or shutil.which("aarch64-linux-gnu-gcc") is None:
        raise CannotMakeError(f"needs {KERNEL_SOURCE}, gcc-aarch64-linux-gnu, flex, bison and bc: apt-get install them")
    _run(["tar", "-C", str(scratch), "-xf", str(archive)])
    source = scratch / KERNEL_SOURCE
    make = ["make", "--quiet", "ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-", f"-j{len(os.sched_getaffinity(0))}"]
    _run([*make, "tinyconfig"], cwd=source)
    _run(["scripts/kconfig/merge_config.sh", "-m", ".config", str(GUEST / "kernel-64k.config")], cwd=source)
    _run([*make, "olddefconfig"], cwd=source)
    _run([*make, "Image"], cwd=source)
    shutil.copy2(source / "arch/arm64/boot/Image", vmlinuz)


# -- disks ---------------------------------------------------------------------------------------------------


def _root(arch: str) -> Path:
    service = (GUEST / "job.service").read_bytes()
    parts = (arch.encode(), service, repr((PROGRAMS, SERVICES, TOOLS, UNUSED_UNITS, ROOT_GIB)).encode())
    make = _make_root if arch == "amd64" else _make_foreign_root
    return _cached(f"root-{STABLE.suite}-{arch}.ext4", parts, make)


def _make_root(at: Path) -> None:
    """Programs configured by their packages: systemd needs that."""
    masks = " ".join(UNUSED_UNITS)
    hooks = [
        f'copy-in "{GUEST}/job.service" /etc/systemd/system',
        'chroot "$1" useradd --create-home --uid 1000 --shell /bin/bash tester',
        f'chroot "$1" systemctl --quiet mask {masks}',
        'chroot "$1" systemctl --quiet enable job.service',
        'printf "/deps\\n/job/tree/src\\n/job/tree/tests\\n" > "$1/usr/lib/python3/dist-packages/job.pth"',
        'rm -rf "$1"/usr/share/doc/* "$1"/usr/share/locale/* "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*',
    ]
    include = ",".join((*PROGRAMS, *SERVICES, *TOOLS))
    words = [
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--include={include}",
        "--aptopt=APT::Install-Recommends false",
    ]
    words += [f"--customize-hook={hook}" for hook in hooks]
    with tempfile.TemporaryDirectory(dir=at.parent, prefix="making-") as scratch:
        archive = Path(scratch) / "root.tar"
        _run([*words, STABLE.suite, str(archive)])
        # Whoever is not root keeps the owners of files by way of a user namespace.
        owners = [] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--map-auto"]
        options = "lazy_itable_init=1,lazy_journal_init=1"
        script = (
            'mkdir "$0/tree" && tar -C "$0/tree" --numeric-owner --exclude="./dev/*" -xf "$0/root.tar" && '
            f'mke2fs -q -t ext4 -E {options} -d "$0/tree" "$1" {ROOT_GIB}G; status=$?; rm -rf "$0/tree"; exit $status'
        )
        _run([*owners, "sh", "-c", script, scratch, str(at)])


def _make_foreign_root(at: Path) -> None:
    """Programs of another architecture, unpacked only: a shell is the first process there."""
    with tempfile.TemporaryDirectory(dir=at.parent, prefix="making-") as scratch:
        tree = Path(scratch) / "tree"
        _extract(
            Kernel(suite=STABLE.suite, package="", arch="arm64"),
            (*PROGRAMS, "base-files", "dash", "libc-bin", "sed", "grep", "tar", "hostname", "util-linux", "findutils"),
            tree,
        )
        for name, target in (("bin/sh", "dash"), ("usr/bin/python3", "python3.11")):
            (tree / name).unlink(missing_ok=True)
            (tree / name).symlink_to(target)
        (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\ntester:x:1000:1000::/home/tester:/bin/sh\n")
        (tree / "etc/group").write_text("root:x:0:\ntester:x:1000:\n")
        packages = tree / "usr/lib/python3/dist-packages"
        packages.mkdir(parents=True, exist_ok=True)
        (packages / "job.pth").write_text("/deps\n/job/tree/src\n/job/tree/tests\n")
        shutil.rmtree(tree / "usr/share/doc", ignore_errors=True)
        for name in ("dev", "proc", "sys", "run", "tmp", "root", "job", "deps"):
            (tree / name).mkdir(exist_ok=True)
        ext4(tree, at, mib=ROOT_GIB << 10, label="root")


def _packages(arch: str) -> Path:
    """builddoctor's dependencies and what its tests need, as wheels for the machine's Python."""
    dependencies = _dependencies()
    return _cached(
        f"packages-{arch}.ext4",
        (arch.encode(), repr(dependencies).encode()),
        lambda at: _make_packages(arch, dependencies, at),
    )


def _dependencies() -> tuple[str, ...]:
    project = msgspec.toml.decode((SOURCES / "pyproject.toml").read_text())["project"]
    return (*project["dependencies"], *PACKAGES)


def _make_packages(arch: str, dependencies: Sequence[str], at: Path) -> None:
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[arch]
    platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in (17, 28, 34)]
    platforms.append(f"--platform=manylinux2014_{machine}")
    with tempfile.TemporaryDirectory(dir=at.parent, prefix="making-") as scratch:
        words = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            f"--target={scratch}",
        ]
        _run([*words, "--only-binary=:all:", f"--python-version={PYTHON}", *platforms, *dependencies])
        ext4(Path(scratch), at, mib=1024, label="packages")


# -- common --------------------------------------------------------------------------------------------------


def _cached(name: str, parts: Sequence[bytes], make: Callable[[Path], None]) -> Path:
    """``make`` is called with a path that does not exist yet; what it leaves there appears whole."""
    digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
    stem, dot, ending = name.partition(".ext4")
    path = cache_folder() / f"{stem}-{digest}{dot}{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.lock").open("w") as lock:
        # Who comes second waits for the first, and has it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            sys.stderr.write(f"making {path.name}\n")
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="new-") as scratch:
                new = Path(scratch) / "new"
                make(new)
                new.rename(path)
    return path


def _run(
    argv: Sequence[str | None], *, cwd: Path | None = None, text: str | None = None, data: bytes | None = None
) -> bytes:
    """Its output; CannotMakeError with the last lines of what it said where it failed or is missing."""
    words = [word for word in argv if word is not None]
    given = text.encode() if text is not None else data
    try:
        done = subprocess.run(words, cwd=cwd, input=given, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise CannotMakeError(
            f"needs {words[0]}: apt-get install mmdebstrap e2fsprogs cpio kmod zstd xz-utils"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()[-8:]
        raise CannotMakeError(f"{words[0]} failed (exit code {done.returncode}):\n" + "\n".join(said))
    return done.stdout
