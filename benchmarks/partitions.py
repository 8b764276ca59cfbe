"""What a reader pays for what others store, and what many tenants cost: `python -m benchmarks.partitions`.

Times are processor time, so that they can be compared on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace as replace_field
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time

import psutil
from benchmarks.corpus import questions, records
from benchmarks.index import SCOPE, find
from benchmarks.store import MODEL, NAME, Clean, Models, opened, searcher
from benchmarks.timing import Numbers
from msgspec.structs import replace

from contexture.adapters.index.embedded import EmbeddedIndex
from contexture.adapters.redaction.default import default_redactor
from contexture.adapters.token_counters import counter_for
from contexture.ledger import Trace
from contexture.retrieval.prepare import Preparer
from contexture.types import PUBLIC, Collection, PreparedRecord, Scope

_STOCK = 2_000
_FEW = 1_000
_ASKED = 100
_LOADED = 20_000
_BATCH = 40

Row = tuple[Scope, str]
"""Who writes a record, and its only reader."""


async def measured(folder: Path, models: Models, others: int, tenants: int, each: int) -> Numbers:
    """Every figure; `others` records of others, and a store of `tenants` with `each` records."""
    preparer = Preparer(
        encoders=models.encoders(), counters=[counter_for(MODEL)], redactor=Clean(default_redactor().rules)
    )
    stock = [item for block in records(_STOCK) for item in await preparer.prepare([one.record for one in block])]
    found: Numbers = {}
    loader = Scope(tenant=SCOPE.tenant, user="loader")
    kinds: dict[str, list[Row]] = {
        "tenants": [(Scope(tenant=f"t{at // 100}", user="x"), PUBLIC) for at in range(others)],
        "users": [(loader, f"user:u{at}") for at in range(others)],
    }
    for kind, rows in kinds.items():
        few, many = [
            await _reader_ms(folder / f"{kind}-{count}", models, stock, rows[:count]) for count in (_FEW, others)
        ]
        found |= {f"one_record_among_{kind}_few_ms": few, f"one_record_among_{kind}_many_ms": many}
    for count in (1, _LOADED // _BATCH):
        rows = [(Scope(tenant=f"t{at // _BATCH % count}", user="x"), PUBLIC) for at in range(_LOADED)]
        found[f"load_{count}_tenants_us"] = await _filled(folder / f"load-{count}", models, stock, rows, _BATCH) * 1e6
    rows = [(Scope(tenant=f"t{at // each}", user="x"), PUBLIC) for at in range(tenants * each)]
    await _filled(folder / "many", models, stock, rows, each)
    return {**found, **await _opening(folder / "many", models)}


async def _filled(
    folder: Path, models: Models, stock: Sequence[PreparedRecord], rows: Sequence[Row], batch: int
) -> float:
    """Write these records; returns seconds of processor time a record."""
    index = await opened(folder, models)
    for scope in dict.fromkeys(scope for scope, _ in rows):
        await index.create(scope, Collection(name=NAME))
    spent = 0.0
    for first in range(0, len(rows), batch):
        for scope, items in _by_scope(stock, rows, range(first, min(first + batch, len(rows)))):
            started = process_time()
            await index.upsert(scope, NAME, items)
            spent += process_time() - started
    await index.close()
    return spent / len(rows)


def _by_scope(
    stock: Sequence[PreparedRecord], rows: Sequence[Row], numbers: Iterable[int]
) -> Iterable[tuple[Scope, list[PreparedRecord]]]:
    found: dict[Scope, list[PreparedRecord]] = {}
    for at in numbers:
        scope, reader = rows[at]
        item = stock[at % len(stock)]
        record = replace(item.record, id=f"r{at}", acl=(reader,))
        found.setdefault(scope, []).append(replace_field(item, record=record))
    return found.items()


async def _reader_ms(folder: Path, models: Models, stock: Sequence[PreparedRecord], rows: Sequence[Row]) -> float:
    """Median of a search by the reader of one record beside these."""
    await _filled(folder, models, stock, [*rows, (SCOPE, f"user:{SCOPE.user}")], 500)
    index = await opened(folder, models)
    search, spent = searcher(index, models.encoders()), list[float]()
    for text in questions(_ASKED, seed=51):
        started = process_time()
        await find(search, text)
        spent.append(process_time() - started)
    await index.close()
    return statistics.median(spent) * 1_000


async def _opening(folder: Path, models: Models) -> Numbers:
    """What it costs to open a store of many tenants and to ask in one, models and their vectors aside."""
    text, scope = questions(1, seed=52)[0], Scope(tenant="t7", user="x")
    await models.encoders().question(text, "en", None)
    before, started = psutil.Process().memory_info().rss, process_time()
    index: EmbeddedIndex = await opened(folder, models)
    await searcher(index, models.encoders()).search(scope, NAME, text, trace=Trace())
    numbers: Numbers = {
        "open_and_ask_s": process_time() - started,
        "open_and_ask_mb": (psutil.Process().memory_info().rss - before) / 1e6,
    }
    await index.close()
    return numbers


def main() -> None:
    """Print every figure as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--others", type=int, default=50_000, help="records of others beside the reader's one")
    parser.add_argument("--tenants", type=int, default=1_000)
    parser.add_argument("--each", type=int, default=500, help="records of each tenant")
    chosen = parser.parse_args()
    with TemporaryDirectory(prefix="contexture-bench-", ignore_cleanup_errors=True) as scratch:
        models = Models(Path(scratch))
        found = asyncio.run(measured(Path(scratch), models, chosen.others, chosen.tenants, chosen.each))
        models.close()
    print(json.dumps({name: round(value, 3) for name, value in found.items()}, indent=2))


if __name__ == "__main__":
    main()
