# SPDX-License-Identifier: Apache-2.0
"""One self-contained HTML file with every verdict of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path

from humming_conformance.ledger import OUTCOMES, Head, as_read, replace_text
from humming_conformance.protocols import Verdict

_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #1b1f24; background: #fff; }
h1 { font-size: 1.3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem; border-bottom: 1px solid #d8dee4; }
td, pre { overflow-wrap: anywhere; }
pre { white-space: pre-wrap; margin: .3rem 0; font-size: 12px; }
input { width: 100%; box-sizing: border-box; padding: .4rem; margin: 1rem 0; font: inherit; }
code { font-size: 12px; }
.outcome { font-weight: 600; white-space: nowrap; }
.pass { color: #116329; } .fail, .error { color: #b3261e; } .waived { color: #7d4e00; }
.unsupported, .not_run { color: #57606a; }
"""

# Words of the filter are joined by "and"; each may stand anywhere in a row, details included.
_SCRIPT = """
const rows = Array.from(document.querySelectorAll("tbody.verdicts tr"));
const texts = rows.map(row => row.textContent.toLowerCase());
const shown = document.getElementById("shown");
document.getElementById("filter").addEventListener("input", event => {
  const words = event.target.value.toLowerCase().split(/\\s+/);
  let count = 0;
  rows.forEach((row, index) => {
    row.hidden = !words.every(word => texts[index].includes(word));
    count += row.hidden ? 0 : 1;
  });
  shown.textContent = count;
});
"""


def write_html(path: Path, head: Head, verdicts: Sequence[Verdict]) -> None:
    """Write the report to ``path``, replacing it at once; it loads nothing from elsewhere."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    summary = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>humming-conformance: {escape(summary)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>",
        f"<h1>humming-conformance, tier {escape(head.tier)}</h1>",
        f"<p>{escape(summary)}; planned {len(head.plan)}</p>",
        f"<p><code>{escape(' '.join(head.command))}</code></p>",
        f"<details><summary>environment</summary>{_json(head.environment)}</details>",
        '<input id="filter" type="search" placeholder="filter: words that a row must hold" autofocus>',
        f'<p><span id="shown">{len(verdicts)}</span> of {len(verdicts)} verdicts</p>',
        "<table>\n<thead><tr><th>outcome</th><th>suite</th><th>subject</th><th>reason</th></tr></thead>",
        '<tbody class="verdicts">',
        *map(_row, verdicts),
        f"</tbody>\n</table>\n<script>{_SCRIPT}</script>\n</body>\n</html>\n",
    ]
    replace_text(path, "\n".join(parts))


def _row(verdict: Verdict) -> str:
    return (
        f'<tr><td class="outcome {verdict.outcome}">{verdict.outcome}</td><td>{escape(verdict.suite)}</td>'
        f"<td><code>{escape(str(verdict.subject))}</code></td>"
        f"<td>{escape(verdict.reason)}{_details(verdict)}</td></tr>"
    )


def _details(verdict: Verdict) -> str:
    parts = [f"<p>waiver: {escape(verdict.waiver)}</p>"] if verdict.waiver else []
    parts += [
        f'<p><span class="outcome {ruling.outcome}">{ruling.outcome}</span> '
        f"{escape(ruling.rule)}: {escape(ruling.reason)}</p>"
        for ruling in verdict.rulings
    ]
    if verdict.message:
        parts.append(f"<pre>{escape(verdict.message)}</pre>")
    if verdict.evidence:
        parts.append(_json(verdict.evidence))
    return f"<details><summary>details</summary>{''.join(parts)}</details>" if parts else ""


def _json(value: object) -> str:
    return f"<pre>{escape(json.dumps(as_read(value), indent=1, ensure_ascii=False))}</pre>"
