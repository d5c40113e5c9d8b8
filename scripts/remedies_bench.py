"""What remedies bring: memory and time of real compiles with and without each, in a memory cgroup, one at a time.

Columns: the most that all processes together held (anonymous memory and tmpfs, sampled), the largest single process of
the tool that the remedy is about (VmHWM, sampled), seconds, and whether the object is the same,
byte by byte but for the name of nvcc's temporary files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.memcg import MemoryCgroup, memory_cgroup  # noqa: E402

EXAMPLE = ROOT / "examples" / "attention_kernels"
LIMIT_MIB = 6 * 1024
SAMPLE_S = 0.01
SIX = ("80", "86", "89", "90", "100", "120")
FOUR = SIX[:4]
COLLECT = ((30, 32768), (10, 32768), (10, 8192))
"""gcc's own here: 100 and 131072. Never 0 for the first: 600 s were not enough for what takes 4."""

_TMPXFT = re.compile(rb"tmpxft_[0-9a-f]{8}_[0-9a-f]{8}")
"""In these names two plain runs of nvcc differ, too."""

HEAD = ("|  | all together MiB | largest {} MiB | s | object |", "| --- | --- | --- | --- | --- |")


class Run:
    """Medians of one command's runs."""

    def __init__(self, all_mib: float, tool_mib: float, wall_s: float, digest: str) -> None:
        self.all_mib, self.tool_mib, self.wall_s, self.digest = all_mib, tool_mib, wall_s, digest

    def row(self, name: str, first: Run) -> str:
        same = "" if self is first else "the same" if self.digest == first.digest else "another"
        return f"| {name} | {self.all_mib:.0f} | {self.tool_mib:.0f} | {self.wall_s:.1f} | {same} |"


class Bench:
    """Runs commands in one cgroup, in one folder."""

    def __init__(self, group: MemoryCgroup, folder: Path, runs: int) -> None:
        self._group, self._folder, self._runs = group, folder, runs

    def run(self, argv: list[str], tool: str, **env: str) -> Run:
        """Output is ``out.o``."""
        taken = [self._once(argv, tool, env) for _ in range(self._runs)]
        digest = hashlib.sha256(_TMPXFT.sub(b"tmpxft", (self._folder / "out.o").read_bytes())).hexdigest()
        return Run(*(statistics.median(each[place] for each in taken) for place in range(3)), digest)

    def _once(self, argv: list[str], tool: str, env: dict[str, str]) -> tuple[float, float, float]:
        began, all_mib, tool_mib = time.monotonic(), 0.0, 0.0
        process = subprocess.Popen(self._group.wrapped(argv), cwd=self._folder, env={**os.environ, **env})
        while process.poll() is None:
            all_mib = max(all_mib, self._held_mib())
            tool_mib = max([tool_mib, *(_peak_mib(pid) for pid in self._group.members() if _name(pid) == tool)])
            time.sleep(SAMPLE_S)
        if process.returncode:
            raise SystemExit(f"{argv} ended with {process.returncode}")
        return all_mib, tool_mib, time.monotonic() - began

    def _held_mib(self) -> float:
        stat = dict(line.split() for line in (self._group.folder / "memory.stat").read_text().splitlines())
        return (int(stat["rss"]) + int(stat["shmem"])) / 1024**2


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def nvcc(unit: str, *archs: str) -> list[str]:
    codes = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    words = ["nvcc", "-std=c++17", "-O2", "-DNDEBUG", "-I", str(EXAMPLE / "include"), *codes]
    return [*words, "-c", str(EXAMPLE / "src" / unit), "-o", "out.o"]


def table(bench: Bench, title: str, tool: str, rows: list[tuple[str, list[str], dict[str, str]]]) -> list[str]:
    """One command and its variants, the plain one first."""
    lines, first = [f"\n{title}\n", HEAD[0].format(tool), HEAD[1]], None
    for name, argv, env in rows:
        run = bench.run(argv, tool, **env)
        first = first or run
        lines.append(run.row(name, first))
        print(lines[-1], file=sys.stderr, flush=True)
    return lines


def _collecting(expand: int, heap: int) -> list[str]:
    return [f"--param=ggc-min-expand={expand}", f"--param=ggc-min-heapsize={heap}"]


def many_functions(folder: Path) -> Path:
    """A source of 300 functions that use the standard library."""
    loop = ' for (auto& p : v) {{ p.text += "x{0}"; m[p.number + {0}] = p.text; r += p.number * {0}; }}'
    body = "\n".join(loop.format(number) for number in range(20))
    head = "#include <map>\n#include <string>\n#include <vector>\nstruct P { int number; std::string text; };\n"
    signature = "int f{}(std::vector<P>& v, std::map<int, std::string>& m)"
    functions = (f"{signature.format(number)} {{ int r = 0;\n{body}\n return r; }}\n" for number in range(300))
    (folder / "many.cpp").write_text(head + "".join(functions))
    return folder / "many.cpp"


def many_symbols(folder: Path) -> list[str]:
    """Objects whose names and debug lines are what a linker has to keep."""
    objects = []
    for number in range(24):
        names = "".join(
            f".globl s_{number}_{each}\ns_{number}_{each}: .quad s_{(number + 1) % 24}_{each}\n"
            for each in range(30000)
        )
        (folder / "s.s").write_text(f".data\n{names}")
        subprocess.run(["as", "s.s", "-o", f"s{number}.o"], cwd=folder, check=True)
        objects.append(f"s{number}.o")
    return objects


def remedies(runs: int) -> list[str]:
    """Lines of a report."""
    with tempfile.TemporaryDirectory() as name, memory_cgroup(LIMIT_MIB * 1024**2) as group:
        return _all(Bench(group, Path(name), runs), Path(name), runs)


def _all(bench: Bench, folder: Path, runs: int) -> list[str]:
    gcc = subprocess.run(["gcc", "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    release = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout.split(
        "release "
    )[1]
    lines = [f"gcc {gcc}, nvcc {release.split(',')[0]}; medians of {runs} runs. {__doc__.partition('Columns: ')[2]}"]
    host = [f"-Xcompiler={','.join(_collecting(*each))}" for each in COLLECT]
    backward = nvcc("attention_backward.cu", "90")
    plain = ("as it is", backward, {})
    titled = [(f"{expand} %, {heap} KiB", each) for each, (expand, heap) in zip(host, COLLECT, strict=True)]
    lines += table(
        bench,
        "gcc's garbage collection (`ggc-min-expand`, `ggc-min-heapsize`): attention_backward.cu, the example's largest",
        "cc1plus",
        [plain, *((title, [*backward, option], {}) for title, option in titled)],
    )
    many_functions(folder)
    for title, words in (
        (
            "The same, planner.cpp, -O2",
            ["g++", "-std=c++17", "-O2", "-I", str(EXAMPLE / "include"), "-c", str(EXAMPLE / "src" / "planner.cpp")],
        ),
        ("The same, 300 functions that use the standard library, -O0", ["g++", "-std=c++17", "-O0", "-c", "many.cpp"]),
    ):
        argv = [*words, "-o", "out.o"]
        variants = [(f"{expand} %, {heap} KiB", [*argv, *_collecting(expand, heap)], {}) for expand, heap in COLLECT]
        lines += table(bench, title, "cc1plus", [("as it is", argv, {}), *variants])
    decode = nvcc("attention_decode.cu", *FOUR)
    lines += table(
        bench,
        "nvcc's `--threads`: attention_decode.cu for four architectures",
        "cicc",
        [(f"--threads {each}", [*decode, "--threads", str(each)], {}) for each in (4, 2, 1)],
    )
    lines += table(
        bench,
        "Architectures: attention_decode.cu",
        "cicc",
        [
            ("six, --threads 6", [*nvcc("attention_decode.cu", *SIX), "--threads", "6"], {}),
            ("six", nvcc("attention_decode.cu", *SIX), {}),
            ("one (sm_90)", nvcc("attention_decode.cu", "90"), {}),
        ],
    )
    lines += _temporary_files(bench, folder)
    for tool in ("cicc", "ptxas", "cc1plus"):
        extra = (("-lineinfo", ["-lineinfo"]), ("-g", ["-g"]), ("-g -G", ["-g", "-G"]))
        lines += table(
            bench,
            f"Debug information: attention_decode.cu, sm_90, {tool}",
            tool,
            [
                ("none", nvcc("attention_decode.cu", "90"), {}),
                *((name, [*nvcc("attention_decode.cu", "90"), *flags], {}) for name, flags in extra),
            ],
        )
    link = ["gcc", "-shared", *many_symbols(folder), "-o", "out.o"]
    thrifty = "-Wl,--no-keep-memory,--reduce-memory-overheads"
    return lines + table(
        bench,
        "GNU ld: 24 objects with 30,000 names each",
        "ld",
        [("as it is", link, {}), (thrifty[4:].replace(",", " "), [*link, thrifty], {})],
    )


def _temporary_files(bench: Bench, folder: Path) -> list[str]:
    argv = [*nvcc("attention_backward.cu", *SIX), "--threads", "1"]
    memory = Path(tempfile.mkdtemp(prefix="bd-bench-", dir="/dev/shm"))
    disk = folder / "disk"
    disk.mkdir()
    try:
        return table(
            bench,
            "Temporary files: attention_backward.cu for six architectures, one after the other",
            "cc1plus",
            [
                ("TMPDIR in a tmpfs", argv, {"TMPDIR": str(memory)}),
                ("TMPDIR in a tmpfs, -objtemp", [*argv, "-objtemp"], {"TMPDIR": str(memory)}),
                ("TMPDIR on disk", argv, {"TMPDIR": str(disk)}),
            ],
        )
    finally:
        shutil.rmtree(memory)
