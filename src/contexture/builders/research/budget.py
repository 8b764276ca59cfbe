"""Which pages are shown, and how much of each: the lowest-scored are shortened first, and first to go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from contexture.builders.research.render import SEPARATOR, block, joined, name_of, page_of
from contexture.builders.research.request import ResearchRecipe
from contexture.builders.research.variants import shortened, whole
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Variant

_SEAM = 1  # tokens that a blank line adds at most, where it does not join a neighbour
_SENTENCE = 8  # tokens below which nothing worth reading can be added


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """The pages that are shown, best first, as one text; `full` is what each page would cost whole."""

    shown: tuple[tuple[Candidate, Variant], ...]
    text: str
    tokens: int
    full: Mapping[str, int]


def text_of(shown: Sequence[tuple[Candidate, Variant]]) -> str:
    """The shown pages as numbered blocks."""
    return joined(
        [
            block(number, name_of(candidate), page_of(candidate), form.text)
            for number, (candidate, form) in enumerate(shown, start=1)
        ]
    )


def fit_pages(
    pages: Sequence[Candidate], query: str, *, counter: TokenCounter, limit: int, recipe: ResearchRecipe
) -> Fitted:
    """As many of `pages`, given best first, as fit in `limit` tokens, counted on the text as it is shown.

    Parts add up to a little more or less than the whole counts, so what the last count was over is taken off until
    the whole fits.
    """
    forms = {page.id: whole(page, number, counter) for number, page in enumerate(pages, start=1)}
    fitted = _counted([(page, forms[page.id]) for page in pages], forms, counter)
    room = limit
    while fitted.tokens > limit:
        shown = _Filling(pages, forms, query, counter, recipe).filled(room)
        fitted = _counted(shown, forms, counter)
        room -= max(1, fitted.tokens - limit)
    return fitted


def _counted(shown: Sequence[tuple[Candidate, Variant]], full: Mapping[str, Variant], counter: TokenCounter) -> Fitted:
    text = text_of(shown)
    costs = {page: form.tokens for page, form in full.items()}
    return Fitted(shown=tuple(shown), text=text, tokens=counter.count(text), full=costs)


@dataclass(slots=True)
class _Filling:
    """One way to spend a number of tokens on pages."""

    pages: Sequence[Candidate]
    full: Mapping[str, Variant]
    query: str
    counter: TokenCounter
    recipe: ResearchRecipe
    chosen: dict[str, Variant] = field(default_factory=dict[str, Variant])
    left: int = 0

    def filled(self, room: int) -> list[tuple[Candidate, Variant]]:
        """Every page short, in order, and what is left over to the best ones."""
        self.left = room + self._seam
        self._shorten_all()
        self._lengthen_best()
        return [(page, self.chosen[page.id]) for page in self.pages if page.id in self.chosen]

    @property
    def _seam(self) -> int:
        return self.counter.count(SEPARATOR) or _SEAM

    def _shorten_all(self) -> None:
        """A page of which nothing fits is left out, and does not keep shorter ones behind it from being shown."""
        share = max(self.recipe.least, min(self.recipe.short, self.left // max(1, len(self.pages))))
        for number, page in enumerate(self.pages, start=1):
            form = self._short(number, page, min(share, self.left - self._seam))
            if form is not None:
                self.chosen[page.id] = form
                self.left -= form.tokens + self._seam

    def _lengthen_best(self) -> None:
        for number, page in enumerate(self.pages, start=1):
            before = self.chosen.get(page.id)
            if before is None or before.form is Form.FULL or self.left < _SENTENCE:
                continue
            after = self._short(number, page, before.tokens + self.left)
            if after is not None and after.tokens > before.tokens:
                self.chosen[page.id] = after
                self.left -= after.tokens - before.tokens

    def _short(self, number: int, page: Candidate, limit: int) -> Variant | None:
        """The page whole where that fits, else what fits of it, unless that would say too little."""
        full = self.full[page.id]
        if full.tokens <= limit:
            return full
        if limit < self.recipe.shortest:
            return None
        return shortened(page, number, self.query, self.counter, limit)
