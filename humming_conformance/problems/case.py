# SPDX-License-Identifier: Apache-2.0
"""What is judged: scheme, problem and case, as frozen data with the rules that make them meaningful.

A case says nothing about kernels or devices; its one text form is in :mod:`.ids`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from typing import Literal

from humming_conformance.formats import (
    SCALE_FORMATS,
    ElementFormat,
    Granularity,
    SecondScale,
    ZeroPoint,
    element_format,
)
from humming_conformance.problems.calls import CALL_OPTIONS
from humming_conformance.problems.distributions import DISTRIBUTIONS

ProblemKind = Literal["dense", "moe_indexed", "moe_grouped_contiguous", "moe_grouped_masked"]

PROBLEM_KINDS: tuple[ProblemKind, ...] = (
    "dense",
    "moe_indexed",
    "moe_grouped_contiguous",
    "moe_grouped_masked",
)
OUTPUT_FORMATS = ("bf16", "fp16")
#: What a source is made of, so that an id stays one word for ``-k`` and a file name.
_OPTION_WORD = re.compile(r"[A-Za-z0-9_+]+")


class CaseError(ValueError):
    """A scheme, problem or case breaks a rule; the text names the input, the rule and the mend."""


def _require_element(what: str, name: str) -> None:
    """Raise :class:`CaseError` unless ``name`` is the canonical name of a format for matrix elements."""
    element = element_format(name)
    if element.name != name:
        raise CaseError(f"{what} element {name!r} is called {element.name}")
    if element.bits > 16 or name == "ue8m0":
        raise CaseError(f"{name} is no {what} element: elements are signed or integer, of at most 16 bits")


@dataclass(frozen=True)
class WeightScheme:
    """How a weight matrix (N, K) is stored.

    A weight is ``(decode(code) - zero_point) * scale * second_scale``. Symmetric integers use ``intN`` (two's
    complement codes); ``uintN`` comes with a zero point. An integer zero point has the code's own width, a
    float one the 16-bit format of the output. Scales are one per granule; the second-level scale is one fp32
    number per expert (``tensor``) or one number in the output format per row (``channel``).
    """

    element: str
    granularity: Granularity
    scale_format: str
    zero_point: ZeroPoint = "none"
    second_scale: SecondScale = "none"

    def __post_init__(self) -> None:
        _require_element("weight", self.element)
        if self.scale_format not in SCALE_FORMATS:
            raise CaseError(f"scale format {self.scale_format!r} is not one of {', '.join(SCALE_FORMATS)}")
        if self.granularity.kind == "token":
            raise CaseError("weight scales are per channel, not per token; write channel")
        if self.granularity.kind == "block" and self.zero_point != "none":
            raise CaseError("block scales have no zero points; use group granularity or drop the zero point")
        if self.zero_point != "none" and not self.element.startswith("uint"):
            raise CaseError(f"a zero point needs a uintN weight, not {self.element}; drop it or name uintN")
        if self.zero_point == "none" and self.element.startswith("uint"):
            raise CaseError(f"{self.element} weights need a zero point (zp or fzp); symmetric ones are intN")

    @property
    def format(self) -> ElementFormat:
        """The element format of the codes."""
        return element_format(self.element)


@dataclass(frozen=True)
class ActivationScheme:
    """How activations (M, K) reach the multiplier.

    16-bit formats have no scale and ``granularity`` None. Others have one scale per matrix (``tensor``), per
    row (``token``) or per group of K.
    """

    element: str
    granularity: Granularity | None = None
    scale_format: str = "fp32"

    def __post_init__(self) -> None:
        _require_element("activation", self.element)
        is_16bit = self.element in OUTPUT_FORMATS
        if is_16bit and (self.granularity is not None or self.scale_format != "fp32"):
            raise CaseError(f"{self.element} activations have no scale; leave its granularity and format out")
        if not is_16bit and self.granularity is None:
            raise CaseError(f"{self.element} activations need a granularity: tensor, token or gN")
        if self.scale_format not in SCALE_FORMATS:
            raise CaseError(f"scale format {self.scale_format!r} is not one of {', '.join(SCALE_FORMATS)}")
        if self.granularity is not None and self.granularity.kind in ("channel", "block"):
            raise CaseError(f"activations are scaled per tensor, token or group, not per {self.granularity.kind}")

    @property
    def format(self) -> ElementFormat:
        """The element format of the codes."""
        return element_format(self.element)


@dataclass(frozen=True)
class Problem:
    """The shape of one GEMM.

    ``m`` counts tokens; a MoE problem has ``m * top_k`` rows, each sent to one of ``experts`` by the token
    ``distribution``. ``dense`` has no experts.
    """

    kind: ProblemKind
    m: int
    n: int
    k: int
    experts: int = 0
    top_k: int = 1
    distribution: str = "balanced"
    bias: bool = False

    def __post_init__(self) -> None:
        if self.kind not in PROBLEM_KINDS:
            raise CaseError(f"problem kind {self.kind!r} is not one of {', '.join(PROBLEM_KINDS)}")
        if self.distribution not in DISTRIBUTIONS:
            raise CaseError(f"token distribution {self.distribution!r} is not one of {', '.join(DISTRIBUTIONS)}")
        for name in ("m", "n", "k", "top_k"):
            if getattr(self, name) < 1:
                raise CaseError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if (self.kind == "dense") != (self.experts == 0):
            raise CaseError(f"{self.kind} with {self.experts} experts: dense has none, every MoE kind at least 1")
        if self.experts and self.top_k > self.experts:
            raise CaseError(f"top_k {self.top_k} is more than the {self.experts} experts")
        if not self.experts and (self.top_k != 1 or self.distribution != "balanced"):
            raise CaseError("top_k and a token distribution belong to MoE problems; leave them out of dense")

    @property
    def rows(self) -> int:
        """Rows of the output: m, or m * top_k for MoE (row = token * top_k + slot)."""
        return self.m * self.top_k


@dataclass(frozen=True)
class Case:
    """One thing to judge: scheme x problem x source x call x regime x seed.

    ``source`` is a checkpoint layout, empty for neutral operands. ``call`` says how the kernel is called: sorted
    words of :data:`.calls.CALL_OPTIONS`, none for the plain call.
    """

    weight: WeightScheme
    activation: ActivationScheme
    problem: Problem
    regime: str
    output: str = ""
    source: str = ""
    call: tuple[str, ...] = field(default=())
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.output:
            object.__setattr__(self, "output", self.default_output)
        if self.output not in OUTPUT_FORMATS:
            raise CaseError(f"output format {self.output!r} is not one of {', '.join(OUTPUT_FORMATS)}")
        if self.activation.granularity is None and self.output != self.activation.element:
            raise CaseError(
                f"output {self.output} with {self.activation.element} activations: "
                "16-bit activations fix the output format"
            )
        if self.seed < 0:
            raise CaseError(f"seed {self.seed} is negative; seeds count from 0")
        if tuple(sorted(set(self.call))) != self.call:
            raise CaseError(f"call options {self.call} are not sorted, each once")
        for option in self.call:
            if option not in CALL_OPTIONS:
                near = difflib.get_close_matches(option, CALL_OPTIONS, n=1, cutoff=0.0)[0]
                raise CaseError(
                    f"call option {option!r} is not one of {', '.join(CALL_OPTIONS)}; the nearest is {near}"
                )
        if self.source and not _OPTION_WORD.fullmatch(self.source):
            raise CaseError(f"source {self.source!r} is not made of letters, digits, _ and + alone")

    @property
    def default_output(self) -> str:
        """The output format an id leaves out: that of 16-bit activations, else bf16."""
        return self.activation.element if self.activation.granularity is None else "bf16"

    @property
    def id(self) -> str:
        """The case's one text form."""
        from humming_conformance.problems.ids import format_case

        return format_case(self)
