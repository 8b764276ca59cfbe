"""The made-up news that benchmarks are run on."""

from __future__ import annotations

from datetime import timedelta

from benchmarks.articles import NOW, articles, filled_news, finding
from benchmarks.corpus import SCOPE
from benchmarks.store import Models


def test_articles_are_the_same_each_time_and_spread_over_a_year():
    """Every month has its share, and a tenth is hidden from the one who asks."""
    first, second = (list(next(articles(1_000))) for _ in range(2))
    months = {(NOW - article.published) // timedelta(days=30) for _, article in first}
    hidden = [owned for owned, _ in first if owned.scope != SCOPE or not set(owned.record.acl) & set(SCOPE.principals)]

    assert [article for _, article in first] == [article for _, article in second]
    assert set(range(12)) <= months <= set(range(13))
    assert 50 < len(hidden) < 200


async def test_a_small_store_is_filled_and_searched(new_folder):
    """Each window has a median and a 95th percentile."""
    folder = new_folder()
    models = Models(folder)
    try:
        filled = await filled_news(folder / "store", models, 60, lambda *_: None)
        found = await finding(folder / "store", models, 3, lambda *_: None)
    finally:
        models.close()

    assert filled["articles_per_s"] > 0
    assert {"articles_day_p95_ms", "articles_week_one_source_p95_ms", "articles_year_p95_ms"} <= set(found)
