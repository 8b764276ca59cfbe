"""Evaluates `/ask` on news: whether the gold articles are retrieved, quoted, quoted first, and in the prompt."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from contexture import wiring
from contexture.answer.commands.answer import CommandAnswer
from contexture.answer.commands.execute import ExecuteCommand
from contexture.answer.commands.writer import AnswerWriter, Price
from contexture.builders.command.request import override_routing
from contexture.builders.command.syntax import WINDOWS, Command
from contexture.config import Settings
from contexture.engine import Contexture
from contexture.errors import InvalidRequest, NothingFound
from contexture.evaluation import _harness as harness
from contexture.news.articles import Article
from contexture.text.segmentation import split_sentences
from contexture.types import Message

_BATCH_SIZE = 32
_MIN_SENTENCE_CHARS = 40  # a shorter sentence may be in any prompt
_COMPARED_CHARS = 60


@dataclass(slots=True)
class RecordingModel:
    """A `ChatModel` that keeps the last prompt and answers nothing, so that the command falls back to its sources."""

    messages: list[Message] = field(default_factory=list[Message])

    @property
    def name(self) -> str:
        """The name in ledgers."""
        return "recording"

    async def complete(self, messages: Sequence[Message], *, max_tokens: int) -> str:
        """Keep the prompt; the answer is empty."""
        del max_tokens
        self.messages = list(messages)
        return ""

    async def stream(self, messages: Sequence[Message], *, max_tokens: int) -> AsyncIterator[str]:
        """Keep the prompt; there are no pieces."""
        await self.complete(messages, max_tokens=max_tokens)
        for piece in ():
            yield piece


async def evaluate_commands(
    folder: Path, *, window: str, settings: Settings, progress: harness.ProgressCallback | None = None
) -> dict[str, float]:
    """Ask every question of the folder with `/ask`, the clock at its `asked` date, over all articles of the corpus.

    `gold_retrieved`, `gold_quoted` and `gold_first` are shares of the questions for which an article that answers is
    among the documents, is cited by a statement, and is cited by the first statement, all without a model.
    `gold_in_prompt` is the share for which a sentence of it is in the prompt that a model would get, within the limit.
    """
    if window not in WINDOWS:
        raise InvalidRequest(f"{window!r} is not a window; there are {', '.join(WINDOWS)}")
    show = progress or harness.ignore_progress
    articles = harness.load_articles(folder)
    texts = {article.article_id: article.text for article in articles}
    questions = [question for question in harness.load_questions(folder) if question.gold]
    rows: list[dict[str, float]] = []
    async with harness.open_temporary_engine((), settings, show) as engine:
        await _load_articles(engine, articles, show)
        for number, question in enumerate(questions, start=1):
            rows.append(await _measure_question(engine, question, window, texts))
            show("ask", number, len(questions))
    names = ("gold_retrieved", "gold_quoted", "gold_first", "gold_in_prompt", "prompt_tokens")
    return {**{name: harness.mean([row.get(name, 0.0) for row in rows]) for name in names}, "queries": len(rows)}


async def _load_articles(engine: Contexture, articles: Sequence[Article], show: harness.ProgressCallback) -> None:
    now = max((each.published for each in articles if each.published), default=datetime.now(UTC))
    for at in range(0, len(articles), _BATCH_SIZE):
        batch = articles[at : at + _BATCH_SIZE]
        await engine.news.add(engine.scope, batch, now=now)
        show("load", at + len(batch), len(articles))
    await engine.index.optimize()


def with_recording_model(engine: Contexture) -> tuple[ExecuteCommand, RecordingModel]:
    """The engine's command execution with a free model that records prompts instead of answering."""
    model = RecordingModel()
    name = override_routing(engine.settings.command_models)[Command.ASK][0]
    writer = AnswerWriter(
        models={name: model}, counter=wiring.counter_for(engine.settings.counted_model), prices={name: Price(0, 0)}
    )
    return replace(engine.execute, writer=writer), model


async def _measure_question(
    engine: Contexture, question: harness.Question, window: str, texts: dict[str, str]
) -> dict[str, float]:
    if question.asked is None:
        raise InvalidRequest(f"question {question.id!r} has no `asked` date")
    execute, model = with_recording_model(engine)
    request = {"raw_command": "/ask", "args": f"{question.text} window={window}"}
    try:
        answer = await execute.run(request, scope=engine.scope, now=question.asked)
    except NothingFound:
        return {}
    tokens = wiring.counter_for(engine.settings.counted_model).count_messages(model.messages) if model.messages else 0
    limit = answer.context["limits"]["max_tokens"]
    shown = any(is_in_prompt(texts.get(name, ""), model.messages) for name in question.gold)
    return {**measure_answer(answer, question), "gold_in_prompt": float(shown and tokens <= limit),
            "prompt_tokens": float(tokens)}  # fmt: skip


def measure_answer(answer: CommandAnswer, question: harness.Question) -> dict[str, float]:
    """Whether a gold article is among the documents, cited by a statement, and cited by the first statement."""
    articles = {each.number: each.article_id for each in answer.evidence}
    cited = [{articles[number] for number in statement.evidence} for statement in answer.statements]
    documents = {each["article_id"] for each in answer.context["retrieval"]["docs"]}
    return {
        "gold_retrieved": float(not documents.isdisjoint(question.gold)),
        "gold_quoted": float(any(not each.isdisjoint(question.gold) for each in cited)),
        "gold_first": float(bool(cited) and not cited[0].isdisjoint(question.gold)),
    }


def is_in_prompt(text: str, messages: Sequence[Message]) -> bool:
    """Whether a prompt contains the end of a sentence of a text; its beginning may be a dateline, which is left out."""
    prompt = " ".join("\n".join(str(message["content"]) for message in messages).split())
    sentences = (" ".join(text[start:end].split()) for start, end in split_sentences(text))
    return any(len(sentence) >= _MIN_SENTENCE_CHARS and sentence[-_COMPARED_CHARS:] in prompt for sentence in sentences)
