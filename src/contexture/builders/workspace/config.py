"""How a workspace context is collected, scored and cut; every number can be set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from contexture.blocks.summary import SUMMARY_TOKENS
from contexture.errors import InvalidRequest
from contexture.pipeline.packers import Packer
from contexture.pipeline.score import COMPOSITE_WEIGHTS
from contexture.pipeline.truncate import MIN_CHARS, MIN_TOKENS, TruncationStrategy
from contexture.types import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Shares:
    """Tokens of a context and of its sections, where a request does not say."""

    total: int = 4_000
    focus: int = 1_500
    semantic: int = 1_200
    relations: int = 800
    activity: int = 300
    history: int = 500
    system: int = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class FocusConfig:
    """What is read around a focus; a page brings up to `page_blocks` of what stands in it."""

    enabled: bool = True
    ancestor_depth: int = 3
    sibling_count: int = 2
    children_limit: int = 5
    page_blocks: int = 40
    page_depth: int = 3
    database_rows: int = 15
    rows_considered: int = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class SemanticConfig:
    """How many blocks a search may bring, and how similar one must be that shares no word with the query.

    `task_limit` is for tasks whose dates the query asks about, `row_limit` for rows of databases that it selects.
    """

    enabled: bool = True
    top_k: int = 15
    min_threshold: float = 0.6
    task_limit: int = 50
    row_limit: int = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class RelationsConfig:
    """How far links are followed; each hop keeps `hop_share` of the relevance."""

    enabled: bool = True
    max_depth: int = 2
    max_items: int = 10
    hop_share: float = 0.8


@dataclass(frozen=True, kw_only=True, slots=True)
class ActivityConfig:
    """How much of the user's own recent activity is read."""

    enabled: bool = True
    recent_edit_count: int = 10
    recent_view_count: int = 5
    max_age_hours: float = 72.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Collectors:
    """The four collectors."""

    focus: FocusConfig = FocusConfig()
    semantic: SemanticConfig = SemanticConfig()
    relations: RelationsConfig = RelationsConfig()
    activity: ActivityConfig = ActivityConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class Truncation:
    """How a block that is too long is shortened, and when it is left out instead."""

    default_strategy: TruncationStrategy = TruncationStrategy.EXTRACTIVE
    min_content_length: int = MIN_CHARS
    min_tokens: int = MIN_TOKENS
    summary_tokens: int = SUMMARY_TOKENS


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextConfig:
    """The configuration of a workspace builder.

    ContextConfig(collectors=Collectors(semantic=SemanticConfig(top_k=30)))
    """

    token_budget: Shares = Shares()
    collectors: Collectors = Collectors()
    weights: Mapping[str, float] = field(default_factory=lambda: dict(COMPOSITE_WEIGHTS))
    truncation: Truncation = Truncation()
    packer: Packer = Packer.OPTIMAL
    near_duplicate: float = 0.9
    sharpness: float = 4.0


def config_of(given: Mapping[str, Json]) -> ContextConfig:
    """The configuration with what an object says instead of the defaults; what cannot be meant is named."""
    try:
        return msgspec.convert(_merged(msgspec.to_builtins(ContextConfig()), given), ContextConfig)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"the workspace configuration cannot be read: {failure}") from failure


def _merged(whole: dict[str, Json], given: Mapping[str, Json]) -> dict[str, Json]:
    if unknown := sorted(set(given) - set(whole)):
        raise InvalidRequest(f"unknown workspace setting {unknown[0]!r}; there are {', '.join(sorted(whole))}")
    merged = dict(whole)
    for name, value in given.items():
        known = merged[name]
        merged[name] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
