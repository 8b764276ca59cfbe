"""What is computed about a whole text when it is written, packed beside it so that no build computes it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec.structs import replace as changed

from contexture.ports import TokenCounter
from contexture.text.simhash import simhash
from contexture.types import Prepared, Record, Span

_FIELD = "facts"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a record's text; `found` are its redactions under `rules`, None where nothing was looked for."""

    sentences: tuple[tuple[int, int], ...] = ()
    found: tuple[tuple[int, int, str, float], ...] | None = msgspec.field(default=None, name="redactions")
    rules: str = ""
    tokens: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])
    hash: str = msgspec.field(default="0", name="simhash")  # a whole number beyond 63 bits has no place in every store

    @property
    def redactions(self) -> tuple[Span, ...] | None:
        """What must not be shown of the text, by the rules of the day."""
        return None if self.found is None else tuple(Span(*each) for each in self.found)

    @property
    def simhash(self) -> int:
        """The text's similarity hash; 0 where it is not known."""
        return int(self.hash, 16)


_NOTHING = Facts()
_decode = msgspec.json.Decoder(Facts).decode


def with_facts(item: Prepared, counters: Sequence[TokenCounter], *, shown: Callable[[str], str] = str) -> Prepared:
    """A prepared record that carries the facts about its whole text; an empty one has none.

    Tokens are counted on the text as it is `shown`.
    """
    text = item.record.text
    if not text:
        return item
    facts = Facts(
        sentences=tuple((each.start + a, each.start + b) for each in item.passages for a, b in each.sentences),
        found=tuple((span.start, span.end, span.label, span.score) for span in item.redactions),
        rules=item.rules,
        tokens={counter.encoding: counter.count(shown(text)) for counter in counters},
        hash=f"{simhash(text):x}",
    )
    # As one text: a search reads the payloads of many records and needs the facts of few.
    told = msgspec.json.encode(facts).decode()
    return replace(item, record=changed(item.record, payload={**item.record.payload, _FIELD: told}))


def facts_of(record: Record) -> Facts:
    """What was computed about a record's text; stores of before hold it unpacked, or not at all."""
    told: str | Mapping[str, Any] | None = record.payload.get(_FIELD)
    if told is None:
        return _NOTHING
    return _decode(told) if isinstance(told, str) else msgspec.convert(told, Facts)
