"""A research build in a box: what its context was composed of, as JSON and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import msgspec

from contexture.builders.research.compose import Composed
from contexture.builders.research.request import ResearchRecipe, ResearchRequest, request_to_json
from contexture.capsule import Capsule, digest, sealed
from contexture.errors import InvalidRequest
from contexture.ledger import Ledger
from contexture.types import Candidate, Scope

KIND = "research"


@dataclass(frozen=True, kw_only=True, slots=True)
class Boxed:
    """What goes into a capsule beside what was composed; the request is redacted."""

    scope: Scope
    now: datetime
    request: ResearchRequest
    recipe: ResearchRecipe
    candidates: Sequence[Candidate]
    ledger: Ledger
    model: str


def sealed_research(boxed: Boxed, composed: Composed) -> Capsule:
    """The capsule of a build."""
    composable = {candidate.id for candidate in boxed.candidates}
    return sealed(
        Capsule(
            kind=KIND,
            tenant=boxed.scope.tenant,
            user=boxed.scope.user,
            groups=boxed.scope.groups,
            now=boxed.now,
            request=request_to_json(boxed.request),
            settings={"model": boxed.model, "recipe": asdict(boxed.recipe)},
            candidates=tuple(boxed.candidates),
            lost=tuple(entry for entry in boxed.ledger.entries if entry.id not in composable),
            degradations=boxed.ledger.degradations,
            messages=composed.messages,
            digest=digest(composed.messages),
        )
    )


def recipe_of(capsule: Capsule) -> ResearchRecipe:
    """The recipe a capsule was built with."""
    try:
        return msgspec.convert(capsule.settings.get("recipe"), ResearchRecipe)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule has no recipe for research: {failure}") from failure
