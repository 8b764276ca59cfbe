"""Everything a command shows, masked and redacted, under one set of placeholders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from msgspec.structs import replace as changed

from contexture.builders.command.documents import Facts
from contexture.builders.command.params import Params
from contexture.errors import RedactionFailed
from contexture.ledger import Trace
from contexture.news.articles import FoundArticle
from contexture.pipeline.known import masked
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator
from contexture.pipeline.redact import redact, redact_text
from contexture.ports import Redactor
from contexture.types import Candidate

SECTION = "documents"


class Cleaner:
    """Redacts for one build; known secrets are masked before."""

    def __init__(self, redactor: Redactor, operator: Operator, mask: Mask, trace: Trace) -> None:
        self._redactor = redactor
        self._operator = operator
        self._mask = mask
        self._trace = trace

    def text(self, text: str) -> str:
        """A text that may be shown; raises `RedactionFailed` when that cannot be made sure."""
        return redact_text(self._mask.mask(text), self._redactor, self._operator).text

    def params(self, params: Params) -> Params:
        """The parameters as they may be shown."""
        return replace(
            params,
            sources=self._names(params.sources),
            domains=self._names(params.domains),
            topic=params.topic and self.text(params.topic),
            entity=params.entity and self.text(params.entity),
            query=params.query and self.text(params.query),
        )

    def passages(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The passages as they may be shown; those on which redaction fails are left out."""
        return redact(candidates, self._redactor, self._operator, self._trace)

    def masked(self, candidate: Candidate) -> Candidate:
        """A passage without known secrets, not yet redacted."""
        title = self._mask.mask(candidate.title)
        told = candidate.title_redactions if title == candidate.title else None
        hidden = changed(
            candidate,
            section=SECTION,
            title=title,
            label=self._mask.mask(candidate.label),
            source=self._mask.mask(candidate.source),
            title_redactions=told,
            citation=candidate.citation and changed(candidate.citation, title=title),
        )
        return masked(hidden, self._mask)

    def address(self, url: str) -> str:
        """An address as it may be shown; one that cannot be redacted is left out."""
        try:
            return self.text(url) if url else ""
        except RedactionFailed as failure:
            self._trace.degraded("redactor", str(failure))
            return ""

    def _names(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(self.text(name) for name in names)


def facts_of(number: int, found: FoundArticle, now: datetime) -> Facts:
    """What is known of an article that search `number` found."""
    article = found.article
    return Facts(
        article_id=article.article_id,
        date=(article.published or now).astimezone(UTC).date().isoformat(),
        lang=article.lang,
        rung=number,
        dated_by_loading=found.dated_by_loading or article.published is None,
    )
