"""The nodes of a cluster, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from builddoctor.core.cluster import ClusterNode
from builddoctor.core.units import format_mib, one_line
from builddoctor.ui.layout import Column, table


def cluster_page(nodes: Sequence[ClusterNode]) -> list[Text]:
    """One line a node; a sentence where there is none."""
    if not nodes:
        return [Text("no nodes: `builddoctor worker ADDRESS` on another machine makes it one")]
    columns = [Column("host"), Column("cores", right=True), Column("for builds", right=True), Column("arch")]
    rows = [
        (
            one_line(each.host),
            str(each.cores),
            format_mib(each.budget_mib),
            one_line(each.machine),
            one_line(each.builddoctor),
            one_line(each.address),
        )
        for each in nodes
    ]
    return table([*columns, Column("builddoctor"), Column("address")], rows)
