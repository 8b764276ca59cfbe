"""A turn in a box: what its prompt was composed of, as JSON and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import msgspec

from contexture.builders.turn.compose import Composed
from contexture.builders.turn.request import Asked, TurnRecipe
from contexture.capsule import Capsule, digest, sealed
from contexture.errors import InvalidRequest
from contexture.ledger import Ledger
from contexture.types import Candidate, Scope

KIND = "turn"


def sealed_turn(
    asked: Asked,
    scope: Scope,
    now: datetime,
    candidates: Sequence[Candidate],
    ledger: Ledger,
    composed: Composed,
    model: str,
    recipe: TurnRecipe,
) -> Capsule:
    """The capsule of a build."""
    composable = {candidate.id for candidate in candidates} | {f"history[{line.at}]" for line in asked.lines}
    return sealed(
        Capsule(
            kind=KIND,
            tenant=scope.tenant,
            user=scope.user,
            groups=scope.groups,
            now=now,
            request=asked_to_json(asked),
            settings={"model": model, "recipe": asdict(recipe)},
            candidates=tuple(candidates),
            lost=tuple(entry for entry in ledger.entries if entry.id not in composable),
            degradations=ledger.degradations,
            messages=composed.messages,
            digest=digest(composed.messages),
        )
    )


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
    try:
        return msgspec.convert(fields, Asked)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule does not hold a turn: {failure}") from failure


def recipe_of(capsule: Capsule) -> TurnRecipe:
    """The recipe a capsule was built with."""
    try:
        return msgspec.convert(capsule.settings.get("recipe"), TurnRecipe)
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"this capsule has no recipe for a turn: {failure}") from failure
