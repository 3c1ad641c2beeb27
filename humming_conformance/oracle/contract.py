# SPDX-License-Identifier: Apache-2.0
"""The contract: the arithmetic a kernel performs on a case by a route.

The default instance is the strictest one: dequantize exactly, accumulate in fp32, round once. Every field that is
weaker needs a source that a reader can open. From a contract the reference takes its roundings and the bound its
terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

#: The narrowest and widest value of each number, as hardware and kernels have them: no tensor core adds more than 64
#: products in a step (Blackwell's mxf4), none keeps more than fp32's 23 fraction bits in an fp32 sum.
_RANGES = (
    ("step_length", 1, 64),
    ("fraction_bits", 1, 64),
    ("accumulator_bits", 1, 23),
    ("promotion_interval", 1, 1 << 20),
    ("split_k", 1, 1024),
    ("k_tile", 0, 1 << 20),
)


ScaleApplication = Literal["multiplier_input", "accumulator", "output"]


class ContractError(ValueError):
    """A contract field is out of range, or weaker than the default without a source."""


@dataclass(frozen=True)
class Contract:
    """Arithmetic of one kernel path; each field's default is the strictest.

    Attributes:
        output_format: format of the stored result.
        weight_input: ``exact``, or the format to which a dequantized weight (element, zero point and those scales
            that are applied before the multiplier) is rounded before multiplication.
        scale_application: where the weight scale meets the weight: ``multiplier_input`` before the product,
            ``accumulator`` on fp32 partial sums, ``output`` on the sum after it was rounded to the output format, in
            that format, in one fused multiply-add with the bias (channel and tensor scales only).
        second_scale_application: the same of the second-level scale; None: together with the weight scale.
        activation_input: ``exact``, or the format to which an activation is rounded before multiplication.
        step_length: products added per tensor-core step (L); 1 is sequential fused multiply-add.
        fraction_bits: bits kept below the largest exponent when a step aligns its terms (F).
        accumulator_bits: fraction bits of the accumulator after a step (P); 23 is fp32.
        accumulator_format: ``fp32``, ``int32`` (exact) or ``fp16``.
        promotion_interval: K after which partial sums move to an fp32 accumulator, or None for never.
        split_k: the most partial results that are added up for one output element.
        reduction_format: format in which those partial results are stored and added.
        k_tile: K extent of the smallest unit that a split can cut at (0: unknown, the bound assumes single terms).
        bias_application: ``before_rounding`` in the accumulator, or ``after_rounding`` in the output format.
        repeatable: the same call gives the same bits.
        batch_invariant: a row's bits don't depend on M or on other rows.
        sources: for each weaker field, why: a document, a source line or a measurement a reader can look up.
    """

    output_format: str
    weight_input: str = "exact"
    scale_application: ScaleApplication = "multiplier_input"
    second_scale_application: ScaleApplication | None = None
    activation_input: str = "exact"
    step_length: int = 1
    fraction_bits: int = 24
    accumulator_bits: int = 23
    accumulator_format: Literal["fp32", "int32", "fp16"] = "fp32"
    promotion_interval: int | None = None
    split_k: int = 1
    reduction_format: str = "fp32"
    k_tile: int = 0
    bias_application: Literal["before_rounding", "after_rounding"] = "before_rounding"
    repeatable: bool = True
    batch_invariant: bool = True
    sources: Mapping[str, str] = field(default_factory=dict)

    #: Fields whose departure from the default widens the bound and so needs a source. ``promotion_interval`` and
    #: ``k_tile`` only narrow it; an adapter that states them wrongly fails.
    NEEDS_SOURCE = (
        "weight_input",
        "activation_input",
        "step_length",
        "fraction_bits",
        "accumulator_bits",
        "accumulator_format",
        "split_k",
        "reduction_format",
        "bias_application",
        "repeatable",
        "batch_invariant",
    )

    def __post_init__(self) -> None:
        known = {item.name for item in fields(self)}
        for name in self.sources:
            if name not in known:
                raise ContractError(f"source for {name!r}: the contract has no such field")
        defaults = {item.name: item.default for item in fields(self)}
        for name in self.NEEDS_SOURCE:
            if getattr(self, name) != defaults[name] and not self.sources.get(name):
                raise ContractError(
                    f"{name}={getattr(self, name)!r} is weaker than {defaults[name]!r} and names no source; "
                    f"add sources[{name!r}]"
                )
        for name in ("scale_application", "second_scale_application"):
            if getattr(self, name) == "output" and not self.sources.get(name):
                raise ContractError(f"{name}='output' rounds before it scales; add sources[{name!r}]")
        for name, least, most in _RANGES:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ContractError(f"{name} is {value}; it must be from {least} to {most}")

    def applies(self, place: ScaleApplication, second_scale: str) -> tuple[bool, bool]:
        """Whether the weight scale, and a case's second-level scale (none, tensor, channel), meet the weight there."""
        second = self.second_scale_application or self.scale_application
        return self.scale_application == place, second_scale != "none" and second == place

    def text(self) -> str:
        """The fields that differ from the defaults, as ``name=value`` words in field order."""
        words = [self.output_format]
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name not in ("output_format", "sources") and value != item.default:
                words.append(f"{item.name}={value}")
        return " ".join(words)
