"""Whatever other tenants declare and store, a tenant gets the answers and the errors of a store of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.errors import ContextError
from contexture.testing.index_records import EAST, VECTORS, make_query, make_record, prepare_record
from contexture.types import Collection, Contains, Equals, FieldType, Filter, Not, Range, Scope

EXAMPLES = count()
NAMES, FIELDS = ("one", "two"), ("x", "y")
VALUES = ("red", "2026-03-01", 1, True, None)
FILTERS: tuple[Filter, ...] = tuple(
    where
    for field in FIELDS
    for where in (
        Equals(field, "red"),
        Equals(field, 1),
        Equals(field, True),
        Contains(field, "2026"),
        Range(field=field),
        Not(Range(field=field, gt=0)),
    )
)


@dataclass(frozen=True)
class Step:
    """One tenant declares fields of a collection; where `writes`, it stores a record for every value there."""

    tenant: str
    collection: str
    fields: dict[str, FieldType]
    writes: bool


def steps() -> st.SearchStrategy[list[Step]]:
    """What two tenants do in some order: both declare and write in one collection, and perhaps more."""
    fields = st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(tuple(FieldType)), max_size=2)
    tenants, names = st.sampled_from(("mine", "theirs")), st.sampled_from(NAMES)
    both = [st.builds(Step, st.just(each), st.just("one"), fields, st.just(True)) for each in ("mine", "theirs")]
    more = st.lists(st.builds(Step, tenants, names, fields, st.booleans()), max_size=4)
    return st.tuples(*both, more).flatmap(lambda drawn: st.permutations([*drawn[:2], *drawn[2]]))


@pytest.fixture
async def stores(new_folder: Callable[[], Path]) -> AsyncIterator[tuple[EmbeddedIndex, EmbeddedIndex]]:
    """A store that both tenants share, and one that only one of them has."""
    options = EmbeddedOptions(vectors=VECTORS, threads=1)
    shared, alone = [await EmbeddedIndex.open(new_folder(), options) for _ in range(2)]
    yield shared, alone
    await shared.close()
    await alone.close()


async def done(index: EmbeddedIndex, step: Step, example: int) -> str:
    """How a step ended."""
    scope, name = Scope(tenant=f"{step.tenant}-{example}", user="anna"), f"{step.collection}-{example}"
    records = [make_record(f"r{at}", payload=dict.fromkeys(FIELDS, value)) for at, value in enumerate(VALUES)]
    try:
        await index.create(scope, Collection(name=name, fields=step.fields))
        if step.writes:
            await index.upsert(scope, name, [prepare_record(record) for record in records])
    except ContextError as refusal:
        return f"{type(refusal).__name__}: {refusal}"
    return ""


async def told(index: EmbeddedIndex, name: str, where: Filter, scope: Scope) -> list[str]:
    """What searches and a walk say, by words, by meaning and by filter alone."""
    answers: list[str] = []
    for call in (
        index.search(scope, make_query("zebra", where=where, collection=name)),
        index.search(scope, make_query(vector=EAST, where=where, collection=name)),
        index.scroll(scope, name, where=where),
    ):
        try:
            answers.append(repr(await call))
        except ContextError as refusal:
            answers.append(f"{type(refusal).__name__}: {refusal}")
    return answers


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(work=steps())
async def test_other_tenants_might_as_well_not_be_there(
    work: Sequence[Step], stores: tuple[EmbeddedIndex, EmbeddedIndex]
) -> None:
    """Every step ends, and every question is answered or refused, in the same words."""
    (shared, alone), example = stores, next(EXAMPLES)
    mine = Scope(tenant=f"mine-{example}", user="anna")
    for step in work:
        ended = await done(shared, step, example)
        if step.tenant == "mine":
            assert ended == await done(alone, step, example)
    assert await shared.collections(mine) == await alone.collections(mine)
    for name in (f"{each}-{example}" for each in NAMES):
        for where in FILTERS:
            assert await told(shared, name, where, mine) == await told(alone, name, where, mine)
