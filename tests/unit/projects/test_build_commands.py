"""Commands that certainly build the project of the folder that they are started in."""

from __future__ import annotations

import pytest

from builddoctor.projects.build_commands import builds_folder


@pytest.mark.parametrize(
    "command",
    [
        "ninja",
        "ninja -j4 -v",
        "ninja -C build",
        "/usr/bin/ninja -Cbuild install",
        "make",
        "make -j 8",
        "gmake CC=gcc all",
        "cmake --build build -j4",
        "cmake --build build --target install",
        "cmake -S . -B build",
        "cmake -B build -DCMAKE_BUILD_TYPE=Release",
        "cmake -G Ninja .",
        "pip install .",
        "pip3.11 install -v --no-build-isolation -e .",
        "pip wheel --wheel-dir dist /p",
        "pip install .[dev]",
        "uv pip install .",
        "uv build",
        "python -m pip install ./",
        "python3 -u -m pip wheel .",
        "python3.11 -m build --wheel",
        "python setup.py bdist_wheel",
        "python setup.py build_ext --inplace",
        "env MAX_JOBS=4 nice -n 10 time -p stdbuf -oL python setup.py develop",
        "nohup env -u CC make",
    ],
)
def test_builds_of_this_folder(command: str) -> None:
    """As people type them."""
    assert builds_folder(command.split(), "/p")


@pytest.mark.parametrize(
    "command",
    [
        "",
        "true",
        "git submodule update --init",
        "bash -c make",
        "env",
        "env -C /other make",
        "ninja --version",
        "ninja -t clean",
        "ninja -C /other",
        "ninja -C ../other",
        "make submodules",
        "make clean",
        "make -n",
        "make -f other.mk",
        "cmake",
        "cmake --version",
        "cmake --help",
        "cmake -E echo x",
        "cmake -P script.cmake",
        "cmake --install build",
        "cmake ..",
        "cmake -S /other -B build",
        "cmake --build /other",
        "cmake --build build --target clean",
        "pip install numpy",
        "pip install /other",
        "pip install -r requirements.txt",
        "pip download .",
        "pip install -t . numpy",
        "pip --version",
        "uv sync",
        "uv pip compile .",
        "python -c pass",
        "python -m build --sdist",
        "python -m build /other",
        "python -m pytest",
        "python setup.py --version",
        "python setup.py sdist",
        "python /other/setup.py install",
        "python script.py install",
        "pipx install .",
    ],
)
def test_everything_else_is_left_alone(command: str) -> None:
    """Another command, another folder, another project, a question, or a target that nobody knows."""
    assert not builds_folder(command.split(), "/p")
