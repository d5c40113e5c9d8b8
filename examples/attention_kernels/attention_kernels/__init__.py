"""Loader for libattention_kernels.so; needs no GPU to list what the library holds."""

import ctypes
import functools
from pathlib import Path


@functools.cache
def library():
    """The loaded shared library."""
    loaded = ctypes.CDLL(str(Path(__file__).with_name("libattention_kernels.so")))
    loaded.ak_kernel_name.restype = ctypes.c_char_p
    return loaded


def kernels():
    """Names of the entry points."""
    lib = library()
    return [lib.ak_kernel_name(i).decode() for i in range(lib.ak_kernel_count())]
