"""How well `explain` judges the corpus of logs, and what a very long log costs."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

PRECISION, RECALL = 0.97, 0.9
RIGHT, WRONG = 0.8, 0.03
LONG_MB, LIMIT_S, LIMIT_MB = 500, 20, 200
SHORT_MB, SHORT_LIMIT_S, SHORT_LIMIT_MB = 36, 2, 60


def explain(long_mb: int = LONG_MB) -> list[str]:
    """The corpus in this process; the long log in one of its own."""
    from support.corpus import judged, read_labels

    labels = read_labels()
    failing = judged("failing", labels.failing, _judge)
    innocent = judged("innocent", labels.innocent, _judge)
    wrong = [each for each in failing if (each.claims or each.label.verdict != "unknown") and not each.right]
    shown = [each for each in wrong if not each.label.heldout]
    return [
        f"`tests/corpus`: {len(failing)} excerpts of failures, {len(innocent)} of what did not fail, labelled by hand.",
        "A claim is a verdict other than *unknown*. It is right where it is the label's, or one that the label allows",
        "as well because the text cannot tell. Recall is over failures whose label is not *unknown*. Held out:",
        "excerpts that were not looked at before the first run. There they gave precision 0.957 and recall 0.878, all",
        "excerpts 0.981 and 0.928, with one false alarm; some were looked at since, so these figures flatter.",
        f"Targets: precision {PRECISION}, recall {RECALL}, no false alarm.\n",
        "| excerpts | failures | claims | precision | recall | innocent | false alarms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        _row("all", failing, innocent),
        _row("held out", *([each for each in every if each.label.heldout] for every in (failing, innocent))),
        _row("the others", *([each for each in every if not each.label.heldout] for every in (failing, innocent))),
        "\nBy label:\n",
        *_by_label(failing),
        f"\nNot as labelled: {len(wrong)}, of these held out and therefore not named: {len(wrong) - len(shown)}.\n",
        *[f"- {each.name}: {each.label.verdict}, said {each.said or 'nothing'}" for each in shown],
        *[f"- innocent {each.name}: said {each.said}" for each in innocent if each.said is not None],
        "",
        *_threads(),
        "",
        *_long_log(SHORT_MB),
        "",
        *_long_log(long_mb),
    ]


def _threads() -> list[str]:
    """Both halves of the corpus of threads: what answers were worth, and which verdict was taken for which."""
    from support.threads import Half, Worth, answers
    from support.told import explain as explained

    judged = {half: answers(half, lambda text: explained([text]).diagnosis) for half in Half}
    every = [each for half in judged.values() for each in half]
    repositories = len({each.label.repo.lower() for each in every})
    lines = [
        f"`tests/corpus/threads`: {len(every)} logs in the shape of threads of {repositories} public repositories,",
        "split by the hash of their names before any was looked at. `scored` was not read.",
        f"Targets there: right {RIGHT:.0%}, wrong {WRONG:.0%} at most, unknown without the root line 0.",
        "*Unknown without* counts answers whose first sentence, what the build itself says, does not have the thread's",
        "line. Since 2026-11-30 that sentence says a second line as well, where one right next to the first may be",
        "the reason too. The last three columns: that line in the first sentence, anywhere in the answer (next to the",
        "first, among the other errors), and *unknown* answers that do not hold it anywhere.\n",
        "| half | logs | " + " | ".join(Worth) + " | root line first | anywhere | unknown, nowhere |",
        "|" + " --- |" * (len(Worth) + 5),
    ]
    for half, told in judged.items():
        counts = Counter(each.worth for each in told)
        cells = [f"{counts[worth]} ({counts[worth] / len(told):.1%})" for worth in Worth]
        unknown = [each for each in told if each.worth in (Worth.NO_ROOT, Worth.ROOT)]
        cells += [str(sum(each.root for each in told)), str(sum(each.anywhere for each in told))]
        cells.append(str(sum(not each.anywhere for each in unknown)))
        lines.append(f"| {half} | {len(told)} | " + " | ".join(cells) + " |")
    for half, told in judged.items():
        lines += [f"\nBy label, `{half}`:\n", "| label | logs | " + " | ".join(Worth) + " | taken for |"]
        lines.append("|" + " --- |" * (len(Worth) + 3))
        for label in sorted({str(each.label.verdict) for each in told}):
            of_label = [each for each in told if each.label.verdict == label]
            counts = Counter(each.worth for each in of_label)
            wrong = Counter(str(each.told.verdict) for each in of_label if each.worth is Worth.WRONG)
            taken = ", ".join(f"{name} {count}" for name, count in wrong.most_common())
            lines.append(
                f"| {label} | {len(of_label)} | " + " | ".join(str(counts[worth]) for worth in Worth) + f" | {taken} |"
            )
    return lines


def _judge(text: bytes):
    from support.told import explain as explained

    return explained([text]).diagnosis.verdict


def _row(title: str, failing, innocent) -> str:
    from support.corpus import score

    counts = score(failing)
    alarms = sum(each.said is not None for each in innocent)
    return (
        f"| {title} | {len(failing)} | {counts.claims} | {counts.precision:.3f} | {counts.recall:.3f} | "
        f"{len(innocent)} | {alarms} |"
    )


def _by_label(failing) -> list[str]:
    lines = ["| label | excerpts | as labelled | allowed as well | *unknown* or nothing | wrong |", "|" + " --- |" * 6]
    for label in dict.fromkeys(each.label.verdict for each in failing):
        kinds = Counter(
            "same" if each.said == label else "silent" if not each.claims else "also" if each.right else "wrong"
            for each in failing
            if each.label.verdict == label
        )
        total = sum(kinds.values())
        lines.append(
            f"| {label} | {total} | {kinds['same']} | {kinds['also']} | {kinds['silent']} | {kinds['wrong']} |"
        )
    return lines


def _long_log(megabytes: int) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "long.log"
        _write_long(log, megabytes)
        told = json.loads(
            subprocess.run(
                [sys.executable, __file__, str(log)],
                check=True, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")},
            ).stdout
        )  # fmt: skip
        size_mb = log.stat().st_size / 1e6
    limit_s, limit_mb = (SHORT_LIMIT_S, SHORT_LIMIT_MB) if megabytes == SHORT_MB else (LIMIT_S, LIMIT_MB)
    return [
        f"A log of {size_mb:.0f} MB and {told['lines']} lines, commands, warnings and one failure at its end:",
        f"{told['took_s']:.1f} s ({told['own_s']:.1f} s of processor time), {told['peak_mb']:.0f} MB at most (targets:",
        f"{limit_s} s, {limit_mb} MB), Python and the reading of the file included; verdict *{told['verdict']}*.",
    ]


def _write_long(path: Path, megabytes: int) -> None:
    """A verbose build with warnings by the thousand; words that triggers look for occur in it, as in real logs."""
    include = " ".join(f"-I/opt/project/third_party/library_{number}/include" for number in range(12))
    with path.open("wb") as log:
        number = 0
        while log.tell() < megabytes * 1_000_000:
            lines = []
            for _ in range(2000):
                number += 1
                unit = f"src/kernels/error_paths/unit_{number:07d}.cu"
                lines.append(
                    f"[{number}/9999999] /usr/local/cuda/bin/nvcc {include} -O3 -std=c++17 -c {unit} -o {unit}.o\n"
                    f'{unit}({number % 900}): warning #177-D: variable "killed" was declared but never referenced\n\n'
                    f"ptxas info    : Used {number % 255} registers, 0 bytes spill stores, error checks off\n"
                )
            log.write("".join(lines).encode())
        log.write(
            b"FAILED: src/kernels/last.cu.o\nnvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
            b"FAILED: src/kernels/last_but_one.cu.o\nnvcc error   : 'cicc' died due to signal 9 (Kill signal)\n"
            b"ninja: build stopped: subcommand failed.\n"
        )


def _explain_file(path: Path) -> dict[str, object]:
    """Run in a process of its own: as `builddoctor explain` reads a file, with the time and memory of all of it."""
    import resource

    from support.told import explain as explained

    began = time.monotonic()
    with path.open("rb") as log:
        said = explained(iter(lambda: log.read(1 << 20), b""))
    return {
        "took_s": time.monotonic() - began,
        "own_s": time.process_time(),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "lines": said.lines,
        "verdict": said.diagnosis.verdict,
    }


if __name__ == "__main__":
    print(json.dumps(_explain_file(Path(sys.argv[1]))))
