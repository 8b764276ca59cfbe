"""Research questions as routes take them, and their contexts and answers as routes and the command line give them."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from contexture.answer.research.values import ResearchAnswer
from contexture.builders.research.values import ResearchContext, SourceDocument


class ResearchBody(BaseModel):
    """A research question; `question_of` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[Any, Field(description="The question.")] = None
    num_results: Annotated[Any, Field(description="Pages to look for, 10 when left out.")] = None
    include_text: Annotated[Any, Field(description="Search the words of pages.")] = None
    include_visual: Annotated[Any, Field(description="Search what pages look like.")] = None
    search_mode: Annotated[Any, Field(description="`hybrid`, `text` or `visual`, instead of the two before.")] = None
    max_tokens: Annotated[Any, Field(description="Token budget of the context.")] = None
    where: Annotated[Any, Field(description="Filter over the metadata of pages.")] = None


class AskBody(ResearchBody):
    """A research question to be answered."""

    attach_images: Annotated[Any, Field(description="Pages also shown as pictures to a model that sees.")] = None
    model: Annotated[Any, Field(description="One of the models that are configured.")] = None


def research_object(built: ResearchContext) -> dict[str, Any]:
    """A built research context; equal builds are equal bytes, so nothing in it is a timing."""
    asked = built.capsule.request if built.capsule else {}
    return {
        "build_id": built.build_id,
        "query": asked.get("query"),
        "search_mode": asked.get("search_mode"),
        "formatted_text": built.formatted_text,
        "sources": [_source(source) for source in built.sources],
        "total_tokens": built.total_tokens,
        "max_tokens": asked.get("max_tokens"),
        "truncated": built.truncated,
        "encoding": built.encoding,
        "exact": built.exact,
        "messages": built.messages,
        "citations": built.citations,
        "ledger": built.ledger.entries,
        "degradations": built.degradations,
        "digest": built.capsule.digest if built.capsule else None,
    }


def ask_object(answer: ResearchAnswer) -> dict[str, Any]:
    """A cited answer; equal answers are equal bytes."""
    return {**answer.to_dict(), "sources": [_source(source) for source in answer.context.sources]}


def _source(source: SourceDocument) -> dict[str, Any]:
    """A source, and where a service gives its pictures."""
    place = f"/v1/pages/{quote(source.doc_id, safe='')}/{source.page}"
    return {
        **source.to_dict(),
        "thumbnail_url": f"{place}/thumb" if source.thumbnail_path else None,
        "image_url": f"{place}/image" if source.image_path else None,
    }
