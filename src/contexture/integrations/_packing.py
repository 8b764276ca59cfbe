"""Packs texts from other retrievers into a prompt: redacted, deduplicated, within a token budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contexture import wiring
from contexture.builders.query.render import make_variants
from contexture.builders.query.request import QueryRecipe
from contexture.ledger import Ledger, Trace
from contexture.pipeline.candidates import drop_near_duplicates, rank_candidates
from contexture.pipeline.fence import fence
from contexture.pipeline.knapsack import PACKERS
from contexture.pipeline.packing import fit_prompt, make_pack_items, record_verdicts
from contexture.pipeline.redaction import Placeholders, redact_candidates
from contexture.pipeline.truncation import extract_sentences
from contexture.ports import Redactor
from contexture.text.segmentation import split_sentences
from contexture.text.simhash import simhash
from contexture.types import Candidate, Form, Variant

_SEPARATOR = "\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoredText:
    """A text and its relevance from 0 to 1; `id` must be unique."""

    id: str
    text: str
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class PackedTexts:
    """The texts that fit, best first, redacted; the ledger records the outcome of every text."""

    pieces: tuple[ScoredText, ...]
    tokens: int
    ledger: Ledger


class TextPacker:
    """Fits texts into `max_tokens` of a model: redacted, deduplicated, counted exactly with blank lines between them.

    TextPacker(max_tokens=1_000).pack("who repairs the pump?", texts)
    """

    def __init__(
        self,
        *,
        max_tokens: int,
        model: str = "gpt-4o",
        redactor: Redactor | None = None,
        recipe: QueryRecipe | None = None,
    ) -> None:
        self._limit = max_tokens
        self._counter = wiring.counter_for(model)
        self._redactor = redactor or wiring.default_redactor()
        self._recipe = recipe or QueryRecipe()

    def pack(self, question: str, pieces: Sequence[ScoredText]) -> PackedTexts:
        """Return the most valuable texts that fit, some of them as extracts that answer `question`."""
        trace = Trace()
        raw = [_to_candidate(piece) for piece in pieces]
        hidden = Placeholders()
        for piece in pieces:
            hidden.keep_written(piece.text)
        clean = redact_candidates(raw, self._redactor, hidden, trace)
        kept = drop_near_duplicates(rank_candidates(clean), trace, threshold=self._recipe.near_duplicate)
        forms = self._build_variants(question, kept)

        def choose_variants(chosen: Mapping[str, int]) -> list[tuple[Candidate, Variant]]:
            return [(each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen]

        def count(chosen: Mapping[str, int]) -> int:
            return self._counter.count(_SEPARATOR.join(variant.text for _, variant in choose_variants(chosen)))

        fitted = fit_prompt(make_pack_items(kept, forms), self._limit, PACKERS[self._recipe.packer], count)
        chosen = choose_variants(fitted.packing.chosen)
        record_verdicts(kept, forms, {each.id: form for each, form in chosen}, trace)
        return PackedTexts(
            pieces=tuple(ScoredText(id=each.id, text=form.text, score=each.score) for each, form in chosen),
            tokens=fitted.tokens,
            ledger=trace.finish(raw),
        )

    def _build_variants(self, question: str, kept: Sequence[Candidate]) -> dict[str, list[Variant]]:
        """Return the variants of each candidate; one larger than the whole budget also gets a variant that fits."""
        forms = make_variants(kept, query=question, counter=self._counter, recipe=self._recipe, room=self._limit)
        for candidate in kept:
            whole = forms[candidate.id][0]
            if min(form.tokens for form in forms[candidate.id]) > self._limit:
                forms[candidate.id] += self._extract_to_fit(question, candidate, whole)
        return forms

    def _extract_to_fit(self, question: str, candidate: Candidate, whole: Variant) -> list[Variant]:
        found = extract_sentences(candidate.text, candidate.sentences, question, self._counter, self._limit)
        if not found.text:
            return []
        text = fence(found.text)
        tokens = self._counter.count(text)
        value = whole.value * math.sqrt(tokens / whole.tokens)
        return [Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=found.spans)]


def _to_candidate(piece: ScoredText) -> Candidate:
    return Candidate(
        id=piece.id,
        key=piece.id,
        text=piece.text,
        score=piece.score,
        sentences=split_sentences(piece.text),
        simhash=simhash(piece.text),
    )
