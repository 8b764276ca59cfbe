"""Reads the citations of a JSON file, so that they can be verified.

The file is a built context, an answer, a search result or a capsule.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import msgspec
from typing_extensions import TypedDict

from contexture.answer.grounding import remove_unknown_markers
from contexture.builders.research.build import page_key
from contexture.builders.research.render import join_blocks, render_block
from contexture.capsule import Capsule, pack_capsule, unpack_capsule
from contexture.errors import InvalidRequest
from contexture.pipeline.fence import FENCE_VERSION, PromptFence
from contexture.results import JsonResult
from contexture.retrieval.citations import CitationProblem, Quote
from contexture.types import Citation

_TEXT_FIELDS = {"sources": "markdown_content", "results": "text", "evidence": "text"}
"""Lists whose rows pair a text with its citations."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CitationClaims:
    """The quotes a file claims, and the faults found in it without reading a store."""

    quotes: tuple[Quote, ...]
    faults: tuple[str, ...] = ()


class CitationProblemJson(TypedDict):
    """A citation that does not hold, or a fault of the file as a whole, which names no citation."""

    reason: str
    citation: Citation | None


class CitationReportJson(TypedDict):
    """Whether every citation holds."""

    holds: bool
    citations: int
    problems: list[CitationProblemJson]


@dataclass(frozen=True, kw_only=True, slots=True)
class CitationReport(JsonResult):
    """How many citations were checked, and which problems were found."""

    citations: int
    problems: tuple[CitationProblem, ...]
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every citation holds."""
        return not self.problems and not self.faults

    def json_form(self) -> CitationReportJson:
        """The report with the faults first."""
        problems: list[CitationProblemJson] = [
            {"reason": each.reason, "citation": each.citation} for each in self.problems
        ]
        faults: list[CitationProblemJson] = [{"reason": fault, "citation": None} for fault in self.faults]
        return {"holds": self.holds, "citations": self.citations, "problems": [*faults, *problems]}


Citing: TypeAlias = "bytes | str | Mapping[str, Any] | Capsule | JsonResult"
"""What can be verified: JSON of a built context, an answer or a capsule, the same as a dict, or the object itself."""


def parse_claims(given: Citing) -> CitationClaims:
    """Return the quotes and faults of what cites; raises `InvalidRequest` if it is not JSON or cites nothing."""
    try:
        data = _encode_citing(given)
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, TypeError, RecursionError) as failure:
        raise InvalidRequest(f"this is not JSON: {failure}") from failure
    if not isinstance(found, dict):
        raise InvalidRequest("expected a JSON object: a built context, an answer or a capsule")
    document = cast("dict[str, Any]", found)
    if "seal" in document and "candidates" in document:
        return _claims_from_capsule(unpack_capsule(data))
    if isinstance(document.get("capsule"), dict):
        return _claims_from_capsule(unpack_capsule(msgspec.json.encode(document["capsule"])))
    claims = CitationClaims(quotes=tuple(_collect_quotes(document)), faults=tuple(_find_faults(document)))
    if not any(quote.citations for quote in claims.quotes):
        raise InvalidRequest("there is nothing to verify: no citation in it names characters of a record")
    return claims


def _encode_citing(given: Citing) -> bytes:
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, Capsule):
        return pack_capsule(given)
    return msgspec.json.encode(given.to_dict() if isinstance(given, JsonResult) else given)


def _claims_from_capsule(capsule: Capsule) -> CitationClaims:
    """Return a claim for every candidate with a location.

    The text that was redacted when the candidate was found must still be there.
    """
    return CitationClaims(
        quotes=tuple(
            Quote(name=f"candidate {each.id!r}", citations=(each.citation,), text=each.text)
            for each in capsule.candidates
            if each.citation is not None and each.citation.start < each.citation.end
        )
    )


def _collect_quotes(document: Mapping[str, Any]) -> Iterator[Quote]:
    for number, citation in enumerate(_parse_citations(document.get("citations")), start=1):
        yield Quote(name=f"citation {number}", citations=(citation,))
    for name, text in _TEXT_FIELDS.items():
        for number, row in enumerate(_dict_rows(document.get(name)), start=1):
            given = row.get("citations", [row["citation"]] if isinstance(row.get("citation"), dict) else [])
            shown = row.get(text)
            yield Quote(
                name=f"{name}[{number}]",
                citations=tuple(_parse_citations(given)),
                text=shown if isinstance(shown, str) else None,
                file=str(row["filename"]) if "filename" in row else None,
            )


def _find_faults(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults visible in the file alone.

    Sources must cite their own pages, and the text and the answer must not show others.
    """
    sources = _dict_rows(document.get("sources"))
    for number, row in enumerate(sources, start=1):
        yield from _find_page_faults(f"sources[{number}]", row)
    formatted, answer = document.get("formatted_text"), document.get("answer")
    if isinstance(formatted, str) and _join_signs(formatted) not in _format_sources(sources):
        yield "formatted_text does not match its sources"
    if isinstance(answer, str) and "sources" in document:
        for removed in remove_unknown_markers(answer, range(1, len(sources) + 1)).removed:
            yield f"the answer cites {removed.marker!r}, but there are {len(sources)} sources"


def _find_page_faults(name: str, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of a page source: it must cite its own page and nothing else."""
    if "doc_id" not in row or "page" not in row:
        return
    place = page_key(row["doc_id"], row["page"])
    citations = _parse_citations(row.get("citations"))
    if not citations and str(row.get("markdown_content") or "").strip():
        yield f"{name} has text but no citation"
    for strange in (each for each in citations if (each.record_id, each.page) != (place, row["page"])):
        yield f"{name} is {place!r} but cites page {strange.page} and record {strange.record_id!r}"


def _format_sources(sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """The sources as every version of the fence shows them, without the spaces that disarm control tokens."""
    return [
        _join_signs(
            join_blocks(
                [
                    render_block(
                        number,
                        str(row.get("filename")),
                        row.get("page", 0),
                        str(row.get("markdown_content")),
                        PromptFence(version=version),
                    )
                    for number, row in enumerate(sources, start=1)
                ]
            )
        )
        for version in range(FENCE_VERSION, 0, -1)
    ]


def _join_signs(text: str) -> str:
    """The text without spaces after signs: which tokens a model declares as special is not in the file."""
    return re.sub(r"(?<=[<\[＜［]) ", "", text)


def _dict_rows(found: object) -> list[dict[str, Any]]:
    rows = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]


def _parse_citations(found: object) -> list[Citation]:
    """Return citations of record characters; others, such as memory citations of a chat, are skipped."""
    rows = [row for row in _dict_rows(found) if "hash" in row]
    try:
        return msgspec.convert(rows, list[Citation])
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"a citation cannot be read: {failure}") from failure
