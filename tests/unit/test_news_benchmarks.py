"""The made-up news that benchmarks are run on."""

from __future__ import annotations

import importlib
from datetime import timedelta
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench():
    """The modules of the harness, which is not an installed package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield {name: importlib.import_module(f"benchmarks.{name}") for name in ("articles", "corpus", "store")}


def test_articles_are_the_same_each_time_and_spread_over_a_year(bench):
    """Every month has its share, and a tenth is hidden from the one who asks."""
    now, asker = bench["articles"].NOW, bench["corpus"].SCOPE
    first, second = (list(next(bench["articles"].articles(1_000))) for _ in range(2))
    months = {(now - article.published) // timedelta(days=30) for _, article in first}
    open_to = [set(owned.record.acl) & set(asker.principals) for owned, _ in first if owned.scope == asker]

    assert [article for _, article in first] == [article for _, article in second]
    assert set(range(12)) <= months <= set(range(13))
    assert 800 < sum(map(bool, open_to)) < 950


async def test_a_small_store_is_filled_and_searched(bench, new_folder):
    """Each window has a median and a 95th percentile."""
    folder = new_folder()
    models = bench["store"].Models(folder)
    try:
        filled = await bench["articles"].filled_news(folder / "store", models, 60, lambda *_: None)
        found = await bench["articles"].finding(folder / "store", models, 3, lambda *_: None)
    finally:
        models.close()

    assert filled["articles_per_s"] > 0
    assert {"articles_day_p95_ms", "articles_week_one_source_p95_ms", "articles_year_p95_ms"} <= set(found)
