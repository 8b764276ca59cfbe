"""The forms in which a page may be shown: whole, or its best passages in reading order."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from contexture.builders.research.render import block, name_of, page_of
from contexture.pipeline.extract import ELLIPSIS, extract
from contexture.pipeline.truncate import keep_start
from contexture.ports import TokenCounter
from contexture.text.passages import passages
from contexture.types import Candidate, Citation, Form, Variant

MARK = ELLIPSIS.strip()
_TRIES = 4  # fencing and joining move a count by a few tokens
_MARKS = 4  # tokens of the marks at both ends

_REACHED = ("", "/")  # the encodings join a slash with the line's end before it

Offsets = tuple[tuple[int, int], ...]


def pieces_of(text: str) -> Offsets:
    """The sentences of a page in order, those too long to be shown cut at white space."""
    return tuple(sentence for _, inner in passages(text) for sentence in inner)


def whole(candidate: Candidate, number: int, counter: TokenCounter) -> Variant:
    """All of a page, with what its block costs.

    What is stored is the count of its fenced text. That adds up with the count of the line above it: no token reaches
    over the end of a line into what follows.
    """
    stored = candidate.tokens.get(counter.encoding)
    if stored is None or candidate.text[:1] in _REACHED:
        return _variant(Form.FULL, candidate, number, candidate.text, (), counter)
    tokens = stored + counter.count(_block(candidate, number, ""))
    return Variant(form=Form.FULL, text=candidate.text, tokens=tokens, value=candidate.score)


def shortened(candidate: Candidate, number: int, query: str, counter: TokenCounter, limit: int) -> Variant | None:
    """The best passages of a page whose block costs at most `limit` tokens; None when nothing of it fits.

    Where a page begins or ends with something else, or something was left out between, an ellipsis says so.
    """
    frame = counter.count(_block(candidate, number, ""))
    offsets = candidate.sentences or pieces_of(candidate.text)
    weights = candidate.weights if candidate.sentences else ()
    room = limit - frame - _MARKS
    for _ in range(_TRIES):
        found = _shorter(candidate, number, query, counter, offsets, weights, room)
        if found is None or found.tokens <= limit:
            return found
        room -= found.tokens - limit
    return None


def cited(candidate: Candidate, spans: Offsets = ()) -> tuple[Citation, ...]:
    """Where what is shown of a page stands in it: all of it, or each run of sentences; nowhere for a blank page."""
    citation = candidate.citation
    if citation is None or citation.start >= citation.end:
        return ()
    if not spans or not candidate.origins:
        return (citation,)
    pairs = list(zip(candidate.sentences, candidate.origins, strict=True))
    runs = ([origin for place, origin in pairs if start < place[1] and place[0] < end] for start, end in spans)
    return tuple(replace(citation, start=run[0][0], end=run[-1][1]) for run in runs)


def _shorter(
    candidate: Candidate,
    number: int,
    query: str,
    counter: TokenCounter,
    offsets: Offsets,
    weights: Sequence[float],
    room: int,
) -> Variant | None:
    text = candidate.text
    if room < 1 or not offsets:
        return None
    found = extract(text, offsets, query, counter, room, weights=weights)
    if found.spans:
        return _variant(Form.EXTRACT, candidate, number, _marked(text, found.spans, offsets), found.spans, counter)
    start, end = found.best
    end = start + keep_start(text[start:end], counter, room)
    cut = ((start, end),)
    if not text[start:end].strip():
        return None
    return _variant(Form.TRUNCATED, candidate, number, _marked(text, cut, offsets), cut, counter)


def _marked(text: str, spans: Offsets, offsets: Offsets) -> str:
    shown = ELLIPSIS.join(text[start:end] for start, end in spans)
    before = f"{MARK} " if spans[0][0] > offsets[0][0] else ""
    return f"{before}{shown}{f' {MARK}' if spans[-1][1] < offsets[-1][1] else ''}"


def _variant(
    form: Form, candidate: Candidate, number: int, text: str, spans: Offsets, counter: TokenCounter
) -> Variant:
    tokens = counter.count(_block(candidate, number, text))
    return Variant(form=form, text=text, tokens=tokens, value=candidate.score, spans=spans)


def _block(candidate: Candidate, number: int, text: str) -> str:
    return block(number, name_of(candidate), page_of(candidate), text)
