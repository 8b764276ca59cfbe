"""Answers questions from the workspace, with citations of blocks.

Without a chat model, a question about work is answered with what the planner counted and the rows that it selected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Protocol

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.answer import grounding, route
from contexture.answer.cited import AnswerRecipe
from contexture.answer.permissions import require_permission
from contexture.builders.workspace.request import ContextRequest, Focus, Preferences, TokenBudget, User
from contexture.builders.workspace.result import ContextItem, ContextPayload, SectionType
from contexture.json_objects import NOT_BLANK
from contexture.ledger import Degradation, Trace
from contexture.pipeline.fence import DATA_NOTICE, fence, safe_label
from contexture.pipeline.masking import SecretMask
from contexture.ports import ChatModel, Policy, Secrets, TokenCounter
from contexture.results import JsonResult
from contexture.text.language import detect_language
from contexture.types import Citation, Message, Scope
from contexture.workspace import BlockType

POLICY_ACTION = "workspace.ask"
FACTS_TITLE = "Workspace, counted"
NO_ANSWER_TEXTS: Mapping[str, str] = MappingProxyType(
    {
        "en": "The workspace does not answer this.",
        "ru": "В рабочем пространстве нет ответа на этот вопрос.",
        "de": "Der Arbeitsbereich beantwortet das nicht.",
    }
)
_INSTRUCTIONS = (
    "Answer the question from the numbered sources alone, in its language. "
    "Cite each source that you use as [1]. If the sources do not answer it, say so."
)
_FACTS_HEADER = "[Workspace] [facts]\n"
_DOCUMENT_SHARE = 0.8  # of the tokens; the rest is for instructions and labels
_MIN_TOKENS = 256
_ROW_TYPES = frozenset({BlockType.TODO, BlockType.KANBAN_CARD, BlockType.DB_ROW})


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceQuestion:
    """A question over the blocks of a workspace.

    WorkspaceQuestion(query="Which of my tasks are overdue?")
    """

    query: Annotated[
        str,
        Meta(
            description="The question; not blank.",
            examples=["Which of my tasks are overdue?"],
            extra_json_schema=NOT_BLANK,
        ),
    ]
    focus: Annotated[Focus | None, Meta(description="What the user looks at.")] = None
    max_tokens: Annotated[int, Meta(ge=_MIN_TOKENS, le=1_000_000, description="Tokens of the prompt at most.")] = 4_000
    timezone: Annotated[str | None, Meta(description="The user's time zone, such as `Europe/Berlin`.")] = None
    model: Annotated[str | None, Meta(description="One of the configured models; the default model if left out.")] = (
        None
    )


class WorkspaceSourceJson(TypedDict):
    """A block as the prompt showed it; the id is empty for what was counted."""

    number: int
    id: str
    type: str
    title: str
    content: str
    citation: Citation | None


class WorkspaceAnswerJson(TypedDict):
    """A cited answer."""

    answer: str
    sources: list[WorkspaceSourceJson]
    cited: tuple[int, ...]
    markers: tuple[grounding.CitationMarker, ...]
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    model: str
    extractive: bool
    total_tokens: int
    degradations: tuple[Degradation, ...]
    build_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceAnswer(JsonResult):
    """A cited answer, checked against its sources: every marker in it is the number of a source."""

    answer: str
    sources: tuple[WorkspaceSourceJson, ...]
    model: str
    extractive: bool
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    total_tokens: int
    degradations: tuple[Degradation, ...]
    build_id: str

    @property
    def cited(self) -> tuple[int, ...]:
        """The numbers of the sources that the answer cites."""
        return tuple(sorted(grounding.find_cited_numbers(self.answer)))

    def json_form(self) -> WorkspaceAnswerJson:
        """The answer with its sources, without timings, so that equal answers give equal bytes."""
        return {
            "answer": self.answer,
            "sources": list(self.sources),
            "cited": self.cited,
            "markers": grounding.find_markers(self.answer),
            "removed_markers": self.removed_markers,
            "unsupported": self.unsupported,
            "model": self.model,
            "extractive": self.extractive,
            "total_tokens": self.total_tokens,
            "degradations": self.degradations,
            "build_id": self.build_id,
        }


class BuildWorkspace(Protocol):
    """Builds the context of a request, as `Contexture.build_workspace` does."""

    async def __call__(
        self, request: ContextRequest, *, scope: Scope | None = None, now: datetime | None = None
    ) -> ContextPayload:
        """Return the context."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AskWorkspace:
    """Answers questions from the blocks that the asker may read, and checks the answer against them.

    The policy is checked before any search. Known secrets are masked in the answer. If a model fails, the next one is
    asked; the last one is extractive.
    """

    build: BuildWorkspace
    policy: Policy
    route: route.ModelRoute
    secrets: Secrets
    counter: TokenCounter
    recipe: AnswerRecipe
    alike: grounding.SimilarityFunction | None = None

    async def run(self, asked: WorkspaceQuestion, *, scope: Scope, now: datetime | None = None) -> WorkspaceAnswer:
        """Return the answer to a question, from the blocks visible to `scope`."""
        models = self.route.order_models(asked.model)
        await require_permission(self.policy, scope, POLICY_ACTION, {"length": len(asked.query), "model": asked.model})
        trace = Trace()
        preferences = Preferences(timezone=asked.timezone) if asked.timezone else Preferences()
        request = ContextRequest(
            query=asked.query,
            focus=asked.focus,
            user=User(id=scope.user, preferences=preferences),
            token_budget=TokenBudget(total=int(asked.max_tokens * _DOCUMENT_SHARE), history=0, system=0),
        )
        context = await self.build(request, scope=scope, now=now)
        sources, messages = self._fit_sources(asked, context)
        said = await self._ask(models, asked, sources, messages, trace)
        return await self._check(asked, context, sources, said, trace)

    def _fit_sources(
        self, asked: WorkspaceQuestion, context: ContextPayload
    ) -> tuple[list[WorkspaceSourceJson], Sequence[Message]]:
        """The sources that fit, facts first, and the messages that show them."""
        sources = list(_list_sources(context))
        for number, each in enumerate(sources, start=1):
            each["number"] = number
        while True:
            messages = _render_messages(asked.query, sources)
            if not sources or self._count(messages) <= asked.max_tokens:
                return sources, messages
            sources.pop()

    def _count(self, messages: Sequence[Message]) -> int:
        return sum(self.counter.count(str(message["content"])) for message in messages)

    async def _ask(
        self,
        models: Sequence[ChatModel],
        asked: WorkspaceQuestion,
        sources: Sequence[WorkspaceSourceJson],
        messages: Sequence[Message],
        trace: Trace,
    ) -> route.ModelOutput:
        silence = NO_ANSWER_TEXTS.get(detect_language(asked.query), NO_ANSWER_TEXTS["en"])
        if not sources:
            return route.ModelOutput(silence, "")
        if models[0].name == self.recipe.quoting and sources[0]["id"] == "":
            return route.ModelOutput(_list_facts(sources), self.recipe.quoting)
        said = await route.complete(models, messages, self.recipe.answer_tokens, trace)
        return route.ModelOutput(silence, said.model) if said.text.strip() in self.recipe.silence else said

    async def _check(
        self,
        asked: WorkspaceQuestion,
        context: ContextPayload,
        sources: Sequence[WorkspaceSourceJson],
        said: route.ModelOutput,
        trace: Trace,
    ) -> WorkspaceAnswer:
        texts = {each["number"]: f"{each['title']}\n{each['content']}" for each in sources}
        written = grounding.normalize_markers(SecretMask(self.secrets.known_values()).mask(said.text))
        marked = grounding.remove_unknown_markers(written, texts)
        extractive = said.model in ("", self.recipe.quoting)
        lacking = (
            ()
            if extractive
            else await grounding.find_unsupported_sentences(marked.text, texts, question=asked.query, alike=self.alike)
        )
        return WorkspaceAnswer(
            answer=marked.text,
            sources=tuple(sources),
            model=said.model,
            extractive=extractive,
            removed_markers=marked.removed,
            unsupported=lacking,
            total_tokens=self._count(_render_messages(asked.query, sources)),
            degradations=(*context.degradations, *trace.finish(()).degradations),
            build_id=context.build_id,
        )


def _list_sources(context: ContextPayload) -> Iterator[WorkspaceSourceJson]:
    """What was counted, then every block once, in the order of the sections."""
    facts = context.serialized.partition(_FACTS_HEADER)[2].partition("\n\n")[0].strip()
    if facts:
        yield WorkspaceSourceJson(number=0, id="", type="facts", title=FACTS_TITLE, content=facts, citation=None)
    citations = {each.record_id: each for each in context.citations}
    seen: set[str] = set()
    for section in context.sections:
        if section.type in (SectionType.SYSTEM, SectionType.HISTORY):
            continue
        # With facts, what was last worked on is beside the question.
        if facts and section.type is SectionType.ACTIVITY:
            continue
        for item in section.items:
            if item.block_id not in seen and item.content.strip():
                seen.add(item.block_id)
                yield _to_source(item, citations.get(item.block_id))


def _to_source(item: ContextItem, citation: Citation | None) -> WorkspaceSourceJson:
    title = item.metadata.page_title or " > ".join(item.metadata.path)
    return WorkspaceSourceJson(
        number=0, id=item.block_id, type=item.block_type, title=title, content=item.content, citation=citation
    )


def _render_messages(query: str, sources: Sequence[WorkspaceSourceJson]) -> tuple[Message, ...]:
    shown = "\n\n".join(
        f"[{each['number']}] ({safe_label(each['title']) or 'untitled'})\n{fence(each['content'])}" for each in sources
    )
    return (
        {"role": "system", "content": f"{_INSTRUCTIONS}\n\n{DATA_NOTICE}"},
        {"role": "user", "name": "context", "content": shown},
        {"role": "user", "content": query},
    )


def _list_facts(sources: Sequence[WorkspaceSourceJson]) -> str:
    """The facts, and the first line of every row that was selected, each with its marker."""
    facts = [f"{line} [1]" for line in sources[0]["content"].splitlines() if line.strip()]
    rows = [
        f"- {_first_line(each['content'])} [{each['number']}]" for each in sources[1:] if each["type"] in _ROW_TYPES
    ]
    return "\n".join([*facts, *rows])


def _first_line(content: str) -> str:
    return next((line.strip().lstrip("-*# ").strip("* ") for line in content.splitlines() if line.strip()), "")
