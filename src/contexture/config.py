"""Every setting, with its default and what it means; the only reader of the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field, NonNegativeFloat
from pydantic_settings import BaseSettings, SettingsConfigDict

_QDRANT_SCHEMES = ("qdrant://", "qdrant+")
_POSTGRES_SCHEMES = ("postgres://", "postgresql://")


def _aliased_field(
    name: str, other: str, default: Any, description: str, *, ge: float | None = None, gt: float | None = None
) -> Any:
    """A setting that is also read from a variable other software already sets; ours wins."""
    names = AliasChoices(f"CONTEXTURE_{name.upper()}", other)
    said = f"{description} Also read from `{other}`."
    return Field(default=default, validation_alias=names, description=said, ge=ge, gt=gt)


class Settings(BaseSettings):
    """Read from `CONTEXTURE_…` variables, then from the arguments given here, which win."""

    model_config = SettingsConfigDict(env_prefix="CONTEXTURE_", extra="forbid", frozen=True, populate_by_name=True)

    home: Path = Field(default=Path(".contexture"), description="Folder of the embedded store.")
    store: str = Field(
        default="",
        description="Store instead of the folder: `postgres://HOST/NAME`, `qdrant://HOST:PORT` or a plug-in `NAME:…`.",
    )
    truth: str = Field(
        default="",
        description="Record store behind a store in Qdrant, such as `postgres://HOST/NAME`; empty for the folder.",
    )
    qdrant_api_key: str = Field(default="", description="API key for Qdrant.")
    qdrant_timeout_seconds: float = Field(default=10.0, gt=0, description="Timeout of one request to Qdrant.")
    qdrant_exact_limit: int = Field(
        default=200_000, ge=0, description="Number of permitted passages up to which Qdrant searches exactly."
    )
    qdrant_shard_by: Literal["hash", "tenant"] = Field(
        default="hash", description="How passages are distributed over the shards of a Qdrant cluster."
    )
    qdrant_shard_number: int = Field(
        default=0, ge=0, description="Shards per collection in Qdrant, or per tenant of it; 0 for Qdrant's default."
    )
    qdrant_replication_factor: int = Field(
        default=0, ge=0, description="Copies of each shard in a Qdrant cluster; 0 for one on each node, up to three."
    )
    qdrant_write_consistency_factor: int = Field(
        default=0, ge=0, description="Copies that must confirm a write; 0 for a majority, but one of two."
    )
    tenant: str = Field(default="local", description="Tenant that the command line and the library act for.")
    user: str = Field(default="local", description="User that the command line and the library act for.")
    groups: tuple[str, ...] = Field(default=(), description="Groups of that user, as a JSON list.")
    collection: str = Field(default="documents", description="Collection used when none is named.")
    model: str = Field(
        default="", description="Model or encoding whose tokens are counted; empty for the chat model, else `gpt-4o`."
    )
    max_tokens: int = Field(default=2_000, ge=1, description="Token budget of a context when none is given.")
    packer: Literal["optimal", "greedy"] = Field(
        default="optimal", description="How candidates are chosen for the budget."
    )
    material_role: Literal["system", "user"] = Field(
        default="user", description="Role of the message with retrieved text, except in chat turns."
    )
    memory_role: Literal["system", "user"] = Field(
        default="system", description="Role of the message with memories in a chat turn."
    )
    embedder: str = Field(default="granite", description="Embedder of English texts: `granite`, `minilm` or another.")
    embedder_multilingual: str = Field(
        default="use", description="Embedder of all other texts, and of questions across languages."
    )
    embedder_threads: int = Field(default=1, ge=1, description="Threads per embedding call.")
    page_encoder: str = Field(
        default="regions",
        description="Encoder of pages for visual search: `regions`, `colpali:MODEL` or `colpali:FOLDER`.",
    )
    pages_index: str = Field(
        default="", description="Index of pages: `chroma:FOLDER` or `chroma+http://HOST:PORT`; empty for the store."
    )
    reranker: str = Field(default="", description="Reranker, such as `fastembed:MODEL`; empty for none.")
    redaction: str = Field(default="default", description="Redactor to use; `none` turns redaction off.")
    redaction_entities: tuple[str, ...] | None = Field(
        default=None, description="Entity types to redact, as a JSON list."
    )
    redaction_ner: bool = Field(default=False, description="Also redact names and places; needs `contexture-ai[ner]`.")
    redaction_operator: Literal["replace", "mask", "hash"] = Field(
        default="replace", description="How a redacted value is shown."
    )
    exact_limit: int = Field(
        default=1_000_000, ge=0, description="Deprecated and without effect: the embedded index is always exact."
    )
    index_memory_mb: int = Field(
        default=0,
        ge=0,
        description="Memory of the embedded search index, in MB; 0 for half of what the machine or container has.",
    )
    postgres_exact_limit: int = Field(
        default=50_000,
        ge=0,
        description="Number of permitted passages up to which PostgreSQL searches exactly; above it HNSW is used.",
    )
    search_threads: int = Field(default=2, ge=1, description="Threads per search.")
    search_floor: float = Field(
        default=0.3, ge=0, le=1, description="Minimum similarity of a match that shares no term with the query."
    )
    cache_size: int = Field(default=2_048, ge=0, description="Number of search results to cache.")
    cache_lag: float = Field(
        default=0.01, ge=0, le=1, description="Share of the records that may change before a cached result expires."
    )
    timeout_seconds: float = Field(default=10.0, gt=0, description="Deadline of a build.")
    turn_max_tokens: int = Field(default=4_096, ge=1, description="Token limit of a turn's prompt when none is given.")
    turn_recipe: Literal["standard", "seed"] = Field(
        default="standard",
        description="How a turn's memories are chosen and labelled. `standard`: as many as fit, with speaker and date, "
        "corrections before what they correct. `seed`: at most 8, with their source, as recalled.",
    )
    turn_near_duplicate: float = Field(
        default=0.85,
        ge=0,
        le=1,
        description="Similarity at which a memory is a near duplicate; 1 drops exact copies only.",
    )
    turn_neighbour_lift: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Share of the relevance of neighbouring memories that is added to a memory.",
    )
    history_events: int = Field(default=20, ge=0, description="Number of session events in the history of a turn.")
    memory_url: str = _aliased_field(
        "memory_url", "SA01_SOMA_BASE_URL", "", "Address of a remote memory service; empty for the built-in one."
    )
    memory_api_key: str = Field(default="", description="API key for the remote memory service.")
    memory_timeout_seconds: float = _aliased_field(
        "memory_timeout_seconds",
        "SA01_SOMA_TIMEOUT_SECONDS",
        30.0,
        "Timeout of one request to the memory service.",
        gt=0,
    )
    memory_max_retries: int = _aliased_field(
        "memory_max_retries", "SA01_SOMA_MAX_RETRIES", 2, "Retries of a request to the memory service.", ge=0
    )
    memory_retry_base_ms: float = _aliased_field(
        "memory_retry_base_ms", "SA01_SOMA_RETRY_BASE_MS", 150.0, "Delay before the first retry, in milliseconds.", ge=0
    )
    memory_universe: str = _aliased_field("memory_universe", "SA01_NAMESPACE", "", "Universe of memories.")
    memory_namespace: str = _aliased_field("memory_namespace", "SA01_MEMORY_NAMESPACE", "wm", "Namespace of memories.")
    memory_threshold: float = Field(default=0.5, ge=0, le=1, description="Minimum relevance of a recalled memory.")
    memory_top_k: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Memories recalled while the memory service is normal; by default 64 for a turn, and 8 with the "
        "recipe `seed` and for a recall over HTTP.",
    )
    memory_top_k_degraded: int = Field(default=3, ge=0, le=100, description="Memories recalled while it is degraded.")
    memory_recall_seconds: float = Field(
        default=1.5, gt=0, description="Maximum time a turn waits for a remote memory service, retries included."
    )
    memory_probe_seconds: float = Field(
        default=5.0,
        ge=0,
        description="Interval at which a remote memory service that does not answer is probed; 0 probes never.",
    )
    memory_catch_up_seconds: float = Field(
        default=5.0, ge=0, description="Maximum time a message waits until the user's previous messages are in memory."
    )
    breaker_failures: int = Field(default=3, ge=1, description="Consecutive failures that open the circuit breaker.")
    breaker_seconds: float = Field(default=15.0, gt=0, description="Time that an open breaker rejects calls.")
    degraded_seconds: float = Field(default=15.0, gt=0, description="Time that a service is degraded after a failure.")
    down_failures: int = Field(default=5, ge=1, description="Failures while degraded after which a service is down.")
    down_seconds: float = Field(default=60.0, gt=0, description="Time without calls to a service that is down.")
    chat_model: str = Field(
        default="", description="Model that answers, such as `litellm:gpt-5` or `local`; empty for extracts."
    )
    chat_fallbacks: tuple[str, ...] = Field(
        default=(), description="Models to try when the chat model fails, as a JSON list."
    )
    chat_sources: Literal["everything", "memory"] = Field(
        default="everything",
        description="What a chat answers from: `everything` that the user may read, or `memory` alone.",
    )
    completion_sources: Literal["everything", "memory"] = Field(
        default="memory", description="The same for `/v1/chat/completions`."
    )
    chat_system: str = Field(
        default="You are a helpful assistant.", description="System prompt of a chat when none is given."
    )
    show_own_data: bool = Field(
        default=False,
        description="Show callers their own personal data in answers of chat; prompts have placeholders all the same.",
    )
    chat_max_tokens: int = Field(default=512, ge=1, description="Maximum length of an answer in tokens.")
    summary_model: str = Field(
        default="", description="Model that summarises trimmed history; empty for extractive summaries."
    )
    memory_model: str = Field(
        default="",
        description="Model that splits what a user says into statements to remember; empty for whole sentences.",
    )
    command_models: dict[str, tuple[str, ...]] = Field(
        default={}, description="Models of each command in the order of preference, as a JSON object of lists."
    )
    command_llms: dict[str, str] = Field(
        default={}, description='Model for each routed name, as JSON such as `{"gpt-5": "litellm:gpt-5"}`.'
    )
    command_prices: dict[str, tuple[NonNegativeFloat, NonNegativeFloat]] = Field(
        default={},
        description='Cents per million input and output tokens, by routed name, as JSON: `{"gpt-5": [125, 1000]}`.',
    )
    graph_names: Literal["auto", "models", "phrases"] = Field(
        default="auto", description="How names are found; `auto` uses models if `contexture-ai[ner]` is installed."
    )
    command_experiments: dict[str, dict[str, dict[str, bool | int | float]]] = Field(
        default={}, description="Experiments with their arms and the values each arm changes, as a JSON object."
    )
    research_max_sources: int = Field(
        default=10, ge=1, le=100, description="Maximum number of sources in a research context."
    )
    research_max_tokens: int = Field(default=10_000, ge=1, description="Token budget of a research context.")
    workspace: dict[str, Any] = Field(
        default={}, description='Overrides of the workspace configuration, such as `{"weights": {"recency": 0.3}}`.'
    )
    policy_folder: Path | None = Field(
        default=None, description="Folder of Rego policies; without a policy everything is allowed."
    )
    policy_url: str = Field(
        default="", description="Address of a decision of OPA, such as `http://127.0.0.1:8181/v1/data/contexture`."
    )
    policy_timeout_seconds: float = Field(
        default=1.0, gt=0, description="Timeout of a policy decision; a timeout denies."
    )
    secrets_prefix: str = Field(
        default="", description="Prefix of environment variables that hold secrets; empty for none."
    )
    secrets_file: Path | None = Field(default=None, description="File of secrets, one `KEY=value` per line.")
    secrets_age_file: Path | None = Field(default=None, description="File of secrets that is encrypted with age.")
    secrets_age_identity: Path | None = Field(
        default=None, description="File of the age identities that decrypt the secrets file."
    )
    secrets_vault_url: str = Field(
        default="",
        description="Address of a KV v2 secret in Vault, such as `https://vault:8200/v1/secret/data/contexture`.",
    )
    secrets_vault_token: str = Field(default="", description="Token for Vault.")
    host: str = Field(default="127.0.0.1", description="Address on which `serve` listens.")
    port: int = Field(default=8_420, ge=0, le=65_535, description="Port on which `serve` listens; 0 for a free one.")
    max_body_bytes: int = Field(default=32 * 2**20, ge=1, description="Maximum size of a request body.")
    max_readers: int = Field(
        default=256, ge=1, description="Maximum number of readers that a written record names; use groups for more."
    )
    max_query_characters: int = Field(
        default=16_384, ge=1, description="Maximum length of a query; a message of a chat may be longer."
    )
    max_json_depth: int = Field(default=64, ge=1, description="Maximum nesting of lists and objects in a request.")
    max_requests: int = Field(default=4, ge=1, description="Concurrent requests, not counting answers and loads.")
    max_answers: int = Field(default=64, ge=1, description="Concurrent requests that call a model.")
    max_loads: int = Field(default=2, ge=1, description="Concurrent requests that load data.")
    max_waiting: int = Field(default=4, ge=0, description="Queue length for each of these kinds of requests.")
    max_per_caller: int = Field(default=64, ge=1, description="Requests of one user in progress or waiting.")
    keyed_routes: tuple[Literal["/health", "/ready", "/metrics", "/docs", "/openapi.json"], ...] = Field(
        default=(), description='Open routes that need a key, as a JSON list such as `["/metrics"]`.'
    )
    max_bytes_in_flight: int = Field(default=128 * 2**20, ge=1, description="Size of all request bodies in progress.")
    max_share: float = Field(
        default=0.25,
        gt=0,
        le=1,
        description="Share of these slots and bytes that one tenant may use while others wait; 1 for no limit.",
    )
    request_timeout_seconds: float = Field(default=60.0, gt=0, description="Timeout of a request.")
    answer_timeout_seconds: float = Field(default=300.0, gt=0, description="Timeout of a request that calls a model.")
    load_timeout_seconds: float = Field(default=900.0, gt=0, description="Timeout of a request that loads data.")
    shutdown_seconds: float = Field(
        default=10.0, gt=0, description="Time that running requests have to finish at shutdown."
    )
    integrity_seconds: float = Field(
        default=3_600.0,
        ge=0,
        description="Time between two checks of the databases of a store; 0 for one at start.",
    )
    cors_origins: tuple[str, ...] = Field(
        default=(), description="Web origins that may call the service, as a JSON list."
    )
    bus: str = Field(
        default="", description="Message bus: `nats://HOST:4222`, `kafka://HOST:9092,HOST:9092`; empty for none."
    )
    bus_options: dict[str, str | int | bool] = Field(
        default={}, description='Options of librdkafka, as JSON such as `{"security.protocol": "ssl"}`.'
    )
    bus_inbound: str = Field(default="conversation.inbound", description="Topic of messages to answer.")
    bus_outbound: str = Field(default="conversation.outbound", description="Topic of answers.")
    bus_dead: str = Field(
        default="conversation.dead", description="Topic of messages that could not be answered, with the reason."
    )
    bus_group: str = Field(default="contexture", description="Consumer group of the workers.")
    bus_partitions: int = Field(
        default=16,
        ge=1,
        le=1_024,
        description="Partitions of a topic; messages of one partition are answered in order.",
    )
    bus_redeliver_seconds: float = Field(
        default=30.0, ge=1, description="Time without a sign of life after which the messages of a worker go to others."
    )
    worker_concurrency: int = Field(default=8, ge=1, description="Messages that a worker answers concurrently.")
    worker_retries: int = Field(default=5, ge=0, description="Retries of a message before it becomes a dead letter.")
    worker_retry_seconds: float = Field(
        default=0.5, ge=0, description="Delay before the first retry; it doubles with each further one."
    )
    reply_days: float = Field(default=7.0, gt=0, description="Days that the answer to a message with an id is stored.")
    url: str = Field(default="", description="Address of the service that the command line uses.")
    api_key: str = Field(default="", description="API key of the command line for that service.")
    otel: bool = Field(
        default=False, description="Send OpenTelemetry spans of builds and model calls; needs `contexture-ai[otel]`."
    )
    feed_timeout_seconds: float = Field(default=20.0, gt=0, description="Timeout of fetching a feed.")
    feed_private: bool = Field(default=False, description="Allow feeds from this machine and from private networks.")
    feed_max_bytes: int = Field(default=8 * 2**20, ge=1, description="Maximum size of a feed.")
    keep_builds: int = Field(default=200, ge=0, description="Number of builds stored for `explain` and `replay`.")

    @property
    def counted_model(self) -> str:
        """The model whose tokenizer counts prompts: `model`, else that of the chat model, else `gpt-4o`."""
        adapter, _, named = self.chat_model.partition(":")
        return self.model or named or ("local" if adapter == "local" else "gpt-4o")

    @property
    def in_qdrant(self) -> bool:
        """Whether the store is searched in Qdrant, over a record store elsewhere."""
        return self.store.startswith(_QDRANT_SCHEMES)

    @property
    def database(self) -> str:
        """Address of the database that holds whatever is stored; empty when the folder does."""
        address = self.truth if self.in_qdrant else self.store
        return address if address.startswith(_POSTGRES_SCHEMES) else ""

    @property
    def in_plugin(self) -> bool:
        """Whether the records are in an index of another package; everything else is in the folder."""
        return bool(self.store) and not self.store.startswith((*_POSTGRES_SCHEMES, *_QDRANT_SCHEMES))

    @classmethod
    def env_names(cls) -> list[str]:
        """The environment variable of every setting."""
        return [f"CONTEXTURE_{name.upper()}" for name in cls.model_fields]


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexOptions:
    """What an index is opened with: the length of each vector by its name, and the settings.

    Its own files belong below `settings.home`, in a file or folder of its name.
    """

    vectors: Mapping[str, int]
    settings: Settings


def secret_variables(settings: Settings) -> dict[str, str]:
    """The variables that `secrets_prefix` says are secrets; none when it is empty."""
    prefix = settings.secrets_prefix
    return {name: value for name, value in os.environ.items() if prefix and name.startswith(prefix)}


def misspelt_variables(settings: Settings) -> list[str]:
    """The variables that look like settings and are none."""
    known = {*Settings.env_names(), *secret_variables(settings)}
    return sorted(name for name in os.environ if name.startswith("CONTEXTURE_") and name not in known)


def keep_vendors_offline() -> None:
    """LiteLLM fetches a price list when it is imported unless its environment says otherwise."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
