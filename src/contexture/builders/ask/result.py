"""What the builder of questions over everything returns: `AskContext`, its sources, and the kinds that hold nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast
from urllib.parse import quote

from typing_extensions import TypedDict

from contexture.builders.ask.compose import AskSource
from contexture.builders.sources import SourceKind
from contexture.capsule import Capsule
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.results import Digest, JsonResult, Timestamp
from contexture.types import Candidate, ChatMessage, Citation, Message

FILL_COMMANDS: Mapping[SourceKind, str] = {
    SourceKind.MEMORIES: "contexture chat",
    SourceKind.RECORDS: "contexture ingest FOLDER",
    SourceKind.PAGES: "contexture ingest FILE.pdf",
    SourceKind.NEWS: "contexture ingest --as articles FILE",
    SourceKind.WORKSPACE: "contexture ingest --as blocks FOLDER",
}
"""The command that fills each kind of source."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NumberedSource:
    """A source as the prompt numbers it: what of it is shown, where it is stored, and how well it matches.

    `citations` are the character ranges of the stored record that `text` shows; `page` is set for pages, and
    `path` is the path of the service that shows the source.
    """

    number: int
    kind: SourceKind
    id: str
    collection: str
    title: str
    label: str
    text: str
    score: float
    lang: str
    time: Timestamp | None
    page: int | None
    path: str
    citations: tuple[Citation, ...]


EmptyReason: TypeAlias = Literal["empty", "no_match"]


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingKind:
    """A kind of source that contributes nothing, because it is empty or nothing matches, and the command to fill it."""

    kind: SourceKind
    reason: EmptyReason
    command: str


class AskContextJson(TypedDict):
    """The context of a question over everything."""

    build_id: str
    query: str
    standalone_query: str
    text: str
    sources: tuple[NumberedSource, ...]
    missing: tuple[MissingKind, ...]
    tokens: int
    token_counts: Mapping[str, int]
    max_tokens: int
    encoding: str
    exact: bool
    messages: tuple[ChatMessage, ...]
    citations: tuple[Citation, ...]
    ledger: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...]
    digest: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class AskContext(JsonResult):
    """The prompt of a question over everything, its numbered sources, its ledger, and the capsule that rebuilds it.

    `query` is the question as it is shown, `standalone_query` what was searched for: a follow-up question together
    with the one that it continues. `missing` lists the kinds of sources that contribute nothing.
    """

    build_id: str
    query: str
    standalone_query: str
    text: str
    sources: tuple[NumberedSource, ...]
    missing: tuple[MissingKind, ...]
    tokens: int
    token_counts: Mapping[str, int]
    max_tokens: int
    encoding: str
    exact: bool
    messages: tuple[Message, ...]
    ledger: Ledger
    capsule: Capsule
    timings: Mapping[str, float] = field(default_factory=dict[str, float], compare=False)

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """The degradations of this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations of everything that is shown, in source order."""
        return tuple(citation for source in self.sources for citation in source.citations)

    def json_form(self) -> AskContextJson:
        """The context with its ledger, without timings, so that equal builds give equal bytes."""
        return {
            "build_id": self.build_id,
            "query": self.query,
            "standalone_query": self.standalone_query,
            "text": self.text,
            "sources": self.sources,
            "missing": self.missing,
            "tokens": self.tokens,
            "token_counts": self.token_counts,
            "max_tokens": self.max_tokens,
            "encoding": self.encoding,
            "exact": self.exact,
            "messages": cast("tuple[ChatMessage, ...]", self.messages),
            "citations": self.citations,
            "ledger": self.ledger.entries,
            "degradations": self.degradations,
            "digest": self.capsule.digest,
        }


def make_source(source: AskSource) -> NumberedSource:
    """A composed source as it is returned; the record's own fields come from its best candidate."""
    best = max((candidate for candidate, _ in source.shown), key=lambda each: each.score)
    cited = best.citation
    return NumberedSource(
        number=source.number,
        kind=source.kind,
        id=best.record_id,
        collection="" if cited is None else cited.collection,
        title=best.title,
        label=source.block.label,
        text=source.block.text,
        score=best.score,
        lang=best.lang,
        time=best.time,
        page=None if cited is None else cited.page,
        path=_locate(source.kind, best),
        citations=source.block.citations,
    )


def _locate(kind: SourceKind, best: Candidate) -> str:
    """The path of the service that shows the source, a page with the frame of the cited text."""
    cited = best.citation
    if cited is None:
        return ""
    if kind is SourceKind.PAGES:
        doc_id = cited.record_id.rpartition(":")[0]
        return f"/v1/pages/{quote(doc_id, safe='')}/{cited.page}/regions?start={cited.start}&end={cited.end}"
    return f"/v1/records/{quote(cited.collection, safe='')}/{quote(cited.record_id, safe='')}"
