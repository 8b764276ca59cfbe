"""Answers the prompt of a recent build: `AnswerBuild` sends it to a model as it is, and checks what comes back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

from msgspec import Meta
from typing_extensions import TypedDict

from contexture.answer import grounding, route
from contexture.answer.ask import NO_ANSWER_TEXTS
from contexture.answer.cited import AnswerRecipe, CheckedText, CitedAnswering, CitedPrompt
from contexture.answer.permissions import require_permission
from contexture.capsule import Capsule
from contexture.ledger import Degradation, Trace
from contexture.pipeline.masking import SecretMask
from contexture.ports import ChatModel, Policy, Secrets
from contexture.results import JsonResult
from contexture.types import Message, Scope

POLICY_ACTION = "builds.answer"
_MATERIAL_NAMES = ("memory", "context")
_WORKSPACE_KIND = "workspace"
_NUMBERED_HEADER = re.compile(r"^\[(?:Document )?(\d+)(?:\] \(|: ).*$", re.MULTILINE)
_WORKSPACE_HEADER = re.compile(r"^\[(.*)\] \[\w+\]$", re.MULTILINE)
_WORKSPACE_HEADING = re.compile(r"^### .*$|^---$|^User Query: .*$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildQuestion:
    """A recent build to answer, and the model to ask first.

    BuildQuestion(build_id="ctx-0123456789ab")
    """

    build_id: Annotated[
        str, Meta(description="The id of one of your own recent builds.", examples=["ctx-0123456789ab"])
    ]
    model: Annotated[str | None, Meta(description="One of the configured models; the default model if left out.")] = (
        None
    )


class BuildAnswerJson(TypedDict):
    """The answer to the prompt of a recent build."""

    build_id: str
    answer: str
    cited: tuple[int, ...]
    markers: tuple[grounding.CitationMarker, ...]
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    model: str
    extractive: bool
    degradations: tuple[Degradation, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildAnswer(JsonResult):
    """The answer to the prompt of a recent build; markers without a numbered block of the prompt are removed.

    `extractive` says that its sentences are quoted from the prompt.
    """

    build_id: str
    answer: str
    model: str
    extractive: bool
    cited: tuple[int, ...]
    removed_markers: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]
    degradations: tuple[Degradation, ...]

    def json_form(self) -> BuildAnswerJson:
        """The answer, without timings, so that equal answers give equal bytes."""
        return {
            "build_id": self.build_id,
            "answer": self.answer,
            "cited": self.cited,
            "markers": grounding.find_markers(self.answer),
            "removed_markers": self.removed_markers,
            "unsupported": self.unsupported,
            "model": self.model,
            "extractive": self.extractive,
            "degradations": self.degradations,
        }


class LoadCapsule(Protocol):
    """Returns the capsule of a recent build, as `Contexture.capsule` does."""

    async def __call__(self, build_id: str, *, scope: Scope | None = None) -> Capsule:
        """Return the capsule; raises `NotFound` for a build of another user."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerBuild:
    """Sends the prompt of a recent build to a model, and checks the answer against the prompt's own material.

    Nothing is searched and nothing is stored. If a model fails, the next one is asked; the last one is extractive.
    """

    load: LoadCapsule
    policy: Policy
    route: route.ModelRoute
    secrets: Secrets
    alike: grounding.SimilarityFunction | None = None
    recipe: AnswerRecipe = field(default_factory=AnswerRecipe)

    async def run(self, asked: BuildQuestion, *, scope: Scope) -> BuildAnswer:
        """Return the checked answer; raises `NotFound` if `scope` has no such build."""
        models = self.route.order_models(asked.model)
        await require_permission(self.policy, scope, POLICY_ACTION, {"build": asked.build_id, "model": asked.model})
        capsule = await self.load(asked.build_id, scope=scope)
        trace = Trace()
        sources = find_numbered_blocks(capsule)
        said = await (self._ask_from(capsule, sources, models, trace) if sources else self._ask(capsule, models, trace))
        return BuildAnswer(
            build_id=asked.build_id,
            answer=said.text,
            model=said.model,
            extractive=said.extractive,
            cited=said.cited,
            removed_markers=said.removed,
            unsupported=said.unsupported,
            degradations=trace.finish(()).degradations,
        )

    async def _ask_from(
        self, capsule: Capsule, sources: Mapping[int, str], models: Sequence[ChatModel], trace: Trace
    ) -> CheckedText:
        question = _find_question(capsule)

        def choose_messages(model: ChatModel) -> Sequence[Message]:
            return quotable_messages(capsule, sources) if model.name == self.recipe.quoting else capsule.messages

        prompt = CitedPrompt(question=question, sources=sources, messages=choose_messages, no_answer=NO_ANSWER_TEXTS)
        answering = CitedAnswering(secrets=self.secrets, alike=self.alike, recipe=self.recipe)
        said = await answering.answer(prompt, models, trace)
        # A workspace prompt has no numbers: only the extractive model, which was shown some, can cite them.
        unasked = capsule.kind == _WORKSPACE_KIND and not said.extractive
        return replace(said, unsupported=()) if unasked else said

    async def _ask(self, capsule: Capsule, models: Sequence[ChatModel], trace: Trace) -> CheckedText:
        """The answer to a prompt without material, of which nothing can be checked."""
        said = await route.complete(models, capsule.messages, self.recipe.answer_tokens, trace)
        text = SecretMask(self.secrets.known_values()).mask(said.text)
        extractive = said.model == self.recipe.quoting
        return CheckedText(text=text, model=said.model, extractive=extractive, cited=(), removed=(), unsupported=())


def find_numbered_blocks(capsule: Capsule) -> dict[int, str]:
    """The blocks of material in a prompt by number; those of a workspace, which have none, are numbered in order."""
    if capsule.kind == _WORKSPACE_KIND:
        text = _WORKSPACE_HEADING.sub("", "\n".join(_read_text(each) for each in capsule.messages))
        return {at: block.strip() for at, block in enumerate(_split_blocks(text, _WORKSPACE_HEADER), start=1)}
    return {
        int(found[1]): block.strip()
        for each in capsule.messages
        if each.get("name") in _MATERIAL_NAMES
        for block in _split_blocks(_read_text(each), _NUMBERED_HEADER)
        if (found := _NUMBERED_HEADER.match(block))
    }


def quotable_messages(capsule: Capsule, sources: Mapping[int, str]) -> Sequence[Message]:
    """The messages as the extractive model reads them: numbered blocks, and a question that stands alone."""
    question: Message = {"role": "user", "content": _find_question(capsule)}
    if capsule.kind != _WORKSPACE_KIND:
        return (*capsule.messages[:-1], question)
    blocks: list[str] = []
    for number, block in sources.items():
        head, _, text = block.partition("\n")
        found = _WORKSPACE_HEADER.match(head)
        blocks.append(f"[{number}] ({found[1] if found else ''})\n{text}")
    return ({"role": "user", "name": "context", "content": "\n\n".join(blocks)}, question)


def _find_question(capsule: Capsule) -> str:
    """The question of a build: a follow-up as it stands alone, else the last message of the prompt."""
    for name in ("standalone", "query"):
        found = capsule.request.get(name)
        if isinstance(found, str) and found:
            return found
    return _read_text(capsule.messages[-1])


def _read_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text", "")) for part in content or ())


def _split_blocks(text: str, header: re.Pattern[str]) -> list[str]:
    starts = [found.start() for found in header.finditer(text)]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
