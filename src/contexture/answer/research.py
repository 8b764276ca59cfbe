"""Answers research questions over document pages.

Defines the question and the cited answer, and `AskResearch`, which asks a model and checks its answer against the
sources.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Any, Protocol

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.answer import grounding, route
from contexture.answer._image_tokens import DEFAULT_PAGE_SIZE, ImageCost, PromptImage, attach_images, find_image_cost
from contexture.answer.cited import AnswerRecipe, CheckedText, CitedAnswering, CitedPrompt
from contexture.answer.permissions import require_permission
from contexture.builders.research.render import render_header
from contexture.builders.research.request import RESULTS_LIMIT, TOKENS_LIMIT, SearchMode, parse_search_mode
from contexture.builders.research.result import ResearchContext, SourceJson, sources_to_json
from contexture.errors import InvalidRequest
from contexture.filters import FilterField
from contexture.json_objects import NOT_BLANK, parse_object
from contexture.ledger import Degradation, Trace
from contexture.ports import ChatModel, Policy, Secrets, TokenCounter
from contexture.results import JsonResult
from contexture.types import Citation, Filter, Scope

ANSWER_FIELDS = ("attach_images", "model", "stream")
"""Fields of a question that only an answer needs, not a context."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchQuestion:
    """A question over the pages of documents.

    ResearchQuestion(query="What did the pilot plant cost?", num_results=5)

    `max_tokens` is the token budget of the context, images included; `attach_images` is how many pages are also sent as
    images to a model that accepts them. `model` is the name of a configured model. `search_mode` is a shorthand that
    sets `include_text` and `include_visual`.
    """

    query: Annotated[
        str,
        Meta(
            description="The question; not blank.",
            examples=["What did the pilot plant cost?"],
            extra_json_schema=NOT_BLANK,
        ),
    ]
    num_results: Annotated[
        int, Meta(ge=1, le=RESULTS_LIMIT, description="Pages to look for, 10 if left out.", examples=[5])
    ] = 10
    include_text: Annotated[
        bool, Meta(description="Search the words of pages, true if left out; not together with `search_mode`.")
    ] = True
    include_visual: Annotated[
        bool, Meta(description="Visual search, true if left out; not together with `search_mode`.")
    ] = True
    search_mode: Annotated[
        SearchMode | None,
        Meta(description="Search text, page images, or both.", examples=["hybrid"]),
    ] = field(default=None, compare=False)
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=TOKENS_LIMIT)] | None,
        Meta(description="Token budget of the context; the configured one if left out.", examples=[4_000]),
    ] = None
    attach_images: Annotated[
        int,
        Meta(ge=0, le=RESULTS_LIMIT, description="Pages also sent as images to a model that accepts them."),
    ] = 0
    model: Annotated[str | None, Meta(description="One of the configured models; the default model if left out.")] = (
        None
    )
    where: FilterField = None
    stream: Annotated[
        bool, Meta(description="Answer with server-sent events: the sources, pieces of the answer, the checked answer.")
    ] = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.search_mode is not None:
            text, visual = parse_search_mode(self.search_mode)
            object.__setattr__(self, "include_text", text)
            object.__setattr__(self, "include_visual", visual)


def parse_research_question(data: Mapping[str, Any], *, answering: bool) -> ResearchQuestion:
    """Parse a question from a JSON object; raises `InvalidRequest` naming missing, unknown and invalid fields.

    `model` and `attach_images` are accepted only with `answering`.
    """
    asked = parse_object(ResearchQuestion, data, what="a research question", without=() if answering else ANSWER_FIELDS)
    flags = [name for name in ("include_text", "include_visual") if data.get(name) is not None]
    if asked.search_mode is not None and flags:
        raise InvalidRequest("give 'search_mode', or 'include_text' and 'include_visual', not both")
    return asked


class ResearchAnswerJson(TypedDict):
    """A cited answer."""

    answer: str
    sources: list[SourceJson]
    truncated: bool
    total_tokens: int
    cited: tuple[int, ...]
    citations: tuple[Citation, ...]
    markers: tuple[grounding.CitationMarker, ...]
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    model: str
    extractive: bool
    images: tuple[int, ...]
    degradations: tuple[Degradation, ...]
    build_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ResearchAnswer(JsonResult):
    """A cited answer, checked against its sources.

    Every marker in `answer` refers to one of the context's sources. `extractive` says that its sentences are quoted
    from the sources. `total_tokens` counts the sources and the attached images.
    """

    answer: str
    context: ResearchContext
    model: str
    extractive: bool
    cited: tuple[int, ...]
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    images: tuple[int, ...]
    total_tokens: int
    degradations: tuple[Degradation, ...]

    @property
    def build_id(self) -> str:
        """The build id of its context, for `explain` and `replay`."""
        return self.context.build_id

    @property
    def markers(self) -> tuple[grounding.CitationMarker, ...]:
        """The markers of the answer, with their offsets and the sentences that they support."""
        known = self.context.get_citation_map().keys()
        return tuple(each for each in grounding.find_markers(self.answer) if known >= set(each.numbers))

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Citations of the shown text of the sources that the answer refers to."""
        sources = self.context.get_citation_map()
        return tuple(citation for number in self.cited for citation in sources[number].citations)

    def json_form(self) -> ResearchAnswerJson:
        """The answer with its sources, without timings, so that equal answers give equal bytes."""
        return {
            "answer": self.answer,
            "sources": sources_to_json(self.context.sources),
            "truncated": self.context.truncated,
            "total_tokens": self.total_tokens,
            "cited": self.cited,
            "citations": self.citations,
            "markers": self.markers,
            "removed_markers": self.removed_markers,
            "unsupported": self.unsupported,
            "model": self.model,
            "extractive": self.extractive,
            "images": self.images,
            "degradations": self.degradations,
            "build_id": self.build_id,
        }


POLICY_ACTION = "research.ask"
IMAGES_SOURCE = "images"
NO_ANSWER_TEXTS: Mapping[str, str] = MappingProxyType(
    {"en": "The documents do not answer this.", "ru": "В документах нет ответа на этот вопрос."}
)
"""The answer, by language, if the documents do not contain one."""

SEARCH_FAILED_TEXTS: Mapping[str, str] = MappingProxyType(
    {"en": "The documents could not be searched.", "ru": "Поиск по документам не удался."}
)
"""The answer, by language, if nothing was found because a search failed; the documents may contain an answer."""

_SEARCH_SOURCES = frozenset({"pages", "pages_visual"})
_IMAGE_HEADER_TOKENS = 40  # tokens reserved for the line above an image


class BuildResearch(Protocol):
    """Builds the context of a question, as `ResearchContextBuilder.build_context` does."""

    async def __call__(
        self,
        query: str,
        num_results: int = 10,
        include_text: bool = True,  # noqa: FBT001, FBT002 - as the builder takes them
        include_visual: bool = True,  # noqa: FBT001, FBT002 - same
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
        max_tokens: int | None = None,
        where: Filter | None = None,
    ) -> ResearchContext:
        """Return the context."""
        ...


class PageImageLoader(Protocol):
    """Loads the image of a page, as `PageStore.picture` does."""

    async def __call__(self, scope: Scope, doc_id: str, page: int, *, thumb: bool = False) -> bytes | None:
        """Return a JPEG; None if there is no image, or the scope may not see it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class _AttachedImages:
    """The images shown to a model, the numbers of their sources, and their tokens."""

    pictures: tuple[PromptImage, ...] = ()
    numbers: tuple[int, ...] = ()
    tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AskResearch:
    """Answers research questions from the pages of documents, and checks the answer against them.

    The policy is checked before any search. Known secrets are masked in the answer. If a model fails, the next one is
    asked; the last one is extractive.
    """

    build: BuildResearch
    policy: Policy
    route: route.ModelRoute
    secrets: Secrets
    counter: TokenCounter
    pictures: PageImageLoader
    alike: grounding.SimilarityFunction | None = None
    recipe: AnswerRecipe = field(default_factory=AnswerRecipe)

    async def run(self, asked: ResearchQuestion, *, scope: Scope, now: datetime | None = None) -> ResearchAnswer:
        """Return the answer to a question, from the sources visible to `scope`."""
        models = self.route.order_models(asked.model)
        await self._check_permitted(asked, scope)
        trace = Trace()
        context, seen = await self._build_context(asked, models, scope, now, trace)
        said = await self._answering.answer(self._make_prompt(asked, context, seen), models, trace)
        return self._make_answer(context, said, seen, trace)

    async def stream(
        self, asked: ResearchQuestion, *, scope: Scope, now: datetime | None = None
    ) -> AsyncGenerator[ResearchContext | str | ResearchAnswer]:
        """Yield the context, then pieces of the answer with known secrets masked, then the checked answer.

        The checked answer replaces the pieces: markers without a source are removed from it.
        """
        models = self.route.order_models(asked.model)
        await self._check_permitted(asked, scope)
        trace = Trace()
        context, seen = await self._build_context(asked, models, scope, now, trace)
        yield context
        async with aclosing(self._answering.stream(self._make_prompt(asked, context, seen), models, trace)) as steps:
            async for step in steps:
                yield step if isinstance(step, str) else self._make_answer(context, step, seen, trace)

    @property
    def _answering(self) -> CitedAnswering:
        return CitedAnswering(secrets=self.secrets, alike=self.alike, recipe=self.recipe)

    def _make_prompt(self, asked: ResearchQuestion, context: ResearchContext, seen: _AttachedImages) -> CitedPrompt:
        """What the models are asked; images are sent only to models that accept them."""
        failed = any(each.source in _SEARCH_SOURCES for each in context.degradations)
        return CitedPrompt(
            question=asked.query,
            sources={
                number: "\n".join(filter(None, (source.filename, source.section_path, source.markdown_content)))
                for number, source in context.get_citation_map().items()
            },
            messages=lambda model: attach_images(
                context.messages, seen.pictures if find_image_cost(model.name) else ()
            ),
            no_answer=SEARCH_FAILED_TEXTS if failed and not context.sources else NO_ANSWER_TEXTS,
        )

    async def _check_permitted(self, asked: ResearchQuestion, scope: Scope) -> None:
        if not 0 <= asked.attach_images <= RESULTS_LIMIT:
            raise InvalidRequest(f"attach_images must be from 0 to {RESULTS_LIMIT}, not {asked.attach_images}")
        resource = {"length": len(asked.query), "num_results": asked.num_results, "model": asked.model}
        await require_permission(self.policy, scope, POLICY_ACTION, resource)

    async def _build_context(
        self, asked: ResearchQuestion, models: Sequence[ChatModel], scope: Scope, now: datetime | None, trace: Trace
    ) -> tuple[ResearchContext, _AttachedImages]:
        """Build the context, reserving the part of the budget that the wanted images need."""
        limit = self.recipe.context_tokens if asked.max_tokens is None else asked.max_tokens
        cost = next((found for model in models if (found := find_image_cost(model.name))), None)
        if asked.attach_images and cost is None:
            trace.add_degradation(IMAGES_SOURCE, "no configured model accepts images, so none are attached")
        wanted = asked.attach_images if cost else 0
        kept = min(wanted * (cost.tokens(*DEFAULT_PAGE_SIZE) + _IMAGE_HEADER_TOKENS), limit // 2) if cost else 0
        context = await self.build(
            asked.query,
            asked.num_results,
            asked.include_text,
            asked.include_visual,
            scope=scope,
            now=now,
            max_tokens=limit - kept if kept else asked.max_tokens,
            where=asked.where,
        )
        if not wanted or cost is None:
            return context, _AttachedImages()
        return context, await self._select_images(context, scope, wanted, cost, limit - context.total_tokens, trace)

    async def _select_images(
        self, context: ResearchContext, scope: Scope, wanted: int, cost: ImageCost, room: int, trace: Trace
    ) -> _AttachedImages:
        """Return images of the best sources, as many as fit the remaining tokens."""
        shown: dict[int, PromptImage] = {}
        spent = 0
        for number, source in list(context.get_citation_map().items())[:wanted]:
            if number not in context.pictured:
                trace.add_degradation(
                    IMAGES_SOURCE,
                    f"the page of source {number} contains data that must not be shown, or was not read",
                )
                continue
            jpeg = await self.pictures(scope, source.doc_id, source.page)
            if jpeg is None:
                trace.add_degradation(IMAGES_SOURCE, f"source {number} has no picture")
                continue
            picture = PromptImage(header=render_header(number, source.filename, source.page), jpeg=jpeg)
            tokens = cost.tokens(*picture.size) + self.counter.count(picture.header)
            if spent + tokens > room:
                trace.add_degradation(
                    IMAGES_SOURCE,
                    f"the picture of source {number} does not fit in the budget",
                )
                continue
            shown[number] = picture
            spent += tokens
        return _AttachedImages(pictures=tuple(shown.values()), numbers=tuple(shown), tokens=spent)

    def _make_answer(
        self, context: ResearchContext, said: CheckedText, seen: _AttachedImages, trace: Trace
    ) -> ResearchAnswer:
        used = seen if find_image_cost(said.model) is not None else _AttachedImages()
        return ResearchAnswer(
            answer=said.text,
            context=context,
            model=said.model,
            extractive=said.extractive,
            cited=said.cited,
            removed_markers=said.removed,
            unsupported=said.unsupported,
            images=used.numbers,
            total_tokens=context.total_tokens + used.tokens,
            degradations=self._collect_degradations(context, trace),
        )

    def _collect_degradations(self, context: ResearchContext, trace: Trace) -> tuple[Degradation, ...]:
        return (*context.degradations, *trace.finish(()).degradations)
