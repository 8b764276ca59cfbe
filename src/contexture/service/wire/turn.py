"""A turn as routes take it, and its prompt as routes and the command line answer with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contexture.builders.turn.result import Snippet, TurnContext


class TurnBody(BaseModel):
    """One turn of a conversation; `turn_of` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    user_message: Annotated[Any, Field(description="A text, or a list of parts such as chat APIs take.")] = None
    system_prompt: Annotated[Any, Field(description="Instructions of the application.")] = None
    history: Annotated[Any, Field(description="Messages so far, oldest first.")] = None
    tenant_id: Annotated[Any, Field(description="Must be the caller's own.")] = None
    user_id: Annotated[Any, Field(description="Must be the caller's own.")] = None
    session_id: Annotated[Any, Field(description="The conversation.")] = None
    persona_id: Annotated[Any, Field(description="Whom the assistant plays.")] = None
    max_prompt_tokens: Annotated[Any, Field(description="Token limit of the prompt.")] = None


def turn_object(built: TurnContext) -> dict[str, Any]:
    """A built turn; equal builds are equal bytes, so nothing in it is a timing."""
    return {
        "build_id": built.build_id,
        "system_prompt": built.system_prompt,
        "messages": built.messages,
        "tokens": built.tokens,
        "token_counts": built.token_counts,
        "max_prompt_tokens": built.debug["max_prompt_tokens"],
        "encoding": built.encoding,
        "exact": built.exact,
        "snippets": [_snippet(snippet) for snippet in built.snippets],
        "history": built.history,
        "debug": built.debug,
        "citations": built.citations,
        "ledger": built.ledger.entries,
        "degradations": built.degradations,
        "digest": built.capsule.digest,
    }


def _snippet(snippet: Snippet) -> dict[str, Any]:
    return {
        "id": snippet.id,
        "text": snippet.text,
        "score": snippet.score,
        "base_score": snippet.base_score,
        "recency": snippet.recency,
        "label": snippet.label,
        "form": snippet.form,
        "tokens": snippet.tokens,
        "metadata": snippet.metadata,
    }
