"""Answers as JSON objects, in the shapes of the HTTP routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contexture.builders.query.build import QueryContext
from contexture.builders.query.explain import Explanation
from contexture.ingestion.problems import Problem
from contexture.ingestion.writer import LoadReport


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
        "timings": context.timings,
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
    """What became of everything that was read."""
    return {
        "read": report.read,
        "added": report.added,
        "unchanged": report.unchanged,
        "duplicates": report.duplicates,
        "failed": _problems(report.failed),
        "warnings": _problems(report.warnings),
    }


def _problems(found: Sequence[Problem]) -> list[dict[str, Any]]:
    return [{"path": each.path, "line": each.line or None, "message": each.message} for each in found]
