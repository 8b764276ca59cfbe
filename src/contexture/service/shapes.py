"""Answers as JSON objects: one function each, used by the routes and by the command line's `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contexture.builders.explain import Explanation
from contexture.builders.query.build import QueryContext
from contexture.capsule import Capsule
from contexture.engine import SearchResult
from contexture.ingestion.documents import DocumentsReport
from contexture.ingestion.problems import Problem
from contexture.ingestion.writer import LoadReport
from contexture.ledger import Ledger
from contexture.types import Candidate


def built_object(built: QueryContext) -> dict[str, Any]:
    """A built context with its ledger."""
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


def found_object(result: SearchResult, limit: int) -> dict[str, Any]:
    """The best `limit` passages of a search with their signals."""
    rows = [_passage(each) for each in result.found[:limit]]
    return {"query": result.question, "results": rows, "degradations": result.degradations}


def kept_object(build_id: str, capsule: Capsule, ledger: Ledger) -> dict[str, Any]:
    """A recent build: what was asked, its ledger, and what `replay` needs."""
    return {**ledger_object(build_id, capsule, ledger), "capsule": capsule}


def ledger_object(build_id: str, capsule: Capsule, ledger: Ledger) -> dict[str, Any]:
    """What was asked in a recent build, and how every candidate ended."""
    return {
        "build_id": build_id,
        "request": capsule.request,
        "ledger": ledger.entries,
        "degradations": ledger.degradations,
    }


def explanation_object(build_id: str, found: Explanation) -> dict[str, Any]:
    """One candidate and the least that would have admitted it."""
    return {
        "build_id": build_id,
        "candidate": found.entry,
        "more_tokens": found.more_tokens,
        "score_needed": found.score_needed,
    }


def report_object(report: LoadReport) -> dict[str, Any]:
    """What became of everything that was read; of files that hold pages, of each one too."""
    paged = {"pages": report.pages, "files": report.files} if isinstance(report, DocumentsReport) else {}
    return {
        "read": report.read,
        "added": report.added,
        "unchanged": report.unchanged,
        "duplicates": report.duplicates,
        "failed": _problems(report.failed),
        "warnings": _problems(report.warnings),
        **paged,
    }


def _passage(candidate: Candidate) -> dict[str, Any]:
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


def _problems(found: Sequence[Problem]) -> list[dict[str, Any]]:
    return [{"path": each.path, "line": each.line or None, "message": each.message} for each in found]
