"""The results of a run: a table for the terminal, JSON for machines, and the generated part of the docs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.targets import Row
from benchmarks.timing import Numbers
from rich.table import Table

BEGIN, END = "<!-- results: written by `python -m benchmarks --write-docs` -->", "<!-- end of results -->"


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Figures by store size, figures of no store, everything behind the worst ones, and the machine."""

    sized: dict[int, Numbers]
    general: Numbers
    detail: Numbers
    machine: dict[str, Any]

    @property
    def rows(self) -> list[Row]:
        """One row a figure, the smallest store first."""
        stores = [(size, self.sized[size]) for size in sorted(self.sized)]
        return [
            Row(size=size, name=name, value=value)
            for size, numbers in (*stores, (0, self.general))
            for name, value in numbers.items()
        ]


def table(rows: Sequence[Row]) -> Table:
    """Every row with its target and whether it is met."""
    shown = Table("records", "name", "value", "unit", "target", "met?", title="Contexture benchmarks")
    for row in rows:
        colour = {"yes": "green", "no": "red"}.get(row.verdict)
        shown.add_row(*_cells(row), style=colour)
    return shown


def to_json(results: Results) -> str:
    """The results as JSON; `from_json` reads them back."""
    rows = [_fields(row) for row in results.rows]
    return json.dumps(
        {"machine": results.machine, "rows": rows, "detail": results.detail}, indent=2, ensure_ascii=False
    )


def from_json(text: str) -> Results:
    """What `to_json` wrote."""
    data = json.loads(text)
    sized: dict[int, Numbers] = {}
    for row in data["rows"]:
        sized.setdefault(row["records"], {})[row["name"]] = row["value"]
    return Results(sized=sized, general=sized.pop(0, {}), detail=data["detail"], machine=data["machine"])


def write_docs(page: Path, results: Results) -> None:
    """Replace what stands between the markers of the page; everything else stays as it is."""
    text = page.read_text(encoding="utf-8")
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ValueError(f"{page} has no place for results: it needs the lines {BEGIN!r} and {END!r}")
    page.write_text(f"{before}{BEGIN}\n\n{_markdown(results)}\n\n{END}{after}", encoding="utf-8")


def _markdown(results: Results) -> str:
    lines = [_measured_on(results.machine), ""]
    lines += ["| records | figure | value | unit | target | met |", "|---:|---|---:|---|---|---|"]
    lines += [f"| {' | '.join(_cells(row, code=True))} |" for row in results.rows]
    return "\n".join(lines)


def _measured_on(machine: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    loads = " to ".join(f"{machine[key][0]:g}" for key in ("load_at_start", "load_at_end"))
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}, "
        f"Python {machine['python']}, {packages}.\n"
        f"Load average from {loads}; {machine['questions']} questions a figure."
    )


def _fields(row: Row) -> dict[str, Any]:
    bound = str(row.target or "")
    return {
        "records": row.size,
        "name": row.name,
        "value": row.value,
        "unit": row.unit,
        "target": bound,
        "met": row.verdict,
    }


def _cells(row: Row, *, code: bool = False) -> tuple[str, ...]:
    size = f"{row.size:,}" if row.size else ""
    name = f"`{row.name}`" if code else row.name
    return (size, name, row.written, row.unit, str(row.target or ""), row.verdict)
