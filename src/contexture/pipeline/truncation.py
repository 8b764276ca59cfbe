"""Truncates a text to a token limit.

Keeps its start or end, the sentences most relevant to a query, or a model's summary. A table keeps its header and whole
rows, code keeps its fence and whole lines, prose is cut between sentences, and a mark stands where something was cut.
Extracts carry the spans of the original text they consist of.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

from msgspec.structs import replace

from contexture.errors import InvalidRequest, SourceError
from contexture.ledger import Trace
from contexture.pipeline.fence import DATA_NOTICE, PromptFence, fence
from contexture.ports import ChatModel, TokenCounter
from contexture.text.segmentation import split_sentences
from contexture.text.terms import extract_terms
from contexture.types import Candidate, Citation, Message, Variant

MIN_TOKENS = 100
MIN_CHARS = 50
_SENTENCE_SHARE = 0.5  # a cut moves to the end of a sentence if at least this share of what fits is kept
_LEFT_OUT_TOKENS = 8  # estimated cost of the line that says what is left out
_WORD_GAP_CHARS = 40  # a cut moves to the nearest white space within this many characters


class TruncationStrategy(StrEnum):
    """What to keep of a text that is too long."""

    KEEP_START = "keep_start"
    KEEP_END = "keep_end"
    EXTRACTIVE = "extractive"
    SUMMARIZE = "summarize"


@dataclass(frozen=True, kw_only=True, slots=True)
class TruncatedText:
    """A truncated text, its token count, and the spans of the original it consists of, in order.

    Between and around the spans stand only marks of what was cut: `ELLIPSIS`, or a line in a table or in code. A
    summary does not quote the original and has no spans.
    """

    text: str
    tokens: int
    spans: TextSpans


def truncate(
    text: str,
    counter: TokenCounter,
    limit: int,
    *,
    strategy: TruncationStrategy = TruncationStrategy.EXTRACTIVE,
    query: str = "",
    offsets: Sequence[tuple[int, int]] | None = None,
    min_tokens: int = MIN_TOKENS,
    min_chars: int = MIN_CHARS,
) -> TruncatedText | None:
    """The text in at most `limit` tokens, counted on the result; None when too little would remain.

    A text that fits is returned whole. Otherwise it is cut only if `limit` is at least `min_tokens`
    and at least `min_chars` characters remain. `offsets` are the text's sentences, if known. Raises `InvalidRequest`
    for the strategy `SUMMARIZE`, which needs a model: see `summarize`.
    """
    tokens = counter.count(text)
    if tokens <= limit:
        return TruncatedText(text=text, tokens=tokens, spans=((0, len(text)),) if text else ())
    if limit < max(1, min_tokens):
        return None
    cut = _apply_strategy(text, counter, limit, strategy, query, offsets)
    return cut if len(cut.text) >= min_chars and cut.text else None


def _apply_strategy(
    text: str,
    counter: TokenCounter,
    limit: int,
    strategy: TruncationStrategy,
    query: str,
    offsets: Sequence[tuple[int, int]] | None,
) -> TruncatedText:
    if strategy is TruncationStrategy.SUMMARIZE:
        raise InvalidRequest("`summarize` needs a model; use `contexture.pipeline.truncation.summarize`")
    structured = None if offsets is not None else _cut_lines(text, counter, limit, strategy, query)
    if structured is not None:
        return structured
    mark = counter.count(ELLIPSIS)
    room = limit - mark if limit > mark else limit  # without room for a mark there is none
    if strategy is TruncationStrategy.KEEP_START:
        return _mark_cuts(text, ((0, find_start_cut(text, counter, room)),), counter, limit)
    if strategy is TruncationStrategy.KEEP_END:
        return _mark_cuts(text, ((find_end_cut(text, counter, room), len(text)),), counter, limit)
    sentences = split_sentences(text) if offsets is None else offsets
    found = extract_sentences(text, sentences, query, counter, room)
    if found.spans:
        return _mark_cuts(text, found.spans, counter, limit)
    start, end = found.best
    return _mark_cuts(text, ((start, start + find_start_cut(text[start:end], counter, room)),), counter, limit)


def _mark_cuts(text: str, spans: TextSpans, counter: TokenCounter, limit: int) -> TruncatedText:
    """The spans of a text with a mark wherever something between or around them is left out, as far as it fits."""
    spans = tuple(span for span in spans if span[0] < span[1])
    plain = _join_spans(text, spans)
    if not spans:
        return TruncatedText(text="", tokens=0, spans=())
    before = ELLIPSIS.lstrip() if text[: spans[0][0]].strip() else ""
    after = ELLIPSIS.rstrip() if text[spans[-1][1] :].strip() else ""
    for marked in (f"{before}{plain}{after}", f"{plain}{after}", plain):
        tokens = counter.count(marked)
        if tokens <= limit:
            return TruncatedText(text=marked, tokens=tokens, spans=spans)
    return TruncatedText(text=plain, tokens=counter.count(plain), spans=spans)


_TABLE_RULE = re.compile(r"\s*\|?\s*:?-{2,}:?\s*(?:\|\s*:?-{2,}:?\s*)*\|?\s*")
_CODE_FENCE = re.compile(r"(`{3,}|~{3,})[^`\n]*")
_MIN_TABLE_LINES = 4  # header, rule and two rows


def _cut_lines(
    text: str, counter: TokenCounter, limit: int, strategy: TruncationStrategy, query: str
) -> TruncatedText | None:
    """A table with its header and whole rows, or code with its fence and whole lines; None for any other text."""
    lines = _line_spans(text)
    rows = [text[start:end] for start, end in lines]
    if len(lines) >= _MIN_TABLE_LINES and "|" in rows[0] and _TABLE_RULE.fullmatch(rows[1]) and "|" in rows[1]:
        head, body, tail, what = lines[:2], lines[2:], (), "rows"
    elif len(lines) > 2 and (fence_mark := _CODE_FENCE.fullmatch(rows[0])) and rows[-1].strip() == fence_mark[1]:  # noqa: PLR2004 - two fences and code
        head, body, tail, what = lines[:1], lines[1:-1], lines[-1:], "lines"
    else:
        return None
    order = _order_lines([text[start:end] for start, end in body], strategy, query if what == "rows" else "")
    return _keep_lines(text, (head, body, tail), order, what, counter, limit)


def _order_lines(lines: Sequence[str], strategy: TruncationStrategy, query: str) -> list[int]:
    """Positions of lines, those to keep first."""
    if strategy is TruncationStrategy.KEEP_END:
        return list(range(len(lines) - 1, -1, -1))
    if strategy is TruncationStrategy.KEEP_START or not query:
        return list(range(len(lines)))
    scores = score_sentences(lines, query)
    return sorted(range(len(lines)), key=lambda at: (-scores[at], at))


def _keep_lines(
    text: str,
    parts: tuple[TextSpans, TextSpans, TextSpans],
    order: Sequence[int],
    what: str,
    counter: TokenCounter,
    limit: int,
) -> TruncatedText | None:
    """As many lines as fit, in their place, and a line that says how many are missing; None when none fits."""
    head, body, tail = parts
    costs = [counter.count(text[start:end] + "\n") for start, end in body]
    room = limit - counter.count("\n".join(text[start:end] for start, end in (*head, *tail))) - _LEFT_OUT_TOKENS
    chosen: list[int] = []
    for at in order:
        if costs[at] <= room:
            chosen.append(at)
            room -= costs[at]
    while chosen:
        kept = [body[at] for at in sorted(chosen)]
        mark = f"(… {len(body) - len(kept)} {what} left out)"
        shown = [text[start:end] for start, end in (*head, *kept)]
        result = "\n".join([*shown, mark, *(text[start:end] for start, end in tail)])
        tokens = counter.count(result)
        if tokens <= limit:
            return TruncatedText(text=result, tokens=tokens, spans=(*head, *kept, *tail))
        chosen.pop()
    return None


def _line_spans(text: str) -> TextSpans:
    """The spans of the lines of a text, without blank ones around it."""
    spans: list[tuple[int, int]] = []
    start = 0
    for line in text.split("\n"):
        spans.append((start, start + len(line)))
        start += len(line) + 1
    while spans and not text[spans[-1][0] : spans[-1][1]].strip():
        spans.pop()
    while spans and not text[spans[0][0] : spans[0][1]].strip():
        spans.pop(0)
    return tuple(spans)


def find_start_cut(text: str, counter: TokenCounter, limit: int) -> int:
    """The offset at which to cut so that the beginning fits: after a sentence, else between two words if possible."""
    end = len(counter.prefix(text, limit))
    sentence = max((stop for _, stop in split_sentences(text) if stop <= end), default=0)
    if end < len(text) and sentence >= _SENTENCE_SHARE * end and counter.count(text[:sentence]) <= limit:
        return sentence
    word = _last_gap(text, end)
    return word if word and counter.count(text[:word]) <= limit else end


def find_end_cut(text: str, counter: TokenCounter, limit: int) -> int:
    """The offset from which the rest fits: before a sentence, else between two words if possible."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if counter.count(text[middle:]) <= limit else (middle, high)
    sentence = min((start for start, _ in split_sentences(text) if start >= high), default=len(text))
    room = _SENTENCE_SHARE * (len(text) - high)
    if high > 0 and len(text) - sentence >= room > 0 and counter.count(text[sentence:]) <= limit:
        return sentence
    word = _next_gap(text, high)
    return word if word < len(text) and counter.count(text[word:]) <= limit else high


def _last_gap(text: str, end: int) -> int:
    """The end of the last whole word before `end`, or `end` when no gap is near."""
    if end == len(text) or text[end].isspace():
        return len(text[:end].rstrip())
    for at in range(end - 1, max(0, end - _WORD_GAP_CHARS), -1):
        if text[at].isspace():
            return len(text[:at].rstrip())
    return end


def _next_gap(text: str, start: int) -> int:
    """The start of the first whole word from `start` on, or `start` when no gap is near."""
    if start == 0 or text[start - 1].isspace():
        return start
    for at in range(start, min(len(text), start + _WORD_GAP_CHARS)):
        if text[at].isspace():
            return len(text) - len(text[at:].lstrip())
    return start


TextSpans: TypeAlias = tuple[tuple[int, int], ...]

ELLIPSIS = " … "
"""Separates kept sentences where text was left out."""

_K1 = 1.2
_B = 0.75
_POSITION_BONUS = 0.1  # bonus of the first sentence: less than any match


@dataclass(frozen=True, kw_only=True, slots=True)
class ExtractedSentences:
    """The kept text and its spans, empty when no sentence fits; `best` is the span of the best sentence."""

    text: str
    spans: TextSpans
    best: tuple[int, int]


def extract_sentences(
    text: str,
    offsets: Sequence[tuple[int, int]],
    query: str,
    counter: TokenCounter,
    limit: int,
    *,
    weights: Sequence[float] = (),
) -> ExtractedSentences:
    """Keep the best sentences of `text` that fit in `limit` tokens together, in original order.

    Adjacent sentences keep the text between them; others are joined by `ELLIPSIS`. A sentence that does not
    fit never blocks a shorter one. Without a query, or without a match, earlier sentences rank higher.
    `weights`, one per sentence, take precedence over the match with the query.
    """
    scores = score_sentences([text[start:end] for start, end in offsets], query)
    known = weights or [0.0] * len(offsets)
    order = sorted(range(len(offsets)), key=lambda at: (-known[at], -scores[at], at))
    chosen = _choose_sentences(text, offsets, order, counter, limit)
    while chosen and counter.count(_join_spans(text, _join_neighbours(offsets, chosen))) > limit:
        chosen.pop()
    spans = _join_neighbours(offsets, chosen)
    return ExtractedSentences(
        text=_join_spans(text, spans), spans=spans, best=offsets[order[0]] if order else (0, len(text))
    )


def cite_variant(candidate: Candidate, variant: Variant) -> tuple[Citation, ...]:
    """Citations of what a variant shows: the whole candidate, or one per run of sentences."""
    if candidate.citation is None:
        return ()
    if not variant.spans or not candidate.origins:
        return (candidate.citation,)
    pairs = list(zip(candidate.sentences, candidate.origins, strict=True))
    begins = {sentence[0]: origin[0] for sentence, origin in pairs}
    ends = {sentence[1]: origin[1] for sentence, origin in pairs}
    return tuple(replace(candidate.citation, start=begins[start], end=ends[end]) for start, end in variant.spans)


def score_sentences(pieces: Sequence[str], query: str) -> list[float]:
    """BM25 of each piece against the query, with the pieces themselves as the collection.

    A small bonus that decreases with the position breaks ties.
    """
    asked = _query_terms(query)
    if not asked:
        return [_POSITION_BONUS / (1 + at) for at in range(len(pieces))]
    return list(_bm25_scores(tuple(pieces), asked))


@lru_cache(maxsize=32)
def _bm25_scores(pieces: tuple[str, ...], asked: tuple[int, ...]) -> tuple[float, ...]:
    """The scores of pieces against terms; cached, because a text is truncated to several lengths."""
    counts = [Counter(extract_terms(piece)) for piece in pieces]
    wanted = {term: _idf(term, counts) for term in asked}
    average = sum(count.total() for count in counts) / len(counts) if counts else 0.0
    return tuple(_bm25(count, wanted, average) + _POSITION_BONUS / (1 + at) for at, count in enumerate(counts))


@lru_cache(maxsize=64)
def _query_terms(query: str) -> tuple[int, ...]:
    """The terms of a query; cached, because many texts are scored against the same one."""
    return tuple(sorted(set(extract_terms(query))))


def _idf(term: int, counts: Sequence[Counter[int]]) -> float:
    holders = sum(term in count for count in counts)
    return math.log(1 + (len(counts) - holders + 0.5) / (holders + 0.5))


def _bm25(count: Counter[int], wanted: dict[int, float], average: float) -> float:
    norm = _K1 * (1 - _B + _B * count.total() / average) if average else _K1
    return math.fsum(
        rarity * count[term] * (_K1 + 1) / (count[term] + norm) for term, rarity in wanted.items() if term in count
    )


def _choose_sentences(
    text: str, offsets: Sequence[tuple[int, int]], order: Sequence[int], counter: TokenCounter, limit: int
) -> list[int]:
    """Positions of sentences that fit by the sum of their counts, best first; the caller counts the joined text."""
    gap = counter.count(ELLIPSIS)
    room = limit + gap  # n runs have n - 1 gaps
    chosen: dict[int, None] = {}
    for at in order:
        start, end = offsets[at]
        neighbours = (at - 1 in chosen) + (at + 1 in chosen)
        cost = counter.count(text[start:end]) + gap * (1 - neighbours)
        if cost <= room:
            chosen[at] = None
            room -= cost
    return list(chosen)


def _join_neighbours(offsets: Sequence[tuple[int, int]], chosen: Sequence[int]) -> TextSpans:
    """The spans of the chosen sentences, adjacent ones merged."""
    spans: list[tuple[int, int]] = []
    last = -2
    for at in sorted(chosen):
        start, end = offsets[at]
        if at == last + 1:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
        last = at
    return tuple(spans)


def _join_spans(text: str, spans: TextSpans) -> str:
    return ELLIPSIS.join(text[start:end] for start, end in spans)


_SUMMARIZE = "summarize"
_SUMMARY_TASK = "Summarize the document in at most {limit} tokens, in its own language. Answer with the summary alone."
_SUMMARY_FOCUS = "Keep what helps to answer: {query}"


async def summarize(
    text: str,
    counter: TokenCounter,
    limit: int,
    *,
    model: ChatModel,
    trace: Trace,
    query: str = "",
    min_tokens: int = MIN_TOKENS,
    min_chars: int = MIN_CHARS,
) -> TruncatedText | None:
    """The text in at most `limit` tokens: whole if it fits, else the model's summary of it.

    When the model fails, or its answer is empty or too long, the result is that of `truncate` and a
    degradation is recorded in `trace`. None when `limit` is below `min_tokens`, or too little would remain.
    """
    extracted = truncate(text, counter, limit, query=query, min_tokens=min_tokens, min_chars=min_chars)
    if limit < min_tokens or counter.count(text) <= limit:
        return extracted
    try:
        answer = (await model.complete(_summary_messages(text, limit, query), max_tokens=limit)).strip()
    except SourceError as failure:
        trace.add_degradation(_SUMMARIZE, failure)
        return extracted
    tokens = counter.count(answer)
    if answer and tokens <= limit:
        return TruncatedText(text=answer, tokens=tokens, spans=())
    trace.add_degradation(
        _SUMMARIZE,
        "the summary was empty" if not answer else f"the summary has {tokens} tokens, not {limit}",
    )
    return extracted


def _summary_messages(text: str, limit: int, query: str) -> list[Message]:
    shown = PromptFence().inline(" ".join(query.split()))
    focus = f"\n\n{_SUMMARY_FOCUS.format(query=shown)}" if query else ""
    return [
        {"role": "system", "content": f"{_SUMMARY_TASK.format(limit=limit)} {DATA_NOTICE}"},
        {"role": "user", "content": f"[1] (document)\n{fence(text)}{focus}"},
    ]
