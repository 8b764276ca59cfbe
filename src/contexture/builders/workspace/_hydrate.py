"""Hydration of collected blocks: text, title, path, citation, stored facts, and a composite score of five signals."""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TypeVar
from urllib.parse import unquote

from msgspec.structs import replace

from contexture import workspace
from contexture.blocks.records import current_facts, search_text
from contexture.blocks.render import is_bare, render_for_reader, render_markdown, render_page_head, summarize_page
from contexture.builders.workspace import _tree as tree
from contexture.builders.workspace._intent import OTHER_DATES_FACTOR
from contexture.builders.workspace._render import is_deduplicated
from contexture.builders.workspace._state import BLOCKS_COLLECTION, BuildState
from contexture.builders.workspace.config import WorkspaceRecipe
from contexture.builders.workspace.result import COLLECTED_SIGNAL, SectionType
from contexture.errors import SourceError
from contexture.pipeline import scoring
from contexture.ports import TokenCounter
from contexture.text.simhash import simhash
from contexture.text.terms import extract_terms
from contexture.text.unicode import repair_text
from contexture.types import Candidate, Citation, content_hash

T = TypeVar("T")

_MAX_RELATIONS = 500

Titles = Mapping[str, Mapping[str, str]]
"""By row id, the titles of its related rows that the scope may read, keyed by their id and by their plain name."""


async def hydrate(state: BuildState, found: Sequence[Candidate], counter: TokenCounter) -> list[Candidate]:
    """The candidates that hints do not exclude, with text, title, path, citation and score."""
    ids = list(dict.fromkeys(candidate.key for candidate in found))
    near = [state.place.nearest.id] if state.place.nearest is not None else []
    chains, touches, titles, resolved, (facts, summaries) = await asyncio.gather(
        _read_or_degrade(state, "tree", state.store.ancestors(state.scope, [*ids, *near])),
        _read_or_degrade(state, "affinity", state.store.touches(state.scope, ids)),
        _read_or_degrade(state, "row titles", _read_row_titles(state)),
        _read_or_degrade(state, "references", resolve_references(state)),
        _read_facts(state, ids, counter),
    )
    blocks = {**state.blocks, **(resolved or {})}
    texts = {id_: _block_text(blocks[id_], chains or {}, titles or {}, summaries or {}) for id_ in ids}
    for document in (*state.documents, *state.surroundings):
        if document.root.type is workspace.BlockType.PAGE:
            texts[document.root.id] = repair_text(render_page_head(document.root))
    allowed = [candidate for candidate in found if not _is_excluded(state, candidate, chains or {})]
    known = {id_: current_facts(facts.get(id_), text, state.rules) for id_, text in texts.items()}
    hydrator = _Hydrator(chains or {})
    hydrated = [
        hydrator.hydrate(candidate, state.blocks[candidate.key], texts[candidate.key], known[candidate.key])
        for candidate in score_candidates(state, allowed, chains, touches or {})
    ]
    return hydrated if state.config.recipe is WorkspaceRecipe.SEED else _blank_bare(state, hydrated)


def _blank_bare(state: BuildState, candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates without the text of bare headings and links, which say nothing outside a document.

    Nor does an empty page that was found, unless it is the best result or the question names it.
    """
    documents = (*state.documents, *state.surroundings)
    whole = {block.id for document in documents for block in (document.root, *document.below)}
    best = max((each.signals[COLLECTED_SIGNAL] for each in candidates if _is_searched(each)), default=0.0)
    asked = set(extract_terms(state.question))

    def says_nothing(each: Candidate) -> bool:
        if each.key in whole:
            return False
        if is_bare(state.blocks[each.key], each.text):
            return True
        is_empty = each.kind == workspace.BlockType.PAGE and each.text == each.title and _is_found(each)
        return is_empty and each.signals[COLLECTED_SIGNAL] < best and not set(extract_terms(each.title)) <= asked

    return [
        replace(each, text="", redactions=None, tokens={}, simhash=0) if says_nothing(each) else each
        for each in candidates
    ]


def _is_searched(candidate: Candidate) -> bool:
    return candidate.id == f"{SectionType.SEMANTIC}:{candidate.key}"


def _is_found(candidate: Candidate) -> bool:
    """Whether a search or a link found it, and not the focus, a hint, the planner or the user's activity."""
    return _is_searched(candidate) or candidate.id == f"{SectionType.RELATIONS}:{candidate.key}"


_REFERENCE = re.compile(r"\(\(([^()\s]+)\)\)")
_LABELLED_REFERENCE = re.compile(r"\[([^\[\]\n]*)\]\(\(\(([^()\s]+)\)\)\)")
_BLOCK_LINK = re.compile(r"\[([^\[\]\n]*)\]\(block:([^()\s]+)\)")
_UNREADABLE = "[not available]"
_EMBED = re.compile(r"\{\{embed\s+(?:\(\([^()\s]+\)\)|\[\[[^\[\]]+\]\])\s*\}\}|!\[\[[^\[\]]+\]\]")
_FRAGMENT = re.compile(r"!\[\[[^\[\]|#]+#\^?([^\[\]|#]+)(?:\|[^\[\]]*)?\]\]")
_FRAGMENT_BLOCKS, _FRAGMENT_DEPTH = 500, 12  # read of a page of which a part is embedded
_EMBED_BLOCKS, _EMBED_DEPTH, _MAX_EMBEDS, _MAX_REFERENCES = 20, 4, 20, 200
_REFERENCE_CHARS = 300


async def resolve_references(state: BuildState) -> Mapping[str, workspace.Block]:
    """By id, the blocks whose text refers to others, with the text of those that the scope may read in its place.

    A reference becomes the quoted text of its target, an embed the target with what stands below it. One that does not
    exist or may not be read stays as it is written; the text of such a link to a block, often a title, is not shown.
    """
    if state.config.recipe is WorkspaceRecipe.SEED:
        return {}
    texts = {id_: block for id_, block in state.blocks.items() if block.type is not workspace.BlockType.CODE}
    embedding = [id_ for id_, block in texts.items() if _EMBED.search(block.text)][:_MAX_EMBEDS]
    names = [name for block in texts.values() for name in _REFERENCE.findall(block.text)]
    linked = [unquote(name) for block in texts.values() for _, name in _BLOCK_LINK.findall(block.text)]
    if not embedding and not names and not linked:
        return {}
    links = await state.store.links(state.scope, embedding, limit=4 * _MAX_EMBEDS) if embedding else ()
    targets = {link.source: link.target for link in reversed(links)}
    wanted = list(dict.fromkeys([*targets.values(), *names[:_MAX_REFERENCES], *linked]))
    known = {block.id: block for block in await state.store.get(state.scope, wanted)}
    parts = {id_: found[1] for id_ in targets if (found := _FRAGMENT.search(texts[id_].text))}
    sizes = dict.fromkeys(targets.values(), _EMBED_BLOCKS + 1)
    sizes |= {targets[id_]: _FRAGMENT_BLOCKS for id_ in parts}
    inside = await state.store.subtrees(
        state.scope, sizes, depth=_FRAGMENT_DEPTH if parts else _EMBED_DEPTH, leaves=workspace.SUMMARY_LEAVES
    )
    embeds: dict[str, str] = {}
    for source, at in targets.items():
        below = inside.get(at, ())
        if at in known and source not in parts:
            embeds[source] = _render_embed(known[at], below)
        elif found := _find_part(below, parts.get(source, "")):
            embeds[source] = _render_embed(found[0], found[1:])
    resolved = {id_: _insert_references(block.text, embeds.get(id_, ""), known) for id_, block in texts.items()}
    return {id_: replace(texts[id_], text=text) for id_, text in resolved.items() if text != texts[id_].text}


def _find_part(below: Sequence[workspace.Block], name: str) -> Sequence[workspace.Block]:
    """The block with this anchor, or the heading of this name, and all blocks below it; empty if there is none."""
    plain = workspace.plain_name(name)
    root = next(
        (
            block
            for block in below
            if block.properties.get("anchor") == name.strip()
            or (block.type is workspace.BlockType.HEADING and workspace.plain_name(block.text) == plain)
        ),
        None,
    )
    if root is None:
        return ()
    found = {root.id: root}
    for block in below:
        if block.parent in found:
            found[block.id] = block
    return tuple(found.values())


def _insert_references(text: str, embed: str, known: Mapping[str, workspace.Block]) -> str:
    if embed:
        text = _EMBED.sub(lambda _found: embed, text, count=1)
    text = _BLOCK_LINK.sub(lambda found: found[0] if unquote(found[2]) in known else _UNREADABLE, text)
    text = _LABELLED_REFERENCE.sub(lambda found: found[1] if found[2] in known else found[0], text)
    return _REFERENCE.sub(lambda found: _quote(known[found[1]]) if found[1] in known else found[0], text)


def _quote(block: workspace.Block) -> str:
    text = " ".join(block.text.split())
    short = text if len(text) <= _REFERENCE_CHARS else text[:_REFERENCE_CHARS].rsplit(" ", 1)[0] + " …"
    return f"“{short}”"


def _render_embed(target: workspace.Block, below: Sequence[workspace.Block]) -> str:
    """An embedded block or page: its text, and what stands below it as a quotation."""
    lines = [line for block in below[:_EMBED_BLOCKS] for line in render_markdown(block).split("\n")]
    if len(below) > _EMBED_BLOCKS:
        lines.append("(… more of it is left out)")
    return "\n".join([_quote(target), *(f"> {line}".rstrip() for line in lines)])


async def _read_or_degrade(state: BuildState, what: str, work: Awaitable[T]) -> T | None:
    """The result of a read; None when the source fails, which is a degradation."""
    try:
        return await work
    except SourceError as failure:
        state.trace.add_degradation(what, failure)
        return None


async def _read_facts(
    state: BuildState, ids: Sequence[str], counter: TokenCounter
) -> tuple[Mapping[str, workspace.BlockFacts], Mapping[str, str] | None]:
    """Stored facts of the blocks, and summaries of pages."""
    facts: Mapping[str, workspace.BlockFacts] = {}
    with suppress(SourceError):  # without stored facts the build is only slower
        facts = await state.store.facts(state.scope, ids)
    return facts, await _read_or_degrade(state, "summaries", _read_summaries(state, facts, counter))


def _is_excluded(state: BuildState, candidate: Candidate, chains: tree.AncestorChains) -> bool:
    """Whether a hint excludes a block, an ancestor of it, or its time, or the question asks for what is overdue.

    The time range does not apply to the focus.
    """
    hints, block = state.request.hints, state.blocks[candidate.key]
    if hints.exclude_blocks:
        line = {block.id, *(each.id for each in chains.get(block.id, ()))}
        if not line.isdisjoint(hints.exclude_blocks):
            return True
    if _is_finished(state, candidate, block):
        return True
    times = hints.time_range
    if times is None or candidate.section == SectionType.FOCUS or block.modified is None:
        return False
    return (times.start is not None and block.modified < times.start) or (
        times.end is not None and block.modified > times.end
    )


def _is_finished(state: BuildState, candidate: Candidate, block: workspace.Block) -> bool:
    """Whether a block outside the focus is a completed task, and the question asks what is overdue."""
    span = state.intent.span
    if span is None or span.start is not None or candidate.section == SectionType.FOCUS:
        return False
    return state.config.recipe is not WorkspaceRecipe.SEED and workspace.is_task(block) and workspace.is_done(block)


class _Hydrator:
    """Hydrates candidates; caches the path of neighbouring blocks."""

    def __init__(self, chains: tree.AncestorChains) -> None:
        self._chains = chains
        self._paths: dict[str, str] = {}

    def hydrate(
        self, candidate: Candidate, block: workspace.Block, text: str, facts: workspace.BlockFacts | None
    ) -> Candidate:
        """The candidate with text, title, path, citation and stored facts."""
        chain = self._chains.get(block.id, ())
        title = tree.page_title(block, chain)
        source = _make_citation(block, chain, title)
        if source is None:
            text, facts = "", None
        return replace(
            candidate,
            text=text,
            title=title,
            label=self._joined_path(chain),
            citation=source,
            redactions=None if facts is None else facts.redactions,
            tokens={} if facts is None else facts.tokens,
            simhash=_candidate_simhash(candidate, text, facts),
        )

    def _joined_path(self, chain: Sequence[workspace.Block]) -> str:
        if not chain:
            return ""
        if chain[0].id not in self._paths:
            self._paths[chain[0].id] = tree.join_path(tree.make_path(chain))
        return self._paths[chain[0].id]


def _candidate_simhash(candidate: Candidate, text: str, facts: workspace.BlockFacts | None) -> int:
    """The simhash for duplicate detection; 0 for candidates that are never duplicates."""
    if not is_deduplicated(candidate):
        return 0
    return simhash(text) if facts is None else facts.simhash


def _make_citation(block: workspace.Block, chain: Sequence[workspace.Block], title: str) -> Citation | None:
    """The citation of a block's search record; None for blocks without text, which are not shown."""
    stored = repair_text(search_text(block, chain))
    if not stored:
        return None
    return Citation(
        collection=BLOCKS_COLLECTION,
        record_id=block.id,
        title=title,
        start=0,
        end=len(stored),
        hash=content_hash(stored),
    )


def _block_text(
    block: workspace.Block, chains: tree.AncestorChains, titles: Titles, summaries: Mapping[str, str]
) -> str:
    named = titles.get(block.id, {})
    return render_for_reader(
        block,
        chains.get(block.id, ()),
        resolve=lambda name: named.get(name) or named.get(workspace.plain_name(name)),
        summary=summaries.get(block.id, ""),
    )


async def _read_row_titles(state: BuildState) -> Titles:
    rows = [block.id for block in state.blocks.values() if block.type is workspace.BlockType.DB_ROW]
    if not rows:
        return {}
    links = await state.store.links(state.scope, rows, limit=_MAX_RELATIONS)
    targets = list(dict.fromkeys(link.target for link in links))
    texts = {block.id: block.text for block in await state.store.get(state.scope, targets)} if targets else {}
    titles: dict[str, dict[str, str]] = {}
    for link in links:
        if (text := texts.get(link.target)) is not None:
            titles.setdefault(link.source, {}).update({link.target: text, workspace.plain_name(text): text})
    return titles


async def _read_summaries(
    state: BuildState, facts: Mapping[str, workspace.BlockFacts], counter: TokenCounter
) -> Mapping[str, str]:
    """Summaries by page id; more blocks of the page in focus are read than of other pages."""
    whole = {document.root.id for document in (*state.documents, *state.surroundings)}
    pages = {
        id_: block for id_, block in state.blocks.items() if block.type is workspace.BlockType.PAGE and id_ not in whole
    }
    near, limit = state.place.page and state.place.page.id, state.config.truncation.summary_tokens
    kept = {id_: summary for id_ in pages if (summary := _stored_summary(facts.get(id_), counter, limit)) is not None}
    summaries = {id_: each.further if id_ == near else each.text for id_, each in kept.items()}
    others = {
        id_: workspace.FOCUSED_SUMMARY_BLOCKS if id_ == near else workspace.SUMMARY_BLOCKS
        for id_ in pages
        if id_ not in summaries
    }
    inside: Mapping[str, Sequence[workspace.Block]] = {}
    if others:
        inside = await state.store.subtrees(
            state.scope, others, depth=workspace.SUMMARY_DEPTH, leaves=workspace.SUMMARY_LEAVES
        )
    return summaries | {id_: summarize_page(pages[id_], below, counter, limit) for id_, below in inside.items()}


def _stored_summary(
    facts: workspace.BlockFacts | None, counter: TokenCounter, limit: int
) -> workspace.PageSummary | None:
    """The stored summary of a page, if it was made for this encoding and length."""
    summary = None if facts is None else facts.summary
    return summary if summary is not None and (summary.encoding, summary.limit) == (counter.encoding, limit) else None


AUTHORED_WEIGHT, EDITED_WEIGHT, VIEWED_WEIGHT = 0.4, 0.4, 0.2
"""The most that authoring, editing and viewing a block each add to the user's affinity to it; together 1."""

_UNRELATED_DISTANCE = 1_000
_NO_TOUCH = workspace.BlockUsage()


def score_candidates(
    state: BuildState,
    candidates: Sequence[Candidate],
    chains: tree.AncestorChains | None,
    touches: Mapping[str, workspace.BlockUsage],
) -> list[Candidate]:
    """The candidates with their five signals and score; `chains` is None when the tree could not be read."""
    focus = state.place.nearest
    near = None if focus is None or chains is None else tree.ancestor_steps(focus.id, chains)
    return [
        _score_candidate(state, candidate, chains, near, touches.get(candidate.key, _NO_TOUCH))
        for candidate in candidates
    ]


def affinity(touch: workspace.BlockUsage, now: datetime) -> float:
    """Affinity of a user to a block, from 0 to 1, from writing, editing and viewing it.

    Each further edit or view adds half of the previous one; both decay with age, with the half-life `DECAY_DAYS`.
    """
    if touch == _NO_TOUCH:
        return 0.0
    fresh = 1.0 if touch.last is None else 2 ** (-scoring.age_days(touch.last, now) / scoring.DECAY_DAYS)
    dealt = EDITED_WEIGHT * (1 - 0.5**touch.edits) + VIEWED_WEIGHT * (1 - 0.5**touch.views)
    return AUTHORED_WEIGHT * touch.author + fresh * dealt


def _score_candidate(
    state: BuildState,
    candidate: Candidate,
    chains: tree.AncestorChains | None,
    near: Mapping[str, int] | None,
    touch: workspace.BlockUsage,
) -> Candidate:
    block = state.blocks[candidate.key]
    chain = () if chains is None else chains.get(block.id, ())
    signals = {
        **candidate.signals,
        "semantic": candidate.signals[COLLECTED_SIGNAL],
        "structural": _structural_score(block.id, chains, near),
        "recency": scoring.linear_decay(block.modified, state.now),
        "type_match": state.intent.type_match(block, tree.page_title(block, chain)),
        "affinity": affinity(touch, state.now),
    }
    score = scoring.composite_score(signals, state.config.weights).score
    if state.intent.span is not None and not state.intent.is_due(block):
        score *= OTHER_DATES_FACTOR
    return replace(candidate, score=min(max(score, 0.0), 1.0), signals=signals)


def _structural_score(block_id: str, chains: tree.AncestorChains | None, near: Mapping[str, int] | None) -> float:
    """Structural proximity by distance in the tree; a block in another tree has the greatest distance."""
    if near is None or chains is None:
        return scoring.NEUTRAL_SIGNAL
    steps = tree.distance(block_id, near, chains)
    return scoring.structural_proximity(_UNRELATED_DISTANCE if steps is None else steps)
