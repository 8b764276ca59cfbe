"""Cleaning of everything a workspace build shows.

Known secrets masked, then redacted, with one set of placeholders per build.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from contexture.builders.workspace.compose import message_candidate
from contexture.builders.workspace.request import ConversationLine, ConversationMessage
from contexture.errors import RedactionFailed
from contexture.ledger import Reason, Trace
from contexture.pipeline.masking import SecretMask, mask_candidate
from contexture.pipeline.redaction import RedactionOperator, redact_candidates, redact_text
from contexture.ports import Redactor
from contexture.retrieval.prepare import repair_text
from contexture.types import Candidate

MAX_MESSAGES = 200
"""How many of the newest messages are read; more than that never fit in a context."""


class WorkspaceCleaner:
    """Masks and redacts the texts of one build; equal values get equal placeholders."""

    def __init__(self, redactor: Redactor, operator: RedactionOperator, mask: SecretMask, trace: Trace) -> None:
        self._redactor = redactor
        self._operator = operator
        self._mask = mask
        self._trace = trace

    def mask_text(self, text: str) -> str:
        """A text with known secrets masked, for searching."""
        return self._mask.mask(repair_text(text))

    def clean_text(self, text: str) -> str:
        """A text with known secrets masked and personal data redacted.

        Raises `RedactionFailed` when it cannot be scanned.
        """
        return redact_text(self.mask_text(text), self._redactor, self._operator).text

    def clean_history(self, messages: Sequence[ConversationMessage]) -> tuple[ConversationLine, ...]:
        """The newest messages, redacted, without a gap.

        Everything before a message that cannot be scanned is dropped.
        """
        lines: list[ConversationLine] = []
        for at in range(max(0, len(messages) - MAX_MESSAGES), len(messages)):
            line = ConversationLine(at=at, role=messages[at].role, text="")
            if not messages[at].content.strip():
                self._trace.drop(message_candidate(line), Reason.EMPTY)
                continue
            try:
                lines.append(replace(line, text=self.clean_text(messages[at].content)))
            except RedactionFailed as failure:
                self._trace.drop(message_candidate(line), Reason.REDACTION_FAILED, note=str(failure))
                self._trace.add_degradation("history", str(failure))
                for older in lines:
                    self._trace.drop(message_candidate(older), Reason.INCOMPLETE)
                lines.clear()
        return tuple(lines)

    def clean_candidates(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates, masked and redacted; those that cannot be scanned are dropped with a reason."""
        return redact_candidates(
            [self._mask_candidate(each) for each in candidates], self._redactor, self._operator, self._trace
        )

    def _mask_candidate(self, candidate: Candidate) -> Candidate:
        title, label = self._mask.mask(candidate.title), self._mask.mask(candidate.label)
        if (title, label) != (candidate.title, candidate.label):
            source = candidate.citation and replace(candidate.citation, title=title)
            candidate = replace(candidate, title=title, label=label, citation=source)
        return mask_candidate(candidate, self._mask)
