"""One command under execution: what it is to do, for whom, with what, and until when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contexture.answer.commands.plan import Plan
from contexture.answer.commands.reading import Notebook, Reader, Reading, Sentence
from contexture.answer.commands.values import Section, Statement
from contexture.answer.commands.words import heading, said
from contexture.conversation import THRESHOLD
from contexture.errors import SourceTimeout
from contexture.graph.extract import without
from contexture.graph.store import GraphStore
from contexture.ledger import Trace
from contexture.news.articles import FoundArticle
from contexture.news.store import NewsStore
from contexture.ports import MemoryService
from contexture.resilience.deadline import Deadline
from contexture.types import Extracted, Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPlace:
    """Where commands remember, and how relevant a memory must be to be recalled."""

    namespace: str = "wm"
    universe: str = ""
    threshold: float = THRESHOLD


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """Everything that the execution of one command works with."""

    plan: Plan
    scope: Scope
    news: NewsStore
    graph: GraphStore
    memory: MemoryService
    place: MemoryPlace
    reader: Reader
    notebook: Notebook
    deadline: Deadline
    trace: Trace

    async def documents(self) -> list[Reading]:
        """The articles of the context, read."""
        return await self.reader.read(self.scope, self.plan.articles, self.trace)

    async def find(self, text: str, k: int) -> Sequence[FoundArticle]:
        """Articles that match, within the window and the filters of the context, as far as there is time."""
        question = self.plan.news_question(text)
        try:
            work = self.news.find(self.scope, question, k=k, rerank=self.plan.rerank, trace=self.trace)
            return await self.deadline.wait_for(work, "searching the news")
        except SourceTimeout as failure:
            self.trace.degraded("timeout", failure)
            return ()

    async def names(self, ids: Sequence[str], *, learn: bool = True) -> Sequence[Extracted]:
        """What these articles say about named things, as far as there is time."""
        try:
            work = self.graph.extract(self.scope, ids, trace=self.trace, learn=learn)
            found = await self.deadline.wait_for(work, "reading names")
        except SourceTimeout as failure:
            self.trace.degraded("timeout", failure)
            return ()
        return [without(each, self.reader.hides) for each in found]

    def quote(self, sentence: Sentence) -> Statement:
        """A sentence as a statement that rests on itself."""
        return Statement(
            text=sentence.text, lang=sentence.source.lang, evidence=(self.notebook.cite(sentence),), marks=()
        )

    def section(self, name: str, statements: list[Statement]) -> Section:
        """Statements under the heading of this name."""
        return Section(name=name, heading=heading(name, self.plan.lang), statements=tuple(statements))

    def say(self, name: str, values: dict[str, object] | None = None) -> str:
        """One of our own sentences, in the language asked for."""
        return said(name, self.plan.lang, values)

    def in_time(self, what: str) -> bool:
        """Whether there is time left; that there is none is written down."""
        if self.deadline.expired:
            self.trace.degraded("timeout", f"{what} was left out: the {self.plan.timeout_s:g} s were over")
            return False
        return True
