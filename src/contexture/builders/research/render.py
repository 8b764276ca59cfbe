"""Rendering of research sources: headers, fenced blocks, messages, and the variants of each page."""

from collections.abc import Sequence
from functools import lru_cache

from msgspec.structs import replace

from contexture.pipeline.fence import DATA_NOTICE, MaterialRole, PromptFence, safe_label
from contexture.pipeline.truncation import ELLIPSIS, extract_sentences, find_start_cut
from contexture.ports import TokenCounter
from contexture.text.segmentation import split_passages
from contexture.types import Candidate, Citation, Form, Message, Variant

NOTHING_FOUND = "_No relevant content found._"
BLOCK_SEPARATOR = "\n\n"

_FILENAME_CACHE_SIZE = 1_024
_FENCE = PromptFence()


def render_header(number: int, filename: str, page: int) -> str:
    """The header line of a source; the file name is sanitized, so it cannot end the header early or imitate one."""
    return f"[Document {number}: {_filename_label(filename) or 'untitled'}, Page {page}]"


def render_block(number: int, filename: str, page: int, content: str, fence: PromptFence = _FENCE) -> str:
    """One numbered source: its header, then its content, fenced."""
    return f"{render_header(number, filename, page)}\n{fence.block(content)}"


def shown_filename(candidate: Candidate) -> str:
    """The redacted file name of a page: its label where the header form differs."""
    return candidate.title if _filename_label(candidate.title) == candidate.label else candidate.label


@lru_cache(maxsize=_FILENAME_CACHE_SIZE)
def _filename_label(filename: str) -> str:
    """The file name as a header label; cached, because a build renders the same names often."""
    return safe_label(filename)


def page_number(candidate: Candidate) -> int:
    """The page number of a candidate."""
    return (candidate.citation.page if candidate.citation else None) or 0


def join_blocks(blocks: Sequence[str]) -> str:
    """The blocks as one text, separated by blank lines."""
    return BLOCK_SEPARATOR.join(blocks)


def render_messages(system: str, query: str, text: str, role: MaterialRole = MaterialRole.USER) -> tuple[Message, ...]:
    """Messages from most to least stable, for prompt caches: system prompt, sources, question."""
    return (
        {"role": "system", "content": f"{system}\n\n{DATA_NOTICE}" if system else DATA_NOTICE},
        {"role": role.value, "name": "context", "content": text or NOTHING_FOUND},
        {"role": "user", "content": query},
    )


ELLIPSIS_MARK = ELLIPSIS.strip()
_MAX_TRIES = 4  # fencing and joining change a count by a few tokens
_MARK_TOKENS = 4  # tokens of the marks at both ends

_MERGING_STARTS = ("", "/")  # encodings merge a slash with the line break before it

Offsets = tuple[tuple[int, int], ...]


def split_sentences(text: str) -> Offsets:
    """Sentence offsets of a page in order; sentences too long to be shown are cut at white space."""
    return tuple(sentence for _, inner in split_passages(text) for sentence in inner)


def full_variant(candidate: Candidate, number: int, counter: TokenCounter, fence: PromptFence) -> Variant:
    """The full page with the token cost of its block; uses the stored count where it is exact.

    The stored count is that of its fenced text. It can be added to the count of the header line, because no token
    extends across the line break; an empty text, or one that starts with a slash, is counted with its header.
    """
    stored = candidate.tokens.get(counter.encoding)
    if stored is None or candidate.text[:1] in _MERGING_STARTS:
        return _make_variant(Form.FULL, candidate, number, candidate.text, (), counter, fence)
    tokens = stored + counter.count(_render_candidate(candidate, number, "", fence))
    return Variant(form=Form.FULL, text=candidate.text, tokens=tokens, value=candidate.score)


def shorten_page(
    candidate: Candidate, number: int, query: str, counter: TokenCounter, limit: int, fence: PromptFence
) -> Variant | None:
    """The best sentences of a page whose block costs at most `limit` tokens; None when nothing fits.

    Omissions are marked by an ellipsis.
    """
    frame = counter.count(_render_candidate(candidate, number, "", fence))
    offsets = candidate.sentences or split_sentences(candidate.text)
    weights = candidate.weights if candidate.sentences else ()
    room = limit - frame - _MARK_TOKENS
    for _ in range(_MAX_TRIES):
        found = _extract_within(candidate, number, query, counter, offsets, weights, room, fence)
        if found is None or found.tokens <= limit:
            return found
        room -= found.tokens - limit
    return None


def cite_spans(candidate: Candidate, spans: Offsets = ()) -> tuple[Citation, ...]:
    """Citations of the shown spans of a page: the whole page, or one per run of sentences; none for a blank page."""
    citation = candidate.citation
    if citation is None or citation.start >= citation.end:
        return ()
    if not spans or not candidate.origins:
        return (citation,)
    pairs = list(zip(candidate.sentences, candidate.origins, strict=True))
    runs = ([origin for place, origin in pairs if start < place[1] and place[0] < end] for start, end in spans)
    return tuple(replace(citation, start=run[0][0], end=run[-1][1]) for run in runs)


def _extract_within(
    candidate: Candidate,
    number: int,
    query: str,
    counter: TokenCounter,
    offsets: Offsets,
    weights: Sequence[float],
    room: int,
    fence: PromptFence,
) -> Variant | None:
    text = candidate.text
    if room < 1 or not offsets:
        return None
    found = extract_sentences(text, offsets, query, counter, room, weights=weights)
    if found.spans:
        return _make_variant(
            Form.EXTRACT, candidate, number, _mark_omissions(text, found.spans, offsets), found.spans, counter, fence
        )
    start, end = found.best
    end = start + find_start_cut(text[start:end], counter, room)
    cut = ((start, end),)
    if not text[start:end].strip():
        return None
    return _make_variant(Form.TRUNCATED, candidate, number, _mark_omissions(text, cut, offsets), cut, counter, fence)


def _mark_omissions(text: str, spans: Offsets, offsets: Offsets) -> str:
    shown = ELLIPSIS.join(text[start:end] for start, end in spans)
    before = f"{ELLIPSIS_MARK} " if spans[0][0] > offsets[0][0] else ""
    return f"{before}{shown}{f' {ELLIPSIS_MARK}' if spans[-1][1] < offsets[-1][1] else ''}"


def _make_variant(
    form: Form,
    candidate: Candidate,
    number: int,
    text: str,
    spans: Offsets,
    counter: TokenCounter,
    fence: PromptFence,
) -> Variant:
    tokens = counter.count(_render_candidate(candidate, number, text, fence))
    return Variant(form=form, text=text, tokens=tokens, value=candidate.score, spans=spans)


def _render_candidate(candidate: Candidate, number: int, text: str, fence: PromptFence) -> str:
    return render_block(number, shown_filename(candidate), page_number(candidate), text, fence)
