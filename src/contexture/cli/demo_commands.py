"""The commands of the demonstration: executed over the sample news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from contexture.engine import Contexture
    from contexture.types import Scope


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandScene:
    """One command of the demonstration."""

    heading: str
    line: str


COMMAND_SCENES = (
    CommandScene(
        heading="A question of two parts, answered with evidence",
        line='/ask "How many dockers are on strike, and what does the port say?" window=1w',
    ),
    CommandScene(
        heading="What sources differ on, in Russian",
        line='/synthesize тема="забастовка докеров" window=1w',
    ),
    CommandScene(heading="What happened when", line='/events topic="port strike in Northquay" window=1w'),
    CommandScene(heading="Who is tied to whom", line='/graph query="Ilse Marrow" window=2w hops=2'),
    CommandScene(heading="A subject to remember", line='/memory store "dockers strike"'),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """A scene and its answer, as the wire carries it."""

    scene: CommandScene
    answer: dict[str, Any]


async def executed(engine: Contexture, scene: CommandScene, scope: Scope, now: datetime) -> Executed:
    """The command of a scene, executed."""
    from contexture.cli.answers import as_sent
    from contexture.service.wire.commands import answer_object

    found = await engine.execute.run({"raw_command": scene.line}, scope=scope, now=now)
    return Executed(scene=scene, answer=as_sent(answer_object(found)))


def commands_object(shown: Sequence[Executed]) -> list[dict[str, Any]]:
    """The commands and their answers as JSON objects, without the contexts they were executed in."""
    return [
        {"line": each.scene.line, **{name: value for name, value in each.answer.items() if name != "context"}}
        for each in shown
    ]


def print_commands(out: Console, shown: Sequence[Executed], *, first: int) -> None:
    """The commands for people, numbered from `first`."""
    from rich.text import Text

    from contexture.cli.ask import report

    for number, each in enumerate(shown, start=first):
        out.print()
        out.print(Text(f"{number}. {each.scene.heading}", style="bold"))
        for part in report(each.answer):
            out.print(part)
