"""The collectors of a workspace build.

They collect blocks around the focus, search results, selected database rows, linked blocks and the user's recent
activity.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta

from contexture.builders.workspace._document import CollectedDocument
from contexture.builders.workspace._intent import RowSelection, detect_selection
from contexture.builders.workspace._state import BLOCKS_COLLECTION, SHARED_READ_LIMIT, BuildState
from contexture.builders.workspace.config import WorkspaceRecipe
from contexture.builders.workspace.result import SectionType
from contexture.errors import UnknownCollection
from contexture.pipeline.truncation import score_sentences
from contexture.retrieval.search import SEMANTIC, FoundPassage, HybridSearch
from contexture.text.terms import extract_terms
from contexture.types import BM25, And, AnyOf, Candidate, Equals, Filter, Not, Range
from contexture.workspace import ActivityKind, Block, BlockQuery, BlockType, LinkKind, plain_name

FOCUS_RELEVANCE = 1.0
ANCESTOR_RELEVANCE, ANCESTOR_STEP = 0.9, 0.1
CHILD_RELEVANCE, SIBLING_RELEVANCE, NEIGHBOUR_STEP = 0.85, 0.8, 0.05
ON_PAGE_RELEVANCE, ON_PAGE_STEP = 0.85, 0.01
ROW_RELEVANCE, ROW_STEP = 0.85, 0.02


async def collect_focus(state: BuildState) -> Sequence[Candidate]:
    """Candidates around every block of the focus, each once: the request may name one block in several roles."""
    place = state.place
    found: list[Candidate] = []
    whole = state.config.recipe is not WorkspaceRecipe.SEED
    if place.page is not None:
        found += await (_collect_document if whole else _collect_page)(state, place.page)
    if place.block is not None:
        found += await (_collect_subtree if whole else _collect_around)(state, place.block)
    if place.database is not None:
        found += await _collect_database(state, place.database)
    return list({each.id: each for each in reversed(found)}.values())[::-1]


async def collect_included(state: BuildState, section: SectionType) -> Sequence[Candidate]:
    """The blocks that a hint asks for; a missing one is a degradation, whether it does not exist or may not be read."""
    wanted = state.request.hints.include_blocks
    found = await state.store.get(state.scope, wanted) if wanted else ()
    if len(found) < len(set(wanted)):
        known = {block.id for block in found}
        missing = ", ".join(repr(id_) for id_ in wanted if id_ not in known)
        state.trace.add_degradation("includeBlocks", f"there is no block {missing}")
    candidates = [state.add_candidate(section, block, FOCUS_RELEVANCE, source="include") for block in found]
    if state.config.recipe is not WorkspaceRecipe.SEED:
        for block in found:
            candidates += (await _collect_document(state, block, section, source="include"))[1:]
    return candidates


async def _collect_document(
    state: BuildState, root: Block, section: SectionType = SectionType.FOCUS, *, source: str = ""
) -> list[Candidate]:
    """A page or block with everything below it, as one document; subpages and databases are leaves."""
    limit = state.config.collectors.focus.document_blocks
    below = await state.read_document(root.id) if limit and root.type is not BlockType.DB else ()
    state.documents.append(
        CollectedDocument(
            section=section, root=root, below=below[:limit], cut=len(below) > limit, included=bool(source)
        )
    )
    return [
        state.add_candidate(section, root, FOCUS_RELEVANCE, source=source),
        *(state.add_candidate(section, block, ON_PAGE_RELEVANCE, source=source) for block in below[:limit]),
    ]


async def _collect_subtree(state: BuildState, block: Block) -> list[Candidate]:
    """The block with everything below it as one document, its nearest parents and its nearest siblings."""
    above, beside = await _read_neighbours(state, block)
    known = {each.id for document in state.documents for each in (document.root, *document.below)}
    whole = [] if block.id in known else await _collect_document(state, block)
    return [
        *whole,
        *_add_ranked(state, [each for each in above if each.id not in known], ANCESTOR_RELEVANCE, ANCESTOR_STEP),
        *_add_ranked(state, [each for each in beside if each.id not in known], SIBLING_RELEVANCE, NEIGHBOUR_STEP),
    ]


async def _collect_around(state: BuildState, block: Block) -> list[Candidate]:
    """The block, its nearest parents, its nearest siblings and its first children."""
    above, beside = await _read_neighbours(state, block)
    below = await _read_children(state, block)
    return [
        state.add_candidate(SectionType.FOCUS, block, FOCUS_RELEVANCE),
        *_add_ranked(state, above, ANCESTOR_RELEVANCE, ANCESTOR_STEP),
        *_add_ranked(state, beside, SIBLING_RELEVANCE, NEIGHBOUR_STEP),
        *_add_ranked(state, below, CHILD_RELEVANCE, NEIGHBOUR_STEP),
    ]


async def _read_neighbours(state: BuildState, block: Block) -> tuple[Sequence[Block], Sequence[Block]]:
    """The nearest parents and the nearest siblings of a block."""
    config, depth = state.config.collectors.focus, state.request.hints.max_depth
    above = (await state.store.ancestors(state.scope, [block.id])).get(block.id, ())
    count = config.sibling_count
    beside = await state.store.siblings(state.scope, block.id, before=count, after=count) if count else ()
    return above[: config.ancestor_depth if depth is None else depth], beside


async def _read_children(state: BuildState, block: Block) -> Sequence[Block]:
    limit, depth = state.config.collectors.focus.children_limit, state.request.hints.max_depth
    if not limit or depth == 0:
        return ()
    if depth is None or depth == 1:
        return await state.store.children(state.scope, block.id, limit=limit)
    return await state.store.subtree(state.scope, block.id, depth=depth, limit=limit)


async def _collect_page(state: BuildState, page: Block) -> list[Candidate]:
    """The page, which is shown as its summary, and the blocks in it, in document order."""
    config, depth = state.config.collectors.focus, state.request.hints.max_depth
    levels = config.page_depth if depth is None else depth
    inside = (
        await state.read_subtree(page.id, depth=levels, limit=config.page_blocks)
        if levels and config.page_blocks
        else ()
    )
    return [
        state.add_candidate(SectionType.FOCUS, page, FOCUS_RELEVANCE),
        *_add_ranked(state, inside, ON_PAGE_RELEVANCE, ON_PAGE_STEP),
    ]


async def _collect_database(state: BuildState, database: Block) -> list[Candidate]:
    """The database, which is shown as its columns, and the rows that match the query best."""
    config = state.config.collectors.focus
    children = (
        await state.store.children(state.scope, database.id, limit=config.rows_considered)
        if config.rows_considered
        else ()
    )
    rows = [child for child in children if child.type is BlockType.DB_ROW]
    scores = score_sentences([_row_text(row) for row in rows], state.question)
    best = sorted(range(len(rows)), key=lambda at: (not state.intent.is_due(rows[at]), -scores[at], at))
    chosen = [rows[at] for at in best[: config.database_rows]]
    return [
        state.add_candidate(SectionType.FOCUS, database, FOCUS_RELEVANCE),
        *_add_ranked(state, chosen, ROW_RELEVANCE, ROW_STEP),
    ]


def _row_text(row: Block) -> str:
    return "\n".join([row.text, *(f"{name} {value}" for name, value in row.properties.items())])


def _add_ranked(state: BuildState, blocks: Sequence[Block], first: float, step: float) -> list[Candidate]:
    return state.add_ranked_candidates(SectionType.FOCUS, blocks, first, step)


DUE_RELEVANCE = 1.0
TYPES = "types"
"""The source of candidates of the types that a hint asks for."""

LATEST_RELEVANCE, LATEST_STEP = 0.5, 0.01
NAMED_RELEVANCE = 1.0
"""Of a row that the question names by its title of two or more words."""

_TASKS_PER_RESULT = 20  # open tasks read per result, because those due before the requested dates come first


class SemanticCollector:
    """Searches the blocks that the scope may read; hints become filters of the search."""

    def __init__(self, search: HybridSearch) -> None:
        self._search = search

    async def collect(self, state: BuildState) -> Sequence[Candidate]:
        """The best blocks for the query, the rows it selects, and the tasks due in the dates it names."""
        found = await self._search_blocks(
            state, make_filter(state), threshold=state.config.collectors.semantic.min_threshold
        )
        blocks = {block.id: (block, found[block.id]) for block in await state.store.get(state.scope, list(found))}
        for row, relevance in await select_rows(state, self._search, make_filter(state)):
            blocks[row.id] = (row, max(relevance, found.get(row.id, 0.0)))
        due = {block.id: (block, DUE_RELEVANCE) for block in await _read_due_tasks(state)}
        if state.config.recipe is not WorkspaceRecipe.SEED:
            blocks |= {
                id_: (row, NAMED_RELEVANCE) for id_, (row, _) in blocks.items() if _is_named(row, state.question)
            }
        return [
            state.add_candidate(SectionType.SEMANTIC, block, score)
            for block, score in {**due, **blocks, **due}.values()
        ]

    async def collect_types(self, state: BuildState, section: SectionType) -> Sequence[Candidate]:
        """The best blocks of the types that a hint asks for; if few match the query, also the latest tasks and rows."""
        types, limit = state.request.hints.prioritize_types, state.config.collectors.semantic.top_k
        wanted, hints = AnyOf("type", tuple(map(str, types))), make_filter(state)
        found = await self._search_blocks(state, wanted if hints is None else And((wanted, hints)), threshold=0.0)
        blocks = await state.store.get(state.scope, list(found))
        candidates = [state.add_candidate(section, block, found[block.id], source=TYPES) for block in blocks]
        latest = (await state.store.select(state.scope, BlockQuery(types=types, newest=True), limit=limit)).blocks
        others = [block for block in latest if block.id not in found][: max(0, limit - len(found))]
        return candidates + state.add_ranked_candidates(section, others, LATEST_RELEVANCE, LATEST_STEP, source=TYPES)

    async def _search_blocks(self, state: BuildState, where: Filter | None, *, threshold: float) -> dict[str, float]:
        """The best `top_k` blocks with their scores; a block has the score of its best passage."""
        config = state.config.collectors.semantic
        if config.top_k < 1:
            return {}
        try:
            found = await self._search.search(
                state.scope,
                BLOCKS_COLLECTION,
                search_question(state),
                where=where,
                pool=2 * config.top_k,
                trace=state.trace,
            )
        except UnknownCollection:  # the tenant has not written a block yet
            return {}
        best: dict[str, float] = {}
        for each in found:
            if _is_match(each, threshold):
                best.setdefault(each.hit.record.id, each.score)
        return dict(list(best.items())[: config.top_k])


def _is_named(block: Block, question: str) -> bool:
    title = plain_name(block.text)
    return block.type is BlockType.DB_ROW and " " in title and f" {title} " in f" {_words_only(question)} "


def _words_only(text: str) -> str:
    return plain_name(re.sub(r"[^\w'-]+", " ", text))


def search_question(state: BuildState) -> str:
    """The search text: the query, plus the focused block's text when the query refers to it."""
    near = state.place.nearest
    return f"{state.question}\n{near.text}" if near is not None and state.intent.here else state.question


def make_filter(state: BuildState) -> Filter | None:
    """The request hints as a search filter; None when there are none."""
    hints = state.request.hints
    parts: list[Filter] = []
    if hints.time_range is not None and (hints.time_range.start or hints.time_range.end):
        parts.append(Range(field="time", gte=hints.time_range.start, lte=hints.time_range.end))
    if hints.exclude_blocks:
        parts.append(Not(AnyOf("id", hints.exclude_blocks)))
    return And(tuple(parts)) if parts else None


async def _read_due_tasks(state: BuildState) -> list[Block]:
    """Open tasks due in the dates that the query asks about, earliest first."""
    limit, span = state.config.collectors.semantic.task_limit, state.intent.span
    planned = state.config.collectors.planner.enabled and state.config.recipe is not WorkspaceRecipe.SEED
    if span is None or not limit or planned:  # the planner reads them with all other conditions of the question
        return []
    open_tasks = await state.store.tasks(state.scope, due_before=span.latest, limit=_TASKS_PER_RESULT * limit)
    return [block for block in open_tasks if state.intent.is_due(block)][:limit]


def _is_match(found: FoundPassage, threshold: float) -> bool:
    """Whether a passage shares a term with the query, or its similarity reaches the threshold."""
    return found.signals.get(BM25, 0.0) > 0 or found.signals.get(SEMANTIC, 0.0) >= threshold


DATE_WEIGHT = 0.4
"""Share of the date match in a row's relevance."""

OTHER_DATABASE_FACTOR = 0.5
"""Factor on a row's relevance when the query names another database by a word of its title."""

_ROWS_PER_RESULT = 6  # rows read per result


async def select_rows(state: BuildState, search: HybridSearch, where: Filter | None) -> list[tuple[Block, float]]:
    """The best matching rows with their relevance; none when the query selects no rows."""
    limit = state.config.collectors.semantic.row_limit
    asked = detect_selection(state.question, _today(state))
    if asked is None or limit < 1:
        return []
    found = await _search_rows(state, search, asked, where, _ROWS_PER_RESULT * limit)
    dated = {
        row.id: (row, DATE_WEIGHT * asked.score_dates(row)) for row in await state.store.get(state.scope, list(found))
    }
    worth = _database_factors(state.question, found)
    rows = [
        (row, worth[id_] * min(1.0, (1 - DATE_WEIGHT) * found[id_].score + gain)) for id_, (row, gain) in dated.items()
    ]
    return sorted(rows, key=lambda each: (-each[1], each[0].id))[:limit]


async def _search_rows(
    state: BuildState, search: HybridSearch, asked: RowSelection, where: Filter | None, pool: int
) -> Mapping[str, FoundPassage]:
    rows = Equals("type", str(BlockType.DB_ROW))
    try:
        found = await search.search(
            state.scope,
            BLOCKS_COLLECTION,
            f"{state.question}\n{asked.search_text}".strip(),
            where=rows if where is None else And((rows, where)),
            pool=pool,
            trace=state.trace,
        )
    except UnknownCollection:  # the tenant has not written a block yet
        return {}
    best: dict[str, FoundPassage] = {}
    for each in found:
        best.setdefault(each.hit.record.id, each)
    return best


def _database_factors(question: str, found: Mapping[str, FoundPassage]) -> dict[str, float]:
    """Relevance factor per row: 1, or less when the query names another database."""
    asked = set(extract_terms(question))
    named = {id_: bool(asked & set(extract_terms(each.hit.record.title))) for id_, each in found.items()}
    return {
        id_: 1.0 if is_named or not any(named.values()) else OTHER_DATABASE_FACTOR for id_, is_named in named.items()
    }


def _today(state: BuildState) -> date:
    return state.now.astimezone(state.request.zone).date()


RELATED_RELEVANCE = 0.75
LINKED_RELEVANCE = 0.7
BACKLINKED_RELEVANCE = 0.65
_LINKS_PER_ITEM = 4  # links read per item, because many lead to the same block


async def collect_relations(state: BuildState) -> Sequence[Candidate]:
    """Blocks up to `max_depth` links away, the most relevant first; each hop keeps a share of the relevance."""
    config = state.config.collectors.relations
    start = await _start_ids(state)
    seen, frontier, share = dict.fromkeys(start, 0.0), start, 1.0
    found: dict[str, float] = {}
    for _ in range(config.max_depth if start else 0):
        tied = await _linked_relevance(state, frontier, config.max_items * _LINKS_PER_ITEM)
        new = {id_: share * relevance for id_, relevance in tied.items() if id_ not in seen}
        seen |= new
        found |= new
        if len(found) >= config.max_items or not new:
            break
        frontier, share = list(new), share * config.hop_share
    best = sorted(found, key=lambda id_: -found[id_])[: config.max_items]
    blocks = await state.store.get(state.scope, best) if best else ()
    return [state.add_candidate(SectionType.RELATIONS, block, found[block.id]) for block in blocks]


async def _start_ids(state: BuildState) -> list[str]:
    """Ids whose links are followed: the focus blocks, and what a focused page contains."""
    place = state.place
    ids = [block.id for block in (place.block, place.page, place.database) if block is not None]
    if place.page is not None and state.config.recipe is not WorkspaceRecipe.SEED:
        ids += [block.id for block in (await state.read_document(place.page.id))[:SHARED_READ_LIMIT]]
    for whole in (place.page if state.config.recipe is WorkspaceRecipe.SEED else None, place.database):
        if whole is not None:
            depth = state.config.collectors.focus.page_depth
            inside = await state.read_subtree(whole.id, depth=depth, limit=SHARED_READ_LIMIT)
            ids += [block.id for block in inside]
    return list(dict.fromkeys(ids))


async def _linked_relevance(state: BuildState, ids: Sequence[str], limit: int) -> dict[str, float]:
    """Relevance by block id of what these blocks link to and what links to them."""
    found: dict[str, float] = {}
    named, naming = await asyncio.gather(
        state.store.links(state.scope, ids, limit=limit), state.store.backlinks(state.scope, ids, limit=limit)
    )
    for link in named:
        relevance = RELATED_RELEVANCE if link.kind is LinkKind.RELATION else LINKED_RELEVANCE
        found[link.target] = max(found.get(link.target, 0.0), relevance)
    for link in naming:
        relevance = RELATED_RELEVANCE if link.kind is LinkKind.RELATION else BACKLINKED_RELEVANCE
        found[link.source] = max(found.get(link.source, 0.0), relevance)
    return found


EDITED_RELEVANCE, VIEWED_RELEVANCE, ACTIVITY_STEP = 0.6, 0.5, 0.02
_VIEWS_PER_PAGE = 4  # views read per page, because several blocks of one page may have been viewed


async def collect_activity(state: BuildState) -> Sequence[Candidate]:
    """The blocks that the user edited last, then the pages that they viewed last; never activity of other users."""
    config = state.config.collectors.activity
    since = state.now - timedelta(hours=config.max_age_hours)
    edits, views = await asyncio.gather(
        _recent_blocks(state, ActivityKind.EDIT, since, config.recent_edit_count),
        _recent_blocks(state, ActivityKind.VIEW, since, config.recent_view_count * _VIEWS_PER_PAGE),
    )
    pages = (await _enclosing_pages(state, views))[: config.recent_view_count]
    return [
        *state.add_ranked_candidates(SectionType.ACTIVITY, edits, EDITED_RELEVANCE, ACTIVITY_STEP),
        *(
            candidate
            for candidate in state.add_ranked_candidates(SectionType.ACTIVITY, pages, VIEWED_RELEVANCE, ACTIVITY_STEP)
            if candidate.key not in {block.id for block in edits}
        ),
    ]


async def _recent_blocks(state: BuildState, deed: ActivityKind, since: datetime, limit: int) -> Sequence[Block]:
    """The blocks of the newest edits or views up to now, newest first."""
    if limit < 1:
        return ()
    deeds = await state.store.recent(state.scope, deed, since=since, limit=limit)
    ids = [each.block_id for each in deeds if each.time <= state.now]
    return await state.store.get(state.scope, ids) if ids else ()


async def _enclosing_pages(state: BuildState, viewed: Sequence[Block]) -> list[Block]:
    """The pages that blocks belong to, each once; a block that is on no readable page is returned itself."""
    if not viewed:
        return []
    above = await state.store.ancestors(state.scope, [block.id for block in viewed])
    pages: dict[str, Block] = {}
    for block in viewed:
        line = (block, *above.get(block.id, ()))
        page = next((each for each in line if each.type is BlockType.PAGE), block)
        pages.setdefault(page.id, page)
    return list(pages.values())
