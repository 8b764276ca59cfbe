"""Answers with citations: a model answers from numbered sources, and its answer is checked against them."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from contexture.answer import grounding, route
from contexture.errors import SourceError, SourceUnavailable
from contexture.ledger import Trace
from contexture.pipeline.masking import SecretMask, StreamingSecretMask
from contexture.ports import ChatModel, Secrets
from contexture.text.language import detect_language
from contexture.types import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecipe:
    """Settings for answers with citations; `quoting` names the extractive model, which quotes the sources.

    Its text for no match (`silence`) is replaced by the prompt's `no_answer`, which is also the answer if no source was
    found; then no model is asked. `context_tokens` is the token budget of a context whose question names none.
    """

    context_tokens: int = 10_000
    answer_tokens: int = 512
    quoting: str = "extractive"
    silence: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class CitedPrompt:
    """What is asked: the question, the text of each numbered source, and the messages that each model is sent.

    `no_answer` is the answer, by language, if the sources have none.
    """

    question: str
    sources: Mapping[int, str]
    messages: Callable[[ChatModel], Sequence[Message]]
    no_answer: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedText:
    """An answer in which every marker names a source; `unsupported` are sentences that the sources do not support.

    `extractive` says that its sentences are quoted from the sources.
    """

    text: str
    model: str
    extractive: bool
    cited: tuple[int, ...]
    removed: tuple[grounding.RemovedMarker, ...]
    unsupported: tuple[grounding.UnsupportedSentence, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CitedAnswering:
    """Asks models for answers from numbered sources and checks them.

    Known secrets are masked in the answer. If a model fails, the next one is asked; the last one is extractive.
    """

    secrets: Secrets
    alike: grounding.SimilarityFunction | None = None
    recipe: AnswerRecipe = field(default_factory=AnswerRecipe)

    async def answer(self, prompt: CitedPrompt, models: Sequence[ChatModel], trace: Trace) -> CheckedText:
        """The checked answer of the first model that gives one; degradations are recorded in `trace`."""
        said = await self._ask_models(prompt, models, trace) if prompt.sources else route.ModelOutput("", "")
        return await self._check(prompt, said, trace)

    async def stream(
        self, prompt: CitedPrompt, models: Sequence[ChatModel], trace: Trace
    ) -> AsyncGenerator[str | CheckedText]:
        """Yield pieces of the answer with known secrets masked, then the checked answer, which replaces them."""
        pieces: list[str] = []
        model = ""
        if prompt.sources:
            mask = StreamingSecretMask(self.secrets.known_values())
            async with aclosing(self._stream_models(prompt, models, trace)) as outputs:
                async for output in outputs:
                    model = output.model
                    if shown := mask.feed(output.text):
                        pieces.append(shown)
                        yield shown
            if rest := mask.flush():
                pieces.append(rest)
                yield rest
        yield await self._check(prompt, route.ModelOutput("".join(pieces), model), trace)

    async def _ask_models(self, prompt: CitedPrompt, models: Sequence[ChatModel], trace: Trace) -> route.ModelOutput:
        for model in models:
            try:
                return await route.complete([model], prompt.messages(model), self.recipe.answer_tokens, trace)
            except SourceUnavailable:
                continue  # `route` has recorded the reason
        raise SourceUnavailable(f"no model answered: {', '.join(model.name for model in models)} all failed")

    async def _stream_models(
        self, prompt: CitedPrompt, models: Sequence[ChatModel], trace: Trace
    ) -> AsyncGenerator[route.ModelOutput]:
        """Yield the answer of the first model that begins one."""
        begun = False
        for model in models:
            answer = route.stream([model], prompt.messages(model), self.recipe.answer_tokens, trace)
            try:
                async with aclosing(answer) as outputs:
                    async for output in outputs:
                        begun = True
                        yield output
            except SourceUnavailable:
                if begun:
                    raise
                continue  # `route` has recorded the reason
            return
        raise SourceUnavailable(f"no model answered: {', '.join(model.name for model in models)} all failed")

    async def _check(self, prompt: CitedPrompt, said: route.ModelOutput, trace: Trace) -> CheckedText:
        text = said.text
        if not prompt.sources or text.strip() in self.recipe.silence:
            text = prompt.no_answer.get(detect_language(prompt.question), prompt.no_answer["en"])
        written = grounding.normalize_markers(SecretMask(self.secrets.known_values()).mask(text))
        marked = grounding.remove_unknown_markers(written, prompt.sources)
        silent = not prompt.sources or marked.text in prompt.no_answer.values()
        return CheckedText(
            text=marked.text,
            model=said.model,
            extractive=said.model in ("", self.recipe.quoting),
            cited=tuple(sorted(set(grounding.find_cited_numbers(marked.text)) & set(prompt.sources))),
            removed=marked.removed,
            unsupported=() if silent else await self._find_unsupported(marked.text, prompt, trace),
        )

    async def _find_unsupported(
        self, text: str, prompt: CitedPrompt, trace: Trace
    ) -> tuple[grounding.UnsupportedSentence, ...]:
        """Return unsupported sentences; if embeddings fail, only words are compared, and a degradation is recorded."""
        known = self.alike

        async def alike(sentence: str, texts: Sequence[str]) -> float:
            try:
                return 0.0 if known is None else await known(sentence, texts)
            except SourceError as failure:
                trace.add_degradation("support", failure)
                return 0.0

        return await grounding.find_unsupported_sentences(text, prompt.sources, question=prompt.question, alike=alike)
