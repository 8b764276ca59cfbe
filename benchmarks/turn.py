"""Prompts of chat turns, as a caller waits for them, and how much of each the turn before has sent already."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
from benchmarks.corpus import SCOPE, questions, records, warm_up
from benchmarks.store import MODEL, Clean, Models, Pay, SearchedIndex, opened, searcher
from benchmarks.timing import Numbers, Progress, Times, each, summary

from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.token_counters import counter_for
from contexture.builders.turn.build import TurnContextBuilder
from contexture.builders.turn.result import TurnContext
from contexture.conversation import HealthState, Memory, Recalled
from contexture.memory.service import LocalMemory
from contexture.ports import MemoryService
from contexture.retrieval.prepare import Preparer
from contexture.testing.doubles import FixedClock, ScriptedMemory
from contexture.types import Message

TOKENS = 4_096
TURNS = 40
SYSTEM = (
    "You help the readers of a large archive. Answer briefly, name the records you rely on, and say what is missing. "
)

_NAMES = {Pay.NOTHING: "turn", Pay.MINILM: "turn_embedding_minilm", Pay.SHIPPED: "turn_embedding_shipped"}
_SEEDS = {Pay.NOTHING: 62, Pay.MINILM: 63, Pay.SHIPPED: 64}
_HISTORY = 20


async def turns(folder: Path, models: Models, size: int, asked: int, progress: Progress) -> Numbers:
    """Turns over a store of `size` memories: unseen questions, embedded and not, and with memory down."""
    index = await opened(folder, models)
    await filled_with_memories(index, models, size, progress)
    await index.optimize()
    numbers = await turns_over(index, models, asked)
    await index.close()
    return numbers


async def turns_over(index: SearchedIndex, models: Models, asked: int) -> Numbers:
    """Turns over the memories that an index holds."""
    numbers: Numbers = {}
    for pay in Pay:
        built, times = await _built(_builder(_memory(index, models, pay)), questions(asked, seed=_SEEDS[pay]))
        numbers |= summary(_NAMES[pay], times)
        if pay is Pay.NOTHING:
            numbers["turn_snippets_mean"] = statistics.mean(len(one.snippets) for one in built)
            numbers["turn_within_budget_share"] = statistics.mean(one.tokens <= TOKENS for one in built)
            for phase in built[0].timings:
                spent = statistics.median(one.timings.get(phase, 0.0) for one in built)
                numbers[f"turn_phase_{phase}_p50_ms"] = spent * 1_000
    down = _builder(_memory(index, models, Pay.NOTHING), lambda: HealthState.DOWN)
    numbers |= summary("turn_down", (await _built(down, questions(asked, seed=65)))[1])
    return numbers


def shared_prefix() -> Numbers:
    """What share of a prompt's bytes the one before began with too, in conversations that outgrow their limit."""
    return {
        "turn_shared_prefix_share": _mean_shared(asyncio.run(_conversation(1))),
        "turn_shared_prefix_long_answers_share": _mean_shared(asyncio.run(_conversation(3))),
    }


def _mean_shared(prompts: Sequence[bytes]) -> float:
    return statistics.mean(_shared(before, after) / len(after) for before, after in pairwise(prompts))


async def _conversation(paragraphs: int) -> list[bytes]:
    """Forty prompts with answers of so many paragraphs, of about a hundred tokens each."""
    said, answers = questions(TURNS, seed=71), _texts(paragraphs * TURNS, 4)
    recalls = [Recalled(id=f"m{at}", text=text, score=0.9) for at, text in enumerate(_texts(8 * TURNS, 2, seed=9))]
    memory = ScriptedMemory()
    builder = _builder(memory)
    history: list[Message] = []
    prompts: list[bytes] = []
    for turn, question in enumerate(said):
        # From three to eight memories, others in every turn: the end of the prompt is never the same size twice.
        memory.recalls = recalls[8 * turn : 8 * turn + 3 + turn % 6]
        built = await builder.build_for_turn(
            {"session_id": "s", "system_prompt": SYSTEM * 8, "user_message": question, "history": history}
        )
        prompts.append(msgspec.json.encode(built.messages))
        answer = " ".join(answers[paragraphs * turn : paragraphs * (turn + 1)])
        history += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return prompts


def _shared(before: bytes, after: bytes) -> int:
    pairs = zip(before, after, strict=False)
    return next((at for at, (old, new) in enumerate(pairs) if old != new), min(len(before), len(after)))


def _texts(count: int, sentences: int, *, seed: int = 8) -> list[str]:
    found = (owned.record.text for block in records(count, seed=seed) for owned in block)
    return [" ".join(text.split(". ")[:sentences]) for text in found]


async def filled_with_memories(index: SearchedIndex, models: Models, size: int, progress: Progress) -> None:
    """Write `size` memories of every tenant and reader."""
    memory, done = _memory(index, models, Pay.NOTHING), 0
    for block in records(size):
        for scope in dict.fromkeys(owned.scope for owned in block):
            mine = [owned.record for owned in block if owned.scope == scope]
            await memory.remember(
                scope, [Memory(id=each.id, text=each.text, time=each.time, readers=each.acl) for each in mine]
            )
        done += len(block)
        progress(f"remember {size:,} memories", done, size)


def _memory(index: SearchedIndex, models: Models, pay: Pay) -> LocalMemory:
    encoders = models.encoders(pay)
    counters = [counter_for(MODEL)]
    return LocalMemory(
        index=index,
        preparer=Preparer(encoders=encoders, counters=counters, redactor=Clean(default_redactor().rules)),
        search=searcher(index, encoders),
        clock=FixedClock(),
        counters=counters,
    )


def _builder(
    memory: MemoryService, state: Callable[[], HealthState] = lambda: HealthState.NORMAL
) -> TurnContextBuilder:
    return TurnContextBuilder(
        memory=memory,
        token_counter=counter_for(MODEL),
        redactor=default_redactor(),
        clock=FixedClock(),
        health_provider=state,
        model=MODEL,
    )


async def _built(make: TurnContextBuilder, texts: Sequence[str]) -> tuple[list[TurnContext], Times]:
    """Prompts and their milliseconds, in one conversation whose history is known from the turn before."""
    built: list[TurnContext] = []
    said = [{"role": role, "content": text} for text in _texts(_HISTORY // 2, 3) for role in ("user", "assistant")]

    async def ask(text: str) -> None:
        turn = {"session_id": "s", "system_prompt": SYSTEM, "user_message": text, "history": said}
        built.append(await make.build_for_turn(turn, max_prompt_tokens=TOKENS, scope=SCOPE))

    await each(warm_up(len(texts)), ask)
    built.clear()
    times = await each(texts, ask)
    return built, times
