"""The builder for slash commands, from settings."""

from __future__ import annotations

import msgspec

from contexture.adapters.tokens.models import counter_for
from contexture.builders.command.build import CommandContextBuilder
from contexture.builders.command.experiments import Arm, Experiments
from contexture.builders.command.ladder import Finder
from contexture.builders.command.routing import routing
from contexture.config import Settings
from contexture.errors import InvalidRequest
from contexture.ports import Clock, Redactor, Secrets
from contexture.types import Scope
from contexture.wiring.core import operator


def command_builder(
    settings: Settings, news: Finder, *, scanner: Redactor, secrets: Secrets, clock: Clock, speaker: Scope
) -> CommandContextBuilder:
    """The builder for commands, its table of models and its experiments as the settings say."""
    return CommandContextBuilder(
        news=news,
        token_counter=counter_for(settings.model),
        redactor=scanner,
        clock=clock,
        secrets=secrets,
        models=routing(settings.command_models),
        experiments=experiments(settings),
        operator=operator(settings),
        model=settings.model,
        speaker=speaker,
    )


def experiments(settings: Settings) -> Experiments:
    """Every experiment with its arms; one that cannot be meant is named."""
    try:
        return msgspec.convert(settings.command_experiments, dict[str, dict[str, Arm]])
    except msgspec.ValidationError as failure:
        raise InvalidRequest(f"CONTEXTURE_COMMAND_EXPERIMENTS cannot be read: {failure}") from failure
