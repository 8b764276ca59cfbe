"""Everything about a record that a build will need, computed once, when it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from contexture.errors import InvalidRequest
from contexture.ports import Redactor, TokenCounter
from contexture.retrieval.encoders import Encoders
from contexture.text.language import detect
from contexture.text.passages import Offsets, passages
from contexture.text.simhash import simhash
from contexture.text.terms import document_weights
from contexture.types import Passage, Prepared, Record, Span, Vector

PASSAGE_CHARACTERS = 400
MOST_PASSAGES = 4_000
"""A record longer than this many passages has longer ones: embedding it must end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A passage before it has vectors."""

    offsets: Offsets
    sentences: tuple[Offsets, ...]
    text: str
    search_text: str


class Preparer:
    """Turns records into what an index stores: language, passages, tokens, terms, vectors, redactions."""

    def __init__(
        self,
        *,
        encoders: Encoders,
        counters: Sequence[TokenCounter],
        redactor: Redactor,
        target: int = PASSAGE_CHARACTERS,
    ) -> None:
        self._encoders = encoders
        self._counters = tuple(counters)
        self._redactor = redactor
        self._target = target

    @property
    def redactor(self) -> Redactor:
        """What finds redactions."""
        return self._redactor

    @property
    def counters(self) -> Sequence[TokenCounter]:
        """What counts tokens, one for each encoding."""
        return self._counters

    async def prepare(self, records: Sequence[Record]) -> list[Prepared]:
        """The records, ready to be written; vectors are computed in one go for all of them."""
        clean = [_cleaned(record) for record in records]
        pieces = [self._pieces(record) for record in clean]
        texts = [piece.search_text for each in pieces for piece in each]
        langs = [record.lang for record, each in zip(clean, pieces, strict=True) for _ in each]
        vectors = iter(await self._encoders.passages(texts, langs) if texts else [])
        return [
            self._prepared(record, [(piece, next(vectors)) for piece in each])
            for record, each in zip(clean, pieces, strict=True)
        ]

    def _pieces(self, record: Record) -> list[_Piece]:
        head = f"{record.title}. " if record.title else ""
        target = max(self._target, len(record.text) // MOST_PASSAGES)
        return [
            _Piece(offsets=(start, end), sentences=inner, text=record.text[start:end],
                   search_text=head + record.text[start:end])
            for (start, end), inner in passages(record.text, target=target)
        ]  # fmt: skip

    def _prepared(self, record: Record, pieces: Sequence[tuple[_Piece, Mapping[str, Vector]]]) -> Prepared:
        redactions = tuple(self._redactor.scan(record.text, record.lang))
        return Prepared(
            record=record,
            passages=tuple(self._passage(piece, vectors, redactions) for piece, vectors in pieces),
            redactions=redactions,
            title_redactions=tuple(self._redactor.scan(record.title, record.lang)),
            rules=self._redactor.rules,
        )

    def _passage(self, piece: _Piece, vectors: Mapping[str, Vector], redactions: Sequence[Span]) -> Passage:
        start, end = piece.offsets
        return Passage(
            start=start,
            end=end,
            sentences=tuple((first - start, last - start) for first, last in piece.sentences),
            redactions=clipped(redactions, start, end),
            tokens={counter.encoding: counter.count(piece.text) for counter in self._counters},
            simhash=simhash(piece.text),
            terms=document_weights(piece.search_text),
            vectors=vectors,
        )


def clipped(spans: Sequence[Span], start: int, end: int) -> tuple[Span, ...]:
    """The parts of the spans that lie between two offsets, relative to the first."""
    return tuple(
        replace(span, start=max(span.start, start) - start, end=min(span.end, end) - start)
        for span in spans
        if span.start < end and span.end > start
    )


def _cleaned(record: Record) -> Record:
    """The record with valid Unicode throughout and its language known."""
    if not record.id:
        raise InvalidRequest("a record needs an id")
    if not valid(record.id):
        raise InvalidRequest(f"record id {record.id!r} is not valid Unicode")
    text = text_of(record)
    return replace(
        record,
        text=text,
        title=mended(record.title),
        kind=mended(record.kind),
        lang=mended(record.lang) or detect(text),
        source=mended(record.source),
        session=mended(record.session),
    )


def text_of(record: Record) -> str:
    """The text that is stored: the record's own, or its title where that is blank, so that a search can find it."""
    return mended(record.text if record.text.strip() else record.title or record.text)


def valid(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def mended(text: str) -> str:
    """The text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    return text if valid(text) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
