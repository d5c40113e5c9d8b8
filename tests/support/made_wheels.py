"""Small wheels in the shape of NVIDIA's: a toolkit of them has everything but a compiler."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

X86_64 = "py3-none-manylinux2014_x86_64"
AARCH64 = "py3-none-manylinux2014_aarch64"

# Answers what a search for toolkits asks.
NVCC = r"""#!/bin/sh
here=$(cd "$(dirname "$0")" && pwd)
case "$*" in
*--version*) echo "Cuda compilation tools, release 13.0, V13.0.88" ;;
*--dryrun*) printf '#$ _HERE_=%s\n#$ TOP=%s/..\n#$ CICC_PATH=%s/../nvvm/bin\n#$ PATH=%s:%s/../nvvm/bin\n' \
    "$here" "$here" "$here" "$here" "$here" >&2 ;;
esac
"""

CUDA_H = """
#define cuMemAlloc cuMemAlloc_v2
CUresult CUDAAPI cuInit(unsigned int Flags);
CUresult CUDAAPI cuMemAlloc(CUdeviceptr *dptr, size_t bytesize);
"""
PINS = {
    "nvcc": ("nvidia-cuda-nvcc==13.0.88.*", "nvidia-cuda-crt==13.0.88.*", "nvidia-nvvm==13.0.88.*"),
    "cudart": ("nvidia-cuda-runtime==13.0.96.*",),
    "cccl": ("nvidia-cuda-cccl==13.0.85.*",),
    "cublas": ("nvidia-cublas==13.1.1.3.*",),
    "nvml": ("nvidia-nvml-dev==13.0.87.*",),
}


def metadata(name: str, version: str, *, requires: Sequence[str] = (), extras: Sequence[str] = ()) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    return "\n".join([*lines, *(f"Requires-Dist: {need}" for need in requires), ""])


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, bytes | str],
    *,
    tag: str = X86_64,
    about: str | None = None,
    record: Mapping[str, str | None] | None = None,
) -> Path:
    """``record``: other hashes than the true ones; None leaves the file out of RECORD."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    contents = {
        **files,
        f"{info}/METADATA": metadata(name, version) if about is None else about,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
        f"{info}/licenses/License.txt": f"the licence of {name}\n",
    }
    path = folder / f"{stem}-{tag}.whl"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, content in contents.items():
            data = content if isinstance(content, bytes) else content.encode()
            archive.writestr(each, data)
            said = (record or {}).get(each, digest_of(data))
            rows += [f"{each},{said},{len(data)}\n"] if said is not None else []
        archive.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return path


def digest_of(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def toolkit_metadata(version: str = "13.0.3.0") -> str:
    """``cuda-toolkit``'s: pins behind extras, as NVIDIA writes them."""
    where = " or ".join(
        f"sys_platform == 'linux' and platform_machine == '{machine}'" for machine in ("aarch64", "x86_64")
    )
    requires = [f"{pin}; ({where}) and extra == '{extra}'" for extra, pins in PINS.items() for pin in pins]
    requires += [
        f"nvidia-cuda-opencl==13.0.85.*; (platform_machine == 'x86_64') and extra == '{each}'"
        for each in ("opencl", "all")
    ]
    return metadata("cuda-toolkit", version, requires=requires, extras=[*PINS, "opencl", "all"])


def toolkit_wheels(folder: Path, *, tag: str = X86_64, nvcc: str = NVCC) -> list[Path]:
    """A whole release 13.0 in ``folder``."""
    tool = "#!/bin/sh\nexit 0\n"
    home = "nvidia/cu13"
    parts: dict[tuple[str, str], dict[str, bytes | str]] = {
        ("nvidia-cuda-nvcc", "13.0.88"): {
            f"{home}/bin/nvcc": nvcc,
            f"{home}/bin/nvcc.profile": "TOP = $(_HERE_)/..\n",
            f"{home}/bin/ptxas": tool,
            f"{home}/bin/cudafe++": tool,
        },
        ("nvidia-cuda-crt", "13.0.88"): {f"{home}/include/crt/host_config.h": "/* crt */\n"},
        ("nvidia-nvvm", "13.0.88"): {
            f"{home}/nvvm/bin/cicc": tool,
            f"{home}/nvvm/libdevice/libdevice.10.bc": "bitcode",
            f"{home}/lib/libnvvm.so.4": "nvvm",
        },
        ("nvidia-cuda-runtime", "13.0.96"): {
            f"{home}/include/cuda.h": CUDA_H,
            f"{home}/include/cuda_runtime_api.h": "#define CUDART_VERSION 13000\n",
            f"{home}/lib/libcudart.so.13": "cudart",
            f"{home}/lib/libcudart_static.a": "static",
            f"{home}/lib/libcudadevrt.a": "device",
        },
        ("nvidia-cuda-cccl", "13.0.85"): {
            f"{home}/.metadata/provenance.txt": "NVIDIA's own notes",
            **{f"{home}/include/cccl/cub/part_{number}.cuh": f"/* {number} */\n" for number in range(40)},
        },
        ("nvidia-cublas", "13.1.1.3"): {
            f"{home}/include/cublas_api.h": "#define CUBLAS_VER_MAJOR 13\n",
            f"{home}/lib/libcublas.so.13": "cublas",
        },
        ("nvidia-nvml-dev", "13.0.87"): {f"{home}/include/nvml.h": "nvmlReturn_t DECLDIR nvmlInit_v2(void);\n"},
    }
    made = [make_wheel(folder, name, version, files, tag=tag) for (name, version), files in parts.items()]
    about = toolkit_metadata()
    made.append(make_wheel(folder, "cuda-toolkit", "13.0.3.0", {}, tag="py2.py3-none-any", about=about))
    return made
