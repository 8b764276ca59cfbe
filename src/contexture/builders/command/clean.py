"""Cleaning of everything a command shows.

Known secrets masked, then redacted, with one set of placeholders per build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from msgspec.structs import replace as changed

from contexture.builders.command.render import ArticleFacts
from contexture.builders.command.request import CommandParams
from contexture.errors import RedactionFailed
from contexture.ledger import Trace
from contexture.news.articles import FoundArticle
from contexture.pipeline.masking import SecretMask, mask_candidate
from contexture.pipeline.redaction import RedactionOperator, redact_candidates, redact_text
from contexture.ports import Redactor
from contexture.types import Candidate

DOCUMENTS_SECTION = "documents"


class CommandCleaner:
    """Masks and redacts the texts of one build; equal values get equal placeholders."""

    def __init__(self, redactor: Redactor, operator: RedactionOperator, mask: SecretMask, trace: Trace) -> None:
        self._redactor = redactor
        self._operator = operator
        self._mask = mask
        self._trace = trace

    def clean_text(self, text: str) -> str:
        """A text with known secrets masked and personal data redacted.

        Raises `RedactionFailed` when it cannot be scanned.
        """
        return redact_text(self._mask.mask(text), self._redactor, self._operator).text

    def clean_params(self, params: CommandParams) -> CommandParams:
        """The parameters, redacted."""
        return replace(
            params,
            sources=self._clean_names(params.sources),
            domains=self._clean_names(params.domains),
            topic=params.topic and self.clean_text(params.topic),
            entity=params.entity and self.clean_text(params.entity),
            query=params.query and self.clean_text(params.query),
        )

    def clean_candidates(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, redacted; those that cannot be scanned are dropped with a reason."""
        return redact_candidates(candidates, self._redactor, self._operator, self._trace)

    def mask_candidate(self, candidate: Candidate) -> Candidate:
        """The candidate with known secrets masked in text, title, label and source; not yet redacted."""
        title = self._mask.mask(candidate.title)
        told = candidate.title_redactions if title == candidate.title else None
        hidden = changed(
            candidate,
            section=DOCUMENTS_SECTION,
            title=title,
            label=self._mask.mask(candidate.label),
            source=self._mask.mask(candidate.source),
            title_redactions=told,
            citation=candidate.citation and changed(candidate.citation, title=title),
        )
        return mask_candidate(hidden, self._mask)

    def clean_url(self, url: str) -> str:
        """A URL, redacted; empty when it cannot be scanned."""
        try:
            return self.clean_text(url) if url else ""
        except RedactionFailed as failure:
            self._trace.add_degradation("redactor", str(failure))
            return ""

    def _clean_names(self, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if names is None else tuple(self.clean_text(name) for name in names)


def make_facts(number: int, found: FoundArticle, now: datetime) -> ArticleFacts:
    """Date, language and search number of a found article."""
    article = found.article
    return ArticleFacts(
        article_id=article.article_id,
        date=(article.published or now).astimezone(UTC).date().isoformat(),
        lang=article.lang,
        rung=number,
        dated_by_loading=found.dated_by_loading or article.published is None,
    )
