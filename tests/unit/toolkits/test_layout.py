"""Wheels become one CUDA_HOME."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from builddoctor.core.errors import PackageDamagedError
from builddoctor.toolkits.layout import merge, place_of, placed, plain_links
from builddoctor.toolkits.managed import Manifest, Package, read_manifest
from builddoctor.toolkits.wheels import Wheel, read_wheel
from support.made_wheels import make_wheel, toolkit_wheels

TRIPLE = "x86_64-linux"
MANIFEST = Manifest(
    name="cuda-13.0.88-x86_64",
    version="13.0.88",
    release="13.0.3.0",
    arch="x86_64",
    components=(),
    packages=(Package(name="nvidia-cuda-nvcc", version="13.0.88", file="x.whl", sha256="0"),),
)


def wheel(folder: Path, name: str, files: Mapping[str, bytes | str]) -> Wheel:
    return read_wheel(make_wheel(folder, name, "1.0", files))


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ("nvidia/cu13/include/cuda.h", "targets/x86_64-linux/include/cuda.h"),
        ("nvidia/cu13/lib/cmake/cccl/cccl-config.cmake", "targets/x86_64-linux/lib/cmake/cccl/cccl-config.cmake"),
        ("nvidia/cudnn/lib/libcudnn.so.9", "targets/x86_64-linux/lib/libcudnn.so.9"),
        ("nvidia/nccl/lib64/libnccl.so.2", "targets/x86_64-linux/lib/libnccl.so.2"),
        ("nvidia/cu13/bin/crt/link.stub", "bin/crt/link.stub"),
        ("nvidia/cu13/nvvm/bin/cicc", "nvvm/bin/cicc"),
        ("nvidia_x-1.0.dist-info/licenses/License.txt", "licenses/nvidia-x/License.txt"),
        ("nvidia_x-1.0.dist-info/METADATA", None),
        ("nvidia/cu13/.metadata/provenance.txt", None),
        ("nvidia/cu13/include/__init__.py", None),
        ("nvidia/__init__.py", None),
        ("other/cu13/include/x.h", None),
    ],
)
def test_every_file_has_its_place(entry: str, place: str | None) -> None:
    """As NVIDIA's installer lays a toolkit out; what python alone needs stays out."""
    found = place_of(entry, "nvidia-x", TRIPLE)
    assert found == (PurePosixPath(place) if place else None)


def test_a_library_gets_the_plain_name_that_linking_asks_for() -> None:
    """The newest of several; one that is there is left as it is; dots and dashes in a name are no version."""
    names = ["libcublas.so.13", "libx.so.9", "libx.so.10", "liby.so", "liby.so.1", "libnvrtc-builtins.alt.so.13.0"]
    assert plain_links([*names, "libcudart_static.a", "cmake", "lib.so.x"]) == [
        ("libcublas.so", "libcublas.so.13"),
        ("libnvrtc-builtins.alt.so", "libnvrtc-builtins.alt.so.13.0"),
        ("libx.so", "libx.so.10"),
    ]


def test_the_folder_is_a_toolkit(tmp_path: Path) -> None:
    """No link leads out of it, all of them lead somewhere; programs may be run; both manifests can be read."""
    wheels = [read_wheel(path) for path in toolkit_wheels(tmp_path / "wheels") if "cuda_toolkit" not in path.name]
    home = tmp_path / "home"
    home.mkdir()
    merge(wheels, home, MANIFEST)
    links = [path for path in home.rglob("*") if path.is_symlink()]
    assert len(links) > 5
    for link in links:
        assert not os.readlink(link).startswith("/")
        assert link.resolve(strict=True).is_relative_to(home)
    assert all(os.access(home / "bin" / name, os.X_OK) for name in ("nvcc", "ptxas", "cudafe++", "../nvvm/bin/cicc"))
    assert not os.access(home / "bin" / "nvcc.profile", os.X_OK)
    assert read_manifest(home) == MANIFEST
    assert json.loads((home / "version.json").read_text())["cuda"] == {"name": "CUDA SDK", "version": "13.0.3"}
    assert (home / "lib64" / "libcublas.so").read_text() == "cublas"


def test_the_same_file_in_two_packages_is_one(tmp_path: Path) -> None:
    """Written once, by the first."""
    files = {"nvidia/cu13/include/both.h": "same"}
    first, second = placed([wheel(tmp_path, "nvidia-a", files), wheel(tmp_path, "nvidia-b", files)], TRIPLE)
    assert "nvidia/cu13/include/both.h" in first
    assert "nvidia/cu13/include/both.h" not in second


def test_different_files_under_one_name_are_a_contradiction(tmp_path: Path) -> None:
    """Both packages are named; nothing is written."""
    wheels = [wheel(tmp_path, f"nvidia-{each}", {"nvidia/cu13/include/both.h": each}) for each in ("a", "b")]
    with pytest.raises(PackageDamagedError, match=r"nvidia-a and nvidia-b have different files for .*both\.h"):
        placed(wheels, TRIPLE)


def test_one_trees_lib_and_anothers_lib64_are_the_same_place(tmp_path: Path) -> None:
    """So a contradiction is found there too."""
    places = ("nvidia/cu13/lib/libx.so.1", "nvidia/nccl/lib64/libx.so.1")
    wheels = [wheel(tmp_path, f"nvidia-{each}", {place: each}) for each, place in zip("ab", places, strict=True)]
    with pytest.raises(PackageDamagedError, match="different files"):
        placed(wheels, TRIPLE)


def test_a_file_that_is_anothers_folder_is_a_contradiction(tmp_path: Path) -> None:
    """Found before anything is written."""
    wheels = [
        wheel(tmp_path, "nvidia-a", {"nvidia/cu13/include/x": "file"}),
        wheel(tmp_path, "nvidia-b", {"nvidia/cu13/include/x/y.h": "below"}),
    ]
    with pytest.raises(PackageDamagedError, match="a file in one package and a folder in another"):
        placed(wheels, TRIPLE)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": 1, "name": "x"}', "\xff"])
def test_a_manifest_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    """A folder with such a file is not ours."""
    (tmp_path / "builddoctor-toolkit.json").write_text(text, encoding="latin-1")
    assert read_manifest(tmp_path) is None


def test_the_sanitizers_headers_stay_apart() -> None:
    """Of CUPTI's, some have the same names and other contents: with both packages there was no toolkit."""
    entry = "nvidia/cu13/include/generated_cuda_meta.h"
    ours, cupti = (place_of(entry, f"nvidia-cuda-{name}", TRIPLE) for name in ("sanitizer-api", "cupti"))
    assert ours == PurePosixPath("compute-sanitizer/include/generated_cuda_meta.h")
    assert cupti == PurePosixPath("targets", TRIPLE, "include", "generated_cuda_meta.h")
