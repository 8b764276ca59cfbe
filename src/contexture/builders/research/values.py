"""What a research builder returns: sources in the order of their numbers, and the text that shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from contexture.capsule import Capsule
from contexture.ledger import Degradation, Ledger
from contexture.types import Citation, Message


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A page as a source: what is shown of it, where it stands, and how well it matches.

    `markdown_content` is redacted, and where it was shortened an ellipsis stands for what was left out. `citations`
    say which characters of the stored page it consists of.
    """

    doc_id: str
    filename: str
    page: int
    extension: str
    thumbnail_path: str | None = None
    image_path: str | None = None
    timestamp: str = ""
    section_path: str | None = None
    parent_heading: str | None = None
    markdown_content: str = ""
    relevance_score: float = 0.0
    citations: tuple[Citation, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The source as JSON has it."""
        return {
            "doc_id": self.doc_id,
            "filename": self.filename,
            "page": self.page,
            "extension": self.extension,
            "thumbnail_path": self.thumbnail_path,
            "image_path": self.image_path,
            "timestamp": self.timestamp,
            "section_path": self.section_path,
            "parent_heading": self.parent_heading,
            "markdown_content": self.markdown_content,
            "relevance_score": self.relevance_score,
            "citations": msgspec.to_builtins(self.citations),
        }


@dataclass(frozen=True, slots=True)
class ResearchContext:
    """Numbered sources as one text for a prompt, what it costs, why it looks so, and the capsule that rebuilds it.

    `total_tokens` counts `formatted_text`, headers included. `truncated` is True exactly when a source was shortened
    or left out because the budget was too small. `messages` are the whole prompt with that text in it. `pictured` are
    the numbers of the sources whose pages may be shown as pictures too: their text was read, and nothing on it hidden.
    """

    formatted_text: str
    sources: list[SourceDocument]
    total_tokens: int
    truncated: bool
    build_id: str = ""
    messages: tuple[Message, ...] = ()
    encoding: str = ""
    exact: bool = True
    ledger: Ledger = field(default_factory=lambda: Ledger(entries=()))
    capsule: Capsule | None = None
    pictured: tuple[int, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)

    def get_citation_map(self) -> dict[int, SourceDocument]:
        """The sources by their numbers, from 1."""
        return dict(enumerate(self.sources, start=1))

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """Every named loss of quality in this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Where everything that is shown stands in the store."""
        return tuple(citation for source in self.sources for citation in source.citations)
