"""Everything that is shown, made fit for it: known secrets masked, then redacted, under one set of placeholders."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from contexture.builders.workspace.history import line_candidate
from contexture.builders.workspace.plan import Line
from contexture.builders.workspace.request import ConversationMessage
from contexture.errors import RedactionFailed
from contexture.ledger import Reason, Trace
from contexture.pipeline.known import masked
from contexture.pipeline.mask import Mask
from contexture.pipeline.operators import Operator
from contexture.pipeline.redact import redact, redact_text
from contexture.ports import Redactor
from contexture.retrieval.prepare import mended
from contexture.types import Candidate

MESSAGES = 200
"""How many of the newest messages are read; more never fit in a context."""


class Cleaner:
    """Cleans the texts of one build."""

    def __init__(self, redactor: Redactor, operator: Operator, mask: Mask, trace: Trace) -> None:
        self._redactor = redactor
        self._operator = operator
        self._mask = mask
        self._trace = trace

    def masked(self, text: str) -> str:
        """A text without known secrets, to be searched for."""
        return self._mask.mask(mended(text))

    def text(self, text: str) -> str:
        """A text that may be shown; raises `RedactionFailed` when that cannot be made sure."""
        return redact_text(self.masked(text), self._redactor, self._operator).text

    def lines(self, messages: Sequence[ConversationMessage]) -> tuple[Line, ...]:
        """The newest messages that may be shown; from the last one that cannot be redacted on, so that no gap shows."""
        lines: list[Line] = []
        for at in range(max(0, len(messages) - MESSAGES), len(messages)):
            line = Line(at=at, role=messages[at].role, text="")
            if not messages[at].content.strip():
                self._trace.drop(line_candidate(line), Reason.EMPTY)
                continue
            try:
                lines.append(replace(line, text=self.text(messages[at].content)))
            except RedactionFailed as failure:
                self._trace.drop(line_candidate(line), Reason.REDACTION_FAILED, note=str(failure))
                self._trace.degraded("history", str(failure))
                for older in lines:
                    self._trace.drop(line_candidate(older), Reason.INCOMPLETE)
                lines.clear()
        return tuple(lines)

    def candidates(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates as they may be shown; those on which redaction fails are left out."""
        return redact([self._hidden(each) for each in candidates], self._redactor, self._operator, self._trace)

    def _hidden(self, candidate: Candidate) -> Candidate:
        title, label = self._mask.mask(candidate.title), self._mask.mask(candidate.label)
        if (title, label) != (candidate.title, candidate.label):
            source = candidate.citation and replace(candidate.citation, title=title)
            candidate = replace(candidate, title=title, label=label, citation=source)
        return masked(candidate, self._mask)
