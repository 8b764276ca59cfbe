"""What a turn builder reports about itself while it works."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Metrics(Protocol):
    """Times every phase and counts what went into prompts; never told a tenant, a user or a text."""

    def time_total(self) -> AbstractContextManager[None]:
        """Around a whole build."""
        ...

    def time_retrieval(self, state: str) -> AbstractContextManager[None]:
        """Around asking memory, by the state it is in."""
        ...

    def time_salience(self) -> AbstractContextManager[None]:
        """Around scoring."""
        ...

    def time_ranking(self) -> AbstractContextManager[None]:
        """Around ranking and clipping."""
        ...

    def time_redaction(self) -> AbstractContextManager[None]:
        """Around redaction."""
        ...

    def time_tokenisation(self) -> AbstractContextManager[None]:
        """Around counting and fitting."""
        ...

    def time_prompt(self) -> AbstractContextManager[None]:
        """Around assembling the messages."""
        ...

    def record_tokens(self, *, before_budget: int, after_budget: int, after_redaction: int, prompt_tokens: int) -> None:
        """How large the last prompt was, before and after fitting."""
        ...

    def record_use(self, *, snippets: int, utilization: float) -> None:
        """How many memories the last prompt holds, and what share of its limit it spends."""
        ...

    def inc_prompt(self) -> None:
        """One more prompt was built."""
        ...

    def inc_snippets(self, *, stage: str, count: int) -> None:
        """So many memories passed a stage: `final` for those in prompts, `summary` for those handed to memory."""
        ...

    def inc_degradation(self, reason: str) -> None:
        """Something that should have helped did not; `reason` is the kind of failure."""
        ...


class NoMetrics:
    """Reports nothing."""

    def time_total(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_retrieval(self, state: str) -> AbstractContextManager[None]:
        """Nothing is timed."""
        del state
        return nullcontext()

    def time_salience(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_ranking(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_redaction(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_tokenisation(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def time_prompt(self) -> AbstractContextManager[None]:
        """Nothing is timed."""
        return nullcontext()

    def record_tokens(self, *, before_budget: int, after_budget: int, after_redaction: int, prompt_tokens: int) -> None:
        """Nothing is kept."""

    def record_use(self, *, snippets: int, utilization: float) -> None:
        """Nothing is kept."""

    def inc_prompt(self) -> None:
        """Nothing is counted."""

    def inc_snippets(self, *, stage: str, count: int) -> None:
        """Nothing is counted."""

    def inc_degradation(self, reason: str) -> None:
        """Nothing is counted."""
