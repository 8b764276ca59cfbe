"""Ledgers, citations and degradations as rich tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from contexture.cli.output import plain
from contexture.ledger import Degradation, Entry, Ledger, State

_STYLES = {State.KEPT: "green", State.SHORTENED: "yellow", State.DROPPED: "red"}


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table; the columns in `right` hold numbers."""
    found = Table(show_edge=False, pad_edge=False, header_style="bold")
    numbers = set(right)
    for column in columns:
        found.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return found


def ledger_table(entries: Sequence[Entry]) -> Table:
    """One row per candidate: how it ended, why, what it costs, how it scored."""
    found = table("candidate", "state", "reason", "tokens", "score", right=("tokens", "score"))
    for entry in entries:
        found.add_row(
            Text(plain(entry.id)),
            Text(entry.state.value, style=_STYLES[entry.state]),
            Text(plain(_reason(entry))),
            str(entry.tokens),
            f"{entry.score:.3f}",
        )
    return found


def ledger_view(ledger: Ledger, *, most: int | None = None) -> RenderableType:
    """The ledger: its first `most` entries as a table, the counts of all, and what was lost on the way."""
    shown = ledger.entries[:most]
    more = len(ledger.entries) - len(shown)
    counts = ", ".join(f"{ledger.count(state)} {state.value}" for state in State)
    total = f"{counts} ({more} not listed)" if more else counts
    return Group(ledger_table(shown), Text(total, style="dim"), *losses(ledger.degradations))


def losses(degradations: Sequence[Degradation]) -> list[Text]:
    """One line per degradation."""
    return [Text(plain(f"degraded: {each.source}: {each.reason}"), style="yellow") for each in degradations]


def panel(title: str, body: str) -> Panel:
    """A text in a frame."""
    return Panel(Text(plain(body)), title=Text(plain(title)), title_align="left")


def _reason(entry: Entry) -> str:
    of = f" of {entry.of}" if entry.of else ""
    form = f" ({entry.form.value})" if entry.form and entry.state is State.SHORTENED else ""
    note = f": {entry.note}" if entry.note else ""
    return f"{entry.reason.value.replace('_', ' ')}{of}{form}{note}"
