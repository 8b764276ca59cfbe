"""`contexture tokens` counts the tokens of a text; `contexture eval` measures quality on evaluation folders."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from contexture.cli._common import Common, decode_text, parse_numbers, read_bytes, register_command, require_folder
from contexture.cli._output import console, print_json, print_line, show_progress
from contexture.cli.ingest import EvalKindOption, EvalSetKind
from contexture.errors import InvalidRequest


def register_tokens(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "tokens")(count_tokens)


def count_tokens(
    common: Common,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Text to count; `-` for standard input.")],
    encoding: Annotated[
        str | None,
        typer.Option("--encoding", "--model", metavar="NAME", help="Encoding or model; by default CONTEXTURE_MODEL."),
    ] = None,
    jsonl: Annotated[bool, typer.Option("--jsonl", help="Count the `text` of each row of a JSONL file.")] = False,
) -> None:
    """Count the tokens of FILE as a model does."""
    from contexture.wiring import counter_for

    counter = counter_for(common.settings().counted_model if encoding is None else encoding)
    data = read_bytes(file)
    texts = list(_iter_texts(data, file)) if jsonl else [decode_text(data, str(file))]
    counts = [counter.count(text) for text in texts]
    if common.as_json:
        print_json({"counts": counts, "encoding": counter.encoding, "exact": counter.exact})
        return
    for count in counts:
        print_line(f"{count}")


def _iter_texts(data: bytes, file: Path) -> Iterator[str]:
    from contexture.ingestion.records import parse_row

    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            text = parse_row(line).get("text")
        except InvalidRequest as failure:
            raise InvalidRequest(f"{file}:{number}: {failure}") from failure
        if not isinstance(text, str):
            raise InvalidRequest(f"{file}:{number}: field 'text' must be a string")
        yield text


FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with the evaluation set.")]


def register_evaluate(app: typer.Typer) -> None:
    """Add the group and its evaluations to the app."""
    kinds = typer.Typer(help="Measure quality on a folder of questions.", no_args_is_help=True, rich_markup_mode=None)
    register_command(kinds, "retrieval")(retrieval)
    register_command(kinds, "budget")(budget)
    register_command(kinds, "spans")(spans)
    register_command(kinds, "pages")(pages)
    register_command(kinds, "redaction")(redaction)
    register_command(kinds, "workspace")(workspace)
    register_command(kinds, "links")(links)
    register_command(kinds, "commands")(commands)
    app.add_typer(kinds, name="eval")


def retrieval(common: Common, directory: FolderArgument) -> None:
    """Ranking: nDCG, recall and MRR over `corpus.jsonl` and `queries.jsonl`."""
    from contexture.evaluation.corpus import evaluate_retrieval

    settings, where = common.settings(), require_folder(directory)
    with show_progress(as_json=common.as_json) as progress:
        _print_measures(common, asyncio.run(evaluate_retrieval(where, settings=settings, progress=progress)))


def budget(
    common: Common,
    directory: FolderArgument,
    tokens: Annotated[
        str, typer.Option("--tokens", metavar="N,N,...", help="Token budgets to build with.")
    ] = "500,1000,2000,4000",
    held: EvalKindOption = EvalSetKind.DOCUMENTS,
) -> None:
    """Packing: the share of the gold records in contexts of given sizes."""
    from contexture.evaluation import corpus
    from contexture.evaluation import corpus as documents

    evaluate = corpus.evaluate_memories if held is EvalSetKind.MEMORIES else documents.evaluate_budget
    settings, where, sizes = common.settings(), require_folder(directory), parse_numbers(tokens, "--tokens")
    with show_progress(as_json=common.as_json) as progress:
        _print_measures(common, asyncio.run(evaluate(where, tokens=sizes, settings=settings, progress=progress)))


def spans(
    common: Common,
    directory: FolderArgument,
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", min=1, help="Token budget to build with.")] = 1_000,
) -> None:
    """Characters: recall, precision and IoU of spans over `corpora/*.md` and `queries.jsonl`."""
    from contexture.evaluation.corpus import evaluate_spans

    settings, where = common.settings(), require_folder(directory)
    with show_progress(as_json=common.as_json) as progress:
        _print_measures(common, asyncio.run(evaluate_spans(where, tokens=tokens, settings=settings, progress=progress)))


def pages(
    common: Common,
    directory: FolderArgument,
    mode: Annotated[str, typer.Option("--mode", metavar="MODE", help="`hybrid`, `text` or `visual`.")] = "hybrid",
) -> None:
    """Pages: recall and MRR of the pages that answer questions, over `pdfs/` and `queries.jsonl`."""
    from contexture.builders.research.request import parse_search_mode
    from contexture.evaluation.corpus import evaluate_pages

    settings, where = common.settings(), require_folder(directory)
    text, visual = parse_search_mode(mode)
    with show_progress(as_json=common.as_json) as progress:
        _print_measures(
            common, asyncio.run(evaluate_pages(where, settings=settings, text=text, visual=visual, progress=progress))
        )


def redaction(
    common: Common,
    directory: FolderArgument,
    seed: Annotated[
        int | None,
        typer.Option("--unusual-separators", metavar="SEED", help="Replace every second separator inside the values."),
    ] = None,
) -> None:
    """Redaction: recall and precision over `pii.jsonl` and `samples.jsonl`."""
    from contexture import wiring
    from contexture.evaluation.redaction import evaluate_folder

    redactor = wiring.redactor(common.settings())
    _print_measures(common, evaluate_folder(require_folder(directory), redactor, seed=seed))


def workspace(
    common: Common,
    directory: FolderArgument,
    tokens: Annotated[int, typer.Option("--tokens", metavar="N", min=1, help="Token budget to build with.")] = 4_000,
) -> None:
    """Records: the share of questions over tables whose records are all in a workspace context."""
    from contexture.evaluation.workspace import evaluate_workbench

    settings, where = common.settings(), require_folder(directory)
    with show_progress(as_json=common.as_json) as progress:
        _print_measures(
            common, asyncio.run(evaluate_workbench(where, tokens=tokens, settings=settings, progress=progress))
        )


def links(common: Common, directory: FolderArgument) -> None:
    """Links: how often a page linked with the focused one scores above an unlinked one, over a folder of notes."""
    from contexture.evaluation.workspace import evaluate_links

    settings, where = common.settings(), require_folder(directory)
    with show_progress(as_json=common.as_json) as progress:
        _print_measures(common, asyncio.run(evaluate_links(where, settings=settings, progress=progress)))


def commands(
    common: Common,
    directory: FolderArgument,
    window: Annotated[str, typer.Option("--window", metavar="WINDOW", help="Period before each question.")] = "1m",
) -> None:
    """News: how often `/ask` finds the articles that answer, quotes them, and puts them into the prompt."""
    from contexture.evaluation.commands import evaluate_commands

    settings, where = common.settings(), require_folder(directory)
    with show_progress(as_json=common.as_json) as progress:
        measured = asyncio.run(evaluate_commands(where, window=window, settings=settings, progress=progress))
        _print_measures(common, measured)


def _print_measures(common: Common, measured: Mapping[str, Any]) -> None:
    if common.as_json:
        print_json(measured)
        return
    from contexture.cli._tables import table

    found = table("measure", "value", right=("value",))
    for name, value in _flatten(measured):
        found.add_row(name, value)
    console().print(found)


def _flatten(measured: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in measured.items():
        if isinstance(value, Mapping):
            rows.extend(_flatten(cast("Mapping[str, Any]", value), f"{prefix}{name} "))
        else:
            rows.append((prefix + name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return rows
