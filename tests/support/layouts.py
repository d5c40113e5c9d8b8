"""CUDA toolkits in the layouts that users have, made of links to the one that is here."""

from __future__ import annotations

from pathlib import Path

from support.capabilities import find_nvcc


def real_home() -> Path:
    """The toolkit behind the machine's nvcc."""
    nvcc = find_nvcc()
    assert nvcc is not None
    return nvcc.resolve().parent.parent


def _link_all(source: Path, target: Path) -> None:
    target.mkdir(parents=True)
    for entry in source.iterdir():
        (target / entry.name).symlink_to(entry)


def conda(folder: Path) -> Path:
    """``$CONDA_PREFIX``: nvcc in a bin that is full of other things, python among them."""
    _link_all(real_home() / "bin", folder / "bin")
    (folder / "bin" / "python3").symlink_to("/bin/false")
    for name in ("nvvm", "targets"):
        (folder / name).symlink_to(real_home() / name)
    return folder / "bin" / "nvcc"


def debian(folder: Path) -> Path:
    """Debian's split layout: a wrapper in usr/bin before the toolkit in usr/lib."""
    toolkit = folder / "usr" / "lib" / "nvidia-cuda-toolkit"
    _link_all(real_home() / "bin", toolkit / "bin")
    for name in ("nvvm", "targets"):
        (toolkit / name).symlink_to(real_home() / name)
    wrapper = folder / "usr" / "bin" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {toolkit}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def pip_wheels(folder: Path) -> Path:
    """``site-packages/nvidia/cu13``: one tree, libraries in ``lib``, no ``targets``."""
    toolkit = folder / "site-packages" / "nvidia" / "cu13"
    _link_all(real_home() / "bin", toolkit / "bin")
    for name in ("nvvm", "include", "lib"):
        (toolkit / name).symlink_to(real_home() / name)
    return toolkit / "bin" / "nvcc"


def usr_local(folder: Path) -> Path:
    """``/usr/local/cuda-X`` behind a link ``/usr/local/cuda``."""
    (folder / "cuda-13.0").symlink_to(real_home())
    (folder / "cuda").symlink_to(folder / "cuda-13.0")
    return folder / "cuda" / "bin" / "nvcc"
