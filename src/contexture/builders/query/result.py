"""What a query builder returns: `QueryContext`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from typing_extensions import TypedDict

from contexture.capsule import Capsule
from contexture.ledger import Degradation, Ledger, LedgerEntry
from contexture.results import Digest, JsonResult
from contexture.types import BuiltContext, ChatMessage, Citation


class QueryContextJson(TypedDict):
    """The context of a plain question."""

    build_id: str
    messages: tuple[ChatMessage, ...]
    text: str
    tokens: int
    token_counts: Mapping[str, int]
    max_tokens: int
    encoding: str
    exact: bool
    citations: tuple[Citation, ...]
    ledger: tuple[LedgerEntry, ...]
    degradations: tuple[Degradation, ...]
    digest: Digest


@dataclass(frozen=True, kw_only=True, slots=True)
class QueryContext(JsonResult):
    """A built context, the ledger that explains it, and the capsule that rebuilds it."""

    context: BuiltContext
    ledger: Ledger
    capsule: Capsule

    def json_form(self) -> QueryContextJson:
        """The context with its ledger, without timings, so that equal builds give equal bytes."""
        context = self.context
        return {
            "build_id": context.build_id,
            "messages": cast("tuple[ChatMessage, ...]", context.messages),
            "text": context.text,
            "tokens": context.tokens,
            "token_counts": context.token_counts,
            "max_tokens": self.capsule.request["max_tokens"],
            "encoding": context.encoding,
            "exact": context.exact,
            "citations": context.citations,
            "ledger": self.ledger.entries,
            "degradations": self.ledger.degradations,
            "digest": self.capsule.digest,
        }
