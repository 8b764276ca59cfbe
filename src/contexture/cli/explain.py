"""`contexture explain`: why each candidate of a build is where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from contexture.cli.answers import as_sent, explanation_of, ledger_of
from contexture.cli.common import Common, command, existing, with_engine
from contexture.cli.output import console, emit, say
from contexture.cli.remote import remote
from contexture.errors import NotFound

if TYPE_CHECKING:
    from contexture.builders.explain import Explanation
    from contexture.config import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    command(app, "explain", acting=True)(explain)


def explain(
    common: Common,
    build_id: Annotated[str, typer.Argument(metavar="BUILD_ID", help="Printed by `build`.")],
    candidate: Annotated[str | None, typer.Argument(metavar="CANDIDATE", help="One candidate of the build.")] = None,
) -> None:
    """Say why each candidate is in a prompt or not.

    Prints the ledger of a recent build, or the smallest change that would have admitted one CANDIDATE.
    """
    settings = common.settings()
    if candidate is not None:
        _one(common, _explanation(settings, build_id, candidate))
        return
    found = _kept(settings, build_id)
    if common.as_json:
        emit(found)
        return
    from contexture.cli.tables import ledger_view

    asked = found["request"]
    question, limit = (
        asked.get("query", asked.get("user_message")),
        asked.get("max_tokens", asked.get("max_prompt_tokens")),
    )
    say(f"{build_id}: {question!r} in {limit} tokens")
    console().print(ledger_view(ledger_of(found)))


def _kept(settings: Settings, build_id: str) -> dict[str, Any]:
    door = remote(settings)
    if door is not None:
        found = door.ask("GET", _path(build_id))
        return {name: value for name, value in found.items() if name != "capsule"}
    from contexture.service.shapes import ledger_object

    capsule, ledger = with_engine(existing(settings), lambda engine: engine.kept(build_id))
    return as_sent(ledger_object(build_id, capsule, ledger))


def _explanation(settings: Settings, build_id: str, candidate: str) -> dict[str, Any]:
    door = remote(settings)
    if door is not None:
        return door.ask("GET", f"{_path(build_id)}/explain/{quote(candidate, safe='')}")
    from contexture.service.shapes import explanation_object

    found = with_engine(existing(settings), lambda engine: engine.explain(build_id, candidate))
    return as_sent(explanation_object(build_id, found))


def _path(build_id: str) -> str:
    """Where a build is; an id that would be another path is no id."""
    if not build_id or "/" in build_id:
        raise NotFound(f"no build {build_id!r} is kept here")
    return f"/v1/builds/{quote(build_id, safe='')}"


def _one(common: Common, answer: dict[str, Any]) -> None:
    if common.as_json:
        emit(answer)
        return
    from contexture.cli.tables import ledger_table

    found = explanation_of(answer)
    console().print(ledger_table([found.entry]))
    say(verdict(found))


def verdict(found: Explanation) -> str:
    """What would have changed the outcome, as one sentence."""
    from contexture.ledger import State

    if found.entry.state is not State.DROPPED:
        return "It is in the prompt."
    ways: list[str] = []
    if found.more_tokens is not None:
        ways.append(f"{found.more_tokens} more tokens of budget")
    if found.score_needed is not None:
        ways.append(f"a score of {found.score_needed:.3f} instead of {found.entry.score:.3f}")
    return f"{' or '.join(ways)} would have admitted it." if ways else "No budget and no score would have admitted it."
