"""`TextFacts`: facts computed about a whole text when it is written, stored in the record's payload for builds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from contexture.ports import TokenCounter
from contexture.text.simhash import simhash
from contexture.types import PreparedRecord, Record, Span

_FACTS_FIELD = "facts"


class TextFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a record's text; `found` are its redactions under `rules`, None when it was not scanned."""

    sentences: tuple[tuple[int, int], ...] = ()
    found: tuple[tuple[int, int, str, float], ...] | None = msgspec.field(default=None, name="redactions")
    rules: str = ""
    tokens: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    hash: str = msgspec.field(default="0", name="simhash")  # not every store can hold unsigned 64-bit integers

    @property
    def redactions(self) -> tuple[Span, ...] | None:
        """The spans that must not be shown, as found by `rules`; None when the text was not scanned."""
        return None if self.found is None else tuple(Span(*each) for each in self.found)

    @property
    def simhash(self) -> int:
        """The text's similarity hash; 0 when unknown."""
        return int(self.hash, 16)


_NO_FACTS = TextFacts()
_decode_facts = msgspec.json.Decoder(TextFacts).decode


def attach_text_facts(
    item: PreparedRecord, counters: Sequence[TokenCounter], *, shown: Callable[[str], str] = str
) -> PreparedRecord:
    """The prepared record with the facts about its whole text in its payload; unchanged if the text is empty.

    Tokens are counted on the result of `shown(text)`.
    """
    text = item.record.text
    if not text:
        return item
    facts = TextFacts(
        sentences=tuple((each.start + a, each.start + b) for each in item.passages for a, b in each.sentences),
        found=tuple((span.start, span.end, span.label, span.score) for span in item.redactions),
        rules=item.rules,
        tokens={counter.encoding: counter.count(shown(text)) for counter in counters},
        hash=f"{_hash_text(item):x}",
    )
    # As one JSON string, because a search reads the payloads of many records and needs the facts of few.
    encoded = msgspec.json.encode(facts).decode()
    return replace(item, record=changed(item.record, payload={**item.record.payload, _FACTS_FIELD: encoded}))


def _hash_text(item: PreparedRecord) -> int:
    """The similarity hash of a record's text, which is known if one passage holds all of it."""
    text, first = item.record.text, item.passages[0] if item.passages else None
    return first.simhash if first is not None and first.end - first.start == len(text) else simhash(text)


def read_text_facts(record: Record) -> TextFacts:
    """The facts about a record's text; older stores have them as an object instead of a string, or not at all."""
    stored: str | Mapping[str, Any] | None = record.payload.get(_FACTS_FIELD)
    if stored is None:
        return _NO_FACTS
    return _decode_facts(stored) if isinstance(stored, str) else msgspec.convert(stored, TextFacts)
