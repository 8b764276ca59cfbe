"""A research build in a box: what its context was composed of, as JSON and back."""

from __future__ import annotations

from contexture.builders.research.request import ResearchRecipe
from contexture.capsule import Capsule, held

KIND = "research"


def recipe_of(capsule: Capsule) -> ResearchRecipe:
    """The recipe a capsule was built with."""
    return held(capsule.settings.get("recipe"), ResearchRecipe, "a recipe for research")
