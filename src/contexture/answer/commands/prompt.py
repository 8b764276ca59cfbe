"""What a model is shown: the task, the evidence as numbered data, and the question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contexture.answer.commands.job import Job
from contexture.answer.commands.values import Evidence, Findings
from contexture.builders.command.words import Command
from contexture.pipeline.fence import DATA_NOTICE, fence, label
from contexture.ports import TokenCounter
from contexture.types import Message

_RULES = (
    "Answer in {lang}. Use only the numbered evidence. End every sentence with the numbers of the evidence it rests "
    "on, such as [2] or [1, 3]; a sentence without a number is thrown away. Copy figures and names exactly. "
    "If the evidence does not answer something, leave it out."
)
_LANGUAGES = {"en": "English", "ru": "Russian"}
_TASKS: Mapping[str, str] = {
    Command.ASK: "Answer the question.",
    Command.EVENTS: "Tell what happened in the order of time, and how the events are connected.",
    Command.GRAPH: "Explain how the people, organisations and places in the question are connected.",
    Command.SYNTHESIZE: "Say what the sources agree on, where they differ, and what only one of them says.",
}


def prompt_of(
    job: Job, findings: Findings, shown: Mapping[int, Evidence], *, counter: TokenCounter, limit: int
) -> tuple[list[Message], dict[int, Evidence]]:
    """The messages, and the evidence in them: as much of what the statements rest on as fits, in their order."""
    plan = job.plan
    task = _TASKS.get(plan.command, _TASKS[Command.ASK])
    rules = _RULES.format(lang=_LANGUAGES[plan.lang])
    ends: list[Message] = [
        {"role": "system", "content": f"{task} {rules}\n\n{DATA_NOTICE}"},
        {"role": "user", "content": job.reader.shown(plan.question)},
    ]
    wanted = [number for section in findings.sections for each in section.statements for number in each.evidence]
    offered: dict[int, Evidence] = {}
    blocks: list[str] = []
    for number in dict.fromkeys(wanted):
        block = _block(shown[number])
        if counter.count_messages(_messages(ends, [*blocks, block])) <= limit:
            blocks.append(block)
            offered[number] = shown[number]
    return _messages(ends, blocks), offered


def _messages(ends: Sequence[Message], blocks: Sequence[str]) -> list[Message]:
    return [ends[0], {"role": "system", "name": "context", "content": "\n\n".join(blocks)}, ends[1]]


def _block(evidence: Evidence) -> str:
    about = ", ".join(part for part in (evidence.title, evidence.source, evidence.date) if part)
    return f"[{evidence.number}] ({label(about) or 'untitled'})\n{fence(evidence.text)}"
