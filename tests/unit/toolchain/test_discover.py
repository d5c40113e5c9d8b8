"""Where CUDA compilers are looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from builddoctor.system.root import SystemRoot
from builddoctor.toolchain.discover import OVERLAY_MARK, candidates, is_overlay, managed_folder


def install(root: Path, *nvccs: str) -> None:
    """Empty files in the places of these nvccs."""
    for nvcc in nvccs:
        path = root / nvcc
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def found(root: Path, env: dict[str, str] | None = None, *, wanted: str = "", sites: tuple[str, ...] = ()) -> list[str]:
    """Candidates, relative to the root."""
    folders = [root / site for site in sites]
    paths = candidates(SystemRoot(root), env or {"PATH": ""}, wanted=wanted, site_folders=folders)
    return [str(path.relative_to(root)) for path in paths]


def test_the_newest_of_the_usual_folders_comes_first(tmp_path: Path) -> None:
    """By version and not by name, after /usr/local/cuda, which is somebody's choice."""
    install(tmp_path, *(f"usr/local/cuda-{version}/bin/nvcc" for version in ("9.2", "12.8", "13.0")))
    install(tmp_path, "usr/local/cuda/bin/nvcc", "opt/cuda-12.9/bin/nvcc", "usr/local/cuda-samples/bin/nvcc")
    assert found(tmp_path) == [
        "usr/local/cuda/bin/nvcc",
        "usr/local/cuda-13.0/bin/nvcc",
        "opt/cuda-12.9/bin/nvcc",
        "usr/local/cuda-12.8/bin/nvcc",
        "usr/local/cuda-9.2/bin/nvcc",
    ]


def test_a_toolkit_may_be_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--toolkit ./cuda`` becomes absolute, since it is run from another folder. A home of nobody is no error."""
    install(tmp_path, "cuda/bin/nvcc")
    monkeypatch.chdir(tmp_path)
    assert found(tmp_path, wanted="./cuda") == ["cuda/bin/nvcc"]
    assert found(tmp_path, wanted="~no-such-user/cuda") == []


def test_what_the_environment_names_comes_before_what_lies_around(tmp_path: Path) -> None:
    """CUDACXX, CUDA_HOME, CUDA_PATH, PATH, conda, pip's wheels, in this order."""
    names = ("cxx", "home/bin/nvcc", "path/bin/nvcc", "bin/nvcc", "conda/bin/nvcc", "usr/local/cuda/bin/nvcc")
    site = "site/nvidia/cu13/bin/nvcc"
    install(tmp_path, *names, site)
    env = {
        "CUDACXX": f"{tmp_path}/cxx",
        "CUDA_HOME": f"{tmp_path}/home",
        "CUDA_PATH": f"{tmp_path}/path",
        "PATH": f":{tmp_path}/missing:{tmp_path}/bin",
        "CONDA_PREFIX": f"{tmp_path}/conda",
    }
    assert found(tmp_path, env, sites=("nowhere", "site")) == [*names[:-1], site, names[-1]]


@pytest.mark.parametrize(
    "nvcc",
    [
        "conda/bin/nvcc",
        "usr/lib/nvidia-cuda-toolkit/bin/nvcc",
        "site/nvidia/cu13/bin/nvcc",
        "site/nvidia/cuda_nvcc/bin/nvcc",
        "opt/cuda-13.0/bin/nvcc",
    ],
)
def test_every_layout_is_found(tmp_path: Path, nvcc: str) -> None:
    """conda by CONDA_PREFIX, Debian's split one, pip's old and new wheels, /opt."""
    install(tmp_path, nvcc)
    assert found(tmp_path, {"PATH": "", "CONDA_PREFIX": f"{tmp_path}/conda"}, sites=("site",)) == [nvcc]


@pytest.mark.parametrize("wanted", ["named", "named/bin/nvcc"])
def test_a_toolkit_that_the_user_named_is_the_only_candidate(tmp_path: Path, wanted: str) -> None:
    """Its folder or its nvcc; nothing else is taken in its stead."""
    install(tmp_path, "named/bin/nvcc", "usr/local/cuda/bin/nvcc")
    assert found(tmp_path, wanted=f"{tmp_path}/{wanted}") == ["named/bin/nvcc"]
    assert found(tmp_path, wanted=f"{tmp_path}/missing") == []


@pytest.mark.parametrize(("wanted", "first"), [("12", "12.9"), ("12.8", "12.8"), ("13", "13.0"), ("13.0", "13.0")])
def test_a_version_that_the_user_named_comes_first(tmp_path: Path, wanted: str, first: str) -> None:
    """12 is any 12.x, the newest of them first; the others prove their version later."""
    install(tmp_path, *(f"usr/local/cuda-{version}/bin/nvcc" for version in ("12.8", "12.9", "13.0")))
    assert found(tmp_path, wanted=wanted)[0] == f"usr/local/cuda-{first}/bin/nvcc"


def test_a_compiler_by_its_name_alone_is_looked_up(tmp_path: Path) -> None:
    """CUDACXX=nvcc means the one on PATH."""
    install(tmp_path, "tools/mynvcc")
    (tmp_path / "tools/mynvcc").chmod(0o755)
    assert found(tmp_path, {"PATH": f"{tmp_path}/tools", "CUDACXX": "mynvcc"}) == ["tools/mynvcc"]
    assert found(tmp_path, {"PATH": f"{tmp_path}/tools", "CUDACXX": "missing"}) == []


def test_our_own_overlay_is_no_toolkit(tmp_path: Path) -> None:
    """A build started from a supervised build's environment finds the real one behind it."""
    install(tmp_path, "overlay/bin/nvcc", "usr/local/cuda/bin/nvcc")
    (tmp_path / "overlay" / OVERLAY_MARK).write_text("x")
    assert is_overlay(tmp_path / "overlay/bin/nvcc")
    env = {"PATH": f"{tmp_path}/overlay/bin", "CUDACXX": f"{tmp_path}/overlay/bin/nvcc"}
    assert found(tmp_path, env) == ["usr/local/cuda/bin/nvcc"]


def test_folders_and_missing_files_are_no_compilers(tmp_path: Path) -> None:
    """A folder called nvcc is passed over."""
    (tmp_path / "usr/local/cuda/bin/nvcc").mkdir(parents=True)
    assert found(tmp_path, {"PATH": "/nowhere", "CUDA_HOME": "/nowhere"}) == []


@pytest.mark.parametrize("entry", ["x" * 300, "nul\0byte"])
def test_a_path_entry_that_cannot_be_looked_into_is_passed_over(tmp_path: Path, entry: str) -> None:
    """Like one that this user may not read: the search goes on behind it."""
    install(tmp_path, "tools/nvcc")
    assert found(tmp_path, {"PATH": f"/{entry}:{tmp_path}/tools"}) == ["tools/nvcc"]


def test_managed_toolkits_are_found_by_version_and_after_all_others(tmp_path: Path) -> None:
    """``--toolkit 13.0`` takes the managed one first; without it, what the machine has. Another processor's never."""
    here = os.uname().machine
    managed = "home/.local/share/builddoctor/toolkits"
    other = f"{managed}/cuda-13.0.99-{'aarch64' if here == 'x86_64' else 'x86_64'}/bin/nvcc"
    names = [f"{managed}/cuda-{version}-{here}/bin/nvcc" for version in ("13.0.88", "13.5.37", "junk")]
    install(tmp_path, *names, other, "usr/local/cuda-13.0/bin/nvcc", "usr/lib/nvidia-cuda-toolkit/bin/nvcc")
    env = {"PATH": "", "HOME": "/home"}
    assert found(tmp_path, env, wanted="13.0")[:2] == [names[0], "usr/local/cuda-13.0/bin/nvcc"]
    assert found(tmp_path, env) == [
        *("usr/local/cuda-13.0/bin/nvcc", names[1], names[0], "usr/lib/nvidia-cuda-toolkit/bin/nvcc")
    ]


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/home/me"}, "/home/me/.local/share/builddoctor/toolkits"),
        ({"HOME": "/home/me", "XDG_DATA_HOME": "/data"}, "/data/builddoctor/toolkits"),
        ({"HOME": "/home/me", "XDG_DATA_HOME": "relative"}, "/home/me/.local/share/builddoctor/toolkits"),
        ({"HOME": "/home/me", "BUILDDOCTOR_DATA_DIR": "/own"}, "/own/toolkits"),
        ({}, None),
    ],
)
def test_managed_toolkits_lie_in_the_users_data_folder(env: dict[str, str], folder: str | None) -> None:
    """Ours, XDG's, the usual one; none without a home."""
    assert managed_folder(SystemRoot(), env) == (Path(folder) if folder else None)
