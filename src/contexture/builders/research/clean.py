"""Cleaning of everything a research build shows.

Known secrets masked, then redacted, with one set of placeholders per build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contexture.builders.research.collect import page_to_candidate
from contexture.builders.research.render import page_number, shown_filename
from contexture.builders.research.result import SourceDocument
from contexture.errors import RedactionFailed
from contexture.ledger import Trace
from contexture.pages.values import FoundPage, StoredPage
from contexture.pipeline.masking import SecretMask
from contexture.pipeline.redaction import RedactionOperator, redact_candidates, redact_text
from contexture.ports import Redactor
from contexture.retrieval.prepare import repair_text
from contexture.types import Candidate, Citation


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchCleaner:
    """Masks and redacts the texts of one build; equal values get equal placeholders."""

    redactor: Redactor
    operator: RedactionOperator
    mask: SecretMask
    trace: Trace

    def mask_question(self, text: str) -> str:
        """The question with known secrets masked, as it is searched for."""
        return self.mask.mask(repair_text(text))

    def clean_text(self, text: str) -> str:
        """A text with known secrets masked and personal data redacted.

        Raises `RedactionFailed` when it cannot be scanned.
        """
        return redact_text(self.mask.mask(text), self.redactor, self.operator).text

    def make_candidate(self, page: StoredPage, found: FoundPage | None = None) -> Candidate:
        """A page as a candidate with known secrets masked; not yet redacted."""
        return page_to_candidate(page, found, self.mask, rules=self.redactor.rules)

    def clean_candidates(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, redacted; those that cannot be scanned are dropped with a reason."""
        return redact_candidates(candidates, self.redactor, self.operator, self.trace)

    def make_source(
        self, page: StoredPage, clean: Candidate, content: str, citations: tuple[Citation, ...]
    ) -> SourceDocument:
        """A `SourceDocument` that shows `content`."""
        return SourceDocument(
            doc_id=page.doc_id,
            filename=shown_filename(clean),
            page=page_number(clean),
            extension=page.extension,
            thumbnail_path=page.thumb_path,
            image_path=page.image_path,
            timestamp=page.timestamp.isoformat(),
            section_path=self._clean_optional(page.section_path),
            parent_heading=self._clean_optional(page.parent_heading),
            markdown_content=content,
            relevance_score=clean.score,
            citations=citations,
        )

    def _clean_optional(self, text: str | None) -> str | None:
        """An optional text, redacted; None when it cannot be scanned, which is a degradation."""
        if text is None:
            return None
        try:
            return self.clean_text(text)
        except RedactionFailed as failure:
            self.trace.add_degradation("redactor", str(failure))
            return None
