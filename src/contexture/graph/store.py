"""The graph store.

Extracts entities and relations from records once, caches them, and returns only what the scope may see.
"""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise

from msgspec.structs import replace

from contexture.errors import RedactionFailed, SourceError
from contexture.graph.entities import name_key
from contexture.ledger import Trace
from contexture.pipeline.redaction import scan_text
from contexture.ports import EntityRecognizer, GraphCache, Index, Redactor
from contexture.retrieval.prepare import skipped_ranges
from contexture.text.segmentation import split_sentences
from contexture.types import ExtractedMentions, Mention, MentionBond, Record, Scope, Span

DEFAULT_COLLECTION = "articles"

_FORMAT_VERSION = 5  # of cached extractions; raising it invalidates the cache
_SOURCE = "graph"


class GraphStore:
    """Entities and relations of the records of one collection.

    The cache is per tenant and holds no permissions: each call asks the index which of the records the scope may see,
    and in which version, so data from a hidden, changed or deleted record is never used. A failing cache or recogniser
    is recorded in the trace as a degradation; the `fallback` recogniser is then used instead.
    """

    def __init__(
        self,
        *,
        index: Index,
        cache: GraphCache,
        recognizer: EntityRecognizer,
        fallback: EntityRecognizer,
        redactor: Redactor,
        collection: str = DEFAULT_COLLECTION,
    ) -> None:
        self._index = index
        self._cache = cache
        self._recognizer = recognizer
        self._fallback = fallback
        self._redactor = redactor
        self._collection = collection
        self._version = f"{_FORMAT_VERSION}/{recognizer.name}/{redactor.rules}"
        self._reading = asyncio.Lock()

    async def extract(
        self, scope: Scope, ids: Sequence[str], *, trace: Trace, learn: bool = True
    ) -> Sequence[ExtractedMentions]:
        """Mentions and bonds of the records that the scope may see, in the order asked for.

        With `learn=False` only cached extractions are returned.
        """
        records = await self._index.get(scope, self._collection, list(dict.fromkeys(ids))) if ids else ()
        kept = await self._get_cached(scope, records, trace)
        if learn:
            kept = {**kept, **await self._extract_new(scope, [each for each in records if each.id not in kept], trace)}
        return [kept[record.id] for record in records if record.id in kept]

    async def ids_mentioning(self, scope: Scope, names: Sequence[str], *, most: int, trace: Trace) -> Sequence[str]:
        """Ids of at most `most` cached records that mention one of these names and that the scope may see, in order."""
        keys = sorted({key for name in names if (key := name_key(name))})
        try:
            ids = await self._cache.mentioning(scope.tenant, self._version, keys) if keys else ()
        except SourceError as failure:
            trace.add_degradation(_SOURCE, failure)
            return ()
        found: list[str] = []
        for at in range(0, len(ids), most):  # continues until enough readable ids are found
            seen = await self._index.get(scope, self._collection, ids[at : at + most])
            mentioning = await self._get_cached(scope, seen, trace)  # others may have a record of the same id
            found += [record.id for record in seen if record.id in mentioning]
            if len(found) >= most:
                break
        return found[:most]

    async def forget(self, scope: Scope, ids: Sequence[str]) -> None:
        """Delete the cached extractions of these records."""
        await self._cache.forget(scope.tenant, ids)

    async def _get_cached(
        self, scope: Scope, records: Sequence[Record], trace: Trace
    ) -> Mapping[str, ExtractedMentions]:
        try:
            found = await self._cache.get(scope.tenant, self._version, [record.id for record in records])
        except SourceError as failure:
            trace.add_degradation(_SOURCE, failure)
            return {}
        hashes = {record.id: record.hash for record in records}
        return {key: each for key, each in found.items() if each.hash == hashes[key]}

    async def _extract_new(
        self, scope: Scope, records: Sequence[Record], trace: Trace
    ) -> Mapping[str, ExtractedMentions]:
        if not records:
            return {}
        async with self._reading:  # the models are not thread-safe
            found, whole = await asyncio.to_thread(self._recognize, records, trace)
        if whole:
            try:
                await self._cache.put(scope.tenant, self._version, found)
            except SourceError as failure:
                trace.add_degradation(_SOURCE, failure)
        return {each.record_id: each for each in found}

    def _recognize(self, records: Sequence[Record], trace: Trace) -> tuple[list[ExtractedMentions], bool]:
        """The extractions of the records, and whether the configured recogniser made all of them."""
        try:
            return self._recognize_with(self._recognizer, records, trace), True
        except SourceError as failure:
            trace.add_degradation("entities", failure)
            return self._recognize_with(self._fallback, records, trace), False

    def _recognize_with(
        self, recognizer: EntityRecognizer, records: Sequence[Record], trace: Trace
    ) -> list[ExtractedMentions]:
        found: list[ExtractedMentions] = []
        for record in records:
            try:
                text = blank_hidden(record.text, scan_text(record.text, self._redactor, lang=record.lang))
                text = blank_ranges(text, skipped_ranges(record))
            except RedactionFailed as failure:
                trace.add_degradation(f"redactor:{type(self._redactor).__name__}", str(failure))
                continue
            found.append(extract_relations(record.id, record.hash, text, recognizer.find(text, record.lang)))
        return found


MAX_CHARACTERS = 20_000
"""Characters of a record that are read; the main entities of a longer one are named before that."""

_MAX_PER_SENTENCE = 8  # mentions of one sentence that are paired
_MAX_PER_NEIGHBOUR = 3  # mentions of each of two neighbouring sentences that are paired
_NEIGHBOUR_WEIGHT = 0.25
_MAX_LABEL_WORDS = 5
_LABEL_STOPWORDS = frozenset("and or of the a an in on at by for with to и или в на с по из от к у".split())
_LABEL_OPENERS = frozenset(
    """including includes include like such his her their its s a an another the this that these those though although
    while when where if but or nor because
    so than as who which его её их этот эта это эти тот та те хотя когда где если но или потому чем который которая
    которые что""".split()
)
# Words that look like verbs in the past, present or progressive; a recogniser of verbs would cost a model.
_VERB = re.compile(
    r"[a-z]{2,}(?:ed|ing|es)|[a-z]{3,}[^s\W]s|"
    r"[а-яё]{2,}(?:л|ла|ло|ли)(?:с[ья])?|[а-яё]{3,}(?:ет|ит|ют|ят|ут|ат)(?:ся)?|[а-яё]{3,}(?:ен|ён|ан|ят)[аоы]?"
)
_RELATION_WORDS = frozenset(
    """is was are were met won beat led sued gave took left lost bought sold built ran made paid sent held
    fought hit struck became began chose joined wrote backs owns president minister chief head leader director chairman
    chairwoman ceo founder mayor governor senator secretary spokesman spokeswoman spokesperson adviser lawyer coach
    wife husband son daughter brother sister father mother member ally rival partner owner author
    президент министр глава лидер директор председатель основатель мэр губернатор сенатор секретарь представитель
    советник адвокат тренер жена муж сын дочь брат сестра отец мать член союзник соперник партнёр владелец
    автор""".split()
)
_LABEL_AUXILIARIES = frozenset("has had have been will would also then since later being be".split())
# Words of another clause, of reports and of time: what stands between two names with them relates other things.
_LABEL_EXCLUDED = frozenset(
    """that which who whose whom what because although while as if but or said says saying monday tuesday wednesday
    thursday friday saturday sunday yesterday today told tells tweeted reported reports которая который которые что
    чтобы сообщил сообщила сообщили сообщает заявил заявила заявили сказал сказала рассказал рассказала рассказали
    передал передаёт передает""".split()
)
_PLURAL = re.compile(r"[a-z]{3,}[^s\W]s")
_LABEL_PREPOSITIONS = frozenset(
    "of in on at by for with to from against over into about under after before as near through out off up".split()
)
_TITLES = frozenset(
    "president minister senator governor gov sen rep secretary king queen prince princess pope judge justice "
    "gen general capt col lt former mr mrs ms dr".split()
)
_AFTER_VERB = frozenset("to the a an its his her their up out off over down".split())
_GRAMMATICAL_ARTICLES = frozenset("the a an".split())
_LABEL_BREAKS = re.compile(r"[.;:!?()\[\]«»\"“”]")
_BLANK_MARK = "_"


def blank_hidden(text: str, hidden: Sequence[Span]) -> str:
    """The text with every hidden span blanked out, so that offsets are preserved; cut at `MAX_CHARACTERS`."""
    pieces: list[str] = []
    done = 0
    for span in hidden:
        pieces += (text[done : span.start], _BLANK_MARK * (span.end - span.start))
        done = span.end
    return "".join((*pieces, text[done:]))[:MAX_CHARACTERS]


def blank_ranges(text: str, ranges: Sequence[tuple[int, int]]) -> str:
    """The text with these ranges replaced by spaces, so that offsets are preserved."""
    for start, end in ranges:
        text = text[:start] + " " * (min(end, len(text)) - start) + text[end:] if start < len(text) else text
    return text


def extract_relations(record_id: str, digest: str, text: str, found: Sequence[Mention]) -> ExtractedMentions:
    """The mentions that have a key, and a bond for each pair of names in one sentence or in two adjacent ones."""
    named = tuple(mention for mention in found if name_key(mention.name) and _BLANK_MARK not in mention.name)
    places = split_sentences(text)
    inside = [bond for start, end in places for bond in _sentence_bonds(text, start, end, named)]
    across = [bond for one, other in pairwise(places) for bond in _neighbour_bonds(one, other, named)]
    bonds = (*inside, *across)
    keys = tuple(sorted({name_key(mention.name) for mention in named}))
    return ExtractedMentions(record_id=record_id, hash=digest, mentions=named, bonds=bonds, keys=keys)


def drop_hidden_names(found: ExtractedMentions, hides: Callable[[str], bool]) -> ExtractedMentions:
    """The extraction without the names and labels for which `hides` is true."""
    kept = [at for at, mention in enumerate(found.mentions) if not hides(mention.name)]
    if len(kept) == len(found.mentions) and not any(hides(bond.label) for bond in found.bonds):
        return found
    places = {at: place for place, at in enumerate(kept)}
    bonds = (
        replace(bond, head=places[bond.head], tail=places[bond.tail], label="" if hides(bond.label) else bond.label)
        for bond in found.bonds
        if bond.head in places and bond.tail in places
    )
    mentions = tuple(found.mentions[at] for at in kept)
    return replace(
        found, mentions=mentions, bonds=tuple(bonds), keys=tuple(sorted({name_key(m.name) for m in mentions}))
    )


def _neighbour_bonds(one: tuple[int, int], other: tuple[int, int], found: Sequence[Mention]) -> Iterator[MentionBond]:
    """Bonds between the names of a sentence and those that occur only in the next one."""
    first, second = _mentions_within(found, *one), _mentions_within(found, *other)
    known = {name_key(found[at].name) for at in first}
    for head in first[:_MAX_PER_NEIGHBOUR]:
        for tail in [at for at in second if name_key(found[at].name) not in known][:_MAX_PER_NEIGHBOUR]:
            yield MentionBond(head, tail, one[0], other[1], weight=_NEIGHBOUR_WEIGHT)


def _mentions_within(found: Sequence[Mention], start: int, end: int) -> list[int]:
    return [at for at, mention in enumerate(found) if start <= mention.start and mention.end <= end]


def _sentence_bonds(text: str, start: int, end: int, found: Sequence[Mention]) -> Iterator[MentionBond]:
    here = _mentions_within(found, start, end)[:_MAX_PER_SENTENCE]
    for head, tail in combinations(here, 2):
        if name_key(found[head].name) != name_key(found[tail].name):
            label = _bond_label(text[found[head].end : found[tail].start]) if tail == head + 1 else ""
            yield MentionBond(head, tail, start, end, label)


def _bond_label(between: str) -> str:
    """The text between two names as a label; "" unless it is short, unbroken, and has a verb or a role."""
    words = between.split()
    if not words or len(words) > _MAX_LABEL_WORDS or _LABEL_BREAKS.search(between) or _BLANK_MARK in between:
        return ""
    if "," in between.strip().removeprefix(","):
        return ""  # what stands behind the comma is another clause
    said = [bare for word in words if (bare := word.strip(",'\u2019\u2014\u2013-"))]
    while said and (said[-1].casefold() in _GRAMMATICAL_ARTICLES or _is_title_of_next(said)):
        said.pop()
    return " ".join(said) if _is_relation(said) and _ends_relation(said) else ""


def _is_title_of_next(words: Sequence[str]) -> bool:
    """Whether the last of several words is the title of the name that follows."""
    return len(words) > 1 and words[-1].casefold() in _TITLES


def _ends_relation(words: Sequence[str]) -> bool:
    """Whether an English label ends with a verb, a preposition or a role, not inside the phrase of the next name."""
    last = words[-1].casefold()
    verb = _VERB.fullmatch(last) or last in _RELATION_WORDS or words[-2:-1] == ["to"]
    return bool(verb) or last in _LABEL_PREPOSITIONS or not last.isascii()


def _is_relation(words: Sequence[str]) -> bool:
    """Whether words say how two names are related: they begin with a verb or a role, and no other clause follows."""
    lowered = [word.casefold() for word in words]
    while lowered and (lowered[0] in _LABEL_AUXILIARIES or lowered[0].endswith("ly")) and len(lowered) > 1:
        lowered.pop(0)
    if not lowered or lowered[0] in _LABEL_OPENERS | _LABEL_STOPWORDS or not _LABEL_EXCLUDED.isdisjoint(lowered):
        return False
    first, following = lowered[0], lowered[1] if len(lowered) > 1 else ""
    if lowered in (["is"], ["are"], ["was"], ["were"]) or "and" in lowered:
        return False
    if _PLURAL.fullmatch(first) and following and following not in _AFTER_VERB:
        return False  # "supporters are attacking" has another subject than the name
    return bool(_VERB.fullmatch(first)) or not _RELATION_WORDS.isdisjoint(lowered[:2])
