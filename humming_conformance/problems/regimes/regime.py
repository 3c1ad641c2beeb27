# SPDX-License-Identifier: Apache-2.0
"""What a regime is: a named way to fill operands, and the plain random fill that each regime departs from.

A regime overrides only the tensors that matter for the fault it exposes. Every method returns int64 codes
made by integer arithmetic from the case's words, so that any array back end gives the same bits.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from humming_conformance.formats import ElementFormat, element_format
from humming_conformance.problems import fill
from humming_conformance.problems.case import Case
from humming_conformance.problems.distributions import DISTRIBUTIONS
from humming_conformance.problems.operands import Operands
from humming_conformance.problems.words import Array, Draw, NumpyArrays


class Regime:
    """The fill of one case. Subclasses set ``name``, ``fault`` and override the tensors they care about."""

    #: The id's word.
    name: ClassVar[str]
    #: The fault that this regime exposes and others hide, in one sentence.
    fault: ClassVar[str]
    #: Significand bits that every partial result needs, if the regime is exact: where partial results are
    #: kept in a format with at least that many, the output must be bit-equal. None: judged by the bound.
    exact_bits: ClassVar[int | None] = None
    #: Whether the quality floor says something: an error in norm means little where extremes overflow 16-bit
    #: formats.
    has_floor: ClassVar[bool] = True

    #: Whether tier lists are drawn with this regime as one more value that everything is met with.
    drawn: ClassVar[bool] = True

    def __init__(self, case: Case, draw: Draw) -> None:
        self.case = case
        self.draw = draw
        self.arrays = draw.arrays
        problem = case.problem
        self.experts = max(problem.experts, 1)
        self.weight_shape = (self.experts, problem.n, problem.k)
        granularity = case.weight.granularity
        self.scale_shape = (self.experts, *granularity.scale_shape(problem.n, problem.k))
        self.weight_format = case.weight.format
        self.scale_format = element_format(case.weight.scale_format)
        self.activation_format = case.activation.format
        self.output_format = element_format(case.output)

    @classmethod
    def refuses(cls, case: Case) -> str:
        """Why this regime makes no sense for a case, or an empty string."""
        return ""

    @property
    def launches(self) -> int:
        """How many times the kernel is launched."""
        return 1

    # The random fill.

    def weight(self) -> Array:
        """Weight codes (E, N, K): all codes of narrow formats, a window of binades of wide floats."""
        return self.some_code(self.draw.words("weight", self.weight_shape), self.weight_format)

    def weight_scale(self) -> Array:
        """Weight scale codes: three binades that make weights of about 1/4, all mantissas."""
        top = -fill.typical_exponent(self.weight_format) - 1
        words = self.draw.words("weight_scale", self.scale_shape)
        return fill.float_code(words, self.scale_format, top - 2, top, signed=False)

    def zero_point(self) -> Array:
        """Zero point codes (E, N, groups): any code (integer), or around the code's middle (float)."""
        words = self.draw.words("zero_point", (self.experts, self.case.problem.n, self.scale_shape[2]))
        if self.case.weight.zero_point == "integer":
            return fill.any_code(words, self.arrays, self.weight_format)
        middle = self.weight_format.bits - 1
        return fill.float_code(words, self.output_format, middle - 1, middle, signed=False, mantissa_bits=6)

    def weight_scale_2(self) -> Array:
        """Second-level scale codes: fp32 (E, 1), or output format (E, N); two binades."""
        if self.case.weight.second_scale == "tensor":
            words = self.draw.words("weight_scale_2", (self.experts, 1))
            return fill.float_code(words, element_format("fp32"), -1, 0, signed=False)
        words = self.draw.words("weight_scale_2", (self.experts, self.case.problem.n))
        return fill.float_code(words, self.output_format, -1, 0, signed=False)

    def activation(self) -> Array:
        """Activation codes (L, M, K)."""
        return self.some_code(self.draw.words("activation", self.activation_shape), self.activation_format)

    def activation_scale(self) -> Array:
        """Activation scale codes: two binades that make activations of about 1."""
        top = -fill.typical_exponent(self.activation_format)
        words = self.draw.words("activation_scale", self.activation_scale_shape)
        scale_format = element_format(self.case.activation.scale_format)
        return fill.float_code(words, scale_format, top - 1, top, signed=False)

    def expert(self) -> NDArray[np.int32]:
        """Expert of each token and slot (L, M, top_k): the distribution's counts, shuffled by words."""
        problem = self.case.problem
        counts = DISTRIBUTIONS[problem.distribution](problem.rows, problem.experts)
        sorted_experts = np.repeat(np.arange(problem.experts), counts)
        words = Draw(self.case.id, NumpyArrays()).words("expert", (problem.rows,))
        shuffled = sorted_experts[np.argsort(words, kind="stable")]
        assignment = shuffled.reshape(1, problem.m, problem.top_k)
        return np.broadcast_to(assignment, (self.launches, problem.m, problem.top_k)).astype(np.int32)

    def bias(self) -> Array:
        """Bias codes (E, N) in the output format, about 1."""
        words = self.draw.words("bias", (self.experts, self.case.problem.n))
        return fill.float_code(words, self.output_format, -2, 1, signed=True)

    # Shared by the fills.

    @property
    def activation_shape(self) -> tuple[int, int, int]:
        """(L, M, K)."""
        return (self.launches, self.case.problem.m, self.case.problem.k)

    @property
    def activation_scale_shape(self) -> tuple[int, int, int]:
        """(L, rows, columns) of the activation scale."""
        granularity = self.case.activation.granularity
        if granularity is None:
            raise TypeError("16-bit activations have no scale")
        return (self.launches, *granularity.scale_shape(self.case.problem.m, self.case.problem.k))

    def some_code(self, words: Array, element: ElementFormat) -> Array:
        """All codes of a format without wide range, else four binades around 1, both signs."""
        if not fill.is_wide(element):
            return fill.any_code(words, self.arrays, element)
        return fill.float_code(words, element, -2, 1, signed=True)

    def build(self) -> Operands:
        """All operands of the case."""
        case, store = self.case, self.arrays.store
        zero_point_format = self.weight_format if case.weight.zero_point == "integer" else self.output_format
        second_format = element_format("fp32") if case.weight.second_scale == "tensor" else self.output_format
        scaled = case.activation.granularity is not None
        activation_scale_format = element_format(case.activation.scale_format)
        return Operands(
            weight=store(self.weight(), self.weight_format.code_dtype),
            weight_scale=store(self.weight_scale(), self.scale_format.code_dtype),
            zero_point=None
            if case.weight.zero_point == "none"
            else store(self.zero_point(), zero_point_format.code_dtype),
            weight_scale_2=None
            if case.weight.second_scale == "none"
            else store(self.weight_scale_2(), second_format.code_dtype),
            activation=store(self.activation(), self.activation_format.code_dtype),
            activation_scale=store(self.activation_scale(), activation_scale_format.code_dtype) if scaled else None,
            expert=self.expert() if case.problem.experts else None,
            bias=store(self.bias(), self.output_format.code_dtype) if case.problem.bias else None,
        )
