"""A builder of digests: what the records say about a topic, the best passage of each, in the order of time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from contexture.builders.plugin import BuilderPlugin, BuilderServices, ComposedContext, PluginContext, parse_request
from contexture.builders.replay import ComposedPrompt
from contexture.capsule import Capsule, convert_part, make_capsule
from contexture.ledger import Trace
from contexture.pipeline.candidates import drop_duplicate_keys, drop_near_duplicates, keep_top_k, rank_candidates
from contexture.pipeline.fence import DATA_NOTICE, fence, safe_label, validate_prompt
from contexture.pipeline.knapsack import PACKERS, Packer
from contexture.pipeline.packing import fit_prompt, make_pack_items, record_verdicts
from contexture.pipeline.truncation import cite_variant, extract_sentences
from contexture.ports import TokenCounter
from contexture.types import Candidate, Form, Message, Scope, Variant

KIND = "digest"
INSTRUCTIONS = "Summarise what the numbered entries say about the topic, in their order, and cite them like [1]."
_PASSAGES_PER_RECORD = 4
_EXTRACT_VALUE = 0.7  # what the best sentences of a passage are worth of the whole


class DigestRequest(BaseModel):
    """A topic over one collection; what is left out is as the settings say."""

    model_config = ConfigDict(extra="forbid", strict=True)

    query: Annotated[str, Field(min_length=1, description="The topic.")]
    collection: Annotated[str | None, Field(description="Collection to search.")] = None
    max_tokens: Annotated[int | None, Field(ge=1, description="Token budget of the digest.")] = None
    entries: Annotated[int, Field(ge=1, le=100, description="Records at most.")] = 20


async def build_digest(
    services: BuilderServices, request: DigestRequest, *, scope: Scope, now: datetime
) -> PluginContext:
    """What the records say about a topic, the best passage of each, in the order of time."""
    trace = Trace()
    cleaner = services.cleaners.make(trace)
    topic, limit = cleaner.mask_text(request.query), request.max_tokens or services.max_tokens
    asked = request.model_copy(
        update={
            "query": cleaner.clean_text(topic),
            "collection": request.collection or services.collection,
            "max_tokens": limit,
        }
    )
    raw = await services.find_candidates(
        topic, scope=scope, cleaner=cleaner, pool=_PASSAGES_PER_RECORD * asked.entries, collection=asked.collection
    )
    clean = cleaner.clean_candidates(raw)
    composed = compose_digest(asked, clean, now, counter=services.counter, packer=services.packer, trace=trace)
    ledger = trace.finish(raw)
    capsule = make_capsule(
        KIND,
        scope=scope,
        now=now,
        request=asked.model_dump(),
        settings={"model": services.model, "packer": services.packer.value},
        candidates=clean,
        ledger=ledger,
        messages=composed.messages,
    )
    return services.finish(composed, capsule, ledger, max_tokens=limit)


def recompose_digest(capsule: Capsule, more_tokens: int, counter: TokenCounter, trace: Trace) -> ComposedPrompt:
    """The prompt of a digest's capsule, composed again; see `RecomposeFunction`."""
    request = parse_request(DigestRequest, capsule.request)
    composed = compose_digest(
        request.model_copy(update={"max_tokens": (request.max_tokens or 0) + more_tokens}),
        capsule.candidates,
        capsule.now,
        counter=counter,
        packer=convert_part(capsule.settings.get("packer"), Packer, "a packer"),
        trace=trace,
    )
    return ComposedPrompt(composed.messages, composed.unlimited)


def compose_digest(
    request: DigestRequest,
    candidates: Sequence[Candidate],
    now: datetime,
    *,
    counter: TokenCounter,
    packer: Packer,
    trace: Trace,
) -> ComposedContext:
    """The prompt from redacted candidates, within the budget; every candidate gets a verdict in the trace."""
    limit = request.max_tokens or 0
    # One passage of each record: the others are duplicates of it.
    single = drop_duplicate_keys([replace(each, key=each.record_id) for each in candidates], trace)
    different = drop_near_duplicates(rank_candidates(single), trace)
    kept = keep_top_k(different, request.entries, trace)
    forms = {each.id: _variants(each, request.query, counter) for each in kept}
    items = make_pack_items(kept, forms)
    order = sorted(kept, key=_time_key)

    def render(chosen: Mapping[str, int]) -> tuple[Message, ...]:
        shown = [(each, forms[each.id][chosen[each.id]]) for each in order if each.id in chosen]
        return _render(request.query, now, shown)

    fitted = fit_prompt(items, limit, PACKERS[packer], lambda chosen: counter.count_messages(render(chosen)))
    shown = {name: forms[name][at] for name, at in fitted.packing.chosen.items()}
    record_verdicts(kept, forms, shown, trace)
    validate_prompt(
        tokens=fitted.tokens,
        limit=limit,
        shown=[each for each in kept if each.id in shown],
        texts=[each.text for each in shown.values()],
    )
    messages = render(fitted.packing.chosen)
    system, context = (counter.count(str(message["content"])) for message in messages)
    return ComposedContext(
        messages=messages,
        tokens=fitted.tokens,
        token_counts={"system": system, "context": context, "framing": fitted.tokens - system - context},
        citations=tuple(found for each in order if each.id in shown for found in cite_variant(each, shown[each.id])),
        unlimited=sum(item.options[0].tokens for item in items),
    )


def _variants(candidate: Candidate, topic: str, counter: TokenCounter) -> list[Variant]:
    """The whole passage, and its best sentences in half of the tokens if it has several."""
    text, heading = fence(candidate.text), counter.count(f"\n\n[00] ({_label(candidate)})\n")
    whole = Variant(form=Form.FULL, text=text, tokens=counter.count(text) + heading, value=candidate.score)
    half = counter.count(text) // 2
    found = extract_sentences(candidate.text, candidate.sentences, topic, counter, half) if half else None
    if found is None or not found.text or found.text == candidate.text:
        return [whole]
    short = fence(found.text)
    value = candidate.score * _EXTRACT_VALUE
    tokens = counter.count(short) + heading
    return [whole, Variant(form=Form.EXTRACT, text=short, tokens=tokens, value=value, spans=found.spans)]


def _render(topic: str, now: datetime, shown: Sequence[tuple[Candidate, Variant]]) -> tuple[Message, ...]:
    system = f"{INSTRUCTIONS} Today is {now.date().isoformat()}.\n\n{DATA_NOTICE}"
    entries = [f"[{at}] ({_label(each)})\n{form.text}" for at, (each, form) in enumerate(shown, start=1)]
    material = "\n\n".join(entries) or "_No record says anything about it._"
    return ({"role": "system", "content": system}, {"role": "user", "content": f"Topic: {topic}\n\n{material}"})


def _label(candidate: Candidate) -> str:
    title = safe_label(candidate.label or candidate.title) or "untitled"
    return f"{title}, {candidate.time.date().isoformat()}" if candidate.time else title


def _time_key(candidate: Candidate) -> tuple[datetime, str]:
    time = candidate.time or datetime.min.replace(tzinfo=UTC)
    return (time if time.tzinfo else time.replace(tzinfo=UTC), candidate.id)


DIGEST = BuilderPlugin(kind=KIND, recompose=recompose_digest, request=DigestRequest, build=build_digest)
