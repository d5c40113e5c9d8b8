"""A process that takes memory and keeps it until the kernel has ended one: ``until_killed.py MIB MEMORY.OOM_CONTROL``.

Several that do not fit together are there together, whatever the order in which they start.
"""

import mmap
import sys
import time


def main():
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
    held = mmap.mmap(-1, int(sys.argv[1]) << 20, flags=flags)
    while True:
        with open(sys.argv[2]) as file:
            if "oom_kill 0\n" not in file.read():
                break
        time.sleep(0.01)
    held.close()


main()
