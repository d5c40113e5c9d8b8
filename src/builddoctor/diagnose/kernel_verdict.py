"""What follows from the kernel's own report of a kill: whose limit, and too many, one too large, or one without end.

Covers: the choice among several reports, and what the table of tasks says about company. Pure.
Does *not* cover: reading the kernel's log (``diagnose.kernel_log``), or a kill that the kernel did not do.
"""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.diagnose.kernel_log import OomReport, Task, is_compiler
from builddoctor.diagnose.log_facts import Count
from builddoctor.diagnose.remedy_facts import RemedyFacts
from builddoctor.model.verdict import Confidence, Verdict, VerdictName
from builddoctor.units import format_mib

LARGE_SHARE = 0.25
"""of the largest compiler: a smaller one is not what took the memory"""
MOST_SHARE = 0.5
"""of what the table lists: whoever holds that much is what took the memory"""
FULL_SHARE = 0.7
"""of the limit, held by one process: it alone does not fit"""
RUNAWAY_MIB = {"cudafe++": 8 * 1024.0}
ANY_RUNAWAY_MIB = 32 * 1024.0
"""A real unit of cicc was seen at 20 GiB (memory.md, trap 37); one at 46 GiB was a bug (mfem/mfem#5363)."""
NAMED_TASKS = 6


def judge_kernel(reports: Sequence[OomReport], jobs: Count | None = None) -> tuple[Verdict, RemedyFacts] | None:
    """The verdict of the report that matters, and what it tells of the build; None without any report.

    The first report with a compiler in it matters; without one, the first.
    """
    if not reports:
        return None
    report = next((each for each in reports if _of_a_build(each)), reports[0])
    name, confidence, why = _weigh(report, reports, jobs)
    held = f" at {format_mib(report.victim_mib)}" if report.victim_mib is not None else ""
    verdict = Verdict(
        verdict=name,
        confidence=confidence,
        died=f"{report.victim} (process {report.pid}), killed by the kernel{held}",
        why=why,
        cause=f"kernel-oom-{report.scope}",
        evidence=_evidence(report, reports, jobs),
    )
    tool = report.victim if is_compiler(report.victim) else ""
    limit = report.limit_mib if report.scope != "host" else None
    known = RemedyFacts(
        tool=tool, peak_mib=report.victim_mib, limit_mib=limit, jobs=jobs.value if jobs is not None else None
    )
    return verdict, known


def _of_a_build(report: OomReport) -> bool:
    return is_compiler(report.victim) or any(task.compiler for task in report.tasks)


def large_ones(report: OomReport) -> list[Task]:
    """Compilers that took the memory, the largest first; any processes where there was no compiler."""
    compilers = [task for task in report.tasks if task.compiler] or list(report.tasks)
    return [task for task in compilers if task.pages and task.pages >= LARGE_SHARE * compilers[0].pages]


def _weigh(report: OomReport, reports: Sequence[OomReport], jobs: Count | None) -> tuple[VerdictName, Confidence, str]:
    whose = _whose(report)
    if report.scope == "nodes":
        kind = "a memory policy" if report.constraint == "MEMORY_POLICY" else "a cpuset"
        why = f"the kernel was short on the memory nodes that {kind} allows; other nodes may be free"
        return "numa-policy", "high", why
    if report.limit_mib and report.shared_mib is not None and report.shared_mib > MOST_SHARE * report.limit_mib:
        held = f"{format_mib(report.shared_mib)} of it are files in memory (tmpfs, /dev/shm), not processes"
        return "tmpfs", "high", f"{whose}, and {held}"
    build = _of_a_build(report)
    if build and report.listed_pages and report.compiler_pages < (1 - MOST_SHARE) * report.listed_pages:
        return _held_by_others(report, whose)
    if report.scope == "parent" and not report.tasks:
        return "cgroup-parent", "medium", f"{whose}; what else lives in it, the log does not say"
    large = large_ones(report)
    if not large:
        return _without_table(report, reports, jobs, whose)
    what = "compilers" if build else "processes"
    if len(large) > 1:
        total = format_mib(report.mib(sum(task.pages for task in large)))
        at_least = "or more " if len(report.tasks) < report.listed and large[-1] is report.tasks[-1] else ""
        why = f"{whose}: {len(large)} {at_least}large {what} held {total} at once, too many for it"
        return "parallel", "high", why
    return _one_alone(report, large[0], whose)


def _held_by_others(report: OomReport, whose: str) -> tuple[VerdictName, Confidence, str]:
    other = next((task for task in report.tasks if not task.compiler), None)
    compilers = format_mib(report.mib(report.compiler_pages))
    most = f"{other.name} with {format_mib(report.mib(other.pages))}" if other is not None else "others"
    why = f"{whose}, and not the build's compilers took it ({compilers}) but {most}"
    if report.scope == "host":
        return "parallel", "medium", f"{why}; beside it, fewer compilers fit"
    return "cgroup-parent", "high", why


def _one_alone(report: OomReport, task: Task, whose: str) -> tuple[VerdictName, Confidence, str]:
    size_mib = report.mib(task.pages)
    alone = f"{whose}, and {task.name} alone held {format_mib(size_mib)} of it: no other large one ran"
    if task.compiler and size_mib >= RUNAWAY_MIB.get(task.name, ANY_RUNAWAY_MIB):
        return "runaway", "medium", f"{alone}. That is far beyond what it needs: it grew without end. {FEWER_CANNOT}"
    return "too-big", "high", f"{alone}. {FEWER_CANNOT}"


FEWER_CANNOT = "Lowering MAX_JOBS cannot help: one process took all of it"


def _without_table(
    report: OomReport, reports: Sequence[OomReport], jobs: Count | None, whose: str
) -> tuple[VerdictName, Confidence, str]:
    """The kill alone: how large the victim was, and how many died."""
    victims = {each.pid for each in reports if is_compiler(each.victim) == is_compiler(report.victim)}
    held = report.victim_mib
    if held is not None and is_compiler(report.victim) and held >= RUNAWAY_MIB.get(report.victim, ANY_RUNAWAY_MIB):
        why = f"{whose}. {format_mib(held)} is far beyond what {report.victim} needs: it grew without end"
        return "runaway", "medium", f"{why}. {FEWER_CANNOT}"
    if jobs is not None and jobs.value == 1:
        return "too-big", "medium", f"{whose}, with one compiler at a time: it does not fit alone. {FEWER_CANNOT}"
    if held is not None and report.limit_mib and held >= FULL_SHARE * report.limit_mib:
        share = f"{held / report.limit_mib:.0%}"
        return "too-big", "high", f"{whose}, and {report.victim} alone held {share} of it. {FEWER_CANNOT}"
    if held is not None and report.limit_mib:
        share = f"{held / report.limit_mib:.0%}"
        return "parallel", "high", f"{whose}, and {report.victim} held {share} of it only: others held the rest"
    if len(victims) > 1:
        return "parallel", "high", f"{whose}, again and again: {len(victims)} processes were killed"
    missing = "the log does not say what else ran"
    if not is_compiler(report.victim):
        return "too-big", "low", f"{whose}; {missing}"
    return "parallel", "medium", f"{whose}; {missing}, and one compiler at a time is rarely too large"


def _whose(report: OomReport) -> str:
    limit = f" ({format_mib(report.limit_mib)})" if report.limit_mib else ""
    if report.scope == "host":
        return "the whole machine ran out of memory"
    if report.scope == "parent":
        return f"the limit of {report.limit_group}{limit} was reached, a group above the victim's"
    if report.scope == "group":
        return f"the limit of its own group {report.limit_group}{limit} was reached"
    return f"the limit of a memory cgroup{limit} was reached"


def _evidence(report: OomReport, reports: Sequence[OomReport], jobs: Count | None) -> list[str]:
    lines = [f"line {report.line}: {report.text}"]
    if report.constraint_text:
        lines.insert(0, f"line {report.constraint_line}: {report.constraint_text}")
    if report.tasks:
        named = ", ".join(f"{task.name} {format_mib(report.mib(task.pages))}" for task in report.tasks[:NAMED_TASKS])
        total = format_mib(report.mib(report.listed_pages))
        lines.append(
            f"line {report.tasks_line}: of {report.listed} tasks with {total} the largest: {named} "
            f"(the table is in pages, taken as {report.page_kib} KiB)"
        )
    if report.group_kill:
        lines.append("memory.oom.group is set: all of the group was killed at once")
    if len(reports) > 1:
        lines.append(f"{len(reports)} kills in this log; the first one of a build counts")
    if jobs is not None:
        lines.append(str(jobs.quote))
    return lines
