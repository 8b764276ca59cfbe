"""Every setting, with its default and what it means; the only reader of the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Read from `CONTEXTURE_…` variables, then from the arguments given here, which win."""

    model_config = SettingsConfigDict(env_prefix="CONTEXTURE_", extra="forbid", frozen=True)

    home: Path = Field(default=Path(".contexture"), description="Folder of the embedded store.")
    tenant: str = Field(default="local", description="Tenant on whose behalf the command line and the library act.")
    user: str = Field(default="local", description="User on whose behalf the command line and the library act.")
    groups: tuple[str, ...] = Field(default=(), description="Groups of that user, as a JSON list.")
    collection: str = Field(default="documents", description="Collection used when none is named.")
    model: str = Field(default="gpt-4o", description="Model or encoding whose tokens are counted.")
    max_tokens: int = Field(default=2_000, ge=1, description="Token budget of a context when none is given.")
    packer: Literal["optimal", "greedy"] = Field(
        default="optimal", description="How candidates are chosen for the budget."
    )
    embedder: str = Field(default="minilm", description="Embedder of English texts.")
    embedder_multilingual: str = Field(
        default="use", description="Embedder of all other texts, and of questions across languages."
    )
    embedder_threads: int = Field(default=1, ge=1, description="Threads one embedding call may use.")
    reranker: str = Field(default="", description="Reranker, such as `fastembed:MODEL`; empty for none.")
    redaction: Literal["default", "none"] = Field(
        default="default", description="`none` shows everything as it is stored."
    )
    redaction_entities: tuple[str, ...] | None = Field(
        default=None, description="Entity types to redact, as a JSON list."
    )
    redaction_ner: bool = Field(default=False, description="Find names and places too; needs `contexture[ner]`.")
    redaction_operator: Literal["replace", "mask", "hash"] = Field(
        default="replace", description="What stands for a finding."
    )
    exact_limit: int = Field(
        default=200_000, ge=0, description="Passages up to which search is exact; above it HNSW is used."
    )
    search_threads: int = Field(default=2, ge=1, description="Threads one search may use.")
    search_floor: float = Field(
        default=0.3, ge=0, le=1, description="Similarity at which a passage without a shared term matches."
    )
    cache_size: int = Field(
        default=2_048, ge=0, description="Search answers kept in memory until something is written."
    )
    timeout_seconds: float = Field(default=10.0, gt=0, description="Deadline of a build.")
    keep_builds: int = Field(default=200, ge=0, description="Builds kept on disk for `explain` and `replay`.")

    @classmethod
    def env_names(cls) -> list[str]:
        """The environment variable of every setting."""
        return [f"CONTEXTURE_{name.upper()}" for name in cls.model_fields]


def keep_vendors_offline() -> None:
    """LiteLLM fetches a price list when it is imported unless its environment says otherwise."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
