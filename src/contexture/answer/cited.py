"""The citations in a file: of a built context, of an answer, of a search, or of a capsule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from contexture.answer.research.markers import cleaned
from contexture.builders.research.pages import page_key
from contexture.builders.research.render import block, joined
from contexture.capsule import Capsule, unpack_capsule
from contexture.errors import InvalidRequest
from contexture.retrieval.citations import Problem
from contexture.retrieval.quotes import Quote
from contexture.types import Citation

_TEXTS = {"sources": "markdown_content", "results": "text", "evidence": "text"}
"""Lists whose rows pair a text with where it comes from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claims:
    """What a file says it quotes, and what is wrong with it before any store is asked."""

    quotes: tuple[Quote, ...]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """How many citations were checked, and what does not hold."""

    citations: int
    problems: tuple[Problem, ...]
    faults: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether everything does."""
        return not self.problems and not self.faults

    def to_dict(self) -> dict[str, Any]:
        """As routes and the command line answer with it."""
        problems = [{"reason": each.reason, "citation": msgspec.to_builtins(each.citation)} for each in self.problems]
        faults = [{"reason": fault, "citation": None} for fault in self.faults]
        return {"holds": self.holds, "citations": self.citations, "problems": [*faults, *problems]}


def claims_of(data: bytes) -> Claims:
    """What a JSON file quotes; one that is none, or that cites nothing, is refused."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as failure:
        raise InvalidRequest(f"this is not JSON: {failure}") from failure
    if not isinstance(found, dict):
        raise InvalidRequest("a JSON object is needed: a built context, an answer, or a capsule")
    told = cast("dict[str, Any]", found)
    if "seal" in told and "candidates" in told:
        return _of_capsule(unpack_capsule(data))
    if isinstance(told.get("capsule"), dict):
        return _of_capsule(unpack_capsule(msgspec.json.encode(told["capsule"])))
    claims = Claims(quotes=tuple(_quotes(told)), faults=tuple(_faults(told)))
    if not any(quote.citations for quote in claims.quotes):
        raise InvalidRequest("there is nothing to verify: no citation in it names characters of a record")
    return claims


def _of_capsule(capsule: Capsule) -> Claims:
    """Every candidate that has a place: what was redacted when it was found is what stands there now."""
    return Claims(
        quotes=tuple(
            Quote(name=f"candidate {each.id!r}", citations=(each.citation,), text=each.text)
            for each in capsule.candidates
            if each.citation is not None and each.citation.start < each.citation.end
        )
    )


def _quotes(told: Mapping[str, Any]) -> Iterator[Quote]:
    for number, citation in enumerate(_citations(told.get("citations")), start=1):
        yield Quote(name=f"citation {number}", citations=(citation,))
    for name, text in _TEXTS.items():
        for number, row in enumerate(_rows(told.get(name)), start=1):
            given = row.get("citations", [row["citation"]] if isinstance(row.get("citation"), dict) else [])
            shown = row.get(text)
            yield Quote(
                name=f"{name}[{number}]",
                citations=tuple(_citations(given)),
                text=shown if isinstance(shown, str) else None,
                file=str(row["filename"]) if "filename" in row else None,
            )


def _faults(told: Mapping[str, Any]) -> Iterator[str]:
    """What can be told from the file alone: sources cite their own pages, the text and the answer show no others."""
    sources = _rows(told.get("sources"))
    for number, row in enumerate(sources, start=1):
        yield from _page_faults(f"sources[{number}]", row)
    formatted, answer = told.get("formatted_text"), told.get("answer")
    if isinstance(formatted, str) and formatted != _formatted(sources):
        yield "formatted_text does not show what its sources say"
    if isinstance(answer, str) and "sources" in told:
        for removed in cleaned(answer, range(1, len(sources) + 1)).removed:
            yield f"the answer names {removed.marker!r}, and there are {len(sources)} sources"


def _page_faults(name: str, row: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a source that says it is a page: it must cite that page, and nothing else."""
    if "doc_id" not in row or "page" not in row:
        return
    place = page_key(row["doc_id"], row["page"])
    citations = _citations(row.get("citations"))
    if not citations and str(row.get("markdown_content") or "").strip():
        yield f"{name} shows a text and cites nothing"
    for strange in (each for each in citations if (each.record_id, each.page) != (place, row["page"])):
        yield f"{name} says it is {place!r}, and cites page {strange.page} and record {strange.record_id!r}"


def _formatted(sources: Sequence[Mapping[str, Any]]) -> str:
    return joined(
        [
            block(number, str(row.get("filename")), row.get("page", 0), str(row.get("markdown_content")))
            for number, row in enumerate(sources, start=1)
        ]
    )


def _rows(found: object) -> list[dict[str, Any]]:
    rows = cast("list[object]", found) if isinstance(found, list) else []
    return [cast("dict[str, Any]", row) for row in rows if isinstance(row, dict)]


def _citations(found: object) -> list[Citation]:
    """Those that name characters of a record; a memory's citation in a chat, for one, does not."""
    rows = [row for row in _rows(found) if "hash" in row]
    try:
        return msgspec.convert(rows, list[Citation])
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"a citation cannot be read: {failure}") from failure
