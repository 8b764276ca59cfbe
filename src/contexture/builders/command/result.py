"""What a command builder returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from contexture.builders.command.documents import Document
from contexture.builders.command.ladder import Step
from contexture.builders.command.params import TTL_DAYS, GraphPlan, Limits, MemoryPlan, Params
from contexture.builders.command.parsed import ParsedCommand
from contexture.builders.command.request import AbTest
from contexture.builders.command.routing import Models
from contexture.builders.command.windows import Window
from contexture.builders.command.words import Command
from contexture.capsule import Capsule
from contexture.ledger import Degradation, Ledger
from contexture.types import Citation, Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Retrieval:
    """The documents, and how the search that found the last of them asked."""

    docs: tuple[Document, ...]
    window: Window
    lang: str
    sources: tuple[str, ...] | None
    rerank_enabled: bool

    @property
    def k_final(self) -> int:
        """How many documents there are."""
        return len(self.docs)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandContext:
    """Everything that executing a command takes, why it looks so, and the capsule that rebuilds it.

    `asked` is the command as it was typed, secrets masked but nothing redacted: it is for those who carry the command
    out, and never shown. All else is redacted. `messages` show the documents to a model, fenced.
    """

    command: Command
    params: Params
    retrieval: Retrieval
    graph: GraphPlan
    memory: MemoryPlan
    models: Models
    limits: Limits
    version: str
    ab_test: AbTest
    recovery: tuple[Step, ...]
    messages: tuple[Message, ...]
    tokens: int
    ledger: Ledger
    capsule: Capsule
    now: datetime
    asked: ParsedCommand = field(repr=False)
    timings: dict[str, float] = field(default_factory=dict[str, float], compare=False)

    @property
    def build_id(self) -> str:
        """Names the build; it is the correlation id too."""
        return f"ctx-{self.capsule.seal[:12]}"

    @property
    def degradations(self) -> tuple[Degradation, ...]:
        """Every named loss of quality in this build."""
        return self.ledger.degradations

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Where each document's snippet comes from, in the documents' order."""
        return tuple(found for each in self.retrieval.docs if (found := each.citation))

    def to_dict(self) -> dict[str, Any]:
        """The context as a JSON object; equal builds give equal ones, so nothing in it is a timing."""
        return {
            "command": self.command.value,
            "params": params_object(self.params),
            "retrieval": _retrieval(self.retrieval),
            "graph": {
                "enabled": self.graph.enabled,
                "entities": None,
                "relations": None,
                "build_policy": self.graph.build_policy,
                "hop_limit": self.graph.hop_limit,
            },
            "memory": _memory(self.memory),
            "models": {"primary": self.models.primary, "fallback": list(self.models.fallback)},
            "limits": limits_object(self.limits),
            "telemetry": {"correlation_id": self.build_id, "version": self.version},
            "ab_test": {"experiment": self.ab_test.experiment, "arm": self.ab_test.arm},
            "recovery": [{"rung": step.rung, "done": step.done, "found": step.found} for step in self.recovery],
            "degradations": self.degradations,
            "ledger": self.ledger.entries,
            "citations": self.citations,
            "messages": self.messages,
            "tokens": self.tokens,
            "digest": self.capsule.digest,
        }


def limits_object(limits: Limits) -> dict[str, float]:
    """Limits as a JSON object; whole seconds are whole numbers."""
    seconds = limits.timeout_s
    return {
        "max_tokens": limits.max_tokens,
        "budget_cents": limits.budget_cents,
        "timeout_s": int(seconds) if seconds.is_integer() else seconds,
    }


def params_object(params: Params) -> dict[str, Any]:
    """Parameters as a JSON object."""
    return {
        "window": params.window.value,
        "lang": params.lang,
        "sources": _list(params.sources),
        "topic": params.topic,
        "entity": params.entity,
        "domains": _list(params.domains),
        "query": params.query,
        "k_final": params.k_final,
        "flags": {"rerank_enabled": params.rerank_enabled},
    }


def _retrieval(found: Retrieval) -> dict[str, Any]:
    return {
        "docs": [each.to_dict() for each in found.docs],
        "window": found.window.value,
        "lang": found.lang,
        "sources": _list(found.sources),
        "k_final": found.k_final,
        "rerank_enabled": found.rerank_enabled,
    }


def _memory(plan: MemoryPlan) -> dict[str, Any]:
    keys = plan.semantic_keys
    return {
        "enabled": plan.enabled,
        "episodic": None,
        "semantic_keys": None if keys is None else [{"key": key, "ttl_days": TTL_DAYS} for key in keys],
    }


def _list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)
