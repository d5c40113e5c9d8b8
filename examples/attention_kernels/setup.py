# Builds the shared library with CMake and packs it into the Python package attention_kernels.
#
# Environment: MAX_JOBS (parallel jobs, all that CMake likes when unset), NVCC_THREADS (nvcc --threads),
# AK_CUDA_ARCHS or CMake's own CUDAARCHS ("90", "80;90;100", ...), AK_CMAKE_BUILD_DIR (kept between builds, default
# build/cmake).
import os
import shutil
import subprocess
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
LIBRARY = "libattention_kernels.so"


def cmake_build():
    build_dir = Path(os.environ.get("AK_CMAKE_BUILD_DIR") or ROOT / "build" / "cmake").resolve()
    archs = os.environ.get("AK_CUDA_ARCHS") or os.environ.get("CUDAARCHS") or "90"
    configure = [
        "cmake",
        "-S",
        str(ROOT),
        "-B",
        str(build_dir),
        f"-DCMAKE_CUDA_ARCHITECTURES={archs}",
        f"-DAK_NVCC_THREADS={os.environ.get('NVCC_THREADS', '')}",
    ]
    if shutil.which("ninja"):
        configure.append("-GNinja")
    build = ["cmake", "--build", str(build_dir), "--parallel"]
    if os.environ.get("MAX_JOBS"):
        build.append(os.environ["MAX_JOBS"])
    build_dir.mkdir(parents=True, exist_ok=True)
    for command in (configure, build):
        print("+", " ".join(command), flush=True)
        subprocess.run(command, check=True)
    return build_dir / LIBRARY


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        library = cmake_build()
        package = ROOT / "attention_kernels" if self.editable_mode else Path(self.build_lib) / "attention_kernels"
        package.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, package / LIBRARY)


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


setup(
    name="attention-kernels",
    version="0.1.0",
    description="Example library of CUDA attention kernels",
    packages=["attention_kernels"],
    python_requires=">=3.8",
    cmdclass={"build_py": BuildWithLibrary},
    distclass=BinaryDistribution,
)
