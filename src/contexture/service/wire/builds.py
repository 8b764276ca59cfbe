"""Request bodies of the context routes; and contexts, answers and searches as JSON objects for routes and `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contexture.answer.commands.answer import CommandAnswer, render_answer
from contexture.answer.research import ResearchAnswer
from contexture.builders.command.result import CommandContext
from contexture.builders.query.build import QueryContext
from contexture.builders.replay import Explanation
from contexture.builders.research.result import ResearchContext, SourceDocument
from contexture.builders.turn.result import Snippet, TurnContext
from contexture.builders.workspace.result import ContextPayload
from contexture.builders.workspace.validate import validate_payload
from contexture.capsule import Capsule
from contexture.ingestion.documents import DocumentsReport
from contexture.ingestion.files import LoadProblem
from contexture.ingestion.loader import LoadReport
from contexture.ledger import Ledger
from contexture.ports import TokenCounter
from contexture.retrieval.candidates import SearchResult
from contexture.types import Candidate


def query_object(built: QueryContext) -> dict[str, Any]:
    """Return a built context with its ledger."""
    context = built.context
    return {
        "build_id": context.build_id,
        "messages": context.messages,
        "text": context.text,
        "tokens": context.tokens,
        "token_counts": context.token_counts,
        "max_tokens": built.capsule.request["max_tokens"],
        "encoding": context.encoding,
        "exact": context.exact,
        "citations": context.citations,
        "ledger": built.ledger.entries,
        "degradations": built.ledger.degradations,
        "digest": built.capsule.digest,
    }


def search_object(result: SearchResult, limit: int) -> dict[str, Any]:
    """Return the best `limit` passages of a search with their signals."""
    rows = [_passage_object(each) for each in result.found[:limit]]
    return {"query": result.question, "results": rows, "degradations": result.degradations}


def build_object(build_id: str, capsule: Capsule, ledger: Ledger) -> dict[str, Any]:
    """Return a recent build: its request, its ledger, and what `replay` needs."""
    return {**ledger_object(build_id, capsule, ledger), "capsule": capsule}


def ledger_object(build_id: str, capsule: Capsule, ledger: Ledger) -> dict[str, Any]:
    """Return the request of a recent build, and the outcome of every candidate."""
    return {
        "build_id": build_id,
        "request": capsule.request,
        "ledger": ledger.entries,
        "degradations": ledger.degradations,
    }


def explanation_object(build_id: str, found: Explanation) -> dict[str, Any]:
    """Return one candidate and the smallest change that would have admitted it."""
    return {
        "build_id": build_id,
        "candidate": found.entry,
        "more_tokens": found.more_tokens,
        "score_needed": found.score_needed,
    }


def load_report_object(report: LoadReport) -> dict[str, Any]:
    """Return the outcome of everything that was read; for files with pages, of each file too."""
    paged = {"pages": report.pages, "files": report.files} if isinstance(report, DocumentsReport) else {}
    return {
        "read": report.read,
        "added": report.added,
        "unchanged": report.unchanged,
        "duplicates": report.duplicates,
        "failed": _problem_objects(report.failed),
        "warnings": _problem_objects(report.warnings),
        **paged,
    }


def _passage_object(candidate: Candidate) -> dict[str, Any]:
    return {
        "id": candidate.id,
        "title": candidate.title,
        "text": candidate.text,
        "score": candidate.score,
        "signals": candidate.signals,
        "lang": candidate.lang,
        "source": candidate.source,
        "kind": candidate.kind,
        "time": candidate.time,
        "citation": candidate.citation,
    }


def _problem_objects(found: Sequence[LoadProblem]) -> list[dict[str, Any]]:
    return [{"path": each.path, "line": each.line or None, "message": each.message} for each in found]


class TurnBody(BaseModel):
    """One turn of a conversation; `parse_turn` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    user_message: Annotated[Any, Field(description="A text, or a list of parts such as chat APIs take.")] = None
    system_prompt: Annotated[Any, Field(description="Instructions of the application.")] = None
    history: Annotated[Any, Field(description="Messages so far, oldest first.")] = None
    tenant_id: Annotated[Any, Field(description="Must be the caller's own.")] = None
    user_id: Annotated[Any, Field(description="Must be the caller's own.")] = None
    session_id: Annotated[Any, Field(description="The conversation.")] = None
    persona_id: Annotated[Any, Field(description="Whom the assistant plays.")] = None
    max_prompt_tokens: Annotated[Any, Field(description="Token limit of the prompt.")] = None


def turn_object(built: TurnContext) -> dict[str, Any]:
    """Return a built turn; it contains no timings, so that equal builds give equal bytes."""
    return {
        "build_id": built.build_id,
        "system_prompt": built.system_prompt,
        "messages": built.messages,
        "tokens": built.tokens,
        "token_counts": built.token_counts,
        "max_prompt_tokens": built.debug["max_prompt_tokens"],
        "encoding": built.encoding,
        "exact": built.exact,
        "snippets": [_snippet_object(snippet) for snippet in built.snippets],
        "history": built.history,
        "debug": built.debug,
        "citations": built.citations,
        "ledger": built.ledger.entries,
        "degradations": built.degradations,
        "digest": built.capsule.digest,
    }


def _snippet_object(snippet: Snippet) -> dict[str, Any]:
    return {
        "id": snippet.id,
        "text": snippet.text,
        "score": snippet.score,
        "base_score": snippet.base_score,
        "recency": snippet.recency,
        "label": snippet.label,
        "form": snippet.form,
        "tokens": snippet.tokens,
        "metadata": snippet.metadata,
    }


class CommandBody(BaseModel):
    """A slash command and its surroundings; `parse_request` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    raw_command: Annotated[Any, Field(description="The command, such as `/ask`; its arguments may follow it.")] = None
    args: Annotated[Any, Field(description="Its arguments, such as `window=24h topic=AI`.")] = None
    user_lang: Annotated[Any, Field(description="`ru`, `en` or `auto`.")] = None
    env: Annotated[Any, Field(description="`defaults`, `feature_flags` and `version`.")] = None
    ab_test: Annotated[Any, Field(description="`experiment` and `arm`.")] = None


def command_object(built: CommandContext) -> dict[str, Any]:
    """Return a built command; it contains no timings, so that equal builds give equal bytes."""
    return built.to_dict()


class ResearchBody(BaseModel):
    """A research question; `parse_research_question` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[Any, Field(description="The question.")] = None
    num_results: Annotated[Any, Field(description="Pages to look for, 10 when left out.")] = None
    include_text: Annotated[Any, Field(description="Search the words of pages.")] = None
    include_visual: Annotated[Any, Field(description="Search what pages look like.")] = None
    search_mode: Annotated[Any, Field(description="`hybrid`, `text` or `visual`, instead of the two before.")] = None
    max_tokens: Annotated[Any, Field(description="Token budget of the context.")] = None
    where: Annotated[Any, Field(description="Filter over the metadata of pages.")] = None


class AskResearchBody(ResearchBody):
    """A research question to be answered."""

    attach_images: Annotated[Any, Field(description="Pages also shown as pictures to a model that sees.")] = None
    model: Annotated[Any, Field(description="One of the models that are configured.")] = None


def research_object(built: ResearchContext) -> dict[str, Any]:
    """Return a built research context; it contains no timings, so that equal builds give equal bytes."""
    asked = built.capsule.request if built.capsule else {}
    return {
        "build_id": built.build_id,
        "query": asked.get("query"),
        "search_mode": asked.get("search_mode"),
        "formatted_text": built.formatted_text,
        "sources": [_source_object(source) for source in built.sources],
        "total_tokens": built.total_tokens,
        "max_tokens": asked.get("max_tokens"),
        "truncated": built.truncated,
        "encoding": built.encoding,
        "exact": built.exact,
        "messages": built.messages,
        "citations": built.citations,
        "ledger": built.ledger.entries,
        "degradations": built.degradations,
        "digest": built.capsule.digest if built.capsule else None,
    }


def research_answer_object(answer: ResearchAnswer) -> dict[str, Any]:
    """Return a cited answer; equal answers give equal bytes."""
    return {**answer.to_dict(), "sources": [_source_object(source) for source in answer.context.sources]}


def _source_object(source: SourceDocument) -> dict[str, Any]:
    """Return a source with the URLs of its page images."""
    place = f"/v1/pages/{quote(source.doc_id, safe='')}/{source.page}"
    return {
        **source.to_dict(),
        "thumbnail_url": f"{place}/thumb" if source.thumbnail_path else None,
        "image_url": f"{place}/image" if source.image_path else None,
    }


class WorkspaceBody(BaseModel):
    """A request in camelCase; `parse_request` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[Any, Field(description="The user's query.")] = None
    focus: Annotated[Any, Field(description="`blockId`, `pageId` or `databaseId`, or several.")] = None
    type: Annotated[Any, Field(description="`assist`, `chat`, `search` or `automate`.")] = None
    user: Annotated[Any, Field(description="`id`, which must be the caller's own, `name` and `preferences`.")] = None
    conversationHistory: Annotated[Any, Field(description="Messages so far, oldest first.")] = None  # noqa: N815 - the wire's name
    tokenBudget: Annotated[Any, Field(description="`total`, a share for each section, and `caps`.")] = None  # noqa: N815 - the wire's name
    hints: Annotated[Any, Field(description="Types, times and blocks to prefer or leave out.")] = None


def workspace_object(built: ContextPayload, counter: TokenCounter) -> dict[str, Any]:
    """Return a built context; it contains no timings, so that equal builds give equal bytes."""
    return {
        "buildId": built.build_id,
        "sections": msgspec.to_builtins(built.sections),
        "metadata": msgspec.to_builtins(built.metadata),
        "serialized": built.serialized,
        "validation": msgspec.to_builtins(validate_payload(built, counter)),
        "encoding": built.encoding,
        "exact": built.exact,
        "citations": built.citations,
        "ledger": built.ledger.entries,
        "degradations": built.degradations,
        "digest": built.capsule.digest,
    }


def command_answer_object(answer: CommandAnswer) -> dict[str, Any]:
    """Return the answer; it contains no timings, so that equal executions give equal bytes."""
    return {
        "command": answer.command,
        "question": answer.question,
        "lang": answer.lang,
        "mode": answer.mode,
        "model": answer.model or None,
        "answer": render_answer(answer),
        "sections": answer.sections,
        "details": answer.details,
        "evidence": answer.evidence,
        "notes": answer.notes,
        "usage": answer.usage,
        "degradations": answer.degradations,
        "context": answer.context,
    }
