"""distutils goes by the times of files: what it built for other architectures must not be taken for these."""

from __future__ import annotations

from pathlib import Path

from builddoctor.supervise.built_before import forget_other_settings


def test_an_extension_built_for_other_architectures_is_built_again(tmp_path: Path) -> None:
    """One of the same settings stays, and so does what is no extension; a first build of ours trusts none."""
    extension = tmp_path / "build" / "lib.linux-x86_64-cpython-311" / "ops" / "adam.so"
    kept = extension.with_name("adam.py")
    extension.parent.mkdir(parents=True)
    kept.write_text("")
    for archs, env, expected in (
        ("9.0", {}, 1),
        ("9.0", {"HOME": "/x"}, 0),
        ("8.0", {}, 1),
        ("8.0", {"CFLAGS": "-g"}, 1),
        ("8.0", {"CFLAGS": "-g"}, 0),
    ):
        extension.write_text("")
        assert forget_other_settings(tmp_path, (("TORCH_CUDA_ARCH_LIST", archs),), env) == expected
        assert extension.exists() == (expected == 0)
    assert kept.exists()


def test_a_folder_that_was_never_built_needs_nothing(tmp_path: Path) -> None:
    """Nor does one that may not be written to stop a build."""
    assert forget_other_settings(tmp_path, (), {}) == 0
    (tmp_path / "file").write_text("")
    assert forget_other_settings(tmp_path / "file", (), {}) == 0
