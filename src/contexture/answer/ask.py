"""Answers questions over everything that the asker may read: `AskEverything` and its checked, cited answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, Protocol

from typing_extensions import TypedDict

from contexture.answer import grounding, route
from contexture.answer.cited import AnswerRecipe, CheckedText, CitedAnswering, CitedPrompt
from contexture.answer.permissions import require_permission
from contexture.builders.ask.request import AskRequest
from contexture.builders.ask.result import AskContext, MissingKind, NumberedSource
from contexture.builders.sources import SourceKind
from contexture.ledger import Degradation, Trace
from contexture.ports import ChatModel, Policy, Secrets
from contexture.results import JsonResult
from contexture.types import Citation, Json, Message, Scope

POLICY_ACTION = "ask"
NO_ANSWER_TEXTS: Mapping[str, str] = MappingProxyType(
    {"en": "Nothing that you can read here answers this.", "ru": "В том, что вам здесь доступно, ответа на это нет."}
)
"""The answer, by language, if no source contains one."""

SEARCH_FAILED_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "en": "Not everything could be searched, and the rest does not answer this.",
        "ru": "Поиск удался не везде, а в остальном ответа на это нет.",
    }
)
"""The answer, by language, if nothing was found because a search failed."""


class BuildAsk(Protocol):
    """Builds the context of a question, as `AskContextBuilder.build` does."""

    async def __call__(
        self,
        request: AskRequest | Mapping[str, Any] | str,
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> AskContext:
        """Return the context."""
        ...


class AskAnswerJson(TypedDict):
    """A cited answer to a question over everything."""

    answer: str
    query: str
    standalone_query: str
    sources: tuple[NumberedSource, ...]
    missing: tuple[MissingKind, ...]
    cited: tuple[int, ...]
    citations: tuple[Citation, ...]
    markers: tuple[grounding.CitationMarker, ...]
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    model: str
    extractive: bool
    tokens: int
    degradations: tuple[Degradation, ...]
    build_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AskAnswer(JsonResult):
    """A cited answer, checked against its sources: every marker in `answer` names a source of the context.

    `extractive` says that its sentences are quoted from the sources.
    """

    answer: str
    context: AskContext
    model: str
    extractive: bool
    cited: tuple[int, ...]
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    degradations: tuple[Degradation, ...]

    @property
    def build_id(self) -> str:
        """The build id of its context, for `explain` and `replay`."""
        return self.context.build_id

    @property
    def sources(self) -> tuple[NumberedSource, ...]:
        """The numbered sources of the prompt."""
        return self.context.sources

    @property
    def missing(self) -> tuple[MissingKind, ...]:
        """The kinds of sources that contribute nothing, and the commands that fill them."""
        return self.context.missing

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Citations of the shown text of the sources that the answer refers to."""
        return tuple(
            citation for source in self.sources if source.number in self.cited for citation in source.citations
        )

    def json_form(self) -> AskAnswerJson:
        """The answer with its sources, without timings, so that equal answers give equal bytes."""
        return {
            "answer": self.answer,
            "query": self.context.query,
            "standalone_query": self.context.standalone_query,
            "sources": self.sources,
            "missing": self.missing,
            "cited": self.cited,
            "citations": self.citations,
            "markers": grounding.find_markers(self.answer),
            "removed_markers": self.removed_markers,
            "unsupported": self.unsupported,
            "model": self.model,
            "extractive": self.extractive,
            "tokens": self.context.tokens,
            "degradations": self.degradations,
            "build_id": self.build_id,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class AskEverything:
    """Answers questions from everything that the asker may read, and checks the answer against its sources.

    The policy is asked before any search. If a model fails, the next one is asked; the last one is extractive.
    """

    build: BuildAsk
    policy: Policy
    route: route.ModelRoute
    secrets: Secrets
    alike: grounding.SimilarityFunction | None = None
    recipe: AnswerRecipe = field(default_factory=AnswerRecipe)

    async def run(self, asked: AskRequest, *, scope: Scope, now: datetime | None = None) -> AskAnswer:
        """Return the answer to a question, from the sources visible to `scope`."""
        models, context, trace = await self._prepare(asked, scope, now)
        said = await self._answering.answer(self._make_prompt(context), models, trace)
        return _make_answer(context, said, trace)

    async def stream(
        self, asked: AskRequest, *, scope: Scope, now: datetime | None = None
    ) -> AsyncGenerator[AskContext | str | AskAnswer]:
        """Yield the context, then pieces of the answer with known secrets masked, then the checked answer.

        The checked answer replaces the pieces: markers without a source are removed from it.
        """
        models, context, trace = await self._prepare(asked, scope, now)
        yield context
        async with aclosing(self._answering.stream(self._make_prompt(context), models, trace)) as steps:
            async for step in steps:
                yield step if isinstance(step, str) else _make_answer(context, step, trace)

    async def _prepare(
        self, asked: AskRequest, scope: Scope, now: datetime | None
    ) -> tuple[Sequence[ChatModel], AskContext, Trace]:
        models = self.route.order_models(asked.model)
        kinds: list[Json] = [str(kind) for kind in asked.kinds]
        resource: dict[str, Json] = {"length": len(asked.query), "kinds": kinds, "model": asked.model}
        await require_permission(self.policy, scope, POLICY_ACTION, resource)
        return models, await self.build(asked, scope=scope, now=now), Trace()

    @property
    def _answering(self) -> CitedAnswering:
        return CitedAnswering(secrets=self.secrets, alike=self.alike, recipe=self.recipe)

    def _make_prompt(self, context: AskContext) -> CitedPrompt:
        """What the models are asked; the extractive one is given the question that a follow-up stands for."""
        standalone: Message = {"role": "user", "content": context.standalone_query}

        def choose_messages(model: ChatModel) -> Sequence[Message]:
            return (*context.messages[:-1], standalone) if model.name == self.recipe.quoting else context.messages

        failed = any(each.source in list(SourceKind) for each in context.degradations)
        return CitedPrompt(
            question=context.standalone_query,
            sources={source.number: f"{source.label}\n{source.title}\n{source.text}" for source in context.sources},
            messages=choose_messages,
            no_answer=SEARCH_FAILED_TEXTS if failed and not context.sources else NO_ANSWER_TEXTS,
        )


def _make_answer(context: AskContext, said: CheckedText, trace: Trace) -> AskAnswer:
    return AskAnswer(
        answer=said.text,
        context=context,
        model=said.model,
        extractive=said.extractive,
        cited=said.cited,
        removed_markers=said.removed,
        unsupported=said.unsupported,
        degradations=(*context.degradations, *trace.finish(()).degradations),
    )
