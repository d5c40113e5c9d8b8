"""``scripts/release`` on a clone with a tag: what is published is built and tried there."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from support.image_build import ImageBuild

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with this tree as it is now, and a tag."""
    folder = tmp_path / "clone"
    git("init", "--quiet", str(folder), at=tmp_path)
    for name in git("ls-files", "-z", "--cached", "--others", "--exclude-standard", at=ROOT).split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    git("add", "--all", "--force", at=folder)
    git("-c", "user.name=tester", "-c", "user.email=tester@example.org", "commit", "--quiet", "-m", "all", at=folder)
    git("tag", "v7.8.9", at=folder)
    return folder


def git(*words: str, at: Path) -> str:
    return subprocess.run(["git", *words], cwd=at, check=True, capture_output=True, text=True).stdout


def release(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["scripts/release"], cwd=folder, capture_output=True, text=True, check=False)


def test_a_tag_becomes_a_wheel_and_an_archive_of_its_version(clone: Path) -> None:
    """Built twice alike, and working with the lowest and the highest versions of what they need: the script sees to it.

    The wheel has the completion files; the archive has the tests.
    """
    done = release(clone)
    assert done.returncode == 0, done.stderr
    assert sorted(each.name for each in (clone / "dist").iterdir()) == [
        "builddoctor-7.8.9-py3-none-any.whl",
        "builddoctor-7.8.9.tar.gz",
    ]
    wheel = zipfile.ZipFile(clone / "dist/builddoctor-7.8.9-py3-none-any.whl")
    assert "builddoctor-7.8.9.data/data/share/fish/vendor_completions.d/builddoctor.fish" in wheel.namelist()
    with tarfile.open(clone / "dist/builddoctor-7.8.9.tar.gz") as archive:
        assert "builddoctor-7.8.9/tests/system/test_release.py" in archive.getnames()
    # What it left does not stand in the way of the next one.
    assert git("status", "--porcelain", at=clone) == ""


def test_what_no_commit_has_is_not_released(clone: Path) -> None:
    """Nor is a tag's version given to it."""
    (clone / "README.md").write_text("changed")
    done = release(clone)
    assert done.returncode == 65
    assert "there are changes that no commit has" in done.stderr
    assert not (clone / "dist").exists()


@pytest.mark.needs_unshare
def test_the_image_has_builddoctor(clone: Path, tmp_path: Path) -> None:
    """Every instruction works with real Python, pip and git; nvcc and Debian's packages are those of this machine."""
    file = ROOT / "packaging/Containerfile"
    linted = subprocess.run(["hadolint", "--no-color", str(file)], capture_output=True, text=True, check=False)
    assert linted.stdout == ""
    entry = "RUN builddoctor --version && cd /src && builddoctor run -- true && ls .builddoctor/traces/*.jsonl\n"
    image = ImageBuild(tmp_path / "image", file.read_text() + entry, clone)
    image.real("python3", "pip", "git")
    image.env["HOME"] = "/root"
    done = image.run()
    assert [each.returncode for each in done] == [0] * 4, done[-1].stderr
    assert "builddoctor 7.8.9\n" in done[-1].stdout
