"""A turn in a box: what its prompt was composed of, as JSON and back."""

from __future__ import annotations

from typing import Any

from contexture.builders.turn.request import Asked, TurnRecipe
from contexture.capsule import Capsule, held

KIND = "turn"


def asked_to_json(asked: Asked) -> dict[str, Any]:
    """The redacted turn as a JSON object."""
    return {
        **asked.names,
        "system_prompt": asked.system,
        "user_message": asked.user,
        "max_prompt_tokens": asked.limit,
        "state": asked.state.value,
        "history": [{"at": line.at, "opens": line.opens, "message": line.message} for line in asked.lines],
        "older": asked.older,
    }


def asked_from_json(data: dict[str, Any]) -> Asked:
    """The turn that `asked_to_json` wrote."""
    names = {name: data.get(name) for name in ("tenant_id", "user_id", "session_id", "persona_id")}
    fields = {
        "system": data.get("system_prompt"),
        "user": data.get("user_message"),
        "limit": data.get("max_prompt_tokens"),
        "state": data.get("state"),
        "lines": data.get("history"),
        "older": data.get("older"),
        "names": names,
    }
    return held(fields, Asked, "a turn")


def recipe_of(capsule: Capsule) -> TurnRecipe:
    """The recipe a capsule was built with."""
    return held(capsule.settings.get("recipe"), TurnRecipe, "a recipe for a turn")
