"""The last look at a finished prompt: it fits, it is fenced, it is redacted, and its sources are known."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.errors import BrokenPromise
from contexture.pipeline.fence import is_fenced
from contexture.types import Candidate


def validate(*, tokens: int, limit: int, shown: Sequence[Candidate], texts: Sequence[str]) -> None:
    """Raise `BrokenPromise` unless every promise about what is shown holds."""
    if tokens > limit:
        raise BrokenPromise(f"the prompt counts {tokens} tokens and the budget is {limit}")
    for candidate in shown:
        if not candidate.redacted:
            raise BrokenPromise(f"candidate {candidate.id!r} would be shown without redaction")
        if candidate.citation is None:
            raise BrokenPromise(f"candidate {candidate.id!r} would be shown without a source")
    if not all(is_fenced(text) for text in texts):
        raise BrokenPromise("a text would be shown unfenced")
