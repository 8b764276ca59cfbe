"""`contexture build research`: numbered, cited sources for a research question."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.capsules import fetched
from contexture.cli.common import Common, Where, existing, with_engine
from contexture.cli.inputs import moment, object_on_stdin, parsed, write_bytes
from contexture.cli.output import console, emit, note
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings

Results = Annotated[int | None, typer.Option("--results", metavar="N", help="Pages to look for.")]
Mode = Annotated[str | None, typer.Option("--mode", metavar="MODE", help="Search mode: hybrid, text or visual.")]
MaxTokens = Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Token budget of the sources.")]


def research(
    common: Common,
    question: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="The question; without it a request is read as JSON.")
    ] = None,
    results: Results = None,
    mode: Mode = None,
    max_tokens: MaxTokens = None,
    where: Where = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Take this as the clock.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write what `replay` needs to this file.")
    ] = None,
) -> None:
    """Build the context of a research QUERY over the pages of documents.

    A request on standard input is an object with `query`, and may have `num_results`, `include_text`,
    `include_visual`, `search_mode`, `max_tokens` and `where`.
    """
    clock = moment(now)
    asked = asked_for(question, results=results, mode=mode, max_tokens=max_tokens, where=where)
    built, packed = _built(common.settings(), asked, clock, capsule=capsule is not None)
    if capsule is not None:
        write_bytes(capsule, packed)
    if common.as_json:
        emit(built)
    else:
        _print(built)
        note(f"explain it: contexture explain {built['build_id']} {common.retyped()}".rstrip())


def asked_for(
    question: str | None, *, results: int | None, mode: str | None, max_tokens: int | None, where: str | None
) -> dict[str, Any]:
    """The request of a command line, or the one on standard input with what the command line says instead."""
    asked: dict[str, Any] = object_on_stdin() if question is None else {"query": question}
    chosen = {
        "num_results": results,
        "search_mode": mode,
        "max_tokens": max_tokens,
        "where": None if where is None else parsed(where, "--where"),
    }
    return {**asked, **{name: value for name, value in chosen.items() if value is not None}}


def _built(
    settings: Settings, asked: Mapping[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    door = remote(settings)
    if door is not None:
        found = door.ask("POST", "/v1/context/research", asked, now=clock)
        return found, fetched(door, found["build_id"]) if capsule else b""
    from contexture.answer.research.values import question_of
    from contexture.capsule import pack_capsule
    from contexture.service.wire.research import research_object

    told = question_of(asked, answering=False)
    built = with_engine(
        existing(settings),
        lambda engine: engine.build_research(
            told.query,
            told.num_results,
            told.include_text,
            told.include_visual,
            now=clock,
            max_tokens=told.max_tokens,
            where=told.where,
        ),
    )
    return as_sent(research_object(built)), pack_capsule(built.capsule) if built.capsule else b""


def _print(built: dict[str, Any]) -> None:
    from contexture.cli.tables import losses, panel

    out = console()
    out.print(panel("context", built["formatted_text"] or "no source was found"))
    kind = "" if built["exact"] else " (estimated)"
    cut = ", truncated" if built["truncated"] else ""
    out.print(
        f"{built['build_id']}: {len(built['sources'])} sources in {built['total_tokens']} of {built['max_tokens']} "
        f"tokens{kind}{cut}"
    )
    for line in losses(degradations_of(built)):
        out.print(line)
