"""A request for a workspace context as routes take it, and the context as routes and the command line answer."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from contexture.builders.workspace.validate import validated
from contexture.builders.workspace.values import ContextPayload
from contexture.ports import TokenCounter


class WorkspaceBody(BaseModel):
    """A request in camelCase; `request_of` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    query: Annotated[Any, Field(description="The user's query.")] = None
    focus: Annotated[Any, Field(description="`blockId`, `pageId` or `databaseId`, or several.")] = None
    type: Annotated[Any, Field(description="`assist`, `chat`, `search` or `automate`.")] = None
    user: Annotated[Any, Field(description="`id`, which must be the caller's own, `name` and `preferences`.")] = None
    conversationHistory: Annotated[Any, Field(description="Messages so far, oldest first.")] = None  # noqa: N815 - the wire's name
    tokenBudget: Annotated[Any, Field(description="`total`, a share for each section, and `caps`.")] = None  # noqa: N815 - the wire's name
    hints: Annotated[Any, Field(description="Types, times and blocks to prefer or leave out.")] = None


def workspace_object(built: ContextPayload, counter: TokenCounter) -> dict[str, Any]:
    """A built context; equal builds are equal bytes, so nothing in it is a timing."""
    return {
        "buildId": built.build_id,
        "sections": msgspec.to_builtins(built.sections),
        "metadata": msgspec.to_builtins(built.metadata),
        "serialized": built.serialized,
        "validation": msgspec.to_builtins(validated(built, counter)),
        "encoding": built.encoding,
        "exact": built.exact,
        "citations": built.citations,
        "ledger": built.ledger.entries,
        "degradations": built.degradations,
        "digest": built.capsule.digest,
    }
