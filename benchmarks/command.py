"""Contexts of slash commands over news, as a caller of the HTTP route waits for them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import httpx
import structlog
from benchmarks.articles import NOW, adding, filled_news, finding
from benchmarks.corpus import SCOPE, questions, warm_up
from benchmarks.store import Models, Pay, opened
from benchmarks.timing import Numbers, Progress, each, summary

from contexture.config import Settings
from contexture.engine import Contexture
from contexture.service.app import create_app
from contexture.testing.doubles import FixedClock

ROUTE = "/v1/context/command"
FOUND = {
    "command": "window=1m k=8 query={}",
    "command_widened": "window=6h lang=en query={}",
    "command_latest": "window=1m k=8",
}
"""Found at once, found after some widening, and the newest of a month."""

MISSED = {"command_miss": "window=6h lang=en sources=nowhere.example query={miss}"}
"""Found nowhere: no article has such words, and nothing is found by its meaning."""

_SEEDS = {Pay.NOTHING: 820, Pay.SHIPPED: 840}
_CRITICAL = 50  # the service's log of requests is not what is measured


async def commands(folder: Path, models: Models, size: int, asked: int, progress: Progress) -> Numbers:
    """Commands over `size` articles: unseen questions, embedded and not, each through the whole service."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(_CRITICAL))
    numbers = await filled_news(folder, models, size, progress)
    numbers |= await finding(folder, models, asked, progress)
    numbers |= await adding(folder, models, progress)
    settings = Settings(home=folder, tenant=SCOPE.tenant, user=SCOPE.user, groups=SCOPE.groups, cache_size=0)
    for pay, seed in _SEEDS.items():
        for kinds, floor in ((FOUND, settings.search_floor), (MISSED, 1.0)):
            index = await opened(folder, models)
            chosen = settings.model_copy(update={"search_floor": floor})
            engine = Contexture(chosen, index, models.encoders(pay), FixedClock(NOW))
            app = create_app(engine, keys=None, settings=chosen, clock=FixedClock())
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                for done, (name, form) in enumerate(kinds.items()):
                    progress("build commands", done, len(kinds))
                    # Questions of their own for each kind: one that was embedded before costs nothing.
                    numbers |= await _asked(client, name, form, pay, asked, seed=seed + done)
            await engine.close()
    return numbers


async def _asked(client: httpx.AsyncClient, name: str, form: str, pay: Pay, asked: int, *, seed: int) -> Numbers:
    found: list[httpx.Response] = []

    async def ask(args: str) -> None:
        found.append(await client.post(ROUTE, json={"raw_command": "/ask", "args": args}, headers=_headers()))

    await each(_args(form, warm_up(asked), seed=1), ask)
    found.clear()
    times = await each(_args(form, questions(asked, seed=seed), seed=seed), ask)
    numbers = summary(name if pay is Pay.NOTHING else f"{name}_embedding_shipped", times)
    if pay is Pay.NOTHING:
        numbers[f"{name}_found_share"] = statistics.mean(answer.is_success for answer in found)
    return numbers


def _headers() -> dict[str, str]:
    return {
        "X-Contexture-Tenant": SCOPE.tenant,
        "X-Contexture-User": SCOPE.user,
        "X-Contexture-Groups": ",".join(SCOPE.groups),
    }


def _args(form: str, texts: Sequence[str], *, seed: int) -> list[str]:
    """The arguments for each question; a miss asks for a word of its own instead."""
    return [
        form.format(json.dumps(text, ensure_ascii=False), miss=f"zyxqv{seed}w{at}") for at, text in enumerate(texts)
    ]
