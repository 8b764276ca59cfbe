"""Composition of a command: redacted passages become documents and a prompt within the token limit.

A prompt has documents with their snippets, and article blocks, numbered and fenced. Pure, so that a capsule rebuilds
the same bytes. Every passage gets a verdict in the ledger.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NotRequired

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.builders.replay import ComposedPrompt
from contexture.capsule import Capsule, convert_part
from contexture.errors import BudgetTooSmall, InvalidRequest
from contexture.ledger import Reason, Trace
from contexture.pipeline.candidates import rank_candidates
from contexture.pipeline.fence import DATA_NOTICE, MaterialRole, PromptFence, make_fence, safe_label, validate_prompt
from contexture.ports import TokenCounter
from contexture.text.skeleton import describe_invisible
from contexture.text.terms import extract_terms
from contexture.types import Candidate, Citation, Form, Message

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


LOAD_DATE_NOTE = "dated by its loading: nobody says when it was published"


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandPromptPlan:
    """What a command prompt is composed from besides candidates; redacted, stored in the capsule.

    Role and fence are those of the first layout for a capsule that does not name its own.
    """

    text: str
    lang: str
    k: int
    max_tokens: int
    articles: tuple[ArticleFacts, ...]
    material_role: MaterialRole = MaterialRole.SYSTEM
    fence_version: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ComposedCommand:
    """Documents, the prompt that shows them and its tokens; `unlimited` is the token count without a limit."""

    documents: tuple[CommandDocument, ...]
    messages: tuple[Message, ...]
    tokens: int
    unlimited: int


def compose_command(
    plan: CommandPromptPlan, candidates: Sequence[Candidate], *, counter: TokenCounter, trace: Trace
) -> ComposedCommand:
    """The best `plan.k` documents within the token limit, earlier searches first.

    Every passage gets a verdict in the trace.
    """
    found = _make_documents(plan, candidates)
    chosen = found[: plan.k]
    for beyond in found[plan.k :]:
        _record_dropped(beyond, Reason.BEYOND_TOP_K, counter, trace)
    fence = make_fence(counter, version=plan.fence_version)
    blocks = [make_block(each, fence) for each in chosen]
    prompt = render_messages(plan.text, plan.lang, blocks, plan.material_role)
    unlimited = tokens = counter.count_messages(prompt)
    while tokens > plan.max_tokens:
        if not chosen:
            raise BudgetTooSmall(tokens, plan.max_tokens)
        _record_dropped(chosen.pop(), Reason.OVER_BUDGET, counter, trace)
        prompt = render_messages(plan.text, plan.lang, blocks[: len(chosen)], plan.material_role)
        tokens = counter.count_messages(prompt)
    for each in chosen:
        _record_kept(each, counter, trace)
    shown, texts = [each.passages[0] for each in chosen], [each.text for each in blocks[: len(chosen)]]
    validate_prompt(tokens=tokens, limit=plan.max_tokens, shown=shown, texts=texts, messages=prompt, fence=fence)
    return ComposedCommand(documents=tuple(chosen), messages=prompt, tokens=tokens, unlimited=unlimited)


def _make_documents(plan: CommandPromptPlan, candidates: Sequence[Candidate]) -> list[CommandDocument]:
    """Every article as a document, ordered by the search that found it, then best first, ties by id."""
    groups: dict[str, list[Candidate]] = {}
    for candidate in rank_candidates(candidates):
        groups.setdefault(candidate.record_id, []).append(candidate)
    known = {facts.article_id: facts for facts in plan.articles}
    if unknown := sorted(set(groups) - set(known)):
        raise InvalidRequest(f"nothing is known of article {unknown[0]!r}")
    order = sorted(groups, key=lambda name: (known[name].rung, -groups[name][0].score, name))
    return [make_document(known[name], groups[name], _best_snippet(groups[name][0], plan.text)) for name in order]


def _best_snippet(best: Candidate, query: str) -> str:
    return make_snippet(best.text, best.sentences, query)


def _record_kept(shown: CommandDocument, counter: TokenCounter, trace: Trace) -> None:
    best, *others = shown.passages
    whole = shown.snippet == " ".join(best.text.split())
    trace.keep(
        best,
        tokens=counter.count(shown.snippet),
        form=Form.FULL if whole else Form.TRUNCATED,
        note="; ".join(filter(None, (LOAD_DATE_NOTE * shown.dated_by_loading, describe_invisible(shown.snippet)))),
    )
    for other in others:
        trace.drop(other, Reason.BEYOND_TOP_K, of=best.id, note="another passage of the article is shown")


def _record_dropped(left_out: CommandDocument, reason: Reason, counter: TokenCounter, trace: Trace) -> None:
    for passage in left_out.passages:
        trace.drop(passage, reason, tokens=counter.count(left_out.snippet))


CAPSULE_KIND = "command"


def recompose_command(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The prompt of a command capsule, composed again; see `RecomposeFunction`."""
    plan = convert_part(capsule.request.get("plan"), CommandPromptPlan, "a command")
    plan = replace(plan, max_tokens=plan.max_tokens + more_tokens)
    composed = compose_command(plan, capsule.candidates, counter=counter, trace=trace)
    return ComposedPrompt(composed.messages, composed.unlimited)
