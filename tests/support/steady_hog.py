"""A process that takes memory at its own pace: ``steady_hog.py MIB MIB_PER_S FILE``, then waits for FILE.

Like a compiler, and not like ``hog.py``, it goes on where it was when it was stopped or starved: it catches up nothing.
"""

import mmap
import os
import sys
import time

STEP_MIB = 4


def main() -> None:
    wanted, rate, file = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    held: list[mmap.mmap] = []
    while len(held) * STEP_MIB < wanted:
        held.append(mmap.mmap(-1, STEP_MIB << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
        time.sleep(STEP_MIB / rate)
    while not os.path.exists(file):
        time.sleep(0.02)


main()
