"""`contexture eval`: measure on folders of questions with known answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from contexture.cli.common import Common, command
from contexture.cli.holding import Held, Holding
from contexture.cli.inputs import folder, numbers
from contexture.cli.output import console, emit
from contexture.cli.progress import watched

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the evaluation set.")]


def register(app: typer.Typer) -> None:
    """Add the group and its measurements."""
    kinds = typer.Typer(help="Measure on a folder of questions.", no_args_is_help=True, rich_markup_mode=None)
    command(kinds, "retrieval")(retrieval)
    command(kinds, "budget")(budget)
    command(kinds, "spans")(spans)
    command(kinds, "redaction")(redaction)
    command(kinds, "workspace")(workspace)
    command(kinds, "links")(links)
    app.add_typer(kinds, name="eval")


def retrieval(common: Common, directory: Folder) -> None:
    """Ranking: nDCG, recall and MRR over `corpus.jsonl` and `queries.jsonl`."""
    from contexture.evaluation.retrieval import evaluate

    settings, where = common.settings(), folder(directory)
    with watched(as_json=common.as_json) as progress:
        _answer(common, asyncio.run(evaluate(where, settings=settings, progress=progress)))


def budget(
    common: Common,
    directory: Folder,
    tokens: Annotated[
        str, typer.Option("--tokens", metavar="N,N,...", help="Token budgets to build with.")
    ] = "500,1000,2000,4000",
    held: Held = Holding.DOCUMENTS,
) -> None:
    """Packing: how much of the gold records is in contexts of given sizes."""
    from contexture.evaluation import budget as documents
    from contexture.evaluation import memories

    evaluate = memories.evaluate if held is Holding.MEMORIES else documents.evaluate
    settings, where, sizes = common.settings(), folder(directory), numbers(tokens, "--tokens")
    with watched(as_json=common.as_json) as progress:
        _answer(common, asyncio.run(evaluate(where, tokens=sizes, settings=settings, progress=progress)))


def spans(
    common: Common,
    directory: Folder,
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", min=1, help="Token budget to build with.")] = 1_000,
) -> None:
    """Characters: recall, precision and IoU of spans over `corpora/*.md` and `queries.jsonl`."""
    from contexture.evaluation.spans import evaluate

    settings, where = common.settings(), folder(directory)
    with watched(as_json=common.as_json) as progress:
        _answer(common, asyncio.run(evaluate(where, tokens=tokens, settings=settings, progress=progress)))


def redaction(common: Common, directory: Folder) -> None:
    """Redaction: recall and precision over `pii.jsonl` and `samples.jsonl`."""
    from contexture import wiring
    from contexture.evaluation.redaction import report

    _answer(common, report(folder(directory), wiring.redactor(common.settings())))


def workspace(
    common: Common,
    directory: Folder,
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", min=1, help="Token budget to build with.")] = 4_000,
) -> None:
    """Records: the share of questions whose records are all in a workspace context, over tables and their questions."""
    from contexture.evaluation.workbench import evaluate

    settings, where = common.settings(), folder(directory)
    with watched(as_json=common.as_json) as progress:
        _answer(common, asyncio.run(evaluate(where, tokens=tokens, settings=settings, progress=progress)))


def links(common: Common, directory: Folder) -> None:
    """Links: how often a page linked with the focused one scores above one that is not, over a folder of notes."""
    from contexture.evaluation.links import evaluate

    settings, where = common.settings(), folder(directory)
    with watched(as_json=common.as_json) as progress:
        _answer(common, asyncio.run(evaluate(where, settings=settings, progress=progress)))


def _answer(common: Common, measured: Mapping[str, Any]) -> None:
    if common.as_json:
        emit(measured)
        return
    from contexture.cli.tables import table

    found = table("measure", "value", right=("value",))
    for name, value in _flat(measured):
        found.add_row(name, value)
    console().print(found)


def _flat(measured: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in measured.items():
        if isinstance(value, Mapping):
            rows.extend(_flat(cast("Mapping[str, Any]", value), f"{prefix}{name} "))
        else:
            rows.append((prefix + name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows
