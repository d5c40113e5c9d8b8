"""Miniatures of known projects: one small CUDA source each, and a build front that reads what the real one reads.

Written from what those projects do (variables, backend, quirks), and not from our catalogue: they are its test. Each
front ends the build where the real one would have taken a finished wheel, or compiled nothing.
"""

from __future__ import annotations

from pathlib import Path

KERNEL = "__global__ void scale(float *x) { x[threadIdx.x] *= 2.0f; }\n"

CMAKE_LISTS = """cmake_minimum_required(VERSION 3.20)
project(miniature LANGUAGES CXX CUDA)
add_library(miniature STATIC ${CMAKE_CURRENT_SOURCE_DIR}/kernel.cu)
"""

COMMON = '''
import os, shlex, shutil, subprocess, sys, tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def env(name, default=""):
    return os.environ.get(name, default)


def must(name, value):
    if env(name) != value:
        raise SystemExit(f"{name} is not {value}: nothing is compiled here")


def dotted(text):
    """torch's list: 9.0a and 10.0+PTX, separated by semicolons or blanks."""
    found = []
    for word in text.replace(" ", ";").split(";"):
        number, _, ptx = word.partition("+")
        found.append(number.replace(".", ""))
    return found


def torch_extension(archs, use_ninja=True):
    """torch.utils.cpp_extension: build.ninja with nvcc from PYTORCH_NVCC, or one file after the other without ninja."""
    gencode = " ".join(f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs)
    build = HERE / "build" / "temp"
    build.mkdir(parents=True, exist_ok=True)
    nvcc = env("CUDA_HOME") + "/bin/nvcc"
    source, target = HERE / "kernel.cu", build / "kernel.o"
    if not use_ninja:
        subprocess.run([nvcc, *shlex.split(gencode), "-c", str(source), "-o", str(target)], check=True)
        return
    (build / "build.ninja").write_text(
        "ninja_required_version = 1.3\\n"
        f"nvcc = {env('PYTORCH_NVCC') or nvcc}\\n"
        f"cuda_post_cflags = {gencode}\\n"
        "rule cuda_compile\\n  command = $nvcc -c $in -o $out $cuda_post_cflags\\n"
        f"build {target}: cuda_compile {source}\\n"
    )
    jobs = ["-j", env("MAX_JOBS")] if env("MAX_JOBS").isdigit() else []
    subprocess.run(["ninja", "-v", *jobs], cwd=build, check=True)


def cmake(build, *arguments, generator="Ninja", jobs=""):
    subprocess.run(["cmake", "-S", str(HERE), "-B", str(build), "-G", generator, *arguments], check=True)
    subprocess.run(["cmake", "--build", str(build), "--parallel", *([jobs] if jobs else [])], check=True)
'''

SETUP = """import sys
sys.path.insert(0, ".")
if "bdist_wheel" in sys.argv:
    import front
    front.build()
from setuptools import setup
setup(name="miniature", version="1", py_modules=[])
"""

SCIKIT = '''

def arguments(config_settings):
    """scikit-build-core: CMAKE_ARGS behind its own settings; a temporary build folder unless the settings name one."""
    folder = (config_settings or {}).get("build-dir") or tempfile.mkdtemp()
    return folder, shlex.split(env("CMAKE_ARGS"))


def given(words, name):
    return next((word.partition("=")[2] for word in words if word.startswith(f"-D{name}=")), "")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder, words = arguments(config_settings)
    scikit(folder, words)
    import zipfile
    name = "miniature-1-py3-none-any.whl"
    with zipfile.ZipFile(Path(wheel_directory) / name, "w") as wheel:
        wheel.writestr("miniature-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: miniature\\nVersion: 1\\n")
        about = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr("miniature-1.dist-info/WHEEL", about)
        wheel.writestr("miniature-1.dist-info/RECORD", "")
    return name
'''

FRONTS = {
    "transformer_engine": """
def build():
    must("NVTE_PYTORCH_FORCE_BUILD", "TRUE")
    folder = env("NVTE_CMAKE_BUILD_DIR") or tempfile.mkdtemp()
    archs = env("NVTE_CUDA_ARCHS", "80")
    cmake(folder, f"-DCMAKE_CUDA_ARCHITECTURES={archs}", jobs=env("NVTE_BUILD_MAX_JOBS") or env("MAX_JOBS"))
""",
    "flash_attn": """
def build():
    must("FLASH_ATTENTION_FORCE_BUILD", "TRUE")
    os.environ.setdefault("MAX_JOBS", "2")
    archs = env("FLASH_ATTN_CUDA_ARCHS", "80").split(";")
    torch_extension([arch for arch in archs if arch in ("80", "90", "100", "120")])
""",
    "flash_attn_3": """
def build():
    must("FLASH_ATTENTION_FORCE_BUILD", "TRUE")
    torch_extension(["90a"])
""",
    "xformers": """
def build():
    must("FORCE_CUDA", "1")
    torch_extension(dotted(env("TORCH_CUDA_ARCH_LIST")))
""",
    "vllm": """
def build():
    must("VLLM_TARGET_DEVICE", "cuda")
    archs = ";".join(dotted(env("TORCH_CUDA_ARCH_LIST")))
    cmake(HERE / "build" / "temp", f"-DCMAKE_CUDA_ARCHITECTURES={archs}", *shlex.split(env("CMAKE_ARGS")))
""",
    "pytorch": """
def build():
    must("USE_CUDA", "1")
    given = [f"-D{name}={value}" for name, value in os.environ.items() if name.startswith(("USE_", "BUILD_"))]
    cmake(HERE / "build", *given, f"-DCMAKE_CUDA_ARCHITECTURES={';'.join(dotted(env('TORCH_CUDA_ARCH_LIST')))}")
""",
    "apex": """
def build():
    must("APEX_CUDA_EXT", "1")
    must("APEX_CPP_EXT", "1")
    torch_extension(dotted(env("TORCH_CUDA_ARCH_LIST")))
""",
    "mamba_ssm": """
def build():
    must("MAMBA_FORCE_BUILD", "TRUE")
    torch_extension(["80", "90"])
""",
    "causal_conv1d": """
def build():
    must("CAUSAL_CONV1D_FORCE_BUILD", "TRUE")
    torch_extension(["80", "90"])
""",
    "deepspeed": """
def build():
    must("DS_ACCELERATOR", "cuda")
    must("DS_BUILD_OPS", "1")
    archs = [str(int(arch)) for arch in dotted(env("TORCH_CUDA_ARCH_LIST"))]
    torch_extension(archs, use_ninja=bool(env("DS_ENABLE_NINJA")))
""",
    "natten": """
def build():
    named = env("NATTEN_BUILD_DIR")
    folder = named if named and os.path.isdir(named) else tempfile.mkdtemp()
    archs = ";".join(word.replace(".", "") for word in env("NATTEN_CUDA_ARCH").split(";"))
    cmake(folder, f"-DCMAKE_CUDA_ARCHITECTURES={archs}", generator=env("CMAKE_GENERATOR", "Unix Makefiles"), jobs="2")
""",
    "llama_cpp_python": """
def scikit(folder, words):
    if given(words, "GGML_CUDA") != "on":
        raise SystemExit("no CUDA is built")
    cmake(folder, *words, jobs=env("CMAKE_BUILD_PARALLEL_LEVEL"))
""",
    "sgl_kernel": """
def scikit(folder, words):
    if given(words, "SGL_KERNEL_COMPILE_THREADS") != "1":
        raise SystemExit("32 threads a file")
    cmake(folder, "-DCMAKE_CUDA_ARCHITECTURES=90", *words, jobs=env("CMAKE_BUILD_PARALLEL_LEVEL"))
""",
    "bitsandbytes": """
def scikit(folder, words):
    if given(words, "COMPUTE_BACKEND") != "cuda":
        raise SystemExit("no CUDA is built")
    cmake(folder, f"-DCMAKE_CUDA_ARCHITECTURES={given(words, 'COMPUTE_CAPABILITY')}", *words)
""",
    "flashinfer": """
def build():
    must("FLASHINFER_BUILD_NO_PIP", "1")
    (HERE / "archs.txt").write_text(env("FLASHINFER_CUDA_ARCH_LIST"))
""",
    "megatron_core": """
def build():
    (HERE / "build").mkdir(exist_ok=True)
    (HERE / "helpers.cpp").write_text("int helpers() { return 1; }")
    subprocess.run(["g++", "-c", str(HERE / "helpers.cpp"), "-o", str(HERE / "build" / "helpers.o")], check=True)
""",
}

INSIDE = {"flash_attn_3": "hopper", "sgl_kernel": "sgl-kernel"}
"""The folder of the checkout that is built."""


def miniature(name: str, folder: Path) -> Path:
    """Write the miniature of this project; gives the folder that is built."""
    top = folder / INSIDE.get(name, "")
    top.mkdir(parents=True)
    (top / "kernel.cu").write_text(KERNEL)
    (top / "CMakeLists.txt").write_text(CMAKE_LISTS)
    scikit = "def scikit" in FRONTS[name]
    (top / "front.py").write_text(COMMON + FRONTS[name] + SCIKIT * scikit)
    if scikit:
        backend = '[build-system]\nrequires = []\nbuild-backend = "front"\nbackend-path = ["."]\n'
        (top / "pyproject.toml").write_text(backend + '[project]\nname = "miniature"\nversion = "1"\n')
    else:
        (top / "setup.py").write_text(SETUP)
    return top
