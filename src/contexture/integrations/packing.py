"""Pieces that somebody else found, made fit for a prompt: redacted, without copies, within a token budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.tokens.models import counter_for
from contexture.builders.query.request import QueryRecipe
from contexture.builders.query.variants import items_of, variants_of
from contexture.ledger import Ledger, Reason, Trace
from contexture.pipeline.dedupe import near_duplicates
from contexture.pipeline.extract import extract
from contexture.pipeline.fence import fence
from contexture.pipeline.fit import fit
from contexture.pipeline.operators import Placeholders
from contexture.pipeline.packers import PACKERS
from contexture.pipeline.rank import ranked
from contexture.pipeline.redact import redact
from contexture.ports import Redactor
from contexture.text.sentences import sentences
from contexture.text.simhash import simhash
from contexture.types import Candidate, Form, Variant

_BETWEEN = "\n\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A text and how well it answers, from 0 to 1; `id` must not repeat."""

    id: str
    text: str
    score: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    """What fits, best first, as it may be shown; the ledger says what became of the rest."""

    pieces: tuple[Piece, ...]
    tokens: int
    ledger: Ledger


class Packing:
    """Fits pieces into `max_tokens` of a model, counted exactly with blank lines between them.

    Packing(max_tokens=1_000).run("who repairs the pump?", pieces)
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
        self._counter = counter_for(model)
        self._redactor = redactor or default_redactor()
        self._recipe = recipe or QueryRecipe()

    def run(self, question: str, pieces: Sequence[Piece]) -> Packed:
        """The most valuable pieces that fit, some of them as extracts that answer `question`."""
        trace = Trace()
        raw = [_candidate(piece) for piece in pieces]
        clean = redact(raw, self._redactor, Placeholders(), trace)
        kept = near_duplicates(ranked(clean), trace, threshold=self._recipe.near_duplicate)
        forms = self._forms(question, kept)

        def shown(chosen: Mapping[str, int]) -> list[tuple[Candidate, Variant]]:
            return [(each, forms[each.id][chosen[each.id]]) for each in kept if each.id in chosen]

        def count(chosen: Mapping[str, int]) -> int:
            return self._counter.count(_BETWEEN.join(variant.text for _, variant in shown(chosen)))

        fitted = fit(items_of(kept, forms), self._limit, PACKERS[self._recipe.packer], count)
        chosen = shown(fitted.packing.chosen)
        _judge(kept, forms, {each.id: form for each, form in chosen}, trace)
        return Packed(
            pieces=tuple(Piece(id=each.id, text=form.text, score=each.score) for each, form in chosen),
            tokens=fitted.tokens,
            ledger=trace.finish(raw),
        )

    def _forms(self, question: str, kept: Sequence[Candidate]) -> dict[str, list[Variant]]:
        """The forms of each candidate; one that is larger than the whole budget also has what of it would fit."""
        forms = variants_of(kept, query=question, counter=self._counter, recipe=self._recipe, room=self._limit)
        for candidate in kept:
            whole = forms[candidate.id][0]
            if min(form.tokens for form in forms[candidate.id]) > self._limit:
                forms[candidate.id] += self._cut(question, candidate, whole)
        return forms

    def _cut(self, question: str, candidate: Candidate, whole: Variant) -> list[Variant]:
        found = extract(candidate.text, candidate.sentences, question, self._counter, self._limit)
        if not found.text:
            return []
        text = fence(found.text)
        tokens = self._counter.count(text)
        value = whole.value * math.sqrt(tokens / whole.tokens)
        return [Variant(form=Form.EXTRACT, text=text, tokens=tokens, value=value, spans=found.spans)]


def _candidate(piece: Piece) -> Candidate:
    return Candidate(
        id=piece.id,
        key=piece.id,
        text=piece.text,
        score=piece.score,
        sentences=sentences(piece.text),
        simhash=simhash(piece.text),
    )


def _judge(
    kept: Sequence[Candidate], forms: Mapping[str, Sequence[Variant]], shown: Mapping[str, Variant], trace: Trace
) -> None:
    for candidate in kept:
        form = shown.get(candidate.id)
        if form is None:
            trace.drop(candidate, Reason.OVER_BUDGET, tokens=forms[candidate.id][0].tokens)
        else:
            trace.keep(candidate, tokens=form.tokens, form=form.form)
