"""Everything a research build shows, masked and redacted, under one set of placeholders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contexture.builders.research.pages import candidate_of
from contexture.builders.research.render import name_of, page_of
from contexture.builders.research.values import SourceDocument
from contexture.errors import RedactionFailed
from contexture.ledger import Trace
from contexture.pages.values import FoundPage, StoredPage
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator
from contexture.pipeline.redact import redact, redact_text
from contexture.ports import Redactor
from contexture.retrieval.prepare import mended
from contexture.types import Candidate, Citation


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaner:
    """Redacts for one build; known secrets are masked before."""

    redactor: Redactor
    operator: Operator
    mask: Mask
    trace: Trace

    def question(self, text: str) -> str:
        """The question as it is searched for."""
        return self.mask.mask(mended(text))

    def text(self, text: str) -> str:
        """A text that may be shown; raises `RedactionFailed` when that cannot be made sure."""
        return redact_text(self.mask.mask(text), self.redactor, self.operator).text

    def candidate(self, page: StoredPage, found: FoundPage | None = None) -> Candidate:
        """A page without known secrets, not yet redacted."""
        return candidate_of(page, found, self.mask, rules=self.redactor.rules)

    def pages(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The pages as they may be shown; those on which redaction fails are left out."""
        return redact(candidates, self.redactor, self.operator, self.trace)

    def source(
        self, page: StoredPage, clean: Candidate, content: str, citations: tuple[Citation, ...]
    ) -> SourceDocument:
        """A page as a source of which `content` is shown."""
        return SourceDocument(
            doc_id=page.doc_id,
            filename=name_of(clean),
            page=page_of(clean),
            extension=page.extension,
            thumbnail_path=page.thumb_path,
            image_path=page.image_path,
            timestamp=page.timestamp.isoformat(),
            section_path=self._maybe(page.section_path),
            parent_heading=self._maybe(page.parent_heading),
            markdown_content=content,
            relevance_score=clean.score,
            citations=citations,
        )

    def _maybe(self, text: str | None) -> str | None:
        """A heading as it may be shown; one that cannot be redacted is left out."""
        if text is None:
            return None
        try:
            return self.text(text)
        except RedactionFailed as failure:
            self.trace.degraded("redactor", str(failure))
            return None
