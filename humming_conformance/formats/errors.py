# SPDX-License-Identifier: Apache-2.0
"""The one error of this package, and checks whose messages name the rule and the nearest valid input."""

import difflib
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray


class FormatError(ValueError):
    """A format, granularity or quantizer option that this package does not know or cannot combine."""


def unknown_name(what: str, given: object, rule: str, valid: Sequence[str]) -> FormatError:
    """Return the error for the unknown name `given`: what it should have been, and the closest of `valid`."""
    nearest = max(valid, key=lambda name: difflib.SequenceMatcher(None, str(given), name).ratio())
    return FormatError(f"unknown {what} {given!r}: expected {rule}; nearest valid name: {nearest!r}")


def require_choice(what: str, given: str, choices: Sequence[str]) -> None:
    """Raise `FormatError` unless `given` is one of `choices`."""
    if given not in choices:
        raise unknown_name(what, given, f"one of {', '.join(choices)}", choices)


def require_codes(what: str, codes: NDArray[Any], bits: int) -> None:
    """Raise `ValueError` unless `codes` are integers in [0, 2^bits)."""
    if codes.dtype.kind not in "ui":
        raise ValueError(f"{what} codes must be integers, not {codes.dtype}")
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= 1 << bits):
        raise ValueError(f"{what} codes must lie in [0, 2^{bits}): mask other bits off first")
