"""One chat turn: the analysis of its message, the history shown to the model, and the events and memories it stores.

A chat model may extract the statements of a message: atomic, dated, and in the message's own words.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import uuid4

import msgspec

from contexture.answer.chat_types import ChatRequest, ChatStatus, MemoryCitation
from contexture.builders.turn.build import TurnContext
from contexture.builders.turn.request import MESSAGE_FIELDS
from contexture.builders.turn.result import Snippet
from contexture.conversation import (
    CORRECTS_KEY,
    MAX_STATEMENTS,
    MEMORIES_COLLECTION,
    RECALLED_KEY,
    Memory,
    MemoryKind,
    SessionEvent,
    statement_keys,
)
from contexture.errors import ContextError, SourceError
from contexture.ledger import Degradation
from contexture.pipeline.fence import DATA_NOTICE, PromptFence, safe_label
from contexture.ports import ChatModel
from contexture.text.language import UNKNOWN_LANGUAGE, detect_language
from contexture.text.segmentation import split_sentences
from contexture.text.statements import MessageIntent, detect_intent, select_statements
from contexture.text.supersession import find_attribute_terms, is_negated
from contexture.text.terms import split_words, term_id
from contexture.types import Message, Scope, content_hash

_INSTRUCTION = (
    "Split what the user states in the message into atomic statements: one fact, preference or plan each, in the words "
    "and the language of the message, in the first person where it is. Each must be understood without the others: put "
    "names in the place of pronouns, and the date behind a relative time, as in `tomorrow (2026-03-03)`. Leave out "
    "questions, greetings and orders. Answer with JSON alone: a list of objects "
    '{"statement": text, "corrects": [numbers]}; `corrects` names the numbered memories that the statement makes '
    "untrue. Answer [] if nothing is stated."
)
_MAX_ANSWER_TOKENS = 1_024
_MIN_COVERED = 0.5  # of a sentence's content words: otherwise the model has left something out
_MAX_DAYS_AWAY = 800
_DATE = re.compile(r"\s*\((\d{4}-\d{2}-\d{2})\)")
_LIST = re.compile(r"\[.*\]", re.DOTALL)


@dataclass(frozen=True, kw_only=True, slots=True)
class RememberedStatement:
    """Something that a message states, and the ids of the memories that it corrects."""

    text: str
    corrects: tuple[str, ...] = ()


class _Item(msgspec.Struct):
    statement: str
    corrects: list[Annotated[int, msgspec.Meta(ge=1)]] = []


@dataclass(frozen=True, kw_only=True, slots=True)
class StatementExtractor:
    """Splits messages into statements with `model`, which may take `seconds`.

    A statement counts if all its content words, names and numbers are words of the message, and it denies something
    only where the message does; only a date in parentheses may be new. Sentences that no statement covers are kept as
    they are. When the model fails or invents, the statements are those that the rules find.
    """

    model: ChatModel
    seconds: float = 20.0

    async def extract(
        self, message: str, *, shown: str, memories: Sequence[Snippet], restore: Callable[[str], str], now: datetime
    ) -> Sequence[RememberedStatement]:
        """The statements of a message, in order; empty if it states nothing.

        The model reads `shown`, the message without personal data, and the memories of its prompt; `restore` puts the
        data back.
        """
        stated = select_statements(message)
        if not stated:
            return ()
        try:
            async with asyncio.timeout(self.seconds):
                answer = await self.model.complete(_make_prompt(shown, memories, now), max_tokens=_MAX_ANSWER_TOKENS)
        except (SourceError, TimeoutError):
            return (RememberedStatement(text=stated),)
        ids = {number: snippet.id for number, snippet in enumerate(memories, start=1)}
        found = [
            RememberedStatement(text=text, corrects=tuple(ids[number] for number in item.corrects if number in ids))
            for item in _read_items(answer)
            if is_stated(text := restore(item.statement).strip(), message, now)
        ]
        left = [] if not found else _find_uncovered(stated, [each.text for each in found])
        return tuple([*found, *(RememberedStatement(text=each) for each in left)][:MAX_STATEMENTS]) or (
            RememberedStatement(text=stated),
        )


def is_stated(statement: str, message: str, now: datetime) -> bool:
    """Whether a message says a statement in its own words; a date of about its time may be added in parentheses."""
    if any(not _is_near(date, now) for date in _DATE.findall(statement)):
        return False
    bare = _DATE.sub("", statement)
    words, sentences = find_attribute_terms(bare), [message[start:end] for start, end in split_sentences(message)]
    if not words or not words <= find_attribute_terms(message):
        return False
    source = max(sentences, key=lambda sentence: len(words & find_attribute_terms(sentence)))
    return is_negated(bare) == is_negated(source) or (is_negated(source) and len(sentences) > 1)


def _is_near(date: str, now: datetime) -> bool:
    try:
        return abs(datetime.fromisoformat(date).date() - now.date()) <= timedelta(days=_MAX_DAYS_AWAY)
    except ValueError:
        return False


def _find_uncovered(stated: str, statements: Iterable[str]) -> list[str]:
    """The sentences of a message of whose content words the statements have too few."""
    known = frozenset[str]().union(*map(find_attribute_terms, statements))
    sentences = ((stated[start:end], find_attribute_terms(stated[start:end])) for start, end in split_sentences(stated))
    return [text for text, words in sentences if len(words & known) < _MIN_COVERED * len(words)]


def _read_items(answer: str) -> Sequence[_Item]:
    """The objects of the list in an answer, whatever is around it; none if it cannot be read."""
    found = _LIST.search(answer)
    try:
        return msgspec.json.decode(found[0], type=list[_Item]) if found else ()
    except msgspec.MsgspecError:
        return ()


def _make_prompt(shown: str, memories: Sequence[Snippet], now: datetime) -> list[Message]:
    fence = PromptFence()
    blocks = [
        f"[{at}] ({safe_label(each.label)})\n{fence.block(each.text)}" for at, each in enumerate(memories, start=1)
    ]
    known = "\n".join(("Earlier memories:", *blocks, "")) if blocks else ""
    said = fence.block_after_label(f"The message, of {now:%A, %Y-%m-%d}:\n{shown}")
    return [
        {"role": "system", "content": f"{_INSTRUCTION} {DATA_NOTICE}"},
        {"role": "user", "content": f"{known}{said}"},
    ]


LANGUAGE_KEY = "session_lang"
"""Metadata key under which an event stores the language of its session."""

CITATIONS_KEY = "citations"
MEMORY_TYPE = "message"
MEMORY_SOURCE = "conversation"
_CITATION_MARK = re.compile(r"\[(\d{1,6})\]")


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenTurn:
    """A message whose context is built and whose answer is pending; known secrets in `text` are masked.

    `position` is the position of the message in its session, 0 until it is appended. `remembers` says whether the
    policy allows the exchange to be stored as memories. `extraction` finds the statements of the message meanwhile.
    """

    id: str
    scope: Scope
    request: ChatRequest
    session_id: str
    text: str
    analysis: MessageAnalysis
    lang: str
    now: datetime
    context: TurnContext
    position: int = 0
    remembers: bool = True
    extraction: Awaitable[Sequence[RememberedStatement]] | None = None


@dataclass(slots=True)
class PartialReply:
    """The text a model has produced so far, with known secrets masked."""

    pieces: list[str] = field(default_factory=list[str])
    model: str = ""

    @property
    def text(self) -> str:
        """The whole text so far."""
        return "".join(self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnOutcome:
    """How an answer ended, its token usage, its degradations, and the error if it failed."""

    status: ChatStatus
    usage: Mapping[str, int]
    degradations: tuple[Degradation, ...]
    failure: ContextError | None = None


def build_user_event(turn: OpenTurn) -> SessionEvent:
    """The session event of the user's message."""
    said = {"build_id": turn.context.build_id, "analysis": _analysis_to_dict(turn.analysis), LANGUAGE_KEY: turn.lang}
    return _build_event(turn, "user", turn.text, said)


def build_reply_event(turn: OpenTurn, reply: PartialReply, outcome: TurnOutcome) -> SessionEvent:
    """The session event of the answer, or of its failure."""
    event: dict[str, Any] = {
        "build_id": turn.context.build_id,
        "status": outcome.status.value,
        "model": reply.model,
        "usage": dict(outcome.usage),
        "degradations": [asdict(lost) for lost in outcome.degradations],
        RECALLED_KEY: list(injected_memory_ids(turn.context)),
    }
    if outcome.failure is not None:
        event["error"] = {"code": outcome.failure.code, "message": str(outcome.failure)}
    if turn.request.message_id:  # a client may send it again
        event[CITATIONS_KEY] = [asdict(citation) for citation in build_memory_citations(turn.context, reply.text)]
    return _build_event(turn, reply_event_name(outcome.status), reply.text, event)


def reply_event_name(status: ChatStatus) -> str:
    """Return the suffix of a reply's event id.

    An incomplete reply has a suffix of its own, so that the turn can be retried.
    """
    return "assistant" if status is ChatStatus.COMPLETE else f"assistant-{status.value}"


def derive_turn_id(scope: Scope, session_id: str, message_id: str) -> str:
    """Return the id of a turn: derived from the message id if there is one, otherwise random."""
    if not message_id:
        return uuid4().hex
    return content_hash(repr((scope.tenant, scope.user, session_id, message_id)))[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedTurn:
    """The texts of a finished turn, from which its memories are built.

    `stated` are the statements of the message where a model has found them; `turn_number` counts the session's turns.
    """

    turn: str
    session_id: str
    persona_id: str
    time: datetime
    asked: str
    reply: str
    injected: tuple[str, ...]
    stated: Sequence[RememberedStatement] = ()
    turn_number: int = 0


def build_memories(said: FinishedTurn, namespace: str, universe: str) -> list[Memory]:
    """The memories of a message and its answer, each with an idempotency key and the ids of recalled memories.

    Of the message only its statements are remembered.
    """
    stated = said.stated or [RememberedStatement(text=select_statements(said.asked))]
    keys = statement_keys(f"{said.turn}-user")
    texts = [
        *(("user", key, statement) for key, statement in zip(keys, stated, strict=False)),
        ("assistant", f"{said.turn}-assistant", RememberedStatement(text=said.reply)),
    ]
    return [
        Memory(
            text=statement.text,
            kind=MemoryKind.EPISODIC,
            type=MEMORY_TYPE,
            namespace=namespace,
            universe=universe,
            session_id=said.session_id,
            persona_id=said.persona_id,
            tags=(role,),
            time=said.time,
            idempotency_key=key,
            injected=said.injected,
            metadata={
                "role": role,
                "source": MEMORY_SOURCE,
                "timestamp": said.time.isoformat(),
                **({"turn": said.turn_number} if said.turn_number else {}),
                **({CORRECTS_KEY: list(statement.corrects)} if statement.corrects else {}),
            },
        )
        for role, key, statement in texts
        if statement.text.strip()
    ]


def injected_memory_ids(context: TurnContext) -> tuple[str, ...]:
    """Return the ids of the memories that are in a prompt, and the references of other records."""
    return tuple(snippet.reference for snippet in context.snippets)


def list_memories(context: TurnContext) -> list[Snippet]:
    """Return the memories of a prompt, without material of other sources."""
    return [snippet for snippet in context.snippets if snippet.collection == MEMORIES_COLLECTION]


def quotes_sources(context: TurnContext) -> bool:
    """Whether a prompt holds anything but memories."""
    return len(list_memories(context)) < len(context.snippets)


def build_memory_citations(context: TurnContext, reply: str) -> tuple[MemoryCitation, ...]:
    """One citation for each memory block in the prompt, in order; `cited` says whether the reply names its number."""
    named = {int(number) for number in _CITATION_MARK.findall(reply)}
    return tuple(
        MemoryCitation(
            number=number,
            memory_id=snippet.id,
            label=snippet.label,
            score=snippet.score,
            cited=number in named,
            collection=snippet.collection,
        )
        for number, snippet in enumerate(context.snippets, start=1)
    )


def _build_event(turn: OpenTurn, name: str, content: str, metadata: dict[str, Any]) -> SessionEvent:
    message = {"role": name.partition("-")[0], "content": content}
    return SessionEvent(id=f"{turn.id}-{name}", message=message, time=turn.now, metadata=metadata)


def _analysis_to_dict(analysis: MessageAnalysis) -> dict[str, Any]:
    return {"lang": analysis.lang, "intent": analysis.intent.value, "keywords": list(analysis.keywords)}


_MAX_KEYWORDS = 8
_LANGUAGE_NAMES = {
    "ru": "Russian", "uk": "Ukrainian", "de": "German", "fr": "French", "es": "Spanish", "it": "Italian",
    "pt": "Portuguese", "nl": "Dutch", "zh": "Chinese", "ja": "Japanese", "ko": "Korean", "ar": "Arabic",
    "th": "Thai", "el": "Greek", "he": "Hebrew",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageAnalysis:
    """Language, intent and keywords of a message, found without a model; `keywords` are its content words, in order."""

    lang: str
    intent: MessageIntent
    keywords: tuple[str, ...]


def analyse_message(message: str) -> MessageAnalysis:
    """Return the language, intent and keywords of a message; equal messages have equal analyses."""
    found = split_words(message)
    subject = [word for word in found if term_id(word) is not None]
    return MessageAnalysis(
        lang=detect_language(message),
        intent=detect_intent(message),
        keywords=tuple(dict.fromkeys(subject))[:_MAX_KEYWORDS],
    )


def build_system_prompt(base: str, lang: str) -> str:
    """Return the system prompt of a session in this language.

    It depends only on the session, not on the message, so that all turns of a session share a prompt prefix.
    """
    language = _LANGUAGE_NAMES.get(lang)
    return f"{base}\nAnswer in {language} unless you are asked for another language." if language else base


def resolve_session_language(earlier: str, analysis: MessageAnalysis) -> str:
    """Return the language in which a session began; `earlier` is stored with its last turn, empty at first."""
    return earlier if earlier not in ("", UNKNOWN_LANGUAGE) else analysis.lang


def history_read_limit(most: int) -> int:
    """Return how many of the newest events to read so that `select_history` has enough to choose from."""
    return most + _window_step(most) - 1 if most else 0


def select_history(events: Sequence[SessionEvent], most: int) -> Sequence[SessionEvent]:
    """Select the events shown to a turn from the newest `history_read_limit(most)`.

    Returns the last `most` events and up to half as many before them. The start moves in steps, so that the prompts of
    the turns between two steps share a prefix (prompt caching).
    """
    if not events:
        return ()
    begin = max(0, events[-1].position - most) // _window_step(most) * _window_step(most)
    return [event for event in events if event.position > begin]


def to_messages(events: Iterable[SessionEvent]) -> list[Message]:
    """Convert events to messages, tool calls with their results; messages that were never answered are skipped.

    A tool result whose call is not among the events is left out, because no model accepts it.
    """
    found = [
        {name: event.message[name] for name in MESSAGE_FIELDS if event.message.get(name) is not None}
        for event in events
    ]
    called = {call for message in found for call in _tool_call_ids(message)}
    return [_with_content_field(message) for message in found if _is_shown(message, called)]


def _window_step(most: int) -> int:
    return max(1, most // 2)


def _tool_call_ids(message: Message) -> Sequence[str]:
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    return [str(call.get("id")) for call in calls]


def _is_shown(message: Message, called: set[str]) -> bool:
    if message.get("role") == "tool":
        return message.get("tool_call_id") in called
    return bool(message.get("content") or message.get("tool_calls"))


def _with_content_field(message: Message) -> Message:
    """Add a null `content` if it is missing: APIs accept null but require the field."""
    return {"role": message["role"], "content": None, **message}
