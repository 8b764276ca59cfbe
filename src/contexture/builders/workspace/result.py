"""The finished payload out of what was composed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contexture.builders.workspace.compose import Composed
from contexture.builders.workspace.plan import Plan
from contexture.builders.workspace.render import TITLES
from contexture.builders.workspace.values import (
    COLLECTED,
    ContextItem,
    ContextMetadata,
    ContextPayload,
    ContextSection,
    SectionType,
)
from contexture.capsule import Capsule
from contexture.ledger import Ledger
from contexture.ports import TokenCounter
from contexture.types import Candidate

INSTRUCTION = "instruction"


def payload_of(
    plan: Plan,
    composed: Composed,
    *,
    considered: Sequence[Candidate],
    ledger: Ledger,
    capsule: Capsule,
    counter: TokenCounter,
) -> ContextPayload:
    """The payload; its counts speak of blocks, not of the sources that found them."""
    return ContextPayload(
        sections=tuple(_sections(plan, composed, counter)),
        metadata=ContextMetadata(
            total_tokens=composed.tokens,
            timestamp=plan.timestamp,
            collectors_used=plan.collectors,
            blocks_included=len(composed.shown),
            blocks_considered=len({candidate.key for candidate in considered}),
            focus_block_id=plan.focus.get("block"),
            focus_page_id=plan.focus.get("page"),
            focus_database_id=plan.focus.get("database"),
        ),
        serialized=composed.serialized,
        budget=plan.total,
        caps=dict(plan.caps),
        build_id=f"ctx-{capsule.seal[:12]}",
        citations=tuple(candidate.citation for candidate in composed.shown if candidate.citation is not None),
        ledger=ledger,
        capsule=capsule,
        encoding=counter.encoding,
        exact=counter.exact,
    )


def _sections(plan: Plan, composed: Composed, counter: TokenCounter) -> Iterator[ContextSection]:
    if plan.floors[SectionType.SYSTEM]:
        told = ContextItem(block_id=SectionType.SYSTEM, block_type=INSTRUCTION, content=plan.system, relevance=1.0)
        yield _section(SectionType.SYSTEM, [told], counter.count(plan.system))
    for section in (SectionType.HISTORY, *COLLECTED):
        if plan.floors[section]:
            yield _section(section, composed.parts.items.get(section, ()), composed.spent.get(section, 0))


def _section(section: SectionType, items: Sequence[ContextItem], tokens: int) -> ContextSection:
    return ContextSection(type=section, title=TITLES[section], items=tuple(items), token_count=tokens)
