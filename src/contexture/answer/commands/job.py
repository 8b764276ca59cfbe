"""The execution state of one command: its plan, stores, deadline and trace, and the localized headings and phrases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from contexture.answer.commands._article_sentences import (
    ArticleMatch,
    ArticleReader,
    ArticleSentence,
    EvidenceRegistry,
    ReadArticle,
    make_match,
)
from contexture.answer.commands._sentence_ranking import CompareTexts, SentenceRanker
from contexture.answer.commands.answer import AnswerSection, Statement
from contexture.builders.command.collect import CLOCK_TOLERANCE
from contexture.builders.command.request import MEMORY_TTL_DAYS, search_text
from contexture.builders.command.result import CommandContext
from contexture.builders.command.syntax import Command
from contexture.conversation import RECALL_THRESHOLD
from contexture.errors import SourceTimeout
from contexture.graph.store import GraphStore, drop_hidden_names
from contexture.ledger import Trace
from contexture.news.articles import FoundArticle, NewsQuestion
from contexture.news.store import NewsStore
from contexture.ports import MemoryService
from contexture.resilience import Deadline
from contexture.text.language import detect_language
from contexture.types import ExtractedMentions, Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLocation:
    """Namespace and universe of the memories of commands, and the recall threshold."""

    namespace: str = "wm"
    universe: str = ""
    threshold: float = RECALL_THRESHOLD


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """The execution state of one command: plan, scope, stores, reader, evidence, deadline and trace."""

    plan: ExecutionPlan
    scope: Scope
    news: NewsStore
    graph: GraphStore
    memory: MemoryService
    memory_location: MemoryLocation
    reader: ArticleReader
    evidence_registry: EvidenceRegistry
    deadline: Deadline
    trace: Trace
    compare: CompareTexts | None = None

    @property
    def ranker(self) -> SentenceRanker:
        """Ranks sentences for the question, by meaning and words."""
        compare = None if self.compare is None else self._compare_in_time
        return SentenceRanker(compare=compare, today=self.plan.now.date(), trace=self.trace)

    async def _compare_in_time(self, text: str, lang: str, others: Sequence[str], langs: Sequence[str]) -> list[float]:
        if self.compare is None:
            return [0.0] * len(others)
        return await self.deadline.wait_for(self.compare(text, lang, others, langs), "comparing sentences")

    async def read_documents(self) -> list[ReadArticle]:
        """The articles of the context, read and redacted."""
        return await self.reader.read_matches(self.scope, self.plan.documents, self.trace)

    async def find_articles(self, text: str, k: int) -> Sequence[FoundArticle]:
        """Find matching articles within the context's window and filters; empty when the deadline has passed."""
        question = self.plan.news_question(text)
        try:
            work = self.news.find(self.scope, question, k=k, rerank=self.plan.rerank, trace=self.trace)
            return await self.deadline.wait_for(work, "searching the news")
        except SourceTimeout as failure:
            self.trace.add_degradation("timeout", failure)
            return ()

    async def extract_names(self, ids: Sequence[str], *, learn: bool = True) -> Sequence[ExtractedMentions]:
        """Return entities and relations of these articles, without known secrets; empty after the deadline."""
        try:
            work = self.graph.extract(self.scope, ids, trace=self.trace, learn=learn)
            found = await self.deadline.wait_for(work, "reading names")
        except SourceTimeout as failure:
            self.trace.add_degradation("timeout", failure)
            return ()
        return [drop_hidden_names(each, self.reader.is_secret) for each in found]

    def quote(self, sentence: ArticleSentence) -> Statement:
        """Return the sentence as a statement with itself as evidence."""
        return Statement(
            text=sentence.text, lang=sentence.source.lang, evidence=(self.evidence_registry.cite(sentence),), marks=()
        )

    def make_section(self, name: str, statements: list[Statement]) -> AnswerSection:
        """Put statements under the localized heading of this name."""
        return AnswerSection(name=name, heading=localize_heading(name, self.plan.lang), statements=tuple(statements))

    def localize(self, name: str, values: dict[str, object] | None = None) -> str:
        """The phrase of this name in the language of the answer."""
        return localize(name, self.plan.lang, values)

    @property
    def has_timed_out(self) -> bool:
        """Whether anything was left out because the time was over."""
        return any(
            each.source == "timeout" or each.reason.startswith(SourceTimeout.__name__)
            for each in self.trace.degradations
        )

    def explain_missing(self, name: str, values: dict[str, object] | None = None) -> str:
        """The phrase that says what was not found; after a timeout, when it may exist, the one that says so."""
        late: dict[str, object] = {"seconds": f"{self.plan.timeout_s:g}"}
        return self.localize("timeout", late) if self.has_timed_out else self.localize(name, values)

    def has_time_left(self, what: str) -> bool:
        """Whether the deadline has not passed; if it has, a degradation is recorded."""
        if self.deadline.is_expired:
            self.trace.add_degradation("timeout", f"{what} was left out: the {self.plan.timeout_s:g} s were over")
            return False
        return True


_ANSWER_LANGUAGES = ("en", "ru")


@dataclass(frozen=True, kw_only=True, slots=True)
class SemanticKey:
    """A subject to remember, and for how many days."""

    key: str
    ttl_days: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecutionPlan:
    """The parts of a command context that its execution needs; `question` is unredacted and never shown."""

    command: Command
    question: str
    lang: str
    search: NewsQuestion
    window: str
    k: int
    rerank: bool
    documents: tuple[ArticleMatch, ...]
    models: tuple[str, ...]
    max_tokens: int
    budget_cents: float
    timeout_s: float
    learns: bool
    hops: int
    keys: tuple[SemanticKey, ...]
    now: datetime

    @property
    def articles(self) -> tuple[str, ...]:
        """The ids of the context's documents."""
        return tuple(each.article_id for each in self.documents)

    def news_question(self, text: str) -> NewsQuestion:
        """Return a question to the news store, with the window and filters of the context."""
        asked = self.search
        return NewsQuestion(text=text, since=asked.since, before=asked.before, langs=asked.langs, sources=asked.sources)


def make_plan(context: CommandContext) -> ExecutionPlan:
    """The execution plan of a command context."""
    asked, found = context.asked, context.retrieval
    question = search_text(asked)
    return ExecutionPlan(
        command=context.command,
        question=question,
        lang=choose_language(context.answer_lang or context.params.lang, question),
        search=NewsQuestion(
            text=question,
            since=context.now - found.window.span,
            before=context.now + CLOCK_TOLERANCE,
            langs=(found.lang,) if found.lang in _ANSWER_LANGUAGES else (),
            sources=(*asked.sources, *asked.domains) if found.sources else (),
        ),
        window=found.window,
        k=context.params.k_final,
        rerank=found.rerank_enabled,
        documents=tuple(make_match(each.article_id, each.score, each.passages) for each in found.docs),
        models=(context.models.primary, *context.models.fallback),
        max_tokens=context.limits.max_tokens,
        budget_cents=context.limits.budget_cents,
        timeout_s=context.limits.timeout_s,
        learns=context.graph.build_policy != "cached_only",
        hops=context.graph.hop_limit,
        keys=_collect_keys(context),
        now=context.now,
    )


def choose_language(wanted: str, question: str) -> str:
    """Return the language to answer in: the requested one, otherwise that of the question."""
    if wanted in _ANSWER_LANGUAGES:
        return wanted
    return "ru" if detect_language(question) in ("ru", "uk") else "en"


def _collect_keys(context: CommandContext) -> tuple[SemanticKey, ...]:
    """Return the subjects of a memory command as typed; the memory store does its own redaction."""
    if not context.memory.enabled:
        return ()
    asked = context.asked
    named = (asked.query or asked.text, asked.topic, asked.entity)
    return tuple(SemanticKey(key=key, ttl_days=MEMORY_TTL_DAYS) for key in dict.fromkeys(named) if key)


HEADINGS: Mapping[str, Mapping[str, str]] = {
    "en": {
        "answer": "Answer",
        "timeline": "Timeline",
        "links": "Links between events",
        "paths": "Paths",
        "relations": "Relations",
        "agreements": "Where the sources agree",
        "conflicts": "Where the sources differ",
        "updates": "Figures that changed",
        "single": "Said by one source only",
        "stored": "Stored",
        "recalled": "Recalled",
        "suggested": "Worth remembering",
    },
    "ru": {
        "answer": "Ответ",
        "timeline": "Хронология",
        "links": "Связи между событиями",
        "paths": "Цепочки связей",
        "relations": "Связи",
        "agreements": "В чём источники сходятся",
        "conflicts": "В чём источники расходятся",
        "updates": "Какие данные изменились",
        "single": "Сообщает только один источник",
        "stored": "Сохранено",
        "recalled": "Найдено в памяти",
        "suggested": "Стоит запомнить",
    },
}

_PHRASES: Mapping[str, Mapping[str, str]] = {
    "en": {
        "quoted": "Sentences are quoted in the language of their source: {langs}.",
        "nothing": "Nothing was found that answers this.",
        "timeout": "The time limit of {seconds} s was reached, so this answer may be incomplete.",
        "uncovered": "No source found answers: {part}",
        "same_actor": "{first} → {second}: both involve {via}",
        "cause": "{first} → {second}: the report of the second names the first as a cause ({via})",
        "sequence": "{first} → {second}: the report says that the second came after ({via})",
        "unknown_entity": "No entity of the question was found in the articles; the strongest relations are shown.",
        "no_entity": "No entity of the question was found in the articles, and nothing that ties others.",
        "no_path": "No path of at most {hops} steps joins what was asked about.",
        "no_model": "No model was used: the statements are sentences of the sources.",
        "stored": "“{key}” is remembered for {days} days",
        "known": "Already remembered: {key}",
        "together": "mentioned together",
    },
    "ru": {
        "quoted": "Предложения приведены на языке источника: {langs}.",
        "nothing": "Ничего, что отвечало бы на это, не нашлось.",
        "timeout": "Время на ответ ({seconds} с) истекло, поэтому он может быть неполным.",
        "uncovered": "Ни один найденный источник не отвечает на вопрос: {part}",
        "same_actor": "{first} → {second}: в обоих участвует {via}",
        "cause": "{first} → {second}: в сообщении первое названо причиной второго ({via})",
        "sequence": "{first} → {second}: по сообщению, второе произошло после первого ({via})",
        "unknown_entity": "Ни одно имя из вопроса в статьях не нашлось; показаны самые прочные связи.",
        "no_entity": "Ни одно имя из вопроса в статьях не нашлось, и связей между другими именами нет.",
        "no_path": "Цепочки не длиннее {hops} шагов между названным в вопросе нет.",
        "no_model": "Модель не использовалась: утверждения — предложения самих источников.",
        "stored": "«{key}» сохранено на {days} дней",
        "known": "Уже в памяти: {key}",
        "together": "упомянуты вместе",
    },
}


def localize_heading(name: str, lang: str) -> str:
    """The heading of a section in this language."""
    return HEADINGS.get(lang, HEADINGS["en"])[name]


def localize(name: str, lang: str, values: Mapping[str, object] | None = None) -> str:
    """The phrase of this name in this language, with `values` filled in."""
    return _PHRASES.get(lang, _PHRASES["en"])[name].format_map(values or {})
