# SPDX-License-Identifier: Apache-2.0
"""Whether vLLM's choice of a backend keeps its own promises, by what it answers to every request for one layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from humming_conformance.protocols import Outcome, Ruling, Subject, Verdict

#: Exceptions that no caller is meant to see as they are: they say nothing of what to do.
BARE = ("AssertionError", "AttributeError", "IndexError", "KeyError", "TypeError")
#: Where a quantization method lays out weights, whichever backend will read them.
_OF_THE_METHOD = "create_weights"

#: Answers by request, ``auto`` among them: ``backend``, ``experts``, ``method`` and ``warnings``, or ``refusal``.
Answers = Mapping[str, Mapping[str, Any]]
#: A rule: a sentence, or empty where all is well.
Rule = Callable[[Answers], str]


def judge_vllm(subject: Subject, answers: Answers) -> Verdict:
    """The verdict on one layer; every answer is in the evidence."""
    rulings = []
    for name, rule in RULES.items():
        trouble = rule(answers)
        rulings.append(Ruling(name, "fail" if trouble else "pass", trouble))
    failed = [ruling for ruling in rulings if ruling.outcome == "fail"]
    outcome: Outcome = "fail" if failed else "pass"
    lines = [str(subject), *(f"{ruling.rule}: {ruling.reason}" for ruling in failed)]
    lines += [f"  {request}: {_told(answer)}" for request, answer in answers.items()]
    return Verdict(
        subject,
        "vllm",
        outcome,
        "; ".join(f"{ruling.rule}: {ruling.reason}" for ruling in failed),
        "\n".join(lines) if failed else "",
        tuple(rulings),
        {"answers": dict(answers), **({"fault_class": "route"} if failed else {})},
    )


def _auto_finds_what_there_is(answers: Answers) -> str:
    served = [request for request, answer in answers.items() if request != "auto" and _serves(request, answer)]
    if "refusal" not in answers["auto"] or not served:
        return ""
    return f"auto is refused ({_told(answers['auto'])}), and {', '.join(served)} would serve it"


def _request_is_honoured(answers: Answers) -> str:
    ignored = [
        f"{request} got {answer['backend']}"
        for request, answer in answers.items()
        if request != "auto" and "refusal" not in answer and not _serves(request, answer) and not answer["warnings"]
    ]
    return f"without a word, {', '.join(ignored)}" if ignored else ""


def _refusal_speaks(answers: Answers) -> str:
    bare = {
        f"{refusal['kind']} at {refusal['place']}": None
        for answer in answers.values()
        if (refusal := answer.get("refusal")) and (refusal["kind"] in BARE or not refusal["message"])
    }
    return ", ".join(bare)


def _rule_of_its_own_backend(answers: Answers) -> str:
    """A layer that every backend is refused at one place is refused by a rule that belongs to none of them."""
    refusals = [answer.get("refusal") for answer in answers.values()]
    places = {refusal["place"] for refusal in refusals if refusal}
    if len(places) != 1 or None in refusals:
        return ""
    (place,) = places
    if place.rsplit(" ", 1)[-1] != _OF_THE_METHOD:
        return ""
    return f"every request is refused at {place}, whichever backend is asked for"


#: Every rule by its name in rulings.
RULES: Mapping[str, Rule] = {
    "auto finds what there is": _auto_finds_what_there_is,
    "a request is honoured": _request_is_honoured,
    "a refusal speaks": _refusal_speaks,
    "no rule of another backend": _rule_of_its_own_backend,
}


def _serves(request: str, answer: Mapping[str, Any]) -> bool:
    """Whether a layer was built on the backend that was asked for."""
    names = " ".join(str(answer.get(name, "")) for name in ("backend", "experts")).lower()
    return "refusal" not in answer and request in names


def _told(answer: Mapping[str, Any]) -> str:
    refusal = answer.get("refusal")
    if refusal is None:
        return f"{answer['backend']} {answer['experts']}".strip()
    return f"{refusal['kind']}: {refusal['message'].splitlines()[0] if refusal['message'] else 'no message'}"
