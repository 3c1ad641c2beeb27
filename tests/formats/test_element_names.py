# SPDX-License-Identifier: Apache-2.0
"""Names, aliases and the errors for names, codes and options that do not exist."""

import pickle

import pytest

from humming_conformance.formats import FormatError, element_format, scale_format


def test_names_and_aliases() -> None:
    """Aliases give the canonical format, one object each, which survives pickling."""
    aliases = {"e4m3": "fp8_e4m3", "e5m2": "fp8_e5m2", "e3m4": "fp8_e3m4", "e2m1": "fp4_e2m1"}
    aliases |= {"e2m3": "fp6_e2m3", "e3m2": "fp6_e3m2", "fp4_e0m3": "e0m3", "fp7_e3m3": "e3m3"}
    aliases |= {"e8m0": "ue8m0"}
    for alias, name in aliases.items():
        assert element_format(alias).name == name
        assert element_format(alias) is element_format(name)
    for name in (*aliases.values(), "int4", "uint8", "fp16", "bf16", "fp32", "e5m10", "e9m0", "e0m7"):
        fmt = element_format(name)
        assert fmt.name == name
        assert pickle.loads(pickle.dumps(fmt)) == fmt  # noqa: S301
    assert element_format("e5m10") != element_format("fp16")


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("int9", "int1"),
        ("float8_e4m3", "fp8_e4m3"),
        ("fp8_e4m2", "fp8_e"),
        ("e12m3", "e1m3"),
        ("e1m0", "e"),
        ("e0m8", "e0m1"),
        ("bfloat16", "bf16"),
        ("", ""),
    ],
)
def test_unknown_name_names_the_nearest(name: str, nearest: str) -> None:
    """An unknown format is refused with the input, the rule and a valid name close to it."""
    with pytest.raises(FormatError, match=f"element format '{name}'.*eXmY.*nearest valid name: '{nearest}"):
        element_format(name)


def test_bad_codes_and_options_are_refused() -> None:
    """Codes that do not fit, codes that are no integers, and unknown options raise errors that say so."""
    fmt = element_format("fp4_e2m1")
    for codes in ([16], [-1]):
        with pytest.raises(ValueError, match=r"fp4_e2m1 codes must lie in \[0, 2\^4\)"):
            fmt.decode(codes)
    with pytest.raises(ValueError, match="must be integers"):
        fmt.decode([1.0])
    with pytest.raises(FormatError, match=r"unknown overflow 'saturated'.*nearest valid name: 'saturate'"):
        fmt.encode([1.0], overflow="saturated")  # type: ignore[arg-type]
    with pytest.raises(FormatError, match=r"unknown rounding 'upward'.*nearest valid name: 'up'"):
        fmt.encode([1.0], rounding="upward")  # type: ignore[arg-type]


def test_scale_format_is_one_that_scales_use() -> None:
    """Scale formats go by the same names and aliases; element formats that hold no scales are refused."""
    assert scale_format("e4m3") is element_format("fp8_e4m3")
    with pytest.raises(FormatError, match="unknown scale format 'fp4_e2m1'"):
        scale_format("fp4_e2m1")
