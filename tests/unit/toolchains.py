"""Toolchains made of nothing, for checks that judge them, and headers in the shape of NVIDIA's."""

from __future__ import annotations

from builddoctor.core.toolchain import HostCompilerChoice, HostLimits, LibraryCopy, NvccPlace, Toolchain, Toolkit

ARCHS = {
    "12.6.85": ("50", "52", "53", "60", "61", "62", "70", "72", "75", "80", "86", "87", "89", "90", "90a"),
    "13.0.88": ("75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "100f", "110", "120", "121"),
}

HOST_CONFIG = """
#if !__NV_NO_HOST_COMPILER_CHECK
#if defined(__GRCO_CLANG_COMPILER__)
#if (__GRCO_CLANG_COMPILER__ == 1) && ((__clang_major__ < 16) || (__clang_major__ > 19))
#error -- unsupported Grace clang version! The version must be 16.x to 19.x. Use at your own risk.
#endif
#endif

#if defined(__GNUC__)

#if __GNUC__ > {gnu}

#error -- unsupported GNU version! gcc versions later than {gnu} are not supported! Use at your own risk.

#endif /* __GNUC__ > {gnu} */

#if defined(__clang__) && !defined(__ibmxl_vrm__) && !defined(__ICC) && !defined(__HORIZON__)

#if (__clang_major__ >= {clang}) || (__clang_major__ < 3) || ((__clang_major__ == 3) && (__clang_minor__ < 3))
#error -- unsupported clang version! clang version must be less than {clang} and greater than 3.2 .

#endif
#endif
#endif
#endif
"""

DECLARED = "extern __DEVICE_FUNCTIONS_DECL__ __device_builtin__ double                 {name}(double x){how};\n"


def math_functions(**how: str) -> str:
    """A crt/math_functions.h that declares these functions so; the comment names them too, as the real one does."""
    comment = "/**\n * - rsqrt(double x) returns NaN.\n */\n"
    return comment + "".join(DECLARED.format(name=name, how=text) for name, text in how.items())


def toolkit(version: str = "13.0.88", home: str = "/usr/local/cuda") -> Toolkit:
    return Toolkit(
        nvcc=f"{home}/bin/nvcc",
        version=version,
        here=f"{home}/bin",
        top=f"{home}/bin/..",
        cicc=f"{home}/nvvm/bin/cicc",
        tools=(),
        include_flags=(f"-I{home}/bin/../include",),
        library_flags=(f"-L{home}/bin/../lib64/stubs", f"-L{home}/bin/../lib64"),
    )


def place(version: str, folder: str) -> NvccPlace:
    return NvccPlace(nvcc=f"{folder}/bin/nvcc", version=version, archs=sm(version))


def sm(version: str) -> tuple[str, ...]:
    return tuple(f"sm_{number}" for number in ARCHS.get(version, ()))


def host(version: str = "12.2.0", driver: str = "/usr/bin/gcc", **more: object) -> HostCompilerChoice:
    fields = {"kind": "gnu", "glibc": "2.36", **more}
    return HostCompilerChoice(driver=driver, version=version, **fields)  # type: ignore[arg-type]


def toolchain(version: str = "13.0.88", **more: object) -> Toolchain:
    """One in which all is well, but for ``more``."""
    fields: dict[str, object] = {
        "toolkit": toolkit(version),
        "archs": sm(version),
        "hosts": (host(),),
        "limits": HostLimits(gnu_newest=15, clang_newest=20, clang_oldest=3),
        "bare_functions": (),
        "links": True,
        "libraries": (copy("cudart", version=version.rpartition(".")[0]),),
    }
    return Toolchain(**{**fields, **more})  # type: ignore[arg-type]


def copy(name: str, folder: str = "/usr/local/cuda", *, version: str = "13.0", **more: object) -> LibraryCopy:
    fields: dict[str, object] = {
        "place": folder,
        "kind": "toolkit",
        "header": f"{folder}/include/{name}.h",
        "header_version": version,
        "library": f"{folder}/lib64/lib{name}.so.{version}",
        "library_version": version,
        "linkable": True,
    }
    return LibraryCopy(name=name, **{**fields, **more})  # type: ignore[arg-type]
