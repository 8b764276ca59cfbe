"""Cleaning of every text that a build shows: known secrets are masked, then personal data is redacted."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from contexture.errors import RedactionFailed
from contexture.filters import redact_filter
from contexture.ledger import Trace
from contexture.pipeline.fence import PromptFence
from contexture.pipeline.masking import SecretMask, SecretMaskCache, mask_candidate
from contexture.pipeline.redaction import Placeholders, RedactionOperator, redact_candidates, redact_text
from contexture.ports import Redactor
from contexture.text.skeleton import describe_invisible
from contexture.text.unicode import repair_text
from contexture.types import Candidate, Filter

T = TypeVar("T")

INVISIBLE_SOURCE = "invisible_text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaner:
    """Masks and redacts the texts of one build; equal values get equal placeholders, numbered in order of the calls."""

    redactor: Redactor
    operator: RedactionOperator
    mask: SecretMask
    trace: Trace

    def mask_text(self, text: str) -> str:
        """A text with known secrets masked, as it is searched for."""
        return self.mask.mask(repair_text(text))

    def clean_text(self, text: str) -> str:
        """A text with known secrets masked and personal data redacted.

        Raises `RedactionFailed` when it cannot be scanned.
        """
        return redact_text(self.mask_text(text), self.redactor, self.operator).text

    def clean_prompt_text(self, text: str, fence: PromptFence) -> str:
        """A cleaned text as a message shows it; that invisible characters were removed is a degradation.

        Raises `RedactionFailed` when it cannot be scanned.
        """
        clean = self.clean_text(text)
        if note := describe_invisible(clean):
            self.trace.add_degradation(INVISIBLE_SOURCE, note)
        return fence.inline(clean)

    def clean_or(self, text: str | None, default: T) -> str | T:
        """A cleaned text; `default` when there is none, and when it cannot be scanned, which is a degradation."""
        if text is None:
            return default
        try:
            return self.clean_text(text)
        except RedactionFailed as failure:
            self.trace.add_degradation("redactor", str(failure))
            return default

    def clean_filter(self, where: Filter | None) -> Filter | None:
        """A filter with its values cleaned, for the capsule; the search itself uses them as given."""
        return None if where is None else redact_filter(where, self.clean_text)

    def mask_candidate(self, candidate: Candidate) -> Candidate:
        """The candidate with known secrets masked in text, title, label, source and citation."""
        title, cited = self.mask.mask(candidate.title), candidate.citation
        masked = replace(
            candidate,
            title=title,
            label=self.mask.mask(candidate.label),
            source=self.mask.mask(candidate.source),
            title_redactions=candidate.title_redactions if title == candidate.title else None,
            citation=cited if cited is None or cited.title == title else replace(cited, title=title),
        )
        return mask_candidate(masked, self.mask)

    def clean_candidates(self, masked: Iterable[Candidate]) -> list[Candidate]:
        """The candidates, redacted; those that cannot be scanned are dropped with a reason.

        Known secrets must be masked already, by `mask_candidate` or where the candidate was made.
        """
        return redact_candidates(masked, self.redactor, self.operator, self.trace)


@dataclass(frozen=True, kw_only=True, slots=True)
class CleanerFactory:
    """What the cleaners of all builds share: the redactor, the known secrets, and how values are replaced."""

    redactor: Redactor
    secrets: SecretMaskCache
    operator: Callable[[], RedactionOperator] = Placeholders

    def make(self, trace: Trace) -> Cleaner:
        """The cleaner of one build, with the secrets known now; raises whatever the secrets port raises."""
        return Cleaner(redactor=self.redactor, operator=self.operator(), mask=self.secrets.current(), trace=trace)
