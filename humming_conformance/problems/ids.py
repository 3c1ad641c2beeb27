# SPDX-License-Identifier: Apache-2.0
"""Case ids: the one text form of a case. The grammar is described in docs/case_ids.md.

An id is a row of parts joined by ``-``, in fixed order, defaults left out::

    kind  w_ELEMENT.GRANULARITY.SCALE[.zp|.fzp][.s2tensor|.s2channel]  a_ELEMENT[.tensor|.token|.gN][.SCALE]
    [o_OUTPUT]  mM.nN.kK[.eE.topT[.DISTRIBUTION]]  [bias]  [src_SOURCE]  [call_OPTION[.OPTION...]]
    REGIME  [sSEED]
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from humming_conformance.formats import (
    SCALE_FORMATS,
    FormatError,
    SecondScale,
    ZeroPoint,
    element_format,
    parse_granularity,
)
from humming_conformance.problems.calls import CALL_OPTIONS
from humming_conformance.problems.case import (
    OUTPUT_FORMATS,
    PROBLEM_KINDS,
    ActivationScheme,
    Case,
    CaseError,
    Problem,
    WeightScheme,
)
from humming_conformance.problems.distributions import DISTRIBUTIONS
from humming_conformance.problems.regimes import REGIMES

_ZERO_POINT_WORDS: dict[str, ZeroPoint] = {"zp": "integer", "fzp": "float"}
_SECOND_SCALE_WORDS: dict[str, SecondScale] = {"s2tensor": "tensor", "s2channel": "channel"}
_SHAPE = re.compile(r"m(\d+)\.n(\d+)\.k(\d+)(?:\.e(\d+)\.top(\d+)(?:\.(\w+))?)?")
_ELEMENT_HINTS = (
    "int2",
    "int3",
    "int4",
    "int8",
    "uint4",
    "uint8",
    "fp4_e2m1",
    "fp6_e2m3",
    "fp6_e3m2",
    "fp8_e4m3",
    "bf16",
)


class CaseIdError(CaseError):
    """A text is no case id; the message names the part, the rule and the nearest valid id."""


def format_case(case: Case) -> str:
    """The id of a case."""
    weight, activation, problem = case.weight, case.activation, case.problem
    words = [weight.element, str(weight.granularity), weight.scale_format]
    words += [word for word, kind in _ZERO_POINT_WORDS.items() if kind == weight.zero_point]
    words += [word for word, kind in _SECOND_SCALE_WORDS.items() if kind == weight.second_scale]
    parts = [problem.kind, "w_" + ".".join(words)]
    words = [activation.element]
    if activation.granularity is not None:
        words.append(str(activation.granularity))
        if activation.scale_format != "fp32":
            words.append(activation.scale_format)
    parts.append("a_" + ".".join(words))
    if case.output != case.default_output:
        parts.append("o_" + case.output)
    shape = f"m{problem.m}.n{problem.n}.k{problem.k}"
    if problem.experts:
        shape += f".e{problem.experts}.top{problem.top_k}"
        if problem.distribution != "balanced":
            shape += f".{problem.distribution}"
    parts.append(shape)
    if problem.bias:
        parts.append("bias")
    if case.source:
        parts.append("src_" + case.source)
    if case.call:
        parts.append("call_" + ".".join(case.call))
    parts.append(case.regime)
    if case.seed:
        parts.append(f"s{case.seed}")
    return "-".join(parts)


def parse_case(text: str, known: Iterable[str] = ()) -> Case:
    """Read a case id.

    Args:
        text: the id.
        known: ids to look among for the nearest valid one when ``text`` is wrong.

    Raises:
        CaseIdError: the text breaks the grammar or a rule of the case; the message names the part at fault,
            the rule and the nearest valid id.
    """
    try:
        case = _parse(text)
    except (CaseError, FormatError) as error:
        nearest = _nearest(text, known)
        hint = f"; nearest valid id: {nearest}" if nearest else "; see docs/case_ids.md"
        raise CaseIdError(f"case id {text!r}: {error}{hint}") from error
    if format_case(case) != text:
        written = format_case(case)
        raise CaseIdError(f"case id {text!r}: it is written {written!r}: defaults are left out, parts in fixed order")
    return case


def _parse(text: str) -> Case:
    parts = text.split("-")
    seed = 0
    if len(parts) > 1 and re.fullmatch(r"s\d+", parts[-1]):
        seed = int(parts.pop()[1:])
    if len(parts) < 5:
        raise CaseError("it has too few parts; kind, weights, activations, shape and regime are always there")
    kind = _choice(parts.pop(0), PROBLEM_KINDS, "problem kind")
    weight = _weight(_prefixed(parts.pop(0), "w_", "weights"))
    activation = _activation(_prefixed(parts.pop(0), "a_", "activations"))
    output = ""
    if parts[0].startswith("o_"):
        output = _choice(parts.pop(0)[2:], OUTPUT_FORMATS, "output format")
    shape = parts.pop(0) if parts else ""
    match = _SHAPE.fullmatch(shape)
    if match is None:
        raise CaseError(f"shape {shape!r} is not mM.nN.kK or mM.nN.kK.eE.topT[.DISTRIBUTION]")
    m, n, k, experts, top_k = (int(group or 0) for group in match.groups()[:5])
    distribution = _choice(match.group(6) or "balanced", DISTRIBUTIONS, "token distribution")
    bias = bool(parts) and parts[0] == "bias"
    if bias:
        parts.pop(0)
    source = parts.pop(0)[4:] if parts and parts[0].startswith("src_") else ""
    call = tuple(parts.pop(0)[5:].split(".")) if parts and parts[0].startswith("call_") else ()
    if len(parts) != 1:
        raise CaseError(f"the parts {parts} after the shape are not one regime (bias, src_ and call_ come before it)")
    regime = REGIMES[_choice(parts[0], REGIMES, "regime")]
    problem = Problem(kind, m, n, k, experts, top_k if experts else 1, distribution, bias)  # type: ignore[arg-type]  # checked by _choice
    case = Case(weight, activation, problem, regime.name, output, source, call, seed)
    reason = regime.refuses(case)
    if reason:
        raise CaseError(reason)
    return case


def _weight(words: list[str]) -> WeightScheme:
    if len(words) < 3:
        raise CaseError("weights are w_ELEMENT.GRANULARITY.SCALE[.zp|.fzp][.s2tensor|.s2channel]")
    element = element_format(words[0]).name
    granularity = parse_granularity(words[1])
    scale_format = _choice(words[2], SCALE_FORMATS, "scale format")
    zero_point: ZeroPoint = "none"
    second_scale: SecondScale = "none"
    for word in words[3:]:
        _choice(word, (*_ZERO_POINT_WORDS, *_SECOND_SCALE_WORDS), "weight option")
        zero_point = _ZERO_POINT_WORDS.get(word, zero_point)
        second_scale = _SECOND_SCALE_WORDS.get(word, second_scale)
    return WeightScheme(element, granularity, scale_format, zero_point, second_scale)


def _activation(words: list[str]) -> ActivationScheme:
    element = element_format(words[0]).name
    if len(words) == 1:
        return ActivationScheme(element)
    granularity = parse_granularity(words[1])
    scale_format = _choice(words[2], SCALE_FORMATS, "scale format") if len(words) > 2 else "fp32"
    if len(words) > 3:
        raise CaseError(f"activation words {words[3:]} are too many; write a_ELEMENT[.GRANULARITY[.SCALE]]")
    return ActivationScheme(element, granularity, scale_format)


def _prefixed(part: str, prefix: str, what: str) -> list[str]:
    if not part.startswith(prefix):
        raise CaseError(f"{part!r} stands where the {what} ({prefix}…) are expected")
    return part[len(prefix) :].split(".")


def _choice(word: str, valid: Iterable[str], what: str) -> str:
    if word not in set(valid):
        raise CaseError(f"{what} {word!r} is not one of {', '.join(valid)}")
    return word


def _nearest(text: str, known: Iterable[str]) -> str:
    """The valid id that looks most like ``text``, or an empty string.

    It is ``text`` with each word replaced by its nearest valid one, if that is an id, else one of ``known``.
    """
    vocabulary = [
        *PROBLEM_KINDS,
        *REGIMES,
        *DISTRIBUTIONS,
        *SCALE_FORMATS,
        *_ELEMENT_HINTS,
        *CALL_OPTIONS,
        "channel",
        "tensor",
        "token",
    ]
    vocabulary += [*_ZERO_POINT_WORDS, *_SECOND_SCALE_WORDS, "bias"]

    def mend(word: str) -> str:
        prefix = next((start for start in ("w_", "a_", "o_", "call_") if word.startswith(start)), "")
        found = difflib.get_close_matches(word[len(prefix) :], vocabulary, n=1, cutoff=0.6)
        is_number = re.fullmatch(r"(?:[mnkegbs]|top)\d+(?:x\d+)?", word)
        return word if is_number or not found else prefix + found[0]

    mended = "-".join(".".join(mend(word) for word in part.split(".")) for part in text.split("-"))
    try:
        return format_case(_parse(mended))
    except (CaseError, FormatError, IndexError):
        return next(iter(difflib.get_close_matches(text, list(known), n=1, cutoff=0.6)), "")
