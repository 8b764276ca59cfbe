"""`contexture ask`: a slash command over the news, executed and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli import ask_research
from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.common import Common, command, with_engine
from contexture.cli.inputs import moment, object_on_stdin
from contexture.cli.output import console, emit, plain
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from rich.console import RenderableType

    from contexture.config import Settings

_MARKS = {"figures_not_in_evidence": "a figure in it is not in its evidence"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "ask", acting=True)(ask)


def ask(
    common: Common,
    line: Annotated[
        str | None,
        typer.Argument(metavar="COMMAND", help="The command with its arguments; without it a request is read as JSON."),
    ] = None,
    lang: Annotated[
        str | None, typer.Option("--lang", metavar="LANG", help="Language of the answer: ru, en or auto.")
    ] = None,
    research: Annotated[
        bool, typer.Option("--research", help="Answer a question from the pages of documents instead.")
    ] = False,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Take this as the clock.")] = None,
) -> None:
    """Execute a slash COMMAND over the news, such as "/ask window=24h topic=AI".

    There are /ask, /events, /graph, /synthesize and /memory with suggest, store or recall. What does not begin with
    a slash is a question for /ask. Every statement names its evidence. With --research a question is answered from the
    pages of documents, with the number of its source behind every sentence.
    """
    clock = moment(now)
    if research:
        question = object_on_stdin() if line is None else {"query": line}
        _show(common, ask_research.answered(common.settings(), question, clock), ask_research.report)
        return
    asked = object_on_stdin() if line is None else {"raw_command": _command(line)}
    if lang is not None:
        asked = {**asked, "user_lang": lang}
    _show(common, _executed(common.settings(), asked, clock), report)


def _show(common: Common, found: dict[str, Any], told: Callable[[dict[str, Any]], Iterator[RenderableType]]) -> None:
    if common.as_json:
        emit(found)
        return
    out = console()
    for part in told(found):
        out.print(part)


def report(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """An executed command for people: statements by section, their evidence, and what to know about them."""
    from rich.text import Text

    from contexture.cli.tables import losses

    yield Text(plain(f"{found['command']}  {found['question']}"), style="italic")
    for section in found["sections"]:
        yield Text(plain(f"\n{section['heading']}"), style="bold")
        for statement in section["statements"]:
            yield _line(statement)
    for said in found["notes"]:
        yield Text(plain(f"\n{said}"), style="cyan")
    if found["evidence"]:
        yield Text("")
        yield _evidence(found)
    yield Text(f"\n{_how(found)}", style="dim")
    yield from losses(degradations_of(dict(found)))


def _command(line: str) -> str:
    return line if line.lstrip().startswith("/") else f"/ask {line}"


def _executed(settings: Settings, asked: dict[str, Any], clock: datetime | None) -> dict[str, Any]:
    door = remote(settings)
    if door is not None:
        return door.ask("POST", "/v1/commands", asked, now=clock)
    from contexture.service.wire.commands import answer_object

    answer = with_engine(settings, lambda engine: engine.execute.run(asked, scope=engine.scope, now=clock))
    return as_sent(answer_object(answer))


def _line(statement: Mapping[str, Any]) -> RenderableType:
    from rich.text import Text

    text = Text(f"  • {plain(statement['text'])}")
    text.append("".join(f" [{number}]" for number in statement["evidence"]), style="green")
    for mark in statement["marks"]:
        text.append(f" ({_MARKS.get(mark, mark)})", style="yellow")
    return text


def _evidence(found: Mapping[str, Any]) -> RenderableType:
    """The evidence that a statement names; what only the details rest on is left to `--json`."""
    from rich.text import Text

    from contexture.cli.tables import table

    named = {
        number
        for section in found["sections"]
        for statement in section["statements"]
        for number in statement["evidence"]
    }
    rows = table("evidence", "date", "source", "article", right=("evidence",))
    for each in found["evidence"]:
        if each["number"] in named:
            title = each["title"] or each["text"]
            rows.add_row(
                Text(f"[{each['number']}]", style="green"),
                each["date"],
                Text(plain(each["source"])),
                Text(plain(f"{title}\n{each['url']}" if each["url"] else title)),
            )
    return rows


def _how(found: Mapping[str, Any]) -> str:
    if found["mode"] != "model":
        return "extractive: no model was used, the statements are sentences of the sources"
    usage = found["usage"]
    return f"written by {found['model']} for {usage['cents']:.4f} of {usage['budget_cents']:g} cents"
