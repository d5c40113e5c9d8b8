"""Which packages a toolkit is made of, the cache of wheels, and the folder of toolkits."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from builddoctor.errors import FolderNotWritableError, PackageUnavailableError, ToolkitNotFoundError, UsageError
from builddoctor.model.managed import Manifest
from builddoctor.toolkits import store
from builddoctor.toolkits.cache import WheelCache
from builddoctor.toolkits.components import (
    depends_on,
    parse_components,
    pinned,
    read_release,
    release_requirement,
    requirements,
)
from builddoctor.toolkits.layout import write_manifest
from support.made_wheels import AARCH64, X86_64, make_wheel, metadata, toolkit_metadata

RELEASE = read_release("13.0.3.0", toolkit_metadata())
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "linux_x86_64")


@pytest.mark.parametrize("version", ["13", "13.0", "13.0.2", "14.1"])
def test_a_version_is_a_prefix(version: str) -> None:
    """13.0 takes the newest 13.0.x."""
    assert release_requirement(version) == f"cuda-toolkit=={version}.*"


@pytest.mark.parametrize("version", ["12.8", "12", "11.8"])
def test_cuda_12_has_no_nvcc_in_packages(version: str) -> None:
    """Said before anything is fetched, with conda, NVIDIA's installer and CUDA 13 as ways on."""
    with pytest.raises(PackageUnavailableError, match="hold ptxas, but no nvcc") as raised:
        release_requirement(version)
    assert all(way in raised.value.hint for way in ("conda create", "_linux.run", "toolkit install 13.0"))


@pytest.mark.parametrize("version", ["x", "", "13.", "13.0; rm", "13.0.*", "-1", "13.0.0.0.0", "13 ", "\uff11\uff13"])
def test_what_is_no_version_is_refused(version: str) -> None:
    """It becomes an argument of pip's."""
    with pytest.raises(UsageError):
        release_requirement(version)


def test_components_may_be_listed_in_any_way() -> None:
    """Commas, several ``--with``, capitals; cuDNN and its like with a version."""
    assert parse_components(["cublas, NCCL", "cudnn==9.13"]) == {"cublas": "", "nccl": "", "cudnn": "9.13"}


@pytest.mark.parametrize("word", ["cublas==13", "--index-url=x", "a b", "cudnn>=9", "cudnn==latest"])
def test_a_component_that_cannot_be_is_refused(word: str) -> None:
    """Versions of the release's own parts are the release's."""
    with pytest.raises(UsageError):
        parse_components([word])


def test_a_release_pins_its_packages() -> None:
    """nvcc, runtime and CCCL always; what else, by its extra."""
    found = requirements(RELEASE, {}, "x86_64")
    assert found["nvidia-cuda-nvcc"] == "nvidia-cuda-nvcc==13.0.88.*"
    assert "nvidia-cublas" not in found
    assert requirements(RELEASE, {"cublas": ""}, "x86_64")["nvidia-cublas"] == "nvidia-cublas==13.1.1.3.*"


def test_what_has_versions_of_its_own_is_named_for_the_release() -> None:
    """nvidia-cudnn-cu13, and cuBLAS with it, which it needs."""
    found = requirements(RELEASE, {"cudnn": "9.13", "nccl": ""}, "x86_64")
    assert found["nvidia-cudnn-cu13"] == "nvidia-cudnn-cu13==9.13.*"
    assert found["nvidia-nccl-cu13"] == "nvidia-nccl-cu13"
    assert "nvidia-cublas" in found


def test_what_a_processor_has_not_is_left_out() -> None:
    """Markers are those of the processor that the toolkit is for, not of this machine."""
    assert "nvidia-cuda-opencl" in requirements(RELEASE, {"opencl": ""}, "x86_64")
    assert "nvidia-cuda-opencl" not in requirements(RELEASE, {"opencl": ""}, "aarch64")


def test_an_unknown_component_says_which_there_are() -> None:
    """From the release itself."""
    with pytest.raises(UsageError, match="no component cubals") as raised:
        requirements(RELEASE, {"cubals": ""}, "x86_64")
    assert "cublas" in raised.value.hint


def test_what_a_package_needs_is_taken_as_the_release_pins_it() -> None:
    """cuDNN asks for any cuBLAS; what is not NVIDIA's is python's and left out."""
    about = metadata("nvidia-cudnn-cu13", "9.13", requires=["nvidia-cublas", "numpy", "nvidia-new>=1", "broken ==="])
    found = depends_on(RELEASE, about, "x86_64")
    assert found == {"nvidia-cublas": "nvidia-cublas==13.1.1.3.*", "nvidia-new": "nvidia-new>=1"}


def test_a_requirement_with_an_address_is_not_followed() -> None:
    """Metadata does not say where from."""
    assert pinned(["nvidia-x @ https://example.org/x.whl"], [""], "x86_64") == {}


def test_the_cache_takes_the_newest_that_fits(tmp_path: Path) -> None:
    """By version and not by name, of this processor, by the older names of platforms too."""
    for version, tag in (("9.2", X86_64), ("9.10", X86_64), ("9.11", AARCH64), ("10.0", X86_64)):
        make_wheel(tmp_path, "nvidia-x", version, {}, tag=tag)
    make_wheel(tmp_path, "nvidia-old", "1.0", {}, tag="py3-none-manylinux2010_x86_64.manylinux_2_12_x86_64")
    (tmp_path / "nvidia_x-9.99-junk.whl").write_text("")
    cache = WheelCache(tmp_path, PLATFORMS)
    best = cache.best("nvidia-x<10")
    assert best is not None
    assert best.name.startswith("nvidia_x-9.10-")
    assert cache.best("nvidia-old") is not None
    assert cache.best("nvidia-x==9.11.*") is None
    assert WheelCache(tmp_path / "none", PLATFORMS).best("nvidia-x") is None


def test_a_cached_wheel_without_its_hash_does_not_count(tmp_path: Path) -> None:
    """It may have been copied half; it goes, and is fetched again."""
    fetched = make_wheel(tmp_path / "new", "nvidia-x", "1.0", {})
    cache = WheelCache(tmp_path / "cache", PLATFORMS)
    cache.folder.mkdir()
    kept = cache.add(fetched)
    assert len(cache.checked(kept)) == 64
    kept.write_bytes(kept.read_bytes() + b"x")
    assert cache.checked(kept) == ""
    assert os.listdir(cache.folder) == []


def planted(folder: Path, version: str, arch: str = "x86_64") -> Path:
    home = folder / f"cuda-{version}-{arch}"
    home.mkdir(parents=True)
    manifest = Manifest(name=home.name, version=version, release=version, arch=arch, components=(), packages=())  # type: ignore[arg-type]
    write_manifest(home, manifest)
    return home


def test_a_managed_toolkit_is_found_by_name_or_version(tmp_path: Path) -> None:
    """The version as far as it is said, when only one has it."""
    old, new = planted(tmp_path, "13.0.88"), planted(tmp_path, "13.5.37")
    (tmp_path / "mine").mkdir()
    assert [path for path, _ in store.manifests(tmp_path)] == [new, old]
    assert store.named(tmp_path, "13.0") == store.named(tmp_path, old.name) == old
    for name in ("13", "13.05", "mine", "", "..", "cuda-13"):
        with pytest.raises(ToolkitNotFoundError, match=new.name):
            store.named(tmp_path, name)


def test_a_copy_under_another_name_is_not_ours(tmp_path: Path) -> None:
    """What is removed has to be what it says that it is."""
    planted(tmp_path, "13.0.88").rename(tmp_path / "my-cuda")
    assert store.manifests(tmp_path) == []


def test_a_toolkit_takes_anothers_place(tmp_path: Path) -> None:
    """The path stays, the contents are the new one's, nothing else is left."""
    home, new = tmp_path / "cuda", tmp_path / ".new-cuda"
    for folder, text in ((home, "old"), (new, "new")):
        folder.mkdir()
        (folder / "file").write_text(text)
    store.put_in_place(new, home)
    assert (home / "file").read_text() == "new"
    assert os.listdir(tmp_path) == ["cuda"]


def test_who_holds_the_lock_tidies_up(tmp_path: Path) -> None:
    """What an interrupted run left goes; the lock is free again afterwards, and nobody had to wait."""
    for name in (f"{store.NEW}x", f"{store.OLD}x", f"{store.FETCH}x"):
        (tmp_path / name).mkdir()
    (tmp_path / ".new-mine").mkdir()
    said: list[str] = []
    with store.locked(tmp_path, said.append):
        assert sorted(os.listdir(tmp_path)) == [store.LOCK, ".new-mine"]
    with (tmp_path / store.LOCK).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert said == []


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    """With ``--into``."""
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderNotWritableError) as raised:
        store.make_folder(tmp_path / "file" / "toolkits")
    assert "--into" in raised.value.hint
