"""Value types of documents and pages, document ids, and validation."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, Protocol

from msgspec import json

from contexture.documents import BoundingBox, Page, Region, RegionKind
from contexture.errors import InvalidRequest
from contexture.ledger import Trace
from contexture.text.unicode import is_valid_unicode, repair_text
from contexture.types import PUBLIC, Candidate, Filter, Scope, Span


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A file that was read into pages; `readers` are principals (`public`, `user:anna`, `group:sales`).

    `doc_id` is derived from the file's content, so that the same file is the same document wherever it is stored.
    """

    doc_id: str
    filename: str
    extension: str
    source_path: str
    timestamp: datetime
    pages: tuple[Page, ...]
    readers: tuple[str, ...] = (PUBLIC,)
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentSummary:
    """A stored document without its pages; `pages` says how many there are."""

    doc_id: str
    filename: str
    extension: str
    source_path: str
    timestamp: datetime
    pages: int
    readers: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AddedDocument:
    """The result of adding a document: `pages` were written, or it was already stored and is `unchanged`."""

    doc_id: str
    pages: int
    unchanged: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPage:
    """A page as it is stored; `text` is its Markdown, which citations with this `hash` point into.

    `image_path` and `thumb_path` are paths of the service's routes, None when the page was not rendered. The facts
    computed when it was written are included: `redactions` are the spans that the rule set `rules` found, None when it
    was not scanned.
    """

    doc_id: str
    filename: str
    page: int
    extension: str
    timestamp: datetime
    source_path: str
    image_path: str | None
    thumb_path: str | None
    section_path: str | None
    parent_heading: str | None
    num_headings: int
    num_tables: int
    num_pictures: int
    text: str
    hash: str
    lang: str
    readers: tuple[str, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    sentences: tuple[tuple[int, int], ...] = ()
    redactions: tuple[Span, ...] | None = None
    rules: str = ""
    tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    simhash: int = 0
    packed_regions: str | Sequence[Sequence[Any]] = "[]"

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions of the page in reading order; unpacked on access, because builds do not need them."""
        return unpack_regions(self.packed_regions, self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundPage:
    """A page that matches, with its text and visual scores and its matching passages, best first.

    `score` is computed from both, relative to the best page; `box` is the region that matches best visually. The
    passages' citations name the page.
    """

    doc_id: str
    page: int
    filename: str
    score: float
    text_score: float | None = None
    visual_score: float | None = None
    candidates: tuple[Candidate, ...] = ()
    box: BoundingBox | None = None


class PageFinder(Protocol):
    """Port: finds pages and reads them; `pages.store.PageStore` implements it."""

    async def find(
        self,
        scope: Scope,
        question: str,
        *,
        k: int,
        text: bool,
        visual: bool,
        where: Filter | None = None,
        trace: Trace,
    ) -> Sequence[FoundPage]:
        """The best `k` pages by text, by image, or by both, best first."""
        ...

    async def pages(self, scope: Scope, wanted: Sequence[tuple[str, int]]) -> Sequence[StoredPage]:
        """Those of these pages that exist and that the scope may read, in one read."""
        ...


_BOX_DIGITS = 4  # decimals of a box edge; enough for a page image of up to 10,000 pixels


def pack_regions(regions: Sequence[Region]) -> str:
    """Regions as one JSON string, because a search reads the payloads of many pages and needs the regions of few.

    The text of a region is left out when it is part of the page's text.
    """
    return json.encode([_pack_region(region) for region in regions]).decode()


def unpack_regions(packed: str | Sequence[Sequence[Any]], text: str) -> tuple[Region, ...]:
    """The regions of a page with this text; older stores have them as a list instead of a string."""
    return tuple(_unpack_region(text, each) for each in (json.decode(packed) if isinstance(packed, str) else packed))


def _pack_region(region: Region) -> list[Any]:
    own = [] if region.end else [repair_text(region.text)]
    return [str(region.kind), [round(edge, _BOX_DIGITS) for edge in region.box], region.start, region.end, *own]


def _unpack_region(text: str, packed: Sequence[Any]) -> Region:
    kind, box, start, end, *own = packed
    left, top, right, bottom = (float(edge) for edge in box)
    said = own[0] if own else text[start:end]
    return Region(kind=RegionKind(kind), box=(left, top, right, bottom), text=said, start=start, end=end)


_ID_LENGTH = 16


def document_id(content: str, readers: Iterable[str] = (PUBLIC,), writer: Scope | None = None) -> str:
    """The id of a document with this SHA-256 of its bytes and these readers.

    Readers are part of the id unless the document is public: two users may load the same file for themselves, and
    neither learns about the other's document.
    """
    named = sorted(set(readers))
    if named == [PUBLIC]:
        return content[:_ID_LENGTH]
    identity = "\0".join([content, *named, *outsider_key(named, writer)])
    return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_LENGTH]


def outsider_key(readers: Iterable[str], writer: Scope | None) -> tuple[str, ...]:
    """Extra key parts for a writer who may not read what is written; empty for one who may.

    Without them, such a writer would learn from a refusal that those readers have the same document.
    """
    if writer is None or not set(readers).isdisjoint(writer.principals):
        return ()
    return ("", writer.user)


_DOC_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_PRINCIPAL = re.compile(r"public|(user|group):.+", re.DOTALL)


def check_document(document: Document) -> None:
    """Raise `InvalidRequest` for a document that could not be found, read or removed after storing it."""
    problem = _find_problem(document)
    if problem:
        raise InvalidRequest(f"document {document.doc_id!r}: {problem}")


def _find_problem(document: Document) -> str:
    if not _DOC_ID.fullmatch(document.doc_id):
        return "`doc_id` must be up to 64 letters, digits, '_' and '-'"
    if not document.filename.strip() or re.search(r"[/\\\0]", document.filename) or document.filename in {".", ".."}:
        return f"`filename` must be the name of a file without a folder, not {document.filename!r}"
    numbers = [page.number for page in document.pages]
    if not numbers:
        return "it has no pages"
    if min(numbers) < 1 or sorted(set(numbers)) != numbers:
        return "its pages must be numbered from 1 upwards, each number once"
    return _find_reader_problem(document.readers)


def _find_reader_problem(readers: tuple[str, ...]) -> str:
    strange = next((name for name in readers if not (_PRINCIPAL.fullmatch(name) and is_valid_unicode(name))), None)
    if strange is not None:
        return f"`readers` may hold 'public', 'user:NAME' and 'group:NAME', not {strange!r}"
    return "" if readers else "`readers` is empty, so nobody could read it"
