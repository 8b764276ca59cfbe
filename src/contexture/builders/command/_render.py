"""Rendering of a command prompt: documents with their snippets, numbered and fenced article blocks, and messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NotRequired

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.pipeline.fence import DATA_NOTICE, MaterialRole, PromptFence, safe_label
from contexture.text.terms import extract_terms
from contexture.types import Candidate, Citation, Message

NOTHING_FOUND = "_No articles found._"

_SYSTEM_PROMPT = (
    "Work from the numbered articles alone and cite them like [1]. Say so when they do not hold the answer."
)
_ANSWER_LANGUAGE = {"ru": "Answer in Russian.", "en": "Answer in English."}


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleBlock:
    """One article in a prompt: a heading of one line, and its redacted, fenced text."""

    heading: str
    text: str


def make_block(document: CommandDocument, fence: PromptFence) -> ArticleBlock:
    """The block of a document; a heading at the start of its text that repeats the title is left out."""
    title = safe_label(document.passages[0].label or document.title) or "untitled"
    named = (title, safe_label(document.source), document.date)
    text = document.snippet if fence.is_legacy else _drop_repeated_heading(document.snippet, document.title)
    return ArticleBlock(heading=", ".join(part for part in named if part), text=fence.block(text))


def _drop_repeated_heading(snippet: str, title: str) -> str:
    heading = f"# {title} "
    return snippet[len(heading) :].lstrip() or snippet if snippet.startswith(heading) else snippet


def render_messages(
    text: str, lang: str, blocks: Sequence[ArticleBlock], role: MaterialRole = MaterialRole.USER
) -> tuple[Message, ...]:
    """Messages from most to least stable, for prompt caches: system prompt, articles, question."""
    system = " ".join(part for part in (_SYSTEM_PROMPT, _ANSWER_LANGUAGE.get(lang, "")) if part)
    material = [f"[{number}] ({each.heading})\n{each.text}" for number, each in enumerate(blocks, start=1)]
    return (
        {"role": "system", "content": f"{system}\n\n{DATA_NOTICE}"},
        {"role": role.value, "name": "context", "content": "\n\n".join(material) or NOTHING_FOUND},
        {"role": "user", "content": text},
    )


DOCUMENT_LANGS = ("ru", "en")
TITLE_CHARS = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class ArticleFacts:
    """Metadata of an article besides its passages; `rung` is the number of the search that found it."""

    article_id: str
    date: str
    lang: str
    rung: int
    dated_by_loading: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandDocument:
    """One document of a built command.

    `lang` is `ru` or `en`; `spoken` is the actual language. `passages` are the found passages, redacted, best first;
    the snippet is taken from the first.
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
        """The citation of the snippet."""
        return self.passages[0].citation

    def json_form(self) -> CommandDocumentJson:
        """The document as it is sent; `spoken` is included only when it differs from `lang`."""
        shown: CommandDocumentJson = {
            "article_id": self.article_id,
            "title": self.title,
            "url": self.url or None,
            "date": self.date,
            "lang": self.lang,
            "score": self.score,
            "snippet": self.snippet,
        }
        return shown if self.spoken == self.lang else {**shown, "spoken": self.spoken}


class CommandDocumentJson(TypedDict):
    """A document of a command."""

    article_id: str
    title: str
    url: str | None
    date: str
    lang: str
    score: float
    snippet: str
    spoken: NotRequired[Annotated[str, Meta(description="Its own language, where `lang` is another.")]]


def make_document(facts: ArticleFacts, passages: Sequence[Candidate], text: str) -> CommandDocument:
    """The document of an article whose best passage is shown as `text`; its URL is set later.

    Without a title, the beginning of the text is used.
    """
    best = passages[0]
    return CommandDocument(
        article_id=facts.article_id,
        title=" ".join(best.title.split()) or text[:TITLE_CHARS],
        url="",
        source=best.source,
        date=facts.date,
        lang=facts.lang if facts.lang in DOCUMENT_LANGS else "en",
        spoken=facts.lang,
        score=best.score,
        snippet=text,
        dated_by_loading=facts.dated_by_loading,
        passages=tuple(passages),
    )


MAX_SNIPPET_CHARS = 240
"""Maximum characters of a snippet."""

_ELLIPSIS = "…"
_MAX_BACKTRACK_CHARS = 40  # a cut moves back at most this far to the last space


def make_snippet(text: str, sentences: Sequence[tuple[int, int]], query: str, limit: int = MAX_SNIPPET_CHARS) -> str:
    """At most `limit` characters of a passage on one line, starting at the sentence that covers most query terms.

    A snippet that does not reach the end of the passage ends after a word, with `…`.
    """
    return cut_line(text[_find_best_start(text, sentences, set(extract_terms(query)), limit) :], limit)


def cut_line(text: str, limit: int) -> str:
    """The text on one line, cut after a word when it is longer than `limit` characters."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    head = line[: limit - len(_ELLIPSIS)]
    gap = len(head) if line[len(head)] == " " else head.rfind(" ")
    return (head[:gap] if gap > len(head) - _MAX_BACKTRACK_CHARS else head).rstrip() + _ELLIPSIS


def _find_best_start(text: str, sentences: Sequence[tuple[int, int]], wanted: set[int], limit: int) -> int:
    """Start of the sentence from which most query terms occur within the limit; the first wins."""
    if len(text) <= limit or not wanted:
        return 0
    found = [set(extract_terms(text[start:end])) & wanted for start, end in sentences]
    best, most = 0, -1
    for at, (start, _) in enumerate(sentences):
        within = [held for (_, end), held in zip(sentences[at:], found[at:], strict=True) if end - start <= limit]
        held = len(set[int]().union(found[at], *within))
        if held > most:
            best, most = start, held
    return best
