"""`contexture explain`: why each candidate of a build is where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from contexture.cli.common import Common, command, existing, with_engine
from contexture.cli.output import console, emit, say

if TYPE_CHECKING:
    from contexture.builders.query.explain import Explanation
    from contexture.capsule import Capsule


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
    settings = existing(common.settings())
    if candidate is not None:
        found = with_engine(settings, lambda engine: engine.explain(build_id, candidate))
        _one(common, build_id, found)
        return
    capsule = with_engine(settings, lambda engine: engine.capsule(build_id))
    _all(common, build_id, capsule)


def _all(common: Common, build_id: str, capsule: Capsule) -> None:
    from contexture.adapters.tokens.models import counter_for
    from contexture.builders.query.explain import model_of, recompose

    _, ledger = recompose(capsule, counter_for(model_of(capsule)))
    if common.as_json:
        request = capsule.request
        emit({"build_id": build_id, "request": request, "ledger": ledger.entries, "degradations": ledger.degradations})
        return
    from contexture.cli.tables import ledger_view

    say(f"{build_id}: {capsule.request['query']!r} in {capsule.request['max_tokens']} tokens")
    console().print(ledger_view(ledger))


def _one(common: Common, build_id: str, found: Explanation) -> None:
    if common.as_json:
        from contexture.cli.shapes import explanation_object

        emit(explanation_object(build_id, found))
        return
    from contexture.cli.tables import ledger_table

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
