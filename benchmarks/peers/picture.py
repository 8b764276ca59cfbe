"""The medians of the largest made-up corpus as bars, on a page that may be light or dark."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

from benchmarks.peers.entries import ENTRIES, OURS
from benchmarks.peers.table import times_ours

_WIDTH, _LEFT, _RIGHT, _TOP, _STEP = 860, 190, 230, 58, 30
_OFTEN = 0.1
_STYLE = """
text { font: 14px system-ui, sans-serif; fill: #4b5563; }
.title { font-weight: 600; font-size: 16px; }
.name { text-anchor: end; }
.ours { fill: #0d9488; }
.other { fill: #94a3b8; }
@media (prefers-color-scheme: dark) { text { fill: #cbd5e1; } .other { fill: #64748b; } .ours { fill: #2dd4bf; } }
"""


def drawn(results: Mapping[str, Any]) -> str:
    """An SVG: one bar a contestant, on a logarithmic scale, ours first and the others by their time."""
    part = max((part for part in results["parts"] if not part["gold"]), key=lambda part: part["documents"])
    rows = dict(sorted(part["rows"].items(), key=lambda pair: (pair[0] != OURS, pair[1]["p50_ms"])))
    height = _TOP + _STEP * len(rows) + 16
    least = min(row["p50_ms"] for row in rows.values()) / 2
    most = max(row["p50_ms"] for row in rows.values())
    bars = [_bar(at, name, row, rows.get(OURS), least, most) for at, (name, row) in enumerate(rows.items())]
    title = f"Retrieve and pack 2,000 tokens from {part['documents']:,} records: median, logarithmic scale"
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<title>{escape(title)}</title>",
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="12" y="28">{escape(title)}</text>',
            *bars,
            "</svg>\n",
        )
    )


def _bar(at: int, name: str, row: Mapping[str, Any], ours: Mapping[str, Any] | None, least: float, most: float) -> str:
    share = math.log(row["p50_ms"] / least) / math.log(most / least)
    long = max(2.0, (_WIDTH - _LEFT - _RIGHT) * share)
    y = _TOP + _STEP * at
    told = f"{row['p50_ms']:,.3g} ms" if row["p50_ms"] < 100 else f"{row['p50_ms']:,.0f} ms"
    if name != OURS:
        told += f" ({times_ours(row, ours)})"
    remarks = [ENTRIES[name].remark, "over budget" if row["over_en_share"] > _OFTEN else ""]
    told = ", ".join([told, *filter(None, remarks)])
    kind = "ours" if name == OURS else "other"
    return (
        f'<text class="name" x="{_LEFT - 10}" y="{y + 15}">{escape(ENTRIES[name].title)}</text>'
        f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{long:.1f}" height="20" rx="3"/>'
        f'<text x="{_LEFT + long + 8:.1f}" y="{y + 15}">{escape(told)}</text>'
    )
