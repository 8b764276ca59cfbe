"""A shorter text in a model's words, or the best sentences when the model does not deliver."""

from __future__ import annotations

from contexture.errors import SourceError
from contexture.ledger import Trace
from contexture.pipeline.fence import DATA_NOTICE, fence
from contexture.pipeline.truncate import MIN_CHARS, MIN_TOKENS, Truncated, truncate
from contexture.ports import ChatModel, TokenCounter
from contexture.types import Message

_SOURCE = "summarize"
_TASK = "Summarize the document in at most {limit} tokens, in its own language. Answer with the summary alone."
_FOCUS = " Keep what helps to answer: {query}"


async def summarize(
    text: str,
    counter: TokenCounter,
    limit: int,
    *,
    model: ChatModel,
    trace: Trace,
    query: str = "",
    min_tokens: int = MIN_TOKENS,
    min_chars: int = MIN_CHARS,
) -> Truncated | None:
    """The text in at most `limit` tokens: whole if it fits, else the model's summary of it.

    When the model fails, or answers with nothing or too much, the result is what `truncate` extracts
    and the trace says so. None when `limit` is below `min_tokens`, or too little would remain.
    """
    extracted = truncate(text, counter, limit, query=query, min_tokens=min_tokens, min_chars=min_chars)
    if limit < min_tokens or counter.count(text) <= limit:
        return extracted
    try:
        answer = (await model.complete(_messages(text, limit, query), max_tokens=limit)).strip()
    except SourceError as failure:
        trace.degraded(_SOURCE, failure)
        return extracted
    tokens = counter.count(answer)
    if answer and tokens <= limit:
        return Truncated(text=answer, tokens=tokens, spans=())
    trace.degraded(_SOURCE, "the summary was empty" if not answer else f"the summary has {tokens} tokens, not {limit}")
    return extracted


def _messages(text: str, limit: int, query: str) -> list[Message]:
    task = _TASK.format(limit=limit) + (_FOCUS.format(query=query) if query else "")
    return [
        {"role": "system", "content": f"{task} {DATA_NOTICE}"},
        {"role": "user", "content": f"[1] (document)\n{fence(text)}"},
    ]
