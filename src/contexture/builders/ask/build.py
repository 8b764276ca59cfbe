"""The builder of questions over everything: clean, find candidates of every kind, redact, compose, seal a capsule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from contexture.builders.ask.compose import ComposedAsk, compose_ask, message_candidate
from contexture.builders.ask.request import (
    CAPSULE_KIND,
    SYSTEM_PROMPT,
    AskMessage,
    AskRecipe,
    AskRequest,
    CleanAsk,
    ask_to_json,
    check_request,
    parse_ask,
)
from contexture.builders.ask.result import FILL_COMMANDS, AskContext, MissingKind, make_source
from contexture.builders.clean import Cleaner, CleanerFactory
from contexture.builders.sources import SourceFinder, SourceKind, SourcePorts, SourceQuestion
from contexture.builders.telemetry import Stopwatch
from contexture.capsule import Capsule, make_capsule
from contexture.errors import RedactionFailed
from contexture.ledger import Ledger, Reason, Trace
from contexture.pipeline.fence import PromptFence, make_fence
from contexture.pipeline.masking import SecretMaskCache
from contexture.pipeline.redaction import Placeholders, RedactionOperator, RememberedScans
from contexture.ports import Clock, Redactor, Secrets, TokenCounter
from contexture.text.questions import complete_follow_up
from contexture.types import Candidate, Scope

_READ_MESSAGES = 20  # of the newest; more never fit in their share of a prompt


class AskContextBuilder:
    """Builds a context for a question over everything that the asker may read.

    `speaker` is the scope of calls that pass none, `max_tokens` the budget of requests that name none.
    """

    def __init__(  # noqa: PLR0913 - every part it works with, by name
        self,
        sources: SourcePorts,
        *,
        counter: TokenCounter,
        redactor: Redactor,
        clock: Clock,
        model: str = "",
        secrets: Secrets | None = None,
        recipe: AskRecipe | None = None,
        operator: Callable[[], RedactionOperator] = Placeholders,
        deadline: float = 10.0,
        max_tokens: int = 2_000,
        speaker: Scope | None = None,
    ) -> None:
        self._finder = SourceFinder(sources, deadline=deadline)
        self._counter = counter
        self._cleaners = CleanerFactory(
            redactor=RememberedScans(redactor), secrets=SecretMaskCache(secrets), operator=operator
        )
        self._clock = clock
        self._model = model or counter.encoding
        self._recipe = recipe or AskRecipe()
        self._max_tokens = max_tokens
        self._speaker = speaker or Scope.local()

    async def build(
        self,
        request: AskRequest | Mapping[str, Any] | str,
        *,
        scope: Scope | None = None,
        now: datetime | None = None,
    ) -> AskContext:
        """The context for a question, as `scope` may read it; `now` replaces the clock, which is otherwise read once.

        Raises a `RequestError` that the caller can fix, and `RedactionFailed` when the question cannot be redacted; a
        kind of source that fails is a degradation.
        """
        sent, asker, trace, watch = _parse(request), scope or self._speaker, Trace(), Stopwatch()
        moment, cleaner = now or self._clock.now(), self._cleaners.make(trace)
        with watch.phase("redact_query"):
            question = self._complete_question(sent, cleaner)
            asked = self._clean_request(sent, question, cleaner)
        with watch.phase("collect"):
            search = SourceQuestion(text=question, scope=asker, now=moment, kinds=asked.kinds)
            raw = await self._finder.find(search, cleaner)
        with watch.phase("redact"):
            clean = cleaner.clean_candidates(raw)
        with watch.phase("compose"):
            composed = compose_ask(asked, clean, counter=self._counter, recipe=self._recipe, trace=trace)
        with watch.phase("missing"):
            missing = await self._find_missing(asker, asked.kinds, composed)
        ledger = trace.finish(raw)
        capsule = make_capsule(
            CAPSULE_KIND,
            scope=asker,
            now=moment,
            request=ask_to_json(asked),
            settings={"model": self._model, "encoding": self._counter.encoding, "recipe": asdict(self._recipe)},
            candidates=clean,
            ledger=ledger,
            messages=composed.messages,
            in_request={message_candidate(asked.older + at, each).id for at, each in enumerate(asked.history)},
        )
        return self._make_result(asked, composed, missing, capsule, ledger, watch)

    def _complete_question(self, request: AskRequest, cleaner: Cleaner) -> str:
        """The question to search for, with known secrets masked."""
        earlier = [cleaner.mask_text(each.content) for each in request.history if each.role == "user"]
        return complete_follow_up(cleaner.mask_text(request.query), earlier)

    def _clean_request(self, request: AskRequest, question: str, cleaner: Cleaner) -> CleanAsk:
        """The request, redacted: history first, so that later questions number the same values alike."""
        fence = make_fence(self._counter)
        older = max(0, len(request.history) - _READ_MESSAGES)
        history = self._clean_history(request.history[older:], older, cleaner, fence)
        system = SYSTEM_PROMPT if request.system is None else request.system
        masked = cleaner.mask_text(request.query)
        query = cleaner.clean_prompt_text(masked, fence)
        return CleanAsk(
            query=query,
            standalone=query if question == masked else fence.inline(cleaner.clean_text(question)),
            system=fence.inline(cleaner.mask_text(system)),
            max_tokens=self._max_tokens if request.max_tokens is None else request.max_tokens,
            kinds=tuple(kind for kind in SourceKind if not request.kinds or kind in request.kinds),
            history=history,
            older=older + len(request.history[older:]) - len(history),
        )

    def _clean_history(
        self, messages: Sequence[AskMessage], first: int, cleaner: Cleaner, fence: PromptFence
    ) -> tuple[AskMessage, ...]:
        """The newest messages, cleaned, without a gap: everything before one that cannot be scanned is dropped."""
        clean: list[AskMessage] = []
        unread = first
        for at, message in enumerate(messages, start=first):
            try:
                content = cleaner.clean_prompt_text(message.content, fence)
            except RedactionFailed as failure:
                cleaner.trace.add_degradation("redactor", str(failure))
                clean, unread = [], at + 1
            else:
                clean.append(AskMessage(role=message.role, content=content))
        if unread:
            old = Candidate(id=f"history[0:{unread}]", key="history", text="", section="history", redacted=True)
            cleaner.trace.drop(old, Reason.OVER_BUDGET, note=f"{unread} messages before those that may be shown")
        return tuple(clean)

    async def _find_missing(
        self, scope: Scope, kinds: Sequence[SourceKind], composed: ComposedAsk
    ) -> tuple[MissingKind, ...]:
        """The kinds without a source in the prompt, and whether the scope can read anything of them."""
        shown = {source.kind for source in composed.sources}
        absent = [kind for kind in kinds if kind not in shown]
        empty = await self._finder.find_empty(scope, absent)
        return tuple(
            MissingKind(kind=kind, reason="empty" if kind in empty else "no_match", command=FILL_COMMANDS[kind])
            for kind in absent
        )

    def _make_result(
        self,
        asked: CleanAsk,
        composed: ComposedAsk,
        missing: tuple[MissingKind, ...],
        capsule: Capsule,
        ledger: Ledger,
        watch: Stopwatch,
    ) -> AskContext:
        return AskContext(
            build_id=capsule.build_id,
            query=asked.query,
            standalone_query=asked.standalone,
            text=composed.text,
            sources=tuple(make_source(source) for source in composed.sources),
            missing=missing,
            tokens=composed.tokens,
            token_counts=composed.token_counts,
            max_tokens=asked.max_tokens,
            encoding=self._counter.encoding,
            exact=self._counter.exact,
            messages=composed.messages,
            ledger=ledger,
            capsule=capsule,
            timings=watch.seconds,
        )


def _parse(request: AskRequest | Mapping[str, Any] | str) -> AskRequest:
    if isinstance(request, str):
        return check_request(AskRequest(query=request))
    return check_request(request if isinstance(request, AskRequest) else parse_ask(request, answering=False))
