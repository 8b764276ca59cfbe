"""Documents as a command gives them: cleaned, dated, in one of two languages, with a snippet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contexture.types import Candidate, Citation

LANGS = ("ru", "en")
TITLE_CHARS = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What is known of an article beside its passages; `rung` is the number of the search that found it."""

    article_id: str
    date: str
    lang: str
    rung: int
    dated_by_loading: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """One document of a built command.

    `lang` is `ru` or `en`; `spoken` is the language it is really in. `passages` are those that were found, redacted,
    best first; the snippet is of the first.
    """

    article_id: str
    title: str
    url: str
    source: str
    date: str
    lang: str
    spoken: str
    score: float
    snippet: str
    dated_by_loading: bool
    passages: tuple[Candidate, ...]

    @property
    def citation(self) -> Citation | None:
        """Where the snippet comes from."""
        return self.passages[0].citation

    def to_dict(self) -> dict[str, Any]:
        """The document as contexts carry it; `spoken` only where `lang` cannot say it."""
        shown: dict[str, Any] = {
            "article_id": self.article_id,
            "title": self.title,
            "url": self.url or None,
            "date": self.date,
            "lang": self.lang,
            "score": self.score,
            "snippet": self.snippet,
        }
        return shown if self.spoken == self.lang else {**shown, "spoken": self.spoken}


def document(facts: Facts, passages: Sequence[Candidate], text: str) -> Document:
    """The document of an article whose best passage is shown as `text`, as yet without its address.

    One without a title is called by its text.
    """
    best = passages[0]
    return Document(
        article_id=facts.article_id,
        title=" ".join(best.title.split()) or text[:TITLE_CHARS],
        url="",
        source=best.source,
        date=facts.date,
        lang=facts.lang if facts.lang in LANGS else "en",
        spoken=facts.lang,
        score=best.score,
        snippet=text,
        dated_by_loading=facts.dated_by_loading,
        passages=tuple(passages),
    )
