"""A command as routes take it, and its context as routes and the command line answer with it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from contexture.builders.command.result import CommandContext


class CommandBody(BaseModel):
    """A slash command and its surroundings; `request_of` checks the values and names what is wrong with them."""

    model_config = ConfigDict(extra="forbid")

    raw_command: Annotated[Any, Field(description="The command, such as `/ask`; its arguments may follow it.")] = None
    args: Annotated[Any, Field(description="Its arguments, such as `window=24h topic=AI`.")] = None
    user_lang: Annotated[Any, Field(description="`ru`, `en` or `auto`.")] = None
    env: Annotated[Any, Field(description="`defaults`, `feature_flags` and `version`.")] = None
    ab_test: Annotated[Any, Field(description="`experiment` and `arm`.")] = None


def command_object(built: CommandContext) -> dict[str, Any]:
    """A built command; equal builds are equal bytes, so nothing in it is a timing."""
    return built.to_dict()
