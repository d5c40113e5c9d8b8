"""A node of a cluster, seen through the lens of ``support.magnified``: ``magnified_node.py SCALE SETTINGS``, both JSON.

What a phase took there is counted up as well. Stand-ins sleep: the time that one took counts as processor time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from builddoctor.cluster.node import Node
from builddoctor.cluster.node_program import NodeSettings, serve
from builddoctor.core.cluster import Answer, Parcel
from support.magnified import MagnifiedRoot, Scale

_scale = msgspec.json.decode(sys.argv[1], type=Scale)


class MagnifiedNode(Node):
    def run(self, parcel: Parcel, wanted: Callable[[], bool]) -> Answer:
        answer = super().run(parcel, wanted)
        took_s = answer.wall_s / _scale.time
        peak_mib = answer.peak_mib / _scale.memory
        return msgspec.structs.replace(answer, peak_mib=peak_mib, wall_s=took_s, cpu_s=took_s)


if __name__ == "__main__":
    sys.exit(serve(msgspec.json.decode(sys.argv[2], type=NodeSettings), MagnifiedRoot(_scale), MagnifiedNode))
