"""`contexture ask`: executes a slash command over the news, or with `--research` answers a question from documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli._client import find_service, parse_degradations
from contexture.cli._common import (
    SOURCES_LANG_HELP,
    AnswerLangOption,
    Common,
    parse_now,
    read_json_object,
    register_command,
    require_store,
    run_with_engine,
)
from contexture.cli._output import console, print_json, replace_control_chars

if TYPE_CHECKING:
    from rich.console import RenderableType

    from contexture.config import Settings


_MARK_TEXTS = {"figures_not_in_evidence": "contains a figure that is not in its evidence"}


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    register_command(app, "ask", with_identity=True)(ask)


def ask(
    common: Common,
    line: Annotated[
        str | None,
        typer.Argument(
            metavar="COMMAND",
            help="Command with its arguments; without it, a JSON request is read from standard input.",
        ),
    ] = None,
    lang: Annotated[str | None, typer.Option("--lang", metavar="LANG", help=SOURCES_LANG_HELP)] = None,
    answer_lang: AnswerLangOption = None,
    research: Annotated[
        bool, typer.Option("--research", help="Answer a question from the pages of documents.")
    ] = False,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
) -> None:
    """Execute a slash COMMAND over the news, such as "/ask window=24h topic=AI".

    The commands are /ask, /events, /graph, /synthesize and /memory with suggest, store or recall. Text without a slash
    is a question for /ask. Every statement names its evidence. With --research, a question is answered from the pages
    of documents, and every sentence ends with the number of its source.
    """
    clock = parse_now(now)
    if research:
        question = read_json_object() if line is None else {"query": line}
        _print_answer(
            common,
            answer_research(common.settings(), question, clock),
            render_research_answer,
        )
        return
    asked = read_json_object() if line is None else {"raw_command": _with_default_command(line)}
    if lang is not None:
        asked = {**asked, "user_lang": lang}
    if answer_lang is not None:
        asked = {**asked, "answer_lang": answer_lang}
    _print_answer(common, _execute(common.settings(), asked, clock), render_command_answer)


def _print_answer(
    common: Common, found: dict[str, Any], told: Callable[[dict[str, Any]], Iterator[RenderableType]]
) -> None:
    if common.as_json:
        print_json(found)
        return
    out = console()
    for part in told(found):
        out.print(part)


def render_command_answer(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Render an executed command: statements by section, their evidence, and warnings."""
    from rich.text import Text

    from contexture.cli._tables import degradation_lines

    yield Text(replace_control_chars(f"{found['command']}  {found['question']}"), style="italic")
    for section in found["sections"]:
        yield Text(replace_control_chars(f"\n{section['heading']}"), style="bold")
        for statement in section["statements"]:
            yield _render_statement(statement)
    for said in found["notes"]:
        yield Text(replace_control_chars(f"\n{said}"), style="cyan")
    if found["evidence"]:
        yield Text("")
        yield _evidence_table(found)
    yield Text(f"\n{_describe_command_writer(found)}", style="dim")
    yield from degradation_lines(parse_degradations(dict(found)))


def _with_default_command(line: str) -> str:
    return line if line.lstrip().startswith("/") else f"/ask {line}"


def _execute(settings: Settings, asked: dict[str, Any], clock: datetime | None) -> dict[str, Any]:
    service = find_service(settings)
    if service is not None:
        return service.request("POST", "/v1/commands", asked, now=clock)
    answer = run_with_engine(settings, lambda engine: engine.execute.run(asked, scope=engine.scope, now=clock))
    return answer.to_dict()


def _render_statement(statement: Mapping[str, Any]) -> RenderableType:
    from rich.text import Text

    text = Text(f"  • {replace_control_chars(statement['text'])}")
    text.append("".join(f" [{number}]" for number in statement["evidence"]), style="green")
    for mark in statement["marks"]:
        text.append(f" ({_MARK_TEXTS.get(mark, mark)})", style="yellow")
    return text


def _evidence_table(found: Mapping[str, Any]) -> RenderableType:
    """Return the table of evidence that statements refer to; evidence of the details alone is only in `--json`."""
    from rich.text import Text

    from contexture.cli._tables import table

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
                Text(replace_control_chars(each["source"])),
                Text(replace_control_chars(f"{title}\n{each['url']}" if each["url"] else title)),
            )
    return rows


def _describe_command_writer(found: Mapping[str, Any]) -> str:
    if found["mode"] != "model":
        return "extractive: no model was used, the statements are sentences from the sources"
    usage = found["usage"]
    return f"written by {found['model']} for {usage['cents']:.4f} of {usage['budget_cents']:g} cents"


_LACK_TEXTS = {
    "no_marker": "cites no source",
    "not_in_source": "is not in the cited source",
    "figure_not_in_source": "has a figure that is not in the cited source",
    "name_not_in_source": "has a name that is not in the cited source",
}


def answer_research(settings: Settings, asked: Mapping[str, Any], clock: datetime | None) -> dict[str, Any]:
    """Answer a research question, through the service that holds the store or in this process."""
    from contexture.answer.research import parse_research_question

    told = parse_research_question(asked, answering=True)
    service = find_service(settings)
    if service is not None:
        return service.request("POST", "/api/research/ask", asked, now=clock)

    answer = run_with_engine(
        require_store(settings), lambda engine: engine.ask_research.run(told, scope=engine.scope, now=clock)
    )
    return answer.to_dict()


def render_research_answer(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Render an answer: its text, its sources, and warnings."""
    from rich.text import Text

    from contexture.cli._tables import degradation_lines

    yield Text(replace_control_chars(found["answer"]))
    if found["sources"]:
        yield Text("")
        yield _sources_table(found)
    for removed in found["removed_markers"]:
        yield Text(
            replace_control_chars(f"removed: there is no source {removed['marker']}"),
            style="yellow",
        )
    for each in found["unsupported"]:
        missing = f" ({', '.join(each['missing'])})" if each["missing"] else ""
        yield Text(
            replace_control_chars(f'unsupported: "{each["sentence"]}" {_LACK_TEXTS[each["lack"]]}{missing}'),
            style="yellow",
        )
    yield Text(f"\n{_describe_research_writer(found)}", style="dim")
    yield from degradation_lines(parse_degradations(dict(found)))


def _sources_table(found: Mapping[str, Any]) -> RenderableType:
    from rich.text import Text

    from contexture.cli._tables import table

    rows = table("source", "file", "page", "section", "score", right=("source", "page", "score"))
    for number, source in enumerate(found["sources"], start=1):
        style = "green" if number in found["cited"] else "dim"
        rows.add_row(
            Text(f"[{number}]", style=style),
            Text(replace_control_chars(source["filename"])),
            str(source["page"]),
            Text(replace_control_chars(source["section_path"] or "")),
            f"{source['relevance_score']:.3f}",
        )
    return rows


def _describe_research_writer(found: Mapping[str, Any]) -> str:
    cut = ", truncated" if found["truncated"] else ""
    spent = f"{found['build_id']}: {len(found['sources'])} sources in {found['total_tokens']} tokens{cut}"
    if found["extractive"]:
        return f"{spent}; extractive: no model was used, the sentences are from the sources"
    return f"{spent}; written by {found['model']}"
