"""A research question from policy to checked answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Protocol

from contexture.answer import route
from contexture.answer.research.images import PAGE, Cost, Picture, cost_of, with_pictures
from contexture.answer.research.markers import cleaned, numbers_in
from contexture.answer.research.support import Alike, Unsupported, unsupported
from contexture.answer.research.values import ResearchAnswer, ResearchQuestion
from contexture.builders.research.render import header
from contexture.builders.research.request import MOST_RESULTS
from contexture.builders.research.values import ResearchContext
from contexture.errors import InvalidRequest, NotPermitted, SourceError, SourceUnavailable
from contexture.ledger import Degradation, Trace
from contexture.pipeline.mask import Mask
from contexture.ports import ChatModel, Policy, Secrets, TokenCounter
from contexture.text.language import detect
from contexture.types import Filter, Scope

ACTION = "research.ask"
IMAGES = "images"
NOTHING: Mapping[str, str] = MappingProxyType(
    {"en": "The documents do not answer this.", "ru": "В документах нет ответа на этот вопрос."}
)
"""What is said, by language, where the documents say nothing."""

UNREAD: Mapping[str, str] = MappingProxyType(
    {"en": "The documents could not be searched.", "ru": "Поиск по документам не удался."}
)
"""What is said where nothing was found because a search failed: the documents may well answer."""

_SEARCHES = frozenset({"pages", "pages_visual"})
_HEADER = 40  # tokens kept for the line above a picture


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
        """The context."""
        ...


class Pictures(Protocol):
    """Gives the picture of a page, as `PageStore.picture` does."""

    async def __call__(self, scope: Scope, doc_id: str, page: int, *, thumb: bool = False) -> bytes | None:
        """A JPEG; None where there is none, or none that the scope may see."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AskRecipe:
    """How questions are answered: `quoting` names the model whose answers are the sources' own sentences.

    What it says when none of them matches (`silence`) is not repeated: NOTHING is said instead, as it is where no
    source was found and no model is asked. Where no source was found because a search failed, UNREAD is said.
    """

    context_tokens: int = 10_000
    answer_tokens: int = 512
    quoting: str = "extractive"
    silence: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """The pictures that a model is shown, the numbers of their sources, and what they cost."""

    pictures: tuple[Picture, ...] = ()
    numbers: tuple[int, ...] = ()
    tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class AskResearch:
    """Answers research questions from the pages of documents, and checks the answer against them.

    The policy is asked before anything is looked for. Known secrets are masked in the answer. A model that fails is
    passed over for the next, and the last one only quotes.
    """

    build: BuildResearch
    policy: Policy
    route: route.Route
    secrets: Secrets
    counter: TokenCounter
    pictures: Pictures
    alike: Alike | None = None
    recipe: AskRecipe = field(default_factory=AskRecipe)

    async def run(self, asked: ResearchQuestion, *, scope: Scope, now: datetime | None = None) -> ResearchAnswer:
        """The answer to a question, as `scope` may see its sources."""
        models = self.route.starting_with(asked.model)
        await self._permit(asked, scope)
        trace = Trace()
        context, seen = await self._context(asked, models, scope, now, trace)
        said = await self._said(models, context, seen, trace) if context.sources else route.Piece("", "")
        if not context.sources or said.text.strip() in self.recipe.silence:
            failed = any(each.source in _SEARCHES for each in context.degradations)
            words = UNREAD if failed and not context.sources else NOTHING
            said = route.Piece(words.get(detect(asked.query), words["en"]), said.model)
        return await self._checked(asked, context, said, seen, trace)

    async def _permit(self, asked: ResearchQuestion, scope: Scope) -> None:
        if not 0 <= asked.attach_images <= MOST_RESULTS:
            raise InvalidRequest(f"attach_images must be from 0 to {MOST_RESULTS}, not {asked.attach_images}")
        resource = {"length": len(asked.query), "num_results": asked.num_results, "model": asked.model}
        decision = await self.policy.decide(scope, ACTION, resource)
        if not decision.allowed:
            raise NotPermitted(decision.reason or f"the policy does not allow {ACTION!r}")

    async def _context(
        self, asked: ResearchQuestion, models: Sequence[ChatModel], scope: Scope, now: datetime | None, trace: Trace
    ) -> tuple[ResearchContext, _Seen]:
        """The sources, with as much of the budget left as the wanted pictures need."""
        limit = self.recipe.context_tokens if asked.max_tokens is None else asked.max_tokens
        cost = next((found for model in models if (found := cost_of(model.name))), None)
        if asked.attach_images and cost is None:
            trace.degraded(IMAGES, "no model that is configured sees pictures, so none are attached")
        wanted = asked.attach_images if cost else 0
        kept = min(wanted * (cost.tokens(*PAGE) + _HEADER), limit // 2) if cost else 0
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
            return context, _Seen()
        return context, await self._seen(context, scope, wanted, cost, limit - context.total_tokens, trace)

    async def _seen(
        self, context: ResearchContext, scope: Scope, wanted: int, cost: Cost, room: int, trace: Trace
    ) -> _Seen:
        """Pictures of the best sources, as many as there is room for."""
        shown: dict[int, Picture] = {}
        spent = 0
        for number, source in list(context.get_citation_map().items())[:wanted]:
            if number not in context.pictured:
                trace.degraded(IMAGES, f"the page of source {number} holds what must not be shown, or was not read")
                continue
            jpeg = await self.pictures(scope, source.doc_id, source.page)
            if jpeg is None:
                trace.degraded(IMAGES, f"source {number} has no picture")
                continue
            picture = Picture(header=header(number, source.filename, source.page), jpeg=jpeg)
            tokens = cost.tokens(*picture.size) + self.counter.count(picture.header)
            if spent + tokens > room:
                trace.degraded(IMAGES, f"the picture of source {number} does not fit in the budget")
                continue
            shown[number] = picture
            spent += tokens
        return _Seen(pictures=tuple(shown.values()), numbers=tuple(shown), tokens=spent)

    async def _said(
        self, models: Sequence[ChatModel], context: ResearchContext, seen: _Seen, trace: Trace
    ) -> route.Piece:
        """The answer of the first model that gives one; pictures go only to those that see."""
        for model in models:
            sees = cost_of(model.name) is not None
            messages = with_pictures(context.messages, seen.pictures if sees else ())
            try:
                return await route.complete([model], messages, self.recipe.answer_tokens, trace)
            except SourceUnavailable:
                continue  # the route has written down why
        raise SourceUnavailable(f"no model answered: {', '.join(model.name for model in models)} all failed")

    async def _checked(
        self, asked: ResearchQuestion, context: ResearchContext, said: route.Piece, seen: _Seen, trace: Trace
    ) -> ResearchAnswer:
        sources = {
            number: "\n".join(filter(None, (source.filename, source.section_path, source.markdown_content)))
            for number, source in context.get_citation_map().items()
        }
        marked = cleaned(Mask(self.secrets.known()).mask(said.text), sources)
        silent = not sources or marked.text in NOTHING.values()
        lacking = () if silent else await self._lacking(marked.text, sources, asked.query, trace)
        used = seen if cost_of(said.model) is not None else _Seen()
        return ResearchAnswer(
            answer=marked.text,
            context=context,
            model=said.model,
            extractive=said.model in ("", self.recipe.quoting),
            cited=tuple(sorted(numbers_in(marked.text))),
            removed_markers=marked.removed,
            unsupported=lacking,
            images=used.numbers,
            total_tokens=context.total_tokens + used.tokens,
            degradations=self._losses(context, trace),
        )

    async def _lacking(
        self, text: str, sources: Mapping[int, str], question: str, trace: Trace
    ) -> tuple[Unsupported, ...]:
        """Sentences without support; where meanings cannot be compared, words alone decide, and that is said."""
        known = self.alike

        async def alike(sentence: str, texts: Sequence[str]) -> float:
            try:
                return 0.0 if known is None else await known(sentence, texts)
            except SourceError as failure:
                trace.degraded("support", failure)
                return 0.0

        return await unsupported(text, sources, question=question, alike=alike)

    def _losses(self, context: ResearchContext, trace: Trace) -> tuple[Degradation, ...]:
        return (*context.degradations, *trace.finish(()).degradations)
