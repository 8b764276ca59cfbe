"""Completes the lists and sections around the hits of a search, while there is room for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from contexture.blocks.render import is_bare
from contexture.builders.workspace._document import SUBPAGE_TYPES, CollectedDocument
from contexture.builders.workspace._state import COLLECTED_SIGNAL, MAX_LEVELS, BuildState
from contexture.builders.workspace.config import WorkspaceRecipe
from contexture.builders.workspace.request import section_floors, total_budget
from contexture.builders.workspace.result import SectionType
from contexture.errors import SourceError
from contexture.types import Candidate
from contexture.workspace import Block, BlockType

AROUND = "around"
"""The source of candidates that are only shown as part of a list or section."""

_WHOLE_TYPES = frozenset({BlockType.DB, BlockType.DB_ROW})
"""Block types that are shown by themselves, not as part of a list or section."""

_MAX_HITS, _MAX_BLOCKS, _DEPTH = 8, 24, 8
_MAX_PAGES, _MAX_PAGE_BLOCKS, _MIN_PAGE_HITS = 4, 200, 3
_PAGE_SHARE = 0.35  # of the budget that must be free before whole pages are read
_PAGE_ROOM = 0.6  # of what is free, for whole pages; the rest is for lists and sections
_MIN_ROOM = 150  # tokens
_CHARACTERS = 4  # of a token, to estimate whether there is room
_HEADER_TOKENS, _LINE_TOKENS = 16, 2
_SHARE = 0.5  # of the relevance of its best hit, for a block around it


async def collect_surroundings(state: BuildState, found: Sequence[Candidate]) -> list[Candidate]:
    """Candidates for the other blocks of the lists and sections that the best hits belong to, and of pages found.

    A list or section is the parent of a hit with everything below it; of a long one, the hit with what is below it.
    Pages are read while half of the budget is free. Only what the budget is likely to have room for is added to
    `state.surroundings`.
    """
    if state.config.recipe is WorkspaceRecipe.SEED or not section_floors(state.request, state.config)["semantic"]:
        return []
    room = total_budget(state.request, state.config) - sum(
        _estimate_tokens([state.blocks[key]]) + _HEADER_TOKENS for key in {each.key for each in found}
    )
    hits = _best_hits(state, found)
    if room < _MIN_ROOM or not hits:
        return []
    is_ample = room >= _PAGE_SHARE * total_budget(state.request, state.config)
    try:
        pages = await _read_pages(state, hits) if is_ample else []
        parts = [each for each in hits if state.blocks[each.key].type not in SUBPAGE_TYPES]
        sections = [*pages, *await _read_sections(state, parts[:_MAX_HITS], {each.key for each in found})]
    except SourceError as failure:
        state.trace.add_degradation("surroundings", failure)
        return []
    known, whole = {each.key for each in found}, {page.id for page, _, _ in pages}
    candidates: list[Candidate] = []
    taken = {block.id for document in state.documents for block in (document.root, *document.below)}
    page_room = _PAGE_ROOM * room
    for root, below, relevance in sections:
        inside = [block for block in (root, *below) if block.id not in known]
        cost = _estimate_tokens(inside)
        most = page_room if root.id in whole else room
        if not (inside or below) or cost > most or not taken.isdisjoint(block.id for block in (root, *below)):
            continue
        taken.update(block.id for block in (root, *below))
        room -= cost
        page_room -= cost
        state.surroundings.append(CollectedDocument(section=SectionType.SEMANTIC, root=root, below=below))
        candidates += [
            state.add_candidate(SectionType.SEMANTIC, block, _SHARE * relevance, source=AROUND) for block in inside
        ]
    return candidates


def _estimate_tokens(blocks: Iterable[Block]) -> int:
    return sum(len(block.text) // _CHARACTERS + _LINE_TOKENS for block in blocks)


def _best_hits(state: BuildState, found: Sequence[Candidate]) -> list[Candidate]:
    """The best results of the search that are part of a list or section; none when the planner has answered."""
    if state.facts:
        return []
    elsewhere = {each.key for each in found if each.section != SectionType.SEMANTIC}
    hits = [
        each
        for each in found
        if each.id == f"{SectionType.SEMANTIC}:{each.key}"
        and each.key not in elsewhere
        and state.blocks[each.key].type not in _WHOLE_TYPES
    ]
    return sorted(hits, key=lambda each: (-each.signals[COLLECTED_SIGNAL], each.id))


async def _read_pages(state: BuildState, hits: Sequence[Candidate]) -> list[tuple[Block, Sequence[Block], float]]:
    """The pages that are hits or have several of them, with all blocks on them and the relevance of their best hit.

    Long pages are left to their summaries.
    """
    above = await state.store.ancestors(state.scope, [each.key for each in hits])
    pages: dict[str, Block] = {}
    relevance: dict[str, list[float]] = {}
    for each in hits:
        line = (state.blocks[each.key], *above.get(each.key, ()))
        page = next((block for block in line if block.type in SUBPAGE_TYPES), None)
        if page is not None and page.type is BlockType.PAGE:
            pages[page.id] = page
            relevance.setdefault(page.id, []).append(each.signals[COLLECTED_SIGNAL])
    found = {each.key for each in hits}
    chosen = [id_ for id_ in pages if id_ in found or len(relevance[id_]) >= _MIN_PAGE_HITS]
    best = sorted(chosen, key=lambda id_: (-max(relevance[id_]), id_))[:_MAX_PAGES]
    inside = await state.store.subtrees(
        state.scope, dict.fromkeys(best, _MAX_PAGE_BLOCKS + 1), depth=MAX_LEVELS, leaves=SUBPAGE_TYPES
    )
    return [
        (pages[id_], below, max(relevance[id_]))
        for id_ in best
        if len(below := inside.get(id_, ())) <= _MAX_PAGE_BLOCKS and not all(is_bare(each, each.text) for each in below)
    ]


async def _read_sections(
    state: BuildState, hits: Sequence[Candidate], known: Collection[str]
) -> list[tuple[Block, Sequence[Block], float]]:
    """The root of each list or section, what is below it, and the relevance of its best hit; the best first."""
    if not hits:
        return []
    blocks = {each.key: state.blocks[each.key] for each in hits}
    above = list(dict.fromkeys(block.parent for block in blocks.values() if block.parent is not None))
    parents = {
        block.id: block
        for block in await state.store.get(state.scope, above)
        if block.type is not BlockType.DB and not (block.type is BlockType.PAGE and block.id in known)
    }
    wanted = dict.fromkeys((*parents, *(id_ for id_, block in blocks.items() if block.parent not in parents)))
    inside = await state.store.subtrees(
        state.scope, dict.fromkeys(wanted, _MAX_BLOCKS + 1), depth=_DEPTH, leaves=SUBPAGE_TYPES
    )
    found: dict[str, tuple[Block, Sequence[Block], float]] = {}
    for each in hits:
        root, below = _choose_section(blocks[each.key], parents, inside)
        if below:
            found.setdefault(root.id, (root, below, each.signals[COLLECTED_SIGNAL]))
    return list(found.values())


def _choose_section(
    hit: Block, parents: Mapping[str, Block], inside: Mapping[str, Sequence[Block]]
) -> tuple[Block, Sequence[Block]]:
    """The parent of a hit with everything below it, or of a long one, the hit itself with what is below it."""
    parent = parents.get(hit.parent or "")
    if parent is None:
        below = inside.get(hit.id, ())
        return hit, below if len(below) <= _MAX_BLOCKS else ()
    below = inside.get(parent.id, ())
    if len(below) <= _MAX_BLOCKS:
        return parent, below
    own = {hit.id}
    part: list[Block] = []
    for block in below:
        if block.parent in own:
            own.add(block.id)
            part.append(block)
    return hit, part if part and part[-1] is not below[-1] else ()
