"""The prompt of a research question: instructions, numbered pages, question."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from contexture.pipeline.fence import DATA_NOTICE, fence, label
from contexture.types import Candidate, Message

NOTHING_FOUND = "_No relevant content found._"
SEPARATOR = "\n\n"

_NAMES = 1_024


def header(number: int, filename: str, page: int) -> str:
    """The line above a source; a file name cannot close it early or pretend to be another."""
    return f"[Document {number}: {_shown(filename) or 'untitled'}, Page {page}]"


def block(number: int, filename: str, page: int, content: str) -> str:
    """One numbered source: its header, then its content, fenced."""
    return f"{header(number, filename, page)}\n{fence(content)}"


def name_of(candidate: Candidate) -> str:
    """The file name of a page as it may be shown: the form that stands in its header, where that differs."""
    return candidate.title if _shown(candidate.title) == candidate.label else candidate.label


@lru_cache(maxsize=_NAMES)
def _shown(filename: str) -> str:
    """The name as it stands in a header; kept, because a build writes the same ones often."""
    return label(filename)


def page_of(candidate: Candidate) -> int:
    """The number of the page that a candidate is."""
    return (candidate.citation.page if candidate.citation else None) or 0


def joined(blocks: Sequence[str]) -> str:
    """The sources as one text, a blank line between them; empty when there are none."""
    return SEPARATOR.join(blocks)


def messages(system: str, query: str, text: str) -> tuple[Message, ...]:
    """Stable part first, then the sources, then the question."""
    return (
        {"role": "system", "content": f"{system}\n\n{DATA_NOTICE}" if system else DATA_NOTICE},
        {"role": "system", "name": "context", "content": text or NOTHING_FOUND},
        {"role": "user", "content": query},
    )
