"""Which gcc are asked, and what becomes of those that cannot be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from builddoctor.system.probes import Captured
from builddoctor.toolchain import host_compiler


def test_a_gcc_that_could_not_be_started_beside_others_is_asked_again_alone(tmp_path: Path) -> None:
    """Eight at once may be more processes than `ulimit -u` leaves. Not asked, it would not be gated."""
    for name in ("gcc-11", "gcc-12", "gcc-13", "cc1plus"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    asked: list[str] = []

    def answer(argv: Sequence[str], **_: object) -> Captured:
        driver, question = argv
        asked.append(driver)
        number = driver[-2:]
        if number == "13" or (number == "12" and asked.count(driver) == 1):
            return Captured(None, "", "Resource temporarily unavailable")
        answers = {"-dumpmachine": "x86_64-linux-gnu", "-dumpversion": number}
        return Captured(0, answers.get(question, str(tmp_path / "cc1plus")))

    found = host_compiler.host_compilers({"PATH": str(tmp_path)}, run=answer)
    assert sorted(compiler.version for compiler in found) == ["11", "12"]
    assert asked.count(str(tmp_path / "gcc-13")) == 2
