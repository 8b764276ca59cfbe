"""What is kept of a processed message: the events of its session and the memories it leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from uuid import uuid4

from contexture.answer.analyse import Analysis
from contexture.answer.exchange import ChatRequest, MemoryCitation, Status
from contexture.builders.turn.build import TurnContext
from contexture.conversation import Event, Memory, MemoryKind
from contexture.errors import ContextError
from contexture.ledger import Degradation
from contexture.types import Scope, content_hash

LANGUAGE = "session_lang"
"""The key of an event's metadata under which a session hands its language on."""

CITATIONS = "citations"
TYPE = "message"
SOURCE = "conversation"
_MARK = re.compile(r"\[(\d{1,6})\]")


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenTurn:
    """A message whose context is built and which waits for its answer; `text` has its known secrets masked.

    `position` is where the message stands in its session, 0 until it is appended.
    """

    id: str
    scope: Scope
    request: ChatRequest
    session_id: str
    text: str
    analysis: Analysis
    lang: str
    now: datetime
    context: TurnContext
    position: int = 0


@dataclass(slots=True)
class Reply:
    """What a model has said so far, as it was shown."""

    pieces: list[str] = field(default_factory=list[str])
    model: str = ""

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(self.pieces)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """How an answer ended, what it cost, and what was lost on the way."""

    status: Status
    usage: Mapping[str, int]
    degradations: tuple[Degradation, ...]
    failure: ContextError | None = None


def asked_event(turn: OpenTurn) -> Event:
    """The user's message."""
    said = {"build_id": turn.context.build_id, "analysis": _plain(turn.analysis), LANGUAGE: turn.lang}
    return _event(turn, "user", turn.text, said)


def told_event(turn: OpenTurn, reply: Reply, outcome: Outcome) -> Event:
    """What became of it."""
    told: dict[str, Any] = {
        "build_id": turn.context.build_id,
        "status": outcome.status.value,
        "model": reply.model,
        "usage": dict(outcome.usage),
        "degradations": [asdict(lost) for lost in outcome.degradations],
    }
    if outcome.failure is not None:
        told["error"] = {"code": outcome.failure.code, "message": str(outcome.failure)}
    if turn.request.message_id:  # it may be asked for again
        told[CITATIONS] = [asdict(citation) for citation in citations_of(turn.context, reply.text)]
    return _event(turn, ended(outcome.status), reply.text, told)


def ended(status: Status) -> str:
    """How the event of an answer is called behind the id of its turn; one that may be tried again has a name apart."""
    return "assistant" if status is Status.COMPLETE else f"assistant-{status.value}"


def turn_id(scope: Scope, session_id: str, message_id: str) -> str:
    """The id of a turn: always the same for a message that has one, otherwise a new one."""
    if not message_id:
        return uuid4().hex
    return content_hash(repr((scope.tenant, scope.user, session_id, message_id)))[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What a turn leaves to remember."""

    turn: str
    session_id: str
    persona_id: str
    time: datetime
    asked: str
    told: str
    injected: tuple[str, ...]


def memories_of(said: Said, namespace: str, universe: str) -> list[Memory]:
    """The message and its answer, each known again by its key, with the memories that stood in the prompt."""
    texts = [(role, text) for role, text in (("user", said.asked), ("assistant", said.told)) if text.strip()]
    return [
        Memory(
            text=text,
            kind=MemoryKind.EPISODIC,
            type=TYPE,
            namespace=namespace,
            universe=universe,
            session_id=said.session_id,
            persona_id=said.persona_id,
            tags=(role,),
            time=said.time,
            idempotency_key=f"{said.turn}-{role}",
            injected=said.injected,
            metadata={"role": role, "source": SOURCE, "timestamp": said.time.isoformat()},
        )
        for role, text in texts
    ]


def injected(context: TurnContext) -> tuple[str, ...]:
    """The ids of the memories that stand in a prompt."""
    return tuple(snippet.id for snippet in context.snippets)


def citations_of(context: TurnContext, reply: str) -> tuple[MemoryCitation, ...]:
    """The blocks of memory in a prompt, in their order."""
    named = {int(number) for number in _MARK.findall(reply)}
    return tuple(
        MemoryCitation(
            number=number, memory_id=snippet.id, label=snippet.label, score=snippet.score, cited=number in named
        )
        for number, snippet in enumerate(context.snippets, start=1)
    )


def _event(turn: OpenTurn, name: str, content: str, metadata: dict[str, Any]) -> Event:
    message = {"role": name.partition("-")[0], "content": content}
    return Event(id=f"{turn.id}-{name}", message=message, time=turn.now, metadata=metadata)


def _plain(analysis: Analysis) -> dict[str, Any]:
    return {"lang": analysis.lang, "intent": analysis.intent.value, "keywords": list(analysis.keywords)}
