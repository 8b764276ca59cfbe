"""Configuration of the workspace builder: token budget, collectors, score weights, truncation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from contexture.blocks.render import SUMMARY_TOKENS
from contexture.errors import InvalidRequest
from contexture.pipeline.knapsack import Packer
from contexture.pipeline.scoring import COMPOSITE_WEIGHTS
from contexture.pipeline.truncation import MIN_CHARS, MIN_TOKENS, TruncationStrategy
from contexture.types import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetDefaults:
    """Default tokens of a context and of its sections."""

    total: int = 4_000
    focus: int = 1_500
    semantic: int = 1_200
    relations: int = 800
    activity: int = 300
    history: int = 500
    system: int = 200


class WorkspaceRecipe(StrEnum):
    """How a context is made: `document` shows the focus as one text; `seed` is the layout of the specification."""

    DOCUMENT = "document"
    SEED = "seed"


@dataclass(frozen=True, kw_only=True, slots=True)
class FocusConfig:
    """What is read around the focus: up to `document_blocks` of a document.

    `page_blocks`, `page_depth` and `children_limit` apply to the recipe `seed`.
    """

    enabled: bool = True
    ancestor_depth: int = 3
    sibling_count: int = 2
    children_limit: int = 5
    page_blocks: int = 40
    page_depth: int = 3
    database_rows: int = 15
    rows_considered: int = 500
    document_blocks: int = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SemanticConfig:
    """How many blocks a search may return, and the least similarity of a block that shares no term with the query.

    `task_limit` applies to tasks due in the dates that the query names, `row_limit` to database rows that it selects.
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
class PlannerConfig:
    """How many rows and changes the planner reads for a question about work."""

    enabled: bool = True
    row_limit: int = 40
    change_limit: int = 30


@dataclass(frozen=True, kw_only=True, slots=True)
class Collectors:
    """The four collectors of the specification, and the planner."""

    focus: FocusConfig = FocusConfig()
    semantic: SemanticConfig = SemanticConfig()
    relations: RelationsConfig = RelationsConfig()
    activity: ActivityConfig = ActivityConfig()
    planner: PlannerConfig = PlannerConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class Truncation:
    """How a block that is too long is shortened, and when it is dropped instead."""

    default_strategy: TruncationStrategy = TruncationStrategy.EXTRACTIVE
    min_content_length: int = MIN_CHARS
    min_tokens: int = MIN_TOKENS
    summary_tokens: int = SUMMARY_TOKENS


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextConfig:
    """The configuration of a workspace builder.

    ContextConfig(collectors=Collectors(semantic=SemanticConfig(top_k=30)))
    """

    recipe: WorkspaceRecipe = WorkspaceRecipe.DOCUMENT
    token_budget: BudgetDefaults = BudgetDefaults()
    collectors: Collectors = Collectors()
    weights: Mapping[str, float] = field(default_factory=lambda: dict(COMPOSITE_WEIGHTS))
    truncation: Truncation = Truncation()
    packer: Packer = Packer.OPTIMAL
    near_duplicate: float = 0.9
    sharpness: float = 4.0


def parse_config(given: Mapping[str, Json]) -> ContextConfig:
    """The configuration with overrides from a JSON object.

    Raises `InvalidRequest` for unknown or invalid settings.
    """
    try:
        return msgspec.convert(_merge_settings(msgspec.to_builtins(ContextConfig()), given), ContextConfig)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"the workspace configuration cannot be read: {failure}") from failure


def _merge_settings(whole: dict[str, Json], given: Mapping[str, Json]) -> dict[str, Json]:
    if unknown := sorted(set(given) - set(whole)):
        raise InvalidRequest(f"unknown workspace setting {unknown[0]!r}; there are {', '.join(sorted(whole))}")
    merged = dict(whole)
    for name, value in given.items():
        known = merged[name]
        merged[name] = _merge_settings(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged
