"""Every error that builddoctor raises, and the exit code of each.

Covers: builddoctor's own failures. A message says what happened; ``hint`` says the next step, as a line that can be
pasted where there is one. The core raises, ``cli`` alone prints and exits.
Does *not* cover: a failed build. Its own exit code passes through unchanged, and a build that dies of signal N gives
128 + N, as a shell does.

75 is no error: ``--until`` has stopped a build that is to be continued, as sysexits.h means it (EX_TEMPFAIL).
The codes 67 to 89 are ours; they are chosen clear of 1, 2 (compilers, ninja, make), 9 (nvcc after a SIGKILL),
126 to 165 (the shell's) and 255 (nvcc with ``--threads``). 64, 126 and 127 keep their usual meaning.
"""

from __future__ import annotations

TO_BE_CONTINUED = 75
"""The exit code of a build that ``--until`` has stopped."""


class BuildDoctorError(Exception):
    """Any other error of builddoctor itself.

    ``str(error)`` says what happened, ``hint`` the next step (may be empty).
    """

    exit_code = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(BuildDoctorError):
    """A flag or value that cannot be understood."""

    exit_code = 64


class CommandNotFoundError(BuildDoctorError):
    """The build command does not exist (the shell's own code for this)."""

    exit_code = 127


class CommandNotExecutableError(BuildDoctorError):
    """The build command exists but cannot be started (the shell's own code for this)."""

    exit_code = 126


class ClusterError(BuildDoctorError):
    """A cluster cannot be used: nobody answers, other keys, another version, or an answer that is not one."""

    exit_code = 67


class ExtraMissingError(BuildDoctorError):
    """What was asked for needs a package that is no part of builddoctor and is not installed."""

    exit_code = 68


class PlatformError(BuildDoctorError):
    """Not Linux: the gates and limits need it."""

    exit_code = 71


class ProjectNotFoundError(BuildDoctorError):
    """The project path does not exist."""

    exit_code = 72


class NoBuildSystemError(BuildDoctorError):
    """The project path holds no build system that we know."""

    exit_code = 73


class ToolkitNotFoundError(BuildDoctorError):
    """No CUDA compiler was found."""

    exit_code = 74


class ToolkitBrokenError(BuildDoctorError):
    """A CUDA compiler was found, but it does not run."""

    exit_code = 69


class FolderNotWritableError(BuildDoctorError):
    """A folder that builddoctor needs (cache, trace, temporary files) cannot be written."""

    exit_code = 76


class MemoryBudgetError(BuildDoctorError):
    """The memory limit leaves nothing to build in."""

    exit_code = 77


class TraceError(BuildDoctorError):
    """A trace cannot be read: not a trace, or of a newer schema."""

    exit_code = 78


class BuildLostError(BuildDoctorError):
    """The build's guardian died, so the build had to be ended."""

    exit_code = 79


class MachineNotFoundError(BuildDoctorError):
    """No machine has that name, or the file holds none."""

    exit_code = 81


class PackageUnavailableError(BuildDoctorError):
    """A package cannot be had: no such version, no network, not in the cache, no pip."""

    exit_code = 82


class PackageDamagedError(BuildDoctorError):
    """A package is damaged or unsafe: a wrong hash, a path that leads out, contents that contradict another's."""

    exit_code = 83


class DiskFullError(BuildDoctorError):
    """There is no room on a disk that builddoctor has to write to."""

    exit_code = 84


class BuildImpossibleError(BuildDoctorError):
    """The doctor found before the build that it cannot succeed."""

    exit_code = 80


class ReproError(BuildDoctorError):
    """A phase cannot be reproduced: its input was not kept, and cannot be made again."""

    exit_code = 87


class TextError(BuildDoctorError):
    """A log cannot be read, or is no text."""

    exit_code = 88


class SourceNotFoundError(BuildDoctorError):
    """The sources cannot be had: no network, no such version, not in the cache."""

    exit_code = 85


class SourceUnsafeError(BuildDoctorError):
    """Sources that are not what they should be: another hash, or an archive that reaches out of its folder."""

    exit_code = 86


class RecipeError(BuildDoctorError):
    """A recipe cannot be found, or is not what it should be."""

    exit_code = 89


def exit_codes() -> list[tuple[int, str, str]]:
    """All classes as ``(exit code, class name, meaning)``, ordered by code; meaning is the class docstring.

    A class without a code of its own is a kind of the one that it comes from.
    """
    found: list[tuple[int, str, str]] = []
    pending: list[type[BuildDoctorError]] = [BuildDoctorError]
    while pending:
        cls = pending.pop()
        pending.extend(cls.__subclasses__())
        if "exit_code" in cls.__dict__:
            found.append((cls.exit_code, cls.__name__, (cls.__doc__ or "").split("\n")[0]))
    return sorted(found)
