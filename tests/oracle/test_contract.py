# SPDX-License-Identifier: Apache-2.0
"""A contract says where every weakness is written up, and stays within what hardware does."""

from __future__ import annotations

import pytest

from humming_conformance.oracle.contract import Contract, ContractError

WEAKER = {
    "weight_input": "bf16",
    "activation_input": "fp8_e4m3",
    "scale_application": "output",
    "second_scale_application": "output",
    "step_length": 16,
    "fraction_bits": 13,
    "accumulator_bits": 13,
    "accumulator_format": "fp16",
    "split_k": 4,
    "reduction_format": "bf16",
    "bias_application": "after_rounding",
    "repeatable": False,
    "batch_invariant": False,
}


@pytest.mark.parametrize("name", WEAKER)
def test_a_weaker_field_needs_a_source(name: str) -> None:
    """Whatever widens the bound is refused without a source, by a text that names it, and taken with one."""
    with pytest.raises(ContractError, match=name):
        Contract("bf16", **{name: WEAKER[name]})
    assert getattr(Contract("bf16", **{name: WEAKER[name]}, sources={name: "a page"}), name) == WEAKER[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step_length", 1 << 21),
        ("step_length", 0),
        ("fraction_bits", 0),
        ("accumulator_bits", 24),
        ("promotion_interval", 0),
        ("split_k", 0),
        ("split_k", 5000),
        ("k_tile", -1),
    ],
)
def test_numbers_stay_within_what_hardware_does(name: str, value: int) -> None:
    """A number outside its range is refused even with a source."""
    with pytest.raises(ContractError, match=f"{name} is {value}"):
        Contract("bf16", **{name: value}, sources={name: "a page"})


def test_a_source_for_no_field_is_refused() -> None:
    """A misspelt source would leave its field without one."""
    with pytest.raises(ContractError, match="no such field"):
        Contract("bf16", sources={"split": "a page"})
