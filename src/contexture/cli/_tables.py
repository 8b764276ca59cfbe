"""Ledgers, citations and degradations as rich tables."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from contexture.cli._output import is_plain, replace_control_chars
from contexture.ledger import Degradation, Ledger, LedgerEntry, State

_STYLES = {State.KEPT: "green", State.SHORTENED: "yellow", State.DROPPED: "red"}


def table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Return an empty table; the columns in `right` are right-aligned numbers."""
    found = Table(show_edge=False, pad_edge=False, header_style="bold")
    if is_plain():
        found.box = None
    numbers = set(right)
    for column in columns:
        found.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return found


def ledger_table(entries: Sequence[LedgerEntry]) -> Table:
    """Return a table with one row per candidate: outcome, reason, tokens and score."""
    found = table("candidate", "state", "reason", "tokens", "score", right=("tokens", "score"))
    for entry in entries:
        found.add_row(
            Text(replace_control_chars(entry.id)),
            Text(entry.state.value, style=_STYLES[entry.state]),
            Text(replace_control_chars(_format_reason(entry))),
            str(entry.tokens),
            f"{entry.score:.3f}",
        )
    return found


def ledger_view(ledger: Ledger, *, most: int | None = None) -> RenderableType:
    """Return the first `most` entries of the ledger as a table, the counts of all, and the degradations."""
    shown = ledger.entries[:most]
    more = len(ledger.entries) - len(shown)
    counts = ", ".join(f"{ledger.count(state)} {state.value}" for state in State)
    total = f"{counts} ({more} not listed)" if more else counts
    return Group(ledger_table(shown), Text(total, style="dim"), *degradation_lines(ledger.degradations))


def degradation_lines(degradations: Sequence[Degradation]) -> list[Text]:
    """Return one line per degradation."""
    return [
        Text(replace_control_chars(f"degraded: {each.source}: {each.reason}"), style="yellow") for each in degradations
    ]


def panel(title: str, body: str) -> RenderableType:
    """Return a text in a frame, or below its title in plain output."""
    if is_plain():
        return Group(Text(replace_control_chars(title)), Text(replace_control_chars(body)), Text(""))
    return Panel(Text(replace_control_chars(body)), title=Text(replace_control_chars(title)), title_align="left")


def _format_reason(entry: LedgerEntry) -> str:
    of = f" of {entry.of}" if entry.of else ""
    form = f" ({entry.form.value})" if entry.form and entry.state is State.SHORTENED else ""
    note = f": {entry.note}" if entry.note else ""
    return f"{entry.reason.value.replace('_', ' ')}{of}{form}{note}"
