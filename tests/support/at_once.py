"""A process that takes memory in one step: ``at_once.py MIB [FILE]``; with FILE, waits for it before it takes it.

The kernel fills the pages in within one call. Start it in a memory cgroup with a limit.
"""

import mmap
import os
import sys
import time


def main():
    while len(sys.argv) > 2 and not os.path.exists(sys.argv[2]):
        time.sleep(0.005)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    mmap.mmap(-1, int(sys.argv[1]) << 20, flags=flags)


main()
