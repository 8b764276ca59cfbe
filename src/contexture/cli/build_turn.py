"""`contexture build turn`: the prompt of a chat turn."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contexture.cli.answers import as_sent, degradations_of
from contexture.cli.capsules import fetched
from contexture.cli.common import Common, with_engine
from contexture.cli.inputs import moment, object_on_stdin, write_bytes
from contexture.cli.output import console, emit, note
from contexture.cli.remote import remote

if TYPE_CHECKING:
    from contexture.config import Settings


def turn(
    common: Common,
    max_prompt_tokens: Annotated[
        int | None, typer.Option("--max-prompt-tokens", metavar="N", help="Token limit instead of the turn's own.")
    ] = None,
    now: Annotated[str | None, typer.Option("--now", metavar="ISO-TIME", help="Take this as the clock.")] = None,
    capsule: Annotated[
        Path | None, typer.Option("--capsule", metavar="FILE", help="Write what `replay` needs to this file.")
    ] = None,
) -> None:
    """Build the prompt of the chat turn on standard input.

    A turn is an object with `user_message`, and may have `system_prompt`, `history`, `session_id`, `persona_id`,
    `tenant_id`, `user_id` and `max_prompt_tokens`.
    """
    clock = moment(now)
    asked = object_on_stdin()
    if max_prompt_tokens is not None:
        asked = {**asked, "max_prompt_tokens": max_prompt_tokens}
    named = _named(common.settings(), asked)
    settings = common.settings().model_copy(update=named)
    built, packed = _built(settings, asked, clock, capsule=capsule is not None)
    if capsule is not None:
        write_bytes(capsule, packed)
    if common.as_json:
        emit(built)
    else:
        _print(built)
        note(f"explain it: contexture explain {built['build_id']} {replace(common, **named).retyped()}".rstrip())


def _named(settings: Settings, asked: dict[str, Any]) -> dict[str, str]:
    """Whom the turn names, where nobody was named on purpose."""
    said = {"tenant": asked.get("tenant_id"), "user": asked.get("user_id")}
    return {
        name: value
        for name, value in said.items()
        if isinstance(value, str) and value and name not in settings.model_fields_set
    }


def _built(
    settings: Settings, asked: dict[str, Any], clock: datetime | None, *, capsule: bool
) -> tuple[dict[str, Any], bytes]:
    door = remote(settings)
    if door is not None:
        found = door.ask("POST", "/v1/context/turn", asked, now=clock)
        return found, fetched(door, found["build_id"]) if capsule else b""
    from contexture.capsule import pack_capsule
    from contexture.service.wire.turn import turn_object

    built = with_engine(settings, lambda engine: engine.build_turn(asked, scope=engine.scope, now=clock))
    return as_sent(turn_object(built)), pack_capsule(built.capsule)


def _print(built: dict[str, Any]) -> None:
    from contexture.cli.tables import losses, panel

    out = console()
    for message in built["messages"]:
        out.print(panel(str(message.get("name", message["role"])), _shown(message)))
    counts = ", ".join(f"{name} {count}" for name, count in built["token_counts"].items())
    kind = "" if built["exact"] else " (estimated)"
    out.print(f"{built['build_id']}: {built['tokens']} of {built['max_prompt_tokens']} tokens{kind}: {counts}")
    about = built["debug"]
    out.print(
        f"memory {about['somabrain_state']}: {about['snippet_count']} recalled; history: {about['history_count']} "
        f"messages kept, {about['trimmed_count']} left out"
    )
    for line in losses(degradations_of(built)):
        out.print(line)


def _shown(message: dict[str, Any]) -> str:
    """What people read of a message: its text, or its parts and calls as JSON."""
    import msgspec

    content = message.get("content")
    calls = [msgspec.json.encode(call).decode() for call in message.get("tool_calls", ())]
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode() if content else ""
    return "\n".join([*([text] if text else []), *calls])
