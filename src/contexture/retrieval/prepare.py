"""Prepares records for the index: everything a build needs is computed once, when a record is written.

Also `EnsuredCollection`, which creates a service's collection for each tenant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from contexture.errors import InvalidRequest, StoreUnwritable
from contexture.ports import Index, Redactor, TokenCounter
from contexture.retrieval.compute_thread import ComputeThread
from contexture.retrieval.encoders import Encoders
from contexture.text.language import detect_language
from contexture.text.segmentation import TextRange, invert_ranges, split_passages, split_sentences
from contexture.text.simhash import hash_words
from contexture.text.terms import split_words, weigh_words
from contexture.text.unicode import is_valid_unicode, repair_text
from contexture.types import (
    Collection,
    Passage,
    PreparedRecord,
    Record,
    Scope,
    Span,
    UnembeddedPassage,
    Vector,
    check_principal,
)

PASSAGE_CHARS = 400
MAX_READERS = 256
"""Maximum readers that a written record may name."""

MAX_PASSAGES = 4_000
"""Maximum passages per record; a longer record gets longer passages, which bounds the time to embed it."""


MAX_EMBEDDED_AT_ONCE = 64
"""Maximum passages of one batch that are embedded before it is written, while something embeds the rest later."""

CutFunction: TypeAlias = "Callable[[Record], Sequence[PassageCut]]"


@dataclass(frozen=True, kw_only=True, slots=True)
class PassageCut:
    """Where to cut a passage out of a record's text: its range, its sentences, and what it is searched by."""

    start: int
    end: int
    sentences: tuple[TextRange, ...]
    search_text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _PassageDraft:
    """A passage before its vectors are computed."""

    offsets: TextRange
    sentences: tuple[TextRange, ...]
    text: str
    search_text: str


class Preparer:
    """Computes what an index stores for a record: language, passages, tokens, terms, vectors, redactions.

    Batches are computed in `thread`, which callers that add their own facts to records share. While `defers` is set,
    which is up to whoever embeds an index's backlog, records of large batches are prepared without vectors.
    """

    def __init__(
        self,
        *,
        encoders: Encoders,
        counters: Sequence[TokenCounter],
        redactor: Redactor,
        target: int = PASSAGE_CHARS,
        max_readers: int = MAX_READERS,
    ) -> None:
        self._encoders = encoders
        self._counters = tuple(counters)
        self._redactor = redactor
        self._target = target
        self._max_readers = max_readers
        self.thread = ComputeThread()
        self.defers = False

    @property
    def redactor(self) -> Redactor:
        """The redactor that scans records."""
        return self._redactor

    @property
    def vectors(self) -> Mapping[str, int]:
        """Names and lengths of the vectors that a passage may carry."""
        return self._encoders.vectors

    @property
    def counters(self) -> Sequence[TokenCounter]:
        """The token counters, one for each encoding."""
        return self._counters

    def check_readers(self, what: str, readers: Sequence[str]) -> None:
        """Raise `InvalidRequest` if a write names too many readers; stored records that have more stay as they are."""
        check_readers(what, readers, self._max_readers)

    async def prepare(
        self,
        records: Sequence[Record],
        contexts: Mapping[str, str] | None = None,
        *,
        cut: CutFunction | None = None,
        embedded: bool = False,
    ) -> list[PreparedRecord]:
        """The records, ready to be written; vectors are computed in one batch. Raises `InvalidRequest` for a bad id.

        With `embedded`, vectors are computed however large the batch is.

        `contexts` are texts before a record, by its id; a record with one is embedded together with it as well. In any
        other record, passages are embedded together with the sentence before them as well. `cut` cuts a record into
        passages, instead of by sentences and length.
        """
        drafts = await self.thread.map(lambda record: self._draft(record, cut), records, record_characters)
        texts = [piece.search_text for _, pieces in drafts for piece in pieces]
        later = self.defers and not embedded and len(texts) > MAX_EMBEDDED_AT_ONCE
        langs = [record.lang for record, pieces in drafts for _ in pieces]
        before = _contexts_of_drafts(drafts, contexts or {})
        rows = () if later else await self._encoders.passages(texts, langs, before)
        return await self._finish(drafts, rows, unembedded=later)

    async def cut(self, records: Sequence[Record]) -> list[PreparedRecord]:
        """The records as `prepare` returns them, but for their vectors."""
        drafts = await self.thread.map(self._draft, records, record_characters)
        return await self._finish(drafts, (), unembedded=True)

    async def _finish(
        self,
        drafts: Sequence[tuple[Record, Sequence[_PassageDraft]]],
        rows: Iterable[Mapping[str, Vector]],
        *,
        unembedded: bool,
    ) -> list[PreparedRecord]:
        """The prepared records, given the vectors of all passages in order; passages beyond the last have none."""
        vectors = iter(rows)
        none: Mapping[str, Vector] = {}
        return await self.thread.map(
            lambda each: self._make_prepared(*each, unembedded=unembedded),
            [(record, [(piece, next(vectors, none)) for piece in pieces]) for record, pieces in drafts],
            lambda each: record_characters(each[0]),
        )

    async def embed(
        self,
        passages: Sequence[UnembeddedPassage],
        contexts: Mapping[str, str],
        *,
        cut: CutFunction | None = None,
    ) -> list[dict[str, Vector]]:
        """The vectors of stored passages, as `prepare` computes them."""
        found = {each.record.id: self._search_texts(each.record, cut) for each in passages}
        texts = [found[each.record.id](each.start, each.end) for each in passages]
        before = [text for each in passages for text in _texts_before(each.record, [each.start], contexts)]
        return await self._encoders.passages(texts, [each.record.lang for each in passages], before)

    async def forget_passages(
        self,
        passages: Sequence[UnembeddedPassage],
        contexts: Mapping[str, str],
        *,
        cut: CutFunction | None = None,
    ) -> None:
        """Remove the cached vectors of passages that are stored no more, which `embed` computed."""
        texts = [self._search_texts(each.record, cut)(each.start, each.end) for each in passages]
        before = [text for each in passages for text in _texts_before(each.record, [each.start], contexts)]
        await self._encoders.forget(texts, before)

    def _search_texts(self, record: Record, cut: CutFunction | None) -> Callable[[int, int], str]:
        """A function that returns what the passage between two offsets of a record is searched by."""
        known = {} if cut is None else {(each.start, each.end): each.search_text for each in cut(record)}
        head = f"{record.title}. " if record.title else ""
        return lambda start, end: known.get((start, end)) or head + record.text[start:end]

    async def forget(
        self, records: Sequence[Record], contexts: Mapping[str, str] | None = None, *, cut: CutFunction | None = None
    ) -> None:
        """Remove the cached vectors of these records' passages; the rest is what they were prepared with."""
        drafts = await self.thread.map(lambda record: self._draft(record, cut), records, record_characters)
        texts = [piece.search_text for _, pieces in drafts for piece in pieces]
        if texts:
            await self._encoders.forget(texts, _contexts_of_drafts(drafts, contexts or {}))

    def close(self) -> None:
        """End the thread; records can still be prepared, in the caller's."""
        self.thread.close()

    def _draft(self, record: Record, cut: CutFunction | None = None) -> tuple[Record, list[_PassageDraft]]:
        clean = _normalise_record(record)
        if cut is None:
            return clean, self._cut_passages(clean)
        return clean, [
            _PassageDraft(
                offsets=(each.start, each.end),
                sentences=each.sentences,
                text=clean.text[each.start : each.end],
                search_text=each.search_text,
            )
            for each in cut(clean)
        ]

    def _cut_passages(self, record: Record) -> list[_PassageDraft]:
        head = f"{record.title}. " if record.title else ""
        target = max(self._target, len(record.text) // MAX_PASSAGES)
        return [
            _PassageDraft(offsets=(start, end), sentences=inner, text=record.text[start:end],
                   search_text=head + record.text[start:end])
            for (start, end), inner in split_passages(record.text, target=target, skipped=skipped_ranges(record))
        ]  # fmt: skip

    def _make_prepared(
        self, record: Record, pieces: Sequence[tuple[_PassageDraft, Mapping[str, Vector]]], *, unembedded: bool
    ) -> PreparedRecord:
        redactions = tuple(self._redactor.scan(record.text, record.lang))
        return PreparedRecord(
            record=record,
            passages=tuple(self._make_passage(piece, record.lang, vectors, redactions) for piece, vectors in pieces),
            redactions=redactions,
            title_redactions=tuple(self._redactor.scan(record.title, record.lang)),
            rules=self._redactor.rules,
            unembedded=unembedded,
        )

    def _make_passage(
        self, piece: _PassageDraft, lang: str, vectors: Mapping[str, Vector], redactions: Sequence[Span]
    ) -> Passage:
        start, end = piece.offsets
        words = split_words(piece.text)
        return Passage(
            start=start,
            end=end,
            sentences=tuple((first - start, last - start) for first, last in piece.sentences),
            redactions=clip_spans(redactions, start, end),
            tokens={counter.encoding: counter.count(piece.text) for counter in self._counters},
            simhash=hash_words(words),
            terms=weigh_words(_words_to_search(piece, words), lang),
            vectors=vectors,
        )


def _words_to_search(piece: _PassageDraft, words: list[str]) -> list[str]:
    """The words that a passage is searched by, given those of its text."""
    if piece.search_text == piece.text:
        return words
    head = piece.search_text.removesuffix(piece.text)
    is_joined = len(head) == len(piece.search_text) or not head[-1:].isspace()
    return split_words(piece.search_text) if is_joined else [*split_words(head), *words]


_MAX_SENTENCE_BEFORE = 300


def _contexts_of_drafts(
    drafts: Sequence[tuple[Record, Sequence[_PassageDraft]]], contexts: Mapping[str, str]
) -> list[str]:
    """What each passage of some records is embedded after."""
    return [
        text
        for record, pieces in drafts
        for text in _texts_before(record, [piece.offsets[0] for piece in pieces], contexts)
    ]


def _texts_before(record: Record, starts: Sequence[int], contexts: Mapping[str, str]) -> list[str]:
    """For passages of a record, by where they start, what they are embedded after."""
    if record.id in contexts:
        return [contexts[record.id]] * len(starts)
    skipped = skipped_ranges(record) if any(starts) else ()
    return [_sentence_before(record.text, start, skipped) for start in starts]


def _sentence_before(text: str, start: int, skipped: Sequence[TextRange]) -> str:
    """The sentence that ends before an offset of a text, at most its last 300 characters; empty if it is skipped."""
    first = max(0, start - _MAX_SENTENCE_BEFORE, *(end for _, end in skipped if end <= start))
    window = text[first:start]
    sentences = split_sentences(window)
    return window[slice(*sentences[-1])] if sentences else ""


SKIPPED_FIELD = "boilerplate"
"""Payload field with the offsets of text that is stored but not part of any passage."""


def skipped_ranges(record: Record) -> tuple[TextRange, ...]:
    """The ranges under `SKIPPED_FIELD`, in order; none if the field holds anything else, or they cover all the text."""
    found = record.payload.get(SKIPPED_FIELD)
    try:
        ranges = msgspec.convert(found, tuple[TextRange, ...]) if found else ()
    except msgspec.ValidationError:
        return ()  # a field of the same name with another meaning
    size = len(record.text)
    ordered = all(0 <= start < end <= size for start, end in ranges) and all(
        one[1] <= other[0] for one, other in pairwise(ranges)
    )
    left = "".join(record.text[start:end] for start, end in invert_ranges(ranges, size)) if ordered else ""
    return ranges if left.strip() else ()


def record_characters(record: Record) -> int:
    """How long the texts of a record are."""
    return len(record.text) + len(record.title)


def prepared_characters(item: PreparedRecord) -> int:
    """How long the texts of a prepared record are."""
    return record_characters(item.record)


def clip_spans(spans: Sequence[Span], start: int, end: int) -> tuple[Span, ...]:
    """The parts of the spans that lie between two offsets, relative to the first."""
    return tuple(
        replace(span, start=max(span.start, start) - start, end=min(span.end, end) - start)
        for span in spans
        if span.start < end and span.end > start
    )


def _normalise_record(record: Record) -> Record:
    """The record with valid Unicode in its text fields and its language detected."""
    if not record.id:
        raise InvalidRequest("a record needs an id")
    if not is_valid_unicode(record.id):
        raise InvalidRequest(f"record id {record.id!r} is not valid Unicode")
    text = stored_text(record)
    return replace(
        record,
        text=text,
        title=repair_text(record.title),
        kind=repair_text(record.kind),
        lang=repair_text(record.lang) or detect_language(text),
        source=repair_text(record.source),
        session=repair_text(record.session),
    )


def stored_text(record: Record) -> str:
    """The text that is stored: the record's own, or its title if that is blank, so that a search can find it."""
    return repair_text(record.text if record.text.strip() else record.title or record.text)


_RECHECK_SECONDS = 60.0  # the store may have been restored to a state without the collection


class EnsuredCollection:
    """Creates a collection once for each tenant; later calls for the tenant cost a dictionary look-up.

    Concurrent calls for one tenant may both create it, which is harmless.
    """

    def __init__(self, index: Index, collection: Collection) -> None:
        self._index = index
        self._collection = collection
        self._seen: dict[str, float] = {}

    async def ensure(self, scope: Scope) -> None:
        """Create the tenant's collection, with all its fields, unless it is known to exist."""
        if not self._is_known(scope):
            await self._index.create(scope, self._collection)
            self._seen[scope.tenant] = monotonic()

    async def exists(self, scope: Scope) -> bool:
        """Whether the tenant has the collection, creating it if possible; also works on a read-only store."""
        try:
            await self.ensure(scope)
        except StoreUnwritable:
            return any(each.name == self._collection.name for each in await self._index.collections(scope))
        return True

    def _is_known(self, scope: Scope) -> bool:
        return monotonic() < self._seen.get(scope.tenant, -math.inf) + _RECHECK_SECONDS


def check_readers(what: str, readers: Sequence[str], most: int) -> None:
    """Raise `InvalidRequest` if `what` names more than `most` readers, or one that can never match anybody."""
    if len(readers) > most:
        raise InvalidRequest(
            f"{what} names {len(readers)} readers, and {most} are allowed (CONTEXTURE_MAX_READERS); "
            "put them into a group and name that: group:NAME"
        )
    for name in readers:
        check_principal(what, name)
