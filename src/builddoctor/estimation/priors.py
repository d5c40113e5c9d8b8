"""What is known of compilers before a build has shown anything: a base figure for each sort of evidence, and how far
phases lie around it.

Covers: the shapes and the figures that ship.
Does *not* cover: what this build shows (``estimation.error_model``) or what earlier ones did (``estimation.past``).

Figures that ship are rounded by hand from fits of 369 phases of TransformerEngine 2.8 for sm_100 (nvcc 13.0.88,
gcc 12.2, x86-64), bounds of host code and links by judgement. C code, which instantiates nothing, is by ten sources of
LightGBM 4.7 and llama.cpp (42 to 234 MiB, gcc 12.2). A tool's peak is a line over the size of its input; from one tool
to the next of a unit it is a power law, which stays positive for units smaller than any that were measured. Fitted
residuals are widened, since one project stands for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from builddoctor.core.word import Word


class Sort(Word):
    """What a guess rests on."""

    PREPROCESS = "prior"
    NOTHING = "prior: preprocesses nothing"
    SAME_INPUT = "the unit's other arch, preprocessed"
    FRONT_END = "prior: input size"
    CICC_OF_FRONT_END = "front end of the unit"
    CICC_OF_SIZE = "prior: input size of cicc"
    CICC_OF_CICC = "the unit's other arch"
    PTXAS = "prior: PTX size"
    HOST_OF_CICC = "cicc of the unit"
    HOST_OF_FRONT_END = "front end of the unit, for its host code"
    HOST_OF_SIZE = "prior: input size of host code"
    HOST_PLAIN = "prior: host code"
    HOST_C = "prior: C code"
    LINK = "prior: link"
    PAST = "history"


class Prior(msgspec.Struct, frozen=True, kw_only=True):
    """A base figure, in MiB, over x (MiB of input, or MiB of an earlier phase), and residuals around it."""

    intercept: float
    slope: float = 0.0
    power: bool = False
    """exp(intercept) times x to the power of slope; else a line"""
    residuals: tuple[float, ...]
    """natural logarithms of truth over base, ascending"""
    weight: float = 1.5
    """phases of this build that they count as"""
    bandwidth: tuple[float, ...] = ()
    """see ``estimation.error_model.Book``"""

    def base_mib(self, x: float) -> float:
        """The figure for x; at least 8 MiB, at most 1 PiB."""
        if self.power:
            exponent = self.intercept + self.slope * math.log(min(max(x, 1.0), 1e9))
            return min(max(math.exp(min(exponent, 20.0)), 8.0), 1e9)
        return min(max(self.intercept + self.slope * min(max(x, 0.0), 1e9), 8.0), 1e9)


Priors = Mapping[Sort, Prior]


SHIPPED: Priors = {
    Sort.PREPROCESS: Prior(intercept=75.0, residuals=(-0.5, -0.1, 0.0, 0.1, 0.7), bandwidth=(0.6,)),
    Sort.NOTHING: Prior(intercept=19.0, residuals=(-0.3, -0.1, 0.0, 0.1, 1.2)),
    Sort.SAME_INPUT: Prior(intercept=0.0, slope=1.0, residuals=(-0.1, -0.05, 0.0, 0.05, 0.1)),
    Sort.FRONT_END: Prior(intercept=48.0, slope=73.0, residuals=(-0.4, -0.1, 0.0, 0.2, 1.0), bandwidth=(0.04,)),
    Sort.CICC_OF_FRONT_END: Prior(
        intercept=-3.4, slope=1.54, power=True, residuals=(-0.7, -0.2, 0.0, 0.2, 0.6), bandwidth=(0.2, 0.2)
    ),
    Sort.CICC_OF_SIZE: Prior(intercept=100.0, slope=80.0, residuals=(-0.7, -0.2, 0.0, 0.5, 1.5), bandwidth=(0.04,)),
    Sort.CICC_OF_CICC: Prior(intercept=0.0, slope=1.0, residuals=(-0.8, -0.1, 0.0, 0.1, 0.8)),
    Sort.PTXAS: Prior(intercept=30.0, slope=34.0, residuals=(-0.3, -0.1, 0.0, 0.1, 0.5), bandwidth=(0.6,)),
    Sort.HOST_OF_CICC: Prior(
        intercept=1.5, slope=0.72, power=True, residuals=(-0.4, -0.1, 0.0, 0.1, 0.4), bandwidth=(0.4, 0.6)
    ),
    Sort.HOST_OF_FRONT_END: Prior(
        intercept=1.0, slope=0.8, power=True, residuals=(-0.6, -0.2, 0.0, 0.2, 0.7), bandwidth=(0.2,)
    ),
    Sort.HOST_OF_SIZE: Prior(intercept=114.0, slope=32.0, residuals=(-0.6, -0.1, 0.0, 0.4, 1.5), bandwidth=(0.04,)),
    Sort.HOST_PLAIN: Prior(intercept=400.0, residuals=(-1.5, -0.6, 0.0, 1.1, 1.6)),
    Sort.HOST_C: Prior(intercept=80.0, residuals=(-0.7, -0.5, 0.0, 0.6, 1.5)),
    Sort.LINK: Prior(intercept=60.0, slope=2.0, residuals=(-1.0, -0.3, 0.0, 0.6, 1.2)),
    Sort.PAST: Prior(intercept=0.0, slope=1.0, residuals=(-0.01, -0.003, 0.0, 0.003, 0.01)),
}
