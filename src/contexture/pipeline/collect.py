"""Asks every source at once; one that fails or dawdles is a degradation, never an exception."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from contexture.errors import RequestError, SourceTimeout
from contexture.ledger import Trace
from contexture.types import Candidate

Ask = Callable[[], Awaitable[Sequence[Candidate]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Something that may know candidates, and how many seconds it may take."""

    ask: Ask
    patience: float


async def collect(sources: Mapping[str, Source], *, deadline: float, trace: Trace) -> list[Candidate]:
    """Candidates of all sources, in the order the sources are named.

    Sources run concurrently, each within its own patience and all within `deadline` seconds. What
    the caller can fix is raised; every other failure is recorded in `trace` under the source's name.
    """
    found = await asyncio.gather(
        *(_ask(name, source, min(source.patience, deadline), trace) for name, source in sources.items())
    )
    return [candidate for each in found for candidate in each]


async def _ask(name: str, source: Source, patience: float, trace: Trace) -> Sequence[Candidate]:
    try:
        async with asyncio.timeout(patience):
            return await source.ask()
    except RequestError:
        raise
    except TimeoutError:
        trace.degraded(name, SourceTimeout(f"no answer within {patience:g} s"))
    except Exception as failure:  # noqa: BLE001 - the fan-out: whatever a source raises, the others still count
        trace.degraded(name, failure)
    return ()
