"""Keys of phases: the same for the same work under other names, another for other work. Outputs: with names of here."""

from __future__ import annotations

import msgspec
import pytest

from builddoctor.phase_store.likeness import Likeness
from builddoctor.toolchain.travelling import FileOfPhase, Travelling

OLD, NEW = "tmpxft_00000a11_00000000-", "tmpxft_0000beef_00000000-"


def cicc(
    temporary: str, *, folder: str = "/tmp", counters: tuple[int, int] = (7, 6), words: tuple[str, ...] = ()
) -> Travelling:
    source, ptx = f"{temporary}{counters[0]}_k.cpp1.ii", f"{temporary}{counters[1]}_k.ptx"
    stub = f"{temporary}{counters[1]}_k.cudafe1.stub.c"
    return Travelling(
        tool="cicc",
        words=(
            "-arch",
            "compute_90",
            *words,
            "--stub_file_name",
            f"@folder@/{stub}",
            f"@folder@/{source}",
            "-o",
            f"@folder@/{ptx}",
        ),
        inputs=(FileOfPhase(name=source, path=f"{folder}/{source}"),),
        outputs=(FileOfPhase(name=stub, path=f"{folder}/{stub}"), FileOfPhase(name=ptx, path=f"{folder}/{ptx}")),
        needed=ptx,
    )


def cc1plus(*words: str) -> Travelling:
    return Travelling(
        tool="cc1plus",
        words=("-fpreprocessed", *words, "@folder@/a.ii", "-o", "@folder@/a.s"),
        inputs=(FileOfPhase(name="a.ii", path="/b/a.ii"),),
        outputs=(FileOfPhase(name="a.s", path="/b/a.s"),),
        needed="a.s",
    )


def key(phase: Travelling, text: bytes, program: str = "p") -> str:
    return Likeness(phase, program, [text]).key


def source(path: str) -> bytes:
    return f'# 1 "k.cu"\n# 1 "{path}/torch/x.h" 1 3\nint f();\n# 2 "k.cu" 2\nint g();\n'.encode()


def test_the_same_work_under_other_names_has_the_same_key() -> None:
    first = key(cicc(OLD), source("/tmp/pip-build-env-abc/lib"))
    assert first == key(cicc(NEW, folder="/scratch", counters=(17, 16)), source("/tmp/pip-build-env-xyz/lib"))


@pytest.mark.parametrize(
    ("phase", "text", "program"),
    [
        (cicc(OLD), source("/a") + b"int h();\n", "p"),
        (cicc(OLD), source("/a").replace(b"# 2", b"# 3"), "p"),
        (cicc(OLD), source("/a").replace(b" 1 3", b" 1"), "p"),
        (cicc(OLD, words=("-ftz=1",)), source("/a"), "p"),
        (cicc(OLD), source("/a"), "another program"),
    ],
    ids=["text", "line", "no system header", "option", "program"],
)
def test_other_work_has_another_key(phase: Travelling, text: bytes, program: str) -> None:
    assert key(phase, text, program) != key(cicc(OLD), source("/a"))


@pytest.mark.parametrize(
    ("phase", "asks"),
    [
        (cicc(OLD), b"const char *n = __builtin_FILE();\n"),
        (cicc(OLD), b"auto n = __builtin_source_location();\n"),
        (cicc(OLD, words=("-generate-line-info",)), b""),
        (cc1plus(), b"const char *n = __FILE__;\n"),
        (cc1plus("-fsanitize=undefined"), b""),
    ],
    ids=["builtin", "source location", "line numbers", "macro", "sanitizer"],
)
def test_where_paths_are_part_of_the_result_they_are_part_of_the_key(phase: Travelling, asks: bytes) -> None:
    assert key(phase, source("/a") + asks) != key(phase, source("/b") + asks)
    assert key(phase, source("/a") + asks) == key(phase, source("/a") + asks)


def test_gcc_may_have_its_headers_elsewhere_too() -> None:
    assert key(cc1plus(), source("/a")) == key(cc1plus(), source("/b"))


def test_what_depends_on_the_time_is_not_kept() -> None:
    assert not Likeness(cc1plus(), "p", [b"const char *t = __TIME__;\n"]).may_be_kept
    assert Likeness(cc1plus(), "p", [b"int t;\n"]).may_be_kept


def test_an_output_gets_the_names_of_this_build() -> None:
    first = Likeness(cicc(OLD), "p", [source("/a")])
    written = f'# 1 "/tmp/{OLD}6_k.cudafe1.stub.c"\n# 1 "/a/torch/x.h"\n__sti("{OLD}6_k");\n'.encode()
    kept = first.hide(0, written)
    assert kept is not None
    second = Likeness(cicc(NEW, folder="/scratch", counters=(17, 16)), "p", [source("/b")])
    assert second.show(0, kept) == (
        f'# 1 "/scratch/{NEW}16_k.cudafe1.stub.c"\n# 1 "/b/torch/x.h"\n__sti("{NEW}16_k");\n'.encode()
    )


def test_warnings_name_the_headers_of_this_build() -> None:
    first, second = (Likeness(cicc(OLD), "p", [source(folder)]) for folder in ("/a", "/longer/b"))
    kept = first.hide_printed(b'/a/torch/x.h(2): warning: unused\nIn file "/a/torch/x.h"')
    assert kept is not None
    assert second.show_printed(kept) == b'/longer/b/torch/x.h(2): warning: unused\nIn file "/longer/b/torch/x.h"'


@pytest.mark.parametrize(
    "text",
    [b"tmpxft_0000dead_00000000-3_other", b"a \0 in a text", f'\t.string\t"{OLD}6_k"\n'.encode()],
    ids=["another build's file", "NUL", "a name as data"],
)
def test_an_output_that_is_this_builds_alone_is_not_kept(text: bytes) -> None:
    assert Likeness(cicc(OLD), "p", [source("/a")]).hide(0, text) is None


def test_an_entry_of_another_shape_is_refused() -> None:
    with pytest.raises(KeyError):
        Likeness(cicc(OLD), "p", [source("/a")]).show(0, b"\0p9\0")


def test_a_build_for_more_architectures_has_the_same_key_for_one_of_them() -> None:
    """Then nvcc puts the architecture into the names of its files, one of which nobody reads."""

    def of(name: str) -> Likeness:
        phase = cicc(OLD)
        outputs, inputs = (
            tuple(msgspec.structs.replace(each, name=each.name.replace("_k.", f"_{name}.")) for each in files)
            for files in (phase.outputs, phase.inputs)
        )
        words = [word.replace("_k.", f"_{name}.") for word in phase.words]
        gpu = f"@folder@/{OLD}6_{name}.cudafe1.gpu"
        sent = msgspec.structs.replace(
            phase, outputs=outputs, inputs=inputs, words=("--gen_device_file_name", gpu, *words)
        )
        return Likeness(sent, "p", [source("/a")])

    one, many = of("k"), of("k.compute_90")
    assert one.key == many.key
    kept = many.hide(0, f'#include "{OLD}6_k.compute_90.cudafe1.stub.c"\n'.encode())
    assert kept is not None
    assert one.show(0, kept) == f'#include "{OLD}6_k.cudafe1.stub.c"\n'.encode()
