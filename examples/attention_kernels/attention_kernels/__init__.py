"""Loader for libattention_kernels.so; needs no GPU to list what the library holds."""
import ctypes
from pathlib import Path

_library = None


def library():
    """The loaded shared library."""
    global _library
    if _library is None:
        _library = ctypes.CDLL(str(Path(__file__).with_name("libattention_kernels.so")))
        _library.ak_kernel_name.restype = ctypes.c_char_p
    return _library


def kernels():
    """Names of the entry points."""
    lib = library()
    return [lib.ak_kernel_name(i).decode() for i in range(lib.ak_kernel_count())]
