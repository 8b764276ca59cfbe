"""`contexture build`: contexts of each kind of request.

They are built in this process or by the service that holds the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli import _common as cli
from contexture.cli._client import find_service, parse_degradations
from contexture.cli._output import console, print_json, print_note
from contexture.cli._plugin_builds import BuilderGroup

if TYPE_CHECKING:
    from contexture.cli._client import RemoteService
    from contexture.config import Settings


def register(app: typer.Typer) -> None:
    """Add the group and its kinds of build to the app."""
    kinds = typer.Typer(cls=BuilderGroup, help="Build a context.", no_args_is_help=True, rich_markup_mode=None)
    cli.register_command(kinds, "ask", with_identity=True)(build_ask)
    cli.register_command(kinds, "query", with_identity=True)(build_query)
    cli.register_command(kinds, "turn", with_identity=True)(build_turn)
    cli.register_command(kinds, "command", with_identity=True)(build_command)
    cli.register_command(kinds, "research", with_identity=True)(build_research)
    cli.register_command(kinds, "workspace", with_identity=True)(build_workspace)
    app.add_typer(kinds, name="build")


def build_query(
    common: cli.Common,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The question; without it, a JSON request is read from standard input."),
    ] = None,
    collection: cli.CollectionOption = None,
    where: cli.WhereOption = None,
    max_tokens: Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Token budget.")] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Model or encoding whose tokens are counted.")
    ] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write the capsule to this file.")
    ] = None,
) -> None:
    """Build a context for QUERY, or for the request on standard input.

    A request is an object with `query`, and may have `collection`, `max_tokens`, `system`, `where` and `model`.
    """
    clock = cli.parse_now(now)
    settings = common.settings(collection=collection, model=model, max_tokens=max_tokens)
    asked: dict[str, Any] = cli.read_json_object() if question is None else {"query": question}
    chosen = {
        "collection": collection,
        "max_tokens": max_tokens,
        "where": None if where is None else cli.parse_json(where, "--where"),
    }
    defaults = {"collection": settings.collection, "max_tokens": settings.max_tokens}
    given = {name: value for name, value in chosen.items() if value is not None}
    request = {**defaults, **asked, **given, **({} if model is None else {"model": model})}
    built, packed = _run_query(settings, request, clock, capsule=capsule is not None)
    if capsule is not None:
        cli.write_bytes(capsule, packed)
    show_query(common, built)


def _run_query(
    settings: Settings, request: dict[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    from contexture.builders.query.request import query_from_json

    asked = query_from_json(request)
    service = find_service(settings)
    if service is not None:
        found = service.request("POST", "/v1/context/query", request, now=clock)
        return found, fetch_capsule(service, found["build_id"]) if capsule else b""
    from contexture.capsule import pack_capsule

    built = cli.run_with_engine(
        cli.require_store(settings),
        lambda engine: engine.build(asked, now=clock),
        action="context.build",
        resource={"kind": "query", "collection": asked.collection},
    )
    return built.to_dict(), pack_capsule(built.capsule)


def show_query(common: cli.Common, built: dict[str, Any]) -> None:
    """Print a built context with its counts, or as JSON."""
    if common.as_json:
        print_json(built)
    else:
        _print_query(built)
        print_note(f"explain it: contexture explain {built['build_id']} {common.as_options()}".rstrip())


def _print_query(built: dict[str, Any]) -> None:
    from contexture.cli._tables import degradation_lines, panel

    out = console()
    for message in built["messages"]:
        out.print(panel(str(message.get("name", message["role"])), str(message["content"])))
    counts = ", ".join(f"{name} {count}" for name, count in built["token_counts"].items())
    parts = f": {counts}" if counts else ""  # a builder of another package may not count its parts
    kind = "" if built["exact"] else " (estimated)"
    out.print(f"{built['build_id']}: {built['tokens']} of {built['max_tokens']} tokens{kind}{parts}")
    for line in degradation_lines(parse_degradations(built)):
        out.print(line)


def build_turn(
    common: cli.Common,
    max_prompt_tokens: Annotated[
        int | None, typer.Option("--max-prompt-tokens", metavar="N", help="Token limit; overrides the turn's.")
    ] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write the capsule to this file.")
    ] = None,
) -> None:
    """Build the prompt of the chat turn on standard input.

    A turn is an object with `user_message`, and may have `system_prompt`, `history`, `session_id`, `persona_id`,
    `tenant_id`, `user_id` and `max_prompt_tokens`.
    """
    clock = cli.parse_now(now)
    asked = cli.read_json_object()
    if max_prompt_tokens is not None:
        asked = {**asked, "max_prompt_tokens": max_prompt_tokens}
    named = _identity_of_turn(common.settings(), asked)
    settings = common.settings().model_copy(update=named)
    built, packed = _run_turn(settings, asked, clock, capsule=capsule is not None)
    if capsule is not None:
        cli.write_bytes(capsule, packed)
    if common.as_json:
        print_json(built)
    else:
        _print_turn(built)
        print_note(
            f"explain it: contexture explain {built['build_id']} {replace(common, **named).as_options()}".rstrip()
        )


def _identity_of_turn(settings: Settings, asked: dict[str, Any]) -> dict[str, str]:
    """Return the tenant and user that the turn names, unless they were set explicitly."""
    said = {"tenant": asked.get("tenant_id"), "user": asked.get("user_id")}
    return {
        name: value
        for name, value in said.items()
        if isinstance(value, str) and value and name not in settings.model_fields_set
    }


def _run_turn(
    settings: Settings, asked: dict[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    from contexture.builders.turn.request import parse_turn

    turn = parse_turn(asked)
    service = find_service(settings)
    if service is not None:
        found = service.request("POST", "/v1/context/turn", asked, now=clock)
        return found, fetch_capsule(service, found["build_id"]) if capsule else b""
    from contexture.capsule import pack_capsule

    built = cli.run_with_engine(
        settings,
        lambda engine: engine.build_turn(turn, scope=engine.scope, now=clock),
        action="context.build",
        resource={"kind": "turn"},
    )
    return built.to_dict(), pack_capsule(built.capsule)


def _print_turn(built: dict[str, Any]) -> None:
    from contexture.cli._tables import degradation_lines, panel

    out = console()
    for message in built["messages"]:
        out.print(panel(str(message.get("name", message["role"])), _message_text(message)))
    counts = ", ".join(f"{name} {count}" for name, count in built["token_counts"].items())
    kind = "" if built["exact"] else " (estimated)"
    out.print(f"{built['build_id']}: {built['tokens']} of {built['max_prompt_tokens']} tokens{kind}: {counts}")
    about = built["debug"]
    out.print(
        f"memory {about['somabrain_state']}: {about['snippet_count']} recalled; history: {about['history_count']} "
        f"messages kept, {about['trimmed_count']} left out"
    )
    for line in degradation_lines(parse_degradations(built)):
        out.print(line)


def _message_text(message: dict[str, Any]) -> str:
    """Return a message for display: its text, or its parts and calls as JSON."""
    import msgspec

    content = message.get("content")
    calls = [msgspec.json.encode(call).decode() for call in message.get("tool_calls", ())]
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode() if content else ""
    return "\n".join([*([text] if text else []), *calls])


def build_command(
    common: cli.Common,
    line: Annotated[
        str | None,
        typer.Argument(
            metavar="COMMAND",
            help="The command with its arguments; without it, a JSON request is read from standard input.",
        ),
    ] = None,
    lang: Annotated[str | None, typer.Option("--lang", metavar="LANG", help=cli.SOURCES_LANG_HELP)] = None,
    answer_lang: cli.AnswerLangOption = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write the capsule to this file.")
    ] = None,
) -> None:
    """Build the context of a slash COMMAND, such as "/ask window=24h topic=AI".

    A request on standard input is an object with `raw_command`, and may have `args`, `user_lang`, `env` and `ab_test`.
    """
    clock = cli.parse_now(now)
    asked = cli.read_json_object() if line is None else {"raw_command": line}
    if lang is not None:
        asked = {**asked, "user_lang": lang}
    if answer_lang is not None:
        asked = {**asked, "answer_lang": answer_lang}
    built, packed = _run_command(common.settings(), asked, clock, capsule=capsule is not None)
    if capsule is not None:
        cli.write_bytes(capsule, packed)
    if common.as_json:
        print_json(built)
    else:
        _print_command(built)
        build_id = built["telemetry"]["correlation_id"]
        print_note(f"explain it: contexture explain {build_id} {common.as_options()}".rstrip())


def _run_command(
    settings: Settings, asked: dict[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    service = find_service(settings)
    if service is not None:
        found = service.request("POST", "/v1/context/command", asked, now=clock)
        return found, fetch_capsule(service, found["telemetry"]["correlation_id"]) if capsule else b""
    from contexture.capsule import pack_capsule

    built = cli.run_with_engine(
        settings,
        lambda engine: engine.build_command(asked, scope=engine.scope, now=clock),
        action="context.build",
        resource={"kind": "command"},
    )
    return built.to_dict(), pack_capsule(built.capsule)


def _print_command(built: dict[str, Any]) -> None:
    from contexture.cli._output import replace_control_chars
    from contexture.cli._tables import degradation_lines

    out, retrieval = console(), built["retrieval"]
    out.print(f"{built['command']}  window {retrieval['window']}, lang {retrieval['lang']}, model "
              f"{built['models']['primary']}")  # fmt: skip
    for number, doc in enumerate(retrieval["docs"], start=1):
        out.print(replace_control_chars(f"{number:>3}. {doc['date']}  {doc['score']:.3f}  {doc['title']}"))
        out.print(replace_control_chars(f"     {doc['snippet']}"))
    for step in built["recovery"]:
        out.print(f"recovery: {step['done']} ({step['found']} found)")
    for line in degradation_lines(parse_degradations(built)):
        out.print(line)


ResultsOption = Annotated[int | None, typer.Option("--results", metavar="N", help="Pages to look for.")]
ModeOption = Annotated[str | None, typer.Option("--mode", metavar="MODE", help="Search mode: hybrid, text or visual.")]
MaxTokensOption = Annotated[int | None, typer.Option("--max-tokens", metavar="N", help="Token budget of the sources.")]


def build_research(  # noqa: PLR0913, PLR0917 - one parameter an option
    common: cli.Common,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The question; without it, a JSON request is read from standard input."),
    ] = None,
    documents: Annotated[
        list[str] | None,
        typer.Option("--document", metavar="NAME", help="Search this document only: its file name or id; repeatable."),
    ] = None,
    pages: Annotated[
        list[int] | None,
        typer.Option("--page", metavar="N", help="Search pages with this number only; repeatable."),
    ] = None,
    results: ResultsOption = None,
    mode: ModeOption = None,
    max_tokens: MaxTokensOption = None,
    where: cli.WhereOption = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write the capsule to this file.")
    ] = None,
) -> None:
    """Build the context of a research QUERY over the pages of documents.

    A request on standard input is an object with `query`, and may have `num_results`, `include_text`,
    `include_visual`, `search_mode`, `max_tokens` and `where`.
    """
    clock = cli.parse_now(now)
    asked = _research_request(question, results=results, mode=mode, max_tokens=max_tokens, where=where)
    restricted = [
        *([{"or": [{"any": [name, documents]} for name in ("filename", "doc_id")]}] if documents else ()),
        *([{"any": ["page", pages]}] if pages else ()),
    ]
    if restricted:
        asked["where"] = {"and": [*restricted, *([asked["where"]] if asked.get("where") is not None else ())]}
    built, packed = _run_research(common.settings(), asked, clock, capsule=capsule is not None)
    if capsule is not None:
        cli.write_bytes(capsule, packed)
    if common.as_json:
        print_json(built)
    else:
        _print_research(built)
        print_note(f"explain it: contexture explain {built['build_id']} {common.as_options()}".rstrip())


def _research_request(
    question: str | None, *, results: int | None, mode: str | None, max_tokens: int | None, where: str | None
) -> dict[str, Any]:
    """Return the request of the command line, or the one on standard input overridden by the command line."""
    asked: dict[str, Any] = cli.read_json_object() if question is None else {"query": question}
    chosen = {
        "num_results": results,
        "search_mode": mode,
        "max_tokens": max_tokens,
        "where": None if where is None else cli.parse_json(where, "--where"),
    }
    return {**asked, **{name: value for name, value in chosen.items() if value is not None}}


def _run_research(
    settings: Settings, asked: Mapping[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    from contexture.answer.research import parse_research_question

    parsed = parse_research_question(asked, answering=False)
    service = find_service(settings)
    if service is not None:
        found = service.request("POST", "/v1/context/research", asked, now=clock)
        return found, fetch_capsule(service, found["build_id"]) if capsule else b""
    from contexture.capsule import pack_capsule

    built = cli.run_with_engine(
        cli.require_store(settings),
        lambda engine: engine.build_research(
            parsed.query,
            parsed.num_results,
            parsed.include_text,
            parsed.include_visual,
            now=clock,
            max_tokens=parsed.max_tokens,
            where=parsed.where,
        ),
        action="context.build",
        resource={"kind": "research"},
    )
    return built.to_dict(), pack_capsule(built.capsule) if built.capsule else b""


def _print_research(built: dict[str, Any]) -> None:
    from contexture.cli._tables import degradation_lines, panel

    out = console()
    out.print(panel("context", built["formatted_text"] or "no source was found"))
    kind = "" if built["exact"] else " (estimated)"
    cut = ", truncated" if built["truncated"] else ""
    out.print(
        f"{built['build_id']}: {len(built['sources'])} sources in {built['total_tokens']} of {built['max_tokens']} "
        f"tokens{kind}{cut}"
    )
    for line in degradation_lines(parse_degradations(built)):
        out.print(line)


def build_ask(
    common: cli.Common,
    question: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The question; without it, a JSON request is read from standard input."),
    ] = None,
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="memories, records, pages, news or workspace; repeatable. All if left out."
        ),
    ] = None,
    max_tokens: MaxTokensOption = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write the capsule to this file.")
    ] = None,
) -> None:
    """Build the context of a QUERY over everything you may read.

    A request on standard input is an object with `query`, and may have `kinds`, `max_tokens`, `history` and `system`.
    """
    clock = cli.parse_now(now)
    asked: dict[str, Any] = cli.read_json_object() if question is None else {"query": question}
    chosen = {"kinds": kinds or None, "max_tokens": max_tokens}
    asked = {**asked, **{name: value for name, value in chosen.items() if value is not None}}
    built, packed = _run_ask(common.settings(), asked, clock, capsule=capsule is not None)
    if capsule is not None:
        cli.write_bytes(capsule, packed)
    show_query(common, built)


def _run_ask(
    settings: Settings, asked: Mapping[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    from contexture.builders.ask.request import parse_ask

    parsed = parse_ask(asked, answering=False)
    service = find_service(settings)
    if service is not None:
        found = service.request("POST", "/v1/context/ask", asked, now=clock)
        return found, fetch_capsule(service, found["build_id"]) if capsule else b""
    from contexture.capsule import pack_capsule

    built = cli.run_with_engine(
        cli.require_store(settings),
        lambda engine: engine.build_ask(parsed, now=clock),
        action="context.build",
        resource={"kind": "ask"},
    )
    return built.to_dict(), pack_capsule(built.capsule)


def build_workspace(
    common: cli.Common,
    query: Annotated[
        str | None,
        typer.Argument(metavar="QUERY", help="The query; without it, a JSON request is read from standard input."),
    ] = None,
    block: Annotated[str | None, typer.Option("--block", metavar="ID", help="The block in focus.")] = None,
    page: Annotated[str | None, typer.Option("--page", metavar="ID", help="The page in focus, by id or title.")] = None,
    database: Annotated[str | None, typer.Option("--database", metavar="ID", help="The database in focus.")] = None,
    total: Annotated[int | None, typer.Option("--tokens", metavar="N", help="Token budget.")] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Use this as the current time.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write the capsule to this file.")
    ] = None,
) -> None:
    """Build the context of a QUERY over the workspace, or of the request on standard input.

    A request is an object with `query`, and may have `focus`, `type`, `user`, `conversationHistory`, `tokenBudget` and
    `hints`.
    """
    clock = cli.parse_now(now)
    asked: dict[str, Any] = cli.read_json_object() if query is None else {"query": query}
    focus = {"blockId": block, "pageId": page, "databaseId": database}
    if any(focus.values()):
        asked = {**asked, "focus": {name: value for name, value in focus.items() if value}}
    if total is not None:
        asked = {**asked, "tokenBudget": {**(asked.get("tokenBudget") or {}), "total": total}}
    built, packed = _run_workspace(common.settings(), asked, clock, capsule=capsule is not None)
    if capsule is not None:
        cli.write_bytes(capsule, packed)
    if common.as_json:
        print_json(built)
    else:
        _print_workspace(built)
        print_note(f"explain it: contexture explain {built['buildId']} {common.as_options()}".rstrip())


def _run_workspace(
    settings: Settings, asked: dict[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    from contexture.builders.workspace.request import parse_request

    request = parse_request(asked)
    service = find_service(settings)
    if service is not None:
        found = service.request("POST", "/v1/context/workspace", asked, now=clock)
        return found, fetch_capsule(service, found["buildId"]) if capsule else b""
    from contexture.capsule import pack_capsule

    built = cli.run_with_engine(
        settings,
        lambda engine: engine.build_workspace(request, scope=engine.scope, now=clock),
        action="context.build",
        resource={"kind": "workspace"},
    )
    return built.to_dict(), pack_capsule(built.capsule)


def _print_workspace(built: dict[str, Any]) -> None:
    from contexture.cli._output import replace_control_chars
    from contexture.cli._tables import degradation_lines

    out, about = console(), built["metadata"]
    out.print(replace_control_chars(built["serialized"]))
    spent = ", ".join(f"{section['type']} {section['tokenCount']}" for section in built["sections"])
    out.print(f"{built['buildId']}: {about['totalTokens']} tokens: {spent}")
    out.print(f"{about['blocksIncluded']} of {about['blocksConsidered']} blocks, from "
              f"{', '.join(about['collectorsUsed']) or 'no collector'}")  # fmt: skip
    for line in degradation_lines(parse_degradations(built)):
        out.print(line)


def fetch_capsule(service: RemoteService, build_id: str) -> bytes:
    """Return the capsule of a build made by a service, in the same bytes as a local one."""
    import msgspec

    from contexture.capsule import Capsule, pack_capsule

    kept = service.request("GET", f"/v1/builds/{build_id}")
    return pack_capsule(msgspec.json.decode(msgspec.json.encode(kept["capsule"]), type=Capsule))
