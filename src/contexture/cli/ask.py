"""`contexture ask`: answers a question from everything the user may read, or executes a slash command over the news."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli import _common as cli
from contexture.cli._client import find_service, parse_degradations
from contexture.cli._output import EXIT_UNAVAILABLE, console, print_json, replace_control_chars
from contexture.errors import InvalidRequest, SourceTimeout

if TYPE_CHECKING:
    from rich.console import RenderableType

    from contexture.answer.research import ResearchAnswer
    from contexture.config import Settings
    from contexture.engine import Contexture
    from contexture.ledger import Degradation


def register(app: typer.Typer) -> None:
    """Add the command to the app."""
    cli.register_command(app, "ask", with_identity=True)(ask)


def ask(  # noqa: PLR0913, PLR0917 - one parameter an option
    common: cli.Common,
    line: Annotated[
        str | None,
        typer.Argument(
            metavar="QUESTION",
            help="Question or slash command; without it, a JSON request is read from standard input.",
        ),
    ] = None,
    lang: Annotated[str | None, typer.Option("--lang", metavar="LANG", help=cli.SOURCES_LANG_HELP)] = None,
    answer_lang: cli.AnswerLangOption = None,
    research: Annotated[bool, typer.Option("--research", help="Answer from the pages of documents only.")] = False,
    news: Annotated[bool, typer.Option("--news", help="Search news articles.")] = False,
    workspace: Annotated[bool, typer.Option("--workspace", help="Search blocks of the workspace.")] = False,
    memory: Annotated[bool, typer.Option("--memory", help="Search memories.")] = False,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", help="Token budget of the prompt.")
    ] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
) -> None:
    """Answer a QUESTION from everything you may read, or execute a slash command over the news.

    A question is answered from memories, records, pages of documents, news and the workspace; --news, --workspace and
    --memory search only what they name. Every sentence ends with the number of its source. --research searches only
    pages of documents, by their text and by their appearance. A question on standard input is an object with `query`.

    The slash commands are /ask, /events, /graph, /synthesize and /memory with suggest, store or recall, such as "/ask
    window=24h topic=AI". Every statement names its evidence. A command on standard input is an object with
    `raw_command`, or with `command` and `args`.

    If a source does not answer in time, the answer uses the other sources, and the exit code is 3.
    """
    clock = cli.parse_now(now)
    given = cli.read_json_object() if line is None else _read_line(line)
    kinds = [name for name, on in (("news", news), ("workspace", workspace), ("memories", memory)) if on]
    if research and kinds:
        raise InvalidRequest("--research searches pages only; leave it out to search several kinds")
    if "query" in given and (lang or answer_lang):
        raise InvalidRequest("--lang and --answer-lang are for slash commands; a question is answered as it is asked")
    if research:
        question = {"query": line} if line is not None else given
        _print_answer(
            common,
            answer_research(common.settings(), question, clock),
            render_research_answer,
        )
        return
    if "query" in given:
        narrow = {"kinds": kinds or None, "max_tokens": max_tokens}
        asked = {**given, **{name: value for name, value in narrow.items() if value is not None}}
        _print_answer(common, answer_question(common.settings(), asked, clock), render_answer)
        return
    if kinds or max_tokens is not None:
        raise InvalidRequest("--news, --workspace, --memory and --max-tokens are for questions, not for slash commands")
    asked = given
    if lang is not None:
        asked = {**asked, "user_lang": lang}
    if answer_lang is not None:
        asked = {**asked, "answer_lang": answer_lang}
    _print_answer(common, _execute(common.settings(), asked, clock), render_command_answer)


def _print_answer(
    common: cli.Common, found: dict[str, Any], render: Callable[[dict[str, Any]], Iterator[RenderableType]]
) -> None:
    if common.as_json:
        print_json(found)
    else:
        out = console()
        for part in render(found):
            out.print(part)
    if any(_is_timeout(each) for each in parse_degradations(found)):
        raise typer.Exit(EXIT_UNAVAILABLE)


def _is_timeout(lost: Degradation) -> bool:
    """Whether a source did not answer in time, so that the answer may lack what it holds; a model has a fallback."""
    return lost.reason.startswith(SourceTimeout.__name__) and not lost.source.startswith("model:")


def render_command_answer(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Render an executed command: statements by section, their evidence, and warnings."""
    from rich.text import Text

    from contexture.cli._tables import degradation_lines

    yield Text(replace_control_chars(f"{found['command']}  {found['question']}"), style="italic")
    for section in found["sections"]:
        yield Text(replace_control_chars(f"\n{section['heading']}"), style="bold")
        for statement in section["statements"]:
            yield _render_statement(statement, found["lang"])
    for said in found["notes"]:
        yield Text(replace_control_chars(f"\n{said}"), style="cyan")
    if found["evidence"]:
        yield Text("")
        yield _evidence_table(found)
    yield Text(f"\n{_describe_command_writer(found)}", style="dim")
    yield from degradation_lines(parse_degradations(dict(found)))


def _read_line(line: str) -> dict[str, Any]:
    return {"raw_command": line} if line.lstrip().startswith("/") else {"query": line}


def _execute(settings: Settings, asked: dict[str, Any], clock: datetime | None) -> dict[str, Any]:
    service = find_service(settings)
    if service is not None:
        return service.request("POST", "/v1/commands", asked, now=clock)
    answer = cli.run_with_engine(settings, lambda engine: engine.execute.run(asked, scope=engine.scope, now=clock))
    return answer.to_dict()


def _render_statement(statement: Mapping[str, Any], lang: str) -> RenderableType:
    from rich.text import Text

    from contexture.answer.commands.answer import MARK_TEXTS

    texts = MARK_TEXTS.get(lang, MARK_TEXTS["en"])
    text = Text(f"  • {replace_control_chars(statement['text'])}")
    text.append("".join(f" [{number}]" for number in statement["evidence"]), style="green")
    for mark in statement["marks"]:
        text.append(f" ({texts.get(mark, mark)})", style="yellow")
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


def answer_question(settings: Settings, asked: Mapping[str, Any], clock: datetime | None) -> dict[str, Any]:
    """Answer a question over everything, through the service that holds the store or in this process."""
    from contexture.builders.ask.request import parse_ask

    parsed = parse_ask(asked, answering=True)
    service = find_service(settings)
    if service is not None:
        return service.request("POST", "/v1/ask", asked, now=clock)

    return cli.run_with_engine(cli.require_store(settings), lambda engine: engine.ask(parsed, now=clock)).to_dict()


def render_answer(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Render an answer over everything: its text, the sources it cites, the kinds that hold nothing, and warnings."""
    from rich.text import Text

    from contexture.cli._tables import degradation_lines, table

    yield Text(replace_control_chars(found["answer"]))
    if found["sources"]:
        rows = table("source", "kind", "where", "score", right=("source", "score"))
        for source in found["sources"]:
            if source["number"] in found["cited"] or not found["cited"]:
                rows.add_row(
                    Text(f"[{source['number']}]", style="green"),
                    source["kind"],
                    Text(replace_control_chars(f"{source['label']}\n{source['collection']}/{source['id']}")),
                    f"{source['score']:.3f}",
                )
        yield Text("")
        yield rows
    yield from _render_doubts(found)
    for each in found["missing"]:
        if each["reason"] == "empty":
            yield Text(f"{each['kind']}: nothing stored; fill it with: {each['command']}", style="cyan")
    silent = ", ".join(each["kind"] for each in found["missing"] if each["reason"] == "no_match")
    if silent:
        yield Text(f"nothing about this in: {silent}", style="dim")
    writer = "extractive: no model was used" if found["extractive"] else f"written by {found['model']}"
    yield Text(
        f"\n{found['build_id']}: {len(found['sources'])} sources in {found['tokens']} tokens; {writer}", style="dim"
    )
    yield from degradation_lines(parse_degradations(dict(found)))


_LACK_TEXTS = {
    "no_marker": "cites no source",
    "not_in_source": "is not in the cited source",
    "figure_not_in_source": "has a figure that is not in the cited source",
    "name_not_in_source": "has a name that is not in the cited source",
    "quotation_not_in_source": "has a quotation that is not in the cited source",
    "figure_of_another_label": "has a figure that the cited source gives for something else",
}


def answer_research(settings: Settings, asked: Mapping[str, Any], clock: datetime | None) -> dict[str, Any]:
    """Answer a research question, through the service that holds the store or in this process."""
    from contexture.answer.research import parse_research_question

    parsed = parse_research_question(asked, answering=True)
    service = find_service(settings)
    if service is not None:
        return service.request("POST", "/api/research/ask", asked, now=clock)

    async def ask_engine(engine: Contexture) -> ResearchAnswer:
        await engine.warm_embedders()  # loading them takes longer than a search may on a busy machine
        return await engine.ask_research.run(parsed, scope=engine.scope, now=clock)

    return cli.run_with_engine(cli.require_store(settings), ask_engine).to_dict()


def render_research_answer(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Render an answer: its text, its sources, and warnings."""
    from rich.text import Text

    from contexture.cli._tables import degradation_lines

    yield Text(replace_control_chars(found["answer"]))
    if found["sources"]:
        yield Text("")
        yield _sources_table(found)
    yield from _render_doubts(found)
    yield Text(f"\n{_describe_research_writer(found)}", style="dim")
    yield from degradation_lines(parse_degradations(dict(found)))


def _render_doubts(found: Mapping[str, Any]) -> Iterator[RenderableType]:
    """Render the markers that were removed from an answer, and its sentences without support."""
    from rich.text import Text

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
