# SPDX-License-Identifier: Apache-2.0
"""Reading waiver files, strictly: a waiver that is misread lets a failure through."""

from __future__ import annotations

import datetime as dt
import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from humming_conformance.ledger.records import SUITES
from humming_conformance.ledger.waivers import Waiver

_REQUIRED = ("query", "reason", "kind", "library", "expires")
_KEYS = (*_REQUIRED, "issue", "finding", "suites", "architecture")
_QUERY = re.compile(r"(?P<kernel>[a-z0-9_]+):[^:]+:[^:]+")
_ISSUE = re.compile(r"[\w.-]+/[\w.-]+#[1-9]\d*")
_FINDING = re.compile(r"HC-\d{3,}")
_ARCHITECTURE = re.compile(r"sm_(\d+)")
_EXPIRY_VERSION = re.compile(r"library\s*>=\s*(?P<version>\S+)")


class WaiverError(ValueError):
    """A waiver file breaks a rule; the text names file, entry (counted from 1), rule and mend."""


class _RuleError(Exception):
    """Rule and mend; :func:`read_waivers` adds file and entry."""


def read_waivers(paths: Sequence[Path], findings: Path | None = None) -> tuple[Waiver, ...]:
    """Read waiver files in order.

    ``findings`` is the folder of written findings (``HC-001.md`` or ``HC-001-title.md``); with it, a finding
    that nobody wrote is an error. Raises WaiverError.
    """
    waivers: list[Waiver] = []
    places: dict[tuple[object, ...], str] = {}
    for path in paths:
        for number, entry in enumerate(_entries(path), start=1):
            place = f"{path}, waiver {number}"
            try:
                waiver = _parse(entry, findings)
            except _RuleError as error:
                raise WaiverError(f"{place}: {error}") from None
            scope = (waiver.query, waiver.suites, waiver.library, waiver.architectures)
            if scope in places:
                raise WaiverError(f"{place}: has the scope of {places[scope]}; keep one of the two")
            places[scope] = place
            waivers.append(waiver)
    return tuple(waivers)


def _entries(path: Path) -> list[Any]:
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise WaiverError(f"{path}: cannot be read ({error.strerror}); name an existing file") from None
    except ValueError as error:
        raise WaiverError(f"{path}: is not TOML ({error}); docs/waivers.md shows the format") from None
    entries = document.pop("waiver", [])
    if document or not isinstance(entries, list):
        raise WaiverError(f"{path}: holds more than [[waiver]] entries; remove {', '.join(document) or 'it'}")
    return entries


def _parse(entry: object, findings: Path | None) -> Waiver:
    if not isinstance(entry, dict):
        raise _RuleError("is not a table; write it under [[waiver]]")
    for key in entry:
        if key not in _KEYS:
            nearest = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"the keys are {', '.join(_KEYS)}"
            raise _RuleError(f"unknown key {key!r}; {hint}")
    for key in _REQUIRED:
        if key not in entry:
            raise _RuleError(f"the key {key!r} is missing; add it")
    query = _text(entry, "query")
    if not _QUERY.fullmatch(query):
        raise _RuleError(
            f"query {query!r} is not kernel:case:device with a whole kernel name; case and device may hold "
            "* and ?, as in humming:moe_*:*"
        )
    library = _library(_text(entry, "library"))
    return Waiver(
        query=query,
        reference=_reference(entry, findings),
        reason=_text(entry, "reason"),
        kind=_kind(_text(entry, "kind")),
        library=library,
        expires=_expires(entry["expires"], library),
        suites=_suites(entry),
        architectures=_architectures(entry),
    )


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str) or not value.strip():
        raise _RuleError(f"{key} is {value!r}; it must be a string that says something")
    return value


def _texts(entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = entry.get(key, ())
    if key in entry and not (isinstance(values, list) and values and all(isinstance(v, str) for v in values)):
        raise _RuleError(f"{key} is {values!r}; it must be a list of strings, or left out for all")
    return tuple(sorted(values))


def _reference(entry: Mapping[str, Any], findings: Path | None) -> str:
    if ("issue" in entry) == ("finding" in entry):
        raise _RuleError("needs either issue or finding; give one of them")
    if "issue" in entry:
        issue = _text(entry, "issue")
        if not _ISSUE.fullmatch(issue):
            raise _RuleError(f"issue {issue!r} is not owner/repository#number; write it so")
        return issue
    finding = _text(entry, "finding")
    if not _FINDING.fullmatch(finding):
        raise _RuleError(f"finding {finding!r} is not HC- and at least three digits; write it so")
    if findings is not None and not any(findings.glob(f"{finding}.md")) | any(findings.glob(f"{finding}-*.md")):
        raise _RuleError(f"finding {finding} is not written in {findings}; write it up there first")
    return finding


def _kind(kind: str) -> Literal["tolerate", "quarantine"]:
    if kind == "tolerate":
        return "tolerate"
    if kind == "quarantine":
        return "quarantine"
    raise _RuleError(f"kind {kind!r} is not tolerate or quarantine; choose one")


def _library(text: str) -> SpecifierSet | None:
    if text == "*":
        return None
    return _specifiers(text, f"library {text!r}")


def _specifiers(text: str, what: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        raise _RuleError(f"{what} is not a version range; write >=0.1.16,<0.1.20, or * for any") from None


def _expires(value: object, library: SpecifierSet | None) -> dt.date | SpecifierSet:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    match = _EXPIRY_VERSION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise _RuleError(
            f"expires {str(value)!r} is neither a date without quotes (2030-12-31) nor "
            '"library>=VERSION"; write one of them'
        )
    if library is None:
        raise _RuleError(f"expires {value!r} needs a library version range, not *; give a range or a date")
    return _specifiers(f">={match['version']}", f"expires {value!r}")


def _suites(entry: Mapping[str, Any]) -> tuple[str, ...]:
    suites = _texts(entry, "suites")
    for suite in suites:
        if suite not in SUITES:
            raise _RuleError(f"suite {suite!r} is not one of {', '.join(SUITES)}")
    return suites


def _architectures(entry: Mapping[str, Any]) -> tuple[int, ...]:
    matches = [(text, _ARCHITECTURE.fullmatch(text)) for text in _texts(entry, "architecture")]
    for text, match in matches:
        if match is None:
            raise _RuleError(f"architecture {text!r} is not sm_ and a number; write sm_90")
    return tuple(sorted(int(match[1]) for _, match in matches if match))
