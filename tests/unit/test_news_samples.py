"""The sample news: enough of everything, on any day."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from contexture.adapters.feeds.http import FeedparserParser
from contexture.cli.demo import GROUPS, news_folder
from contexture.ingestion.articles import ArticleFileReader
from contexture.ingestion.files import LoadProblem
from contexture.news._fingerprint import is_copy, read_fingerprint
from contexture.news.articles import article_to_record
from contexture.text.segmentation import split_sentences
from contexture.types import PUBLIC, Scope

NOW = datetime(2031, 2, 3, 4, tzinfo=UTC)
COPIES = {
    ("ai-08", "ai-09"),
    ("bridge-05", "bridge-06"),
    ("bridge-r4", "bridge-r5"),
    ("energy-06", "energy-07"),
    ("energy-r5", "energy-r6"),
    ("space-03", "space-04"),
    ("space-r3", "space-r4"),
    ("strike-03", "strike-04"),
    ("strike-08", "strike-09"),
    ("strike-r2", "strike-r3"),
}


@pytest.fixture(scope="module")
def records():
    """The samples as they are stored, loaded at some moment."""
    items = list(ArticleFileReader(readers=(PUBLIC,), now=NOW, parser=FeedparserParser()).read_files([news_folder()]))
    assert not any(isinstance(item, LoadProblem) for item in items)
    return [article_to_record(item.article, NOW) for item in items]


def test_there_are_enough_in_both_languages_and_from_many_sources(records):
    """At least 120 articles, about half in each language, from at least 8 sources, each with an id of its own."""
    langs = Counter(record.lang for record in records)

    assert len({record.id for record in records}) == len(records) >= 120
    assert set(langs) == {"en", "ru"}
    assert min(langs.values()) >= 0.4 * len(records)
    assert len({record.source for record in records}) >= 8


def test_they_are_short(records):
    """Three to six sentences each."""
    assert {3, 4, 5, 6} >= {len(split_sentences(record.text)) for record in records}


@pytest.mark.parametrize(
    ("hours", "least"), [(6, 20), (24, 45), (72, 80), (24 * 7, 95), (24 * 31, 110), (24 * 365, 130)]
)
def test_every_window_has_matter_in_both_languages(records, hours, least):
    """However long ago the samples were written."""
    inside = [record.lang for record in records if NOW - timedelta(hours=hours) <= record.time <= NOW]

    assert len(inside) >= least
    assert {"en", "ru"} == set(inside)


def test_near_copies_collapse_and_nothing_else_does(records):
    """Reports of one event in other words or with other figures stay apart, in every pair of articles."""
    prints = [(record.id, read_fingerprint(record.payload)) for record in records]
    found = {
        (one, other)
        for at, (one, left) in enumerate(prints)
        for other, right in prints[at + 1 :]
        if is_copy(left, right)
    }

    assert COPIES == found


def test_some_are_for_the_support_group_only(records):
    """Anna reads them, the others do not."""
    closed = [record for record in records if PUBLIC not in record.acl]
    readers = {user: set(Scope(tenant="demo", user=user, groups=groups).principals) for user, groups in GROUPS.items()}

    assert closed
    assert all(set(record.acl) & readers["anna"] for record in closed)
    assert not any(set(record.acl) & (readers["demo"] | readers["boris"]) for record in closed)


def test_two_try_to_give_orders(records):
    """An English and a Russian article address the model that reads them."""
    orders = ("ignore all previous instructions", "забудь все предыдущие указания")

    assert [1, 1] == [sum(order in record.text for record in records) for order in orders]


def test_rows_are_dated_by_their_distance_from_loading():
    """No row has a date of its own, and two have none at all."""
    rows = [
        json.loads(line)
        for path in sorted(Path(news_folder()).glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]

    assert 2 == sum("age_hours" not in row for row in rows)
    assert not any("published" in row or "date" in row for row in rows)
