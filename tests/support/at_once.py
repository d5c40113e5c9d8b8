"""A process that takes memory in one step: ``at_once.py MIB [FILE [FILE]]``; waits for the first file before it takes
it, and for the second before it ends.

The kernel fills the pages in within one call. Start it in a memory cgroup with a limit.
"""

import mmap
import os
import sys
import time


def main():
    wait_for(2)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    held = mmap.mmap(-1, int(sys.argv[1]) << 20, flags=flags)
    wait_for(3)
    held.close()


def wait_for(place):
    while len(sys.argv) > place and not os.path.exists(sys.argv[place]):
        time.sleep(0.005)


main()
