"""Machines of our own: other kernels, in qemu. ``scripts/vm`` is the command."""
