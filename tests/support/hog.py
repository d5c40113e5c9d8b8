"""A process that takes memory: ``hog.py MIB MIB_PER_S FILE``, then waits for FILE; 0 MiB/s is as fast as it can.

Start it in a memory cgroup with a limit, or with a figure that any machine has.
"""

import mmap
import os
import sys
import time

STEP_MIB = 4
AT_ONCE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
"""The kernel fills the pages in itself: faster than touching each."""


def main() -> None:
    wanted, rate, file = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    held: list[mmap.mmap] = []
    began = time.monotonic()
    while len(held) * STEP_MIB < wanted:
        held.append(mmap.mmap(-1, STEP_MIB << 20, flags=AT_ONCE))
        if rate:
            time.sleep(max(0.0, began + len(held) * STEP_MIB / rate - time.monotonic()))
    while not os.path.exists(file):
        time.sleep(0.02)


main()
