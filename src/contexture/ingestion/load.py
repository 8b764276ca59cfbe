"""Loads files into a store: in batches, as often as you like, and never all or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Some
from pathlib import Path
from typing import TypeAlias

from contexture.ingestion.problems import Sourced
from contexture.ingestion.read import read
from contexture.ingestion.writer import Engine, Intake, LoadReport, Writer
from contexture.types import PUBLIC, Collection, FieldType, Scope

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

GROUP: Mapping[str, FieldType] = {"group": FieldType.KEYWORD}

MUCH = 1_000
"""Records after which merging what was written pays."""

_BATCH_CHARACTERS = 100_000


async def load(  # noqa: PLR0913 - each has a name and a default
    engine: Engine,
    paths: Sequence[Path],
    *,
    collection: str,
    acl: tuple[str, ...] = (PUBLIC,),
    scope: Scope | None = None,
    fields: Mapping[str, FieldType] = GROUP,
    again: bool = False,
    progress: Progress | None = None,
    skip: Some[str] = (),
) -> LoadReport:
    """Every record below `paths`, written to `collection`; loading the same again changes nothing.

    A record that is stored already with the same text, title and metadata is left alone, unless
    `again` is set; one that equals another of this run in all but id, source and time is skipped.
    What fails is reported and the rest goes on, so an interrupted load is finished by repeating it.
    `acl` is for records that name no readers; `fields` are payload fields that filters may use. Files that end with
    one of `skip` are passed over.
    """
    owner = scope or engine.scope
    await engine.create(Collection(name=collection, fields=fields), scope=owner)
    writer = Writer(engine, collection, owner, again=again)
    await fill(writer, paths, acl=acl, progress=progress, skip=skip)
    if writer.report.added >= MUCH:
        await engine.index.optimize()
    return writer.report


async def fill(
    writer: Intake,
    paths: Sequence[Path],
    *,
    acl: tuple[str, ...] = (PUBLIC,),
    progress: Progress | None = None,
    skip: Some[str] = (),
) -> None:
    """Give a writer every record below `paths`, in batches."""
    total = 0 if progress is None else sum(isinstance(item, Sourced) for item in read(paths, acl=acl, skip=skip))
    for batch in batches(writer.distinct(read(paths, acl=acl, skip=skip))):
        await writer.write(batch)
        if progress is not None:
            progress("loading", writer.report.read, total)


def batches(found: Iterable[Sourced], *, size: int = 64) -> Iterator[list[Sourced]]:
    """Up to `size` records at a time, fewer when they are long, so that progress is steady."""
    batch: list[Sourced] = []
    characters = 0
    for each in found:
        batch.append(each)
        characters += len(each.record.text)
        if len(batch) >= size or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
