"""Facts about blocks: computed when they are written, believed where they fit what is shown."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.blocks.shown import shown
from contexture.blocks.summary import SUMMARY_TOKENS, summary
from contexture.errors import RedactionFailed
from contexture.pipeline.fence import fence
from contexture.pipeline.redact import scanned
from contexture.ports import Redactor, TokenCounter
from contexture.text.simhash import simhash
from contexture.types import content_hash
from contexture.workspace import SUMMED, Block, BlockFacts, PageSummary, Stale


class Reader:
    """Computes the facts about blocks; summaries are measured by the first of the counters."""

    def __init__(self, redactor: Redactor, counters: Sequence[TokenCounter]) -> None:
        self._redactor = redactor
        self._counters = tuple(counters)

    def facts(self, stale: Stale) -> BlockFacts | None:
        """The facts about a block; None where it is gone, or where what must not be shown of it cannot be told.

        Relations are left out, because what they show depends on who reads: a row that has some is computed in builds.
        """
        if stale.block is None:
            return None
        told = self._summary(stale.block, stale.below)
        text = shown(stale.block, stale.ancestors, summary=told.text if told else "")
        known = holding(stale.facts, text, self._redactor.rules)
        if known is not None and known.summary == told:
            return known
        try:
            found = tuple(scanned(text, self._redactor))
        except RedactionFailed:
            return None
        fenced = fence(text)
        return BlockFacts(
            hash=content_hash(text),
            rules=self._redactor.rules,
            redactions=found,
            tokens={counter.encoding: counter.count(fenced) for counter in self._counters},
            simhash=simhash(text),
            summary=told,
        )

    def _summary(self, page: Block, below: Sequence[Block] | None) -> PageSummary | None:
        if below is None or not self._counters:
            return None
        counter = self._counters[0]
        return PageSummary(
            text=summary(page, below[:SUMMED], counter, SUMMARY_TOKENS),
            further=summary(page, below, counter, SUMMARY_TOKENS),
            encoding=counter.encoding,
            limit=SUMMARY_TOKENS,
        )


def holding(facts: BlockFacts | None, text: str, rules: str) -> BlockFacts | None:
    """The facts, if they speak of this very text and of the rules in force."""
    return facts if facts is not None and facts.rules == rules and facts.hash == content_hash(text) else None
