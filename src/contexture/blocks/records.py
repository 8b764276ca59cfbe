"""Computes, when a block is written, its search record and the facts that builds use.

Facts are redactions, token counts, similarity hash and summary.
"""

from collections.abc import Sequence

from contexture import workspace
from contexture.blocks.links import database_schema
from contexture.blocks.render import SUMMARY_TOKENS, render_for_reader, render_plain_text, summarize_page
from contexture.errors import RedactionFailed
from contexture.pipeline.fence import PromptFormat, fence
from contexture.pipeline.redaction import scan_text
from contexture.ports import Redactor, TokenCounter
from contexture.text.simhash import simhash
from contexture.types import PUBLIC, Collection, FieldType, Record, content_hash

BLOCKS = Collection(
    name="blocks",
    fields={
        "page": FieldType.KEYWORD,
        "parent": FieldType.KEYWORD,
        "db": FieldType.KEYWORD,
        "type": FieldType.KEYWORD,
        "author": FieldType.KEYWORD,
        "due": FieldType.TIME,
        "done": FieldType.FLAG,
    },
)
"""The collection of blocks; filters may also use `time`, when a block was last modified, `kind` and `lang`."""

_UNSEARCHED_TYPES = (workspace.BlockType.DIVIDER,)
_PAGE_TYPES = (workspace.BlockType.PAGE, workspace.BlockType.DB)
_TASK_TYPES = (workspace.BlockType.TODO, workspace.BlockType.KANBAN_CARD, workspace.BlockType.DB_ROW)


def block_to_record(stale: workspace.StaleBlock) -> Record | None:
    """The search record of a block, or None when it is deleted or has no searchable text."""
    block = stale.block
    text = search_text(block, stale.ancestors) if block is not None else ""
    if block is None or not text:
        return None
    above = shared_ancestors(block, stale.ancestors)
    home = find_home_page(block, above)
    return Record(
        id=block.id,
        text=text,
        acl=tuple(sorted(set(block.acl))),
        title=home.text if home else "",
        kind=str(block.type),
        time=block.modified,
        payload=_build_payload(block, above, home),
    )


def search_text(block: workspace.Block, ancestors: Sequence[workspace.Block]) -> str:
    """The text of a block's search record; "" when it has none. `ancestors` may be limited to what a reader sees.

    Only the database's schema tells which cells of a row are relations, so the cells of a row are included only when
    every reader of the row may read its database.
    """
    if block.type in _UNSEARCHED_TYPES:
        return ""
    above = shared_ancestors(block, ancestors)
    if block.type is workspace.BlockType.DB_ROW and not (above and above[0].type is workspace.BlockType.DB):
        return block.text.strip()
    said = render_plain_text(block, database_schema(above[0] if above else None))
    return said if said.strip() else ""


def shared_ancestors(block: workspace.Block, ancestors: Sequence[workspace.Block]) -> Sequence[workspace.Block]:
    """The nearest ancestors that every reader of the block may read; its record may contain no others."""
    wide = 0
    for each in ancestors:
        if PUBLIC not in each.acl and not set(block.acl) <= set(each.acl):
            break
        wide += 1
    return ancestors[:wide]


def find_home_page(block: workspace.Block, above: Sequence[workspace.Block]) -> workspace.Block | None:
    """The page or database a block belongs to: itself, or the nearest ancestor, which may also be a row."""
    if block.type in _PAGE_TYPES:
        return block
    return next((each for each in above if each.type in _PAGE_TYPES or each.type is workspace.BlockType.DB_ROW), None)


def _build_payload(
    block: workspace.Block, above: Sequence[workspace.Block], home: workspace.Block | None
) -> dict[str, object]:
    due = workspace.task_due(block)
    payload: dict[str, object] = {"type": str(block.type), "author": block.author}
    if home is not None:
        payload["page"] = home.id
    if above:
        payload["parent"] = above[0].id
    if block.type is workspace.BlockType.DB_ROW and above and above[0].type is workspace.BlockType.DB:
        payload["db"] = above[0].id
    if due is not None:
        payload["due"] = due.isoformat()
    if block.type in _TASK_TYPES:
        payload["done"] = workspace.is_done(block)
    return payload


class FactsComputer:
    """Computes the facts about blocks; the length of summaries is measured with the first token counter."""

    def __init__(self, redactor: Redactor, counters: Sequence[TokenCounter]) -> None:
        self._redactor = redactor
        self._counters = tuple(counters)

    def compute(self, stale: workspace.StaleBlock) -> workspace.BlockFacts | None:
        """The facts about a block; None when it is deleted or redaction fails.

        Relations are left out, because what they show depends on the reader: builds compute rows that have relations.
        """
        if stale.block is None:
            return None
        summary = self._summarize(stale.block, stale.below)
        text = render_for_reader(stale.block, stale.ancestors, summary=summary.text if summary else "")
        known = current_facts(stale.facts, text, self._redactor.rules)
        if known is not None and known.summary == summary:
            return known
        try:
            found = tuple(scan_text(text, self._redactor))
        except RedactionFailed:
            return None
        fenced = fence(text, PromptFormat.WORKSPACE)
        return workspace.BlockFacts(
            hash=content_hash(text),
            rules=self._redactor.rules,
            redactions=found,
            tokens={counter.encoding: counter.count(fenced) for counter in self._counters},
            simhash=simhash(text),
            summary=summary,
        )

    def _summarize(
        self, page: workspace.Block, below: Sequence[workspace.Block] | None
    ) -> workspace.PageSummary | None:
        if below is None or not self._counters:
            return None
        counter = self._counters[0]
        return workspace.PageSummary(
            text=summarize_page(page, below[: workspace.SUMMARY_BLOCKS], counter, SUMMARY_TOKENS),
            further=summarize_page(page, below, counter, SUMMARY_TOKENS),
            encoding=counter.encoding,
            limit=SUMMARY_TOKENS,
        )


def current_facts(facts: workspace.BlockFacts | None, text: str, rules: str) -> workspace.BlockFacts | None:
    """The facts if they were computed from this text and these redaction rules, else None."""
    return facts if facts is not None and facts.rules == rules and facts.hash == content_hash(text) else None
