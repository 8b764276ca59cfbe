"""The results of a run as Markdown, and where the docs have room for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.entries import ENTRIES, OURS

BEGIN, END = "<!-- peers: written by `python -m benchmarks.peers --write-docs` -->", "<!-- end of peers -->"

Row = Mapping[str, Any]


def markdown(results: Mapping[str, Any]) -> str:
    """A table for each corpus, how each contestant was set up, and who is missing."""
    parts = [_measured_on(results["machine"])]
    parts += [_quality(part) if part["gold"] else _speed(part) for part in results["parts"]]
    return "\n\n".join([*parts, _set_up(results["parts"])])


def write_docs(page: Path, results: Mapping[str, Any]) -> None:
    """Replace what stands between the markers of the page; everything else stays as it is."""
    text = page.read_text(encoding="utf-8")
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ValueError(f"{page} has no place for peers: it needs the lines {BEGIN!r} and {END!r}")
    page.write_text(f"{before}{BEGIN}\n\n{markdown(results)}\n\n{END}{after}", encoding="utf-8")


def times_ours(row: Row, ours: Row | None, figure: str = "p50_ms") -> str:
    """How many times as long as ours a question takes."""
    if ours is None:
        return ""
    ratio = row[figure] / ours[figure]
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def _speed(part: Mapping[str, Any]) -> str:
    rows: Mapping[str, Row] = part["rows"]
    heads = ("", *"load memory p50 p95 cpu p50/ours cpu/ours questions tokens most over".split())
    lines = [
        (
            ENTRIES[name].title,
            f"{row['load_s']:,.1f} s",
            f"{row['rss_mb']:,.0f} MB",
            f"{_short(row['p50_ms'])} ms",
            f"{_short(row['p95_ms'])} ms",
            f"{_short(row['cpu_ms'])} ms",
            times_ours(row, rows.get(OURS)),
            times_ours(row, rows.get(OURS), "cpu_ms"),
            f"{row['questions']}",
            f"{row['tokens_mean']:,.0f}",
            f"{row['tokens_max']:,.0f}",
            _share(row.get("over_en_share")),
        )
        for name, row in rows.items()
    ]
    return f"**{part['title']}**:\n\n{_table(heads, lines)}{_left_out(part['left_out'])}"


def _quality(part: Mapping[str, Any]) -> str:
    heads = ("", *"nDCG@10 recall@5 gold p50 tokens most".split())
    langs = sorted({key.split("_")[1] for row in part["rows"].values() for key in row if key.startswith("over_")})
    lines = [
        (
            ENTRIES[name].title,
            f"{row['ndcg@10']:.3f}",
            f"{row['recall@5']:.3f}",
            f"{row['gold_hit']:.3f}",
            f"{_short(row['p50_ms'])} ms",
            f"{row['tokens_mean']:,.0f}",
            f"{row['tokens_max']:,.0f}",
            *(_share(row.get(f"over_{lang}_share")) for lang in langs),
        )
        for name, row in part["rows"].items()
    ]
    asked = max((row["questions"] for row in part["rows"].values()), default=0)
    title = f"**{part['title']}**, {part['documents']:,} records, {asked} questions with known answers:"
    return f"{title}\n\n{_table((*heads, *(f'over, {lang}' for lang in langs)), lines)}{_left_out(part['left_out'])}"


def _set_up(parts: Sequence[Mapping[str, Any]]) -> str:
    versions = {name: row["versions"] for part in parts for name, row in part["rows"].items()}
    heads = ("", "found by", "packed by", "versions")
    lines = [
        (
            ENTRIES[name].title,
            ENTRIES[name].store,
            ENTRIES[name].packer,
            ", ".join(f"{package} {number}" for package, number in told.items()),
        )
        for name, told in versions.items()
    ]
    return f"How each was set up:\n\n{_table(heads, lines, numbers=False)}"


def _left_out(missing: Mapping[str, str]) -> str:
    told = "\n".join(f"{ENTRIES[name].title} is left out: {reason}." for name, reason in missing.items())
    return f"\n\n{told}" if told else ""


def _measured_on(machine: Mapping[str, Any]) -> str:
    loads = " to ".join(f"{machine[key][0]:g}" for key in ("load_at_start", "load_at_end"))
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}, "
        f"Python {machine['python']}; load average from {loads}."
    )


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    rule = ["---", *(["---:" if numbers else "---"] * (len(heads) - 1))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *lines))


def _share(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
