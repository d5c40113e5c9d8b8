"""Toolkits, and what an installation would take, as plain lines. Pure: data in, lines out."""

from __future__ import annotations

from collections.abc import Sequence

from builddoctor.model.managed import FoundToolkit, Plan
from builddoctor.units import format_mib, one_line


def toolkit_rows(found: Sequence[FoundToolkit], *, here: str) -> list[str]:
    """One line each: version, kind, path, what it lacks. ``here``: this machine's processor."""
    if not found:
        return ["no CUDA toolkit on this machine"]
    rows = [f"{'version':<10} {'kind':<9}path"]
    for each in found:
        other = f" ({each.arch})" if each.arch != here else ""
        rows.append(f"{each.version or '?':<10} {each.kind:<9}{one_line(each.path)}{other}")
        if each.problem:
            rows.append(f"{'':<20}cannot be used: {one_line(each.problem)}")
        elif each.lacks:
            rows.append(f"{'':<20}without {', '.join(each.lacks)}")
    return rows


def plan_rows(plan: Plan) -> list[str]:
    """Packages, sizes, place."""
    rows = [f"CUDA {plan.release} for {plan.arch} in {one_line(plan.folder)}"]
    rows += [f"  {one_line(one.requirement)}{'   in the cache' if one.cached else ''}" for one in plan.packages]
    free = f", {format_mib(plan.free_mib)} free there" if plan.free_mib is not None else ""
    return [*rows, f"about {format_mib(plan.fetch_mib)} to fetch, {format_mib(plan.disk_mib)} on disk{free}"]
