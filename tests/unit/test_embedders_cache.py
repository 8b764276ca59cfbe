"""The vector cache: same bits with and without it, and no harm when its file is broken."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from contexture.adapters.embedders.cache import CachedEmbedder, EmbeddingCacheStats
from contexture.adapters.embedders.encoding import DEFAULT_CALIBRATION, normalize_vector
from contexture.testing.embedders import EmbedderConformance
from contexture.types import Matrix, Vector, content_hash


class Letters:
    """A small real embedder: letter frequencies, with a list of the texts it was asked for."""

    name = "letters-1"
    dimensions = 32

    def __init__(self, name: str = "letters-1") -> None:
        self.name = name
        self.asked: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Unit vectors of code points modulo 32."""
        self.asked.extend(texts)
        counts = [np.bincount([ord(c) % 32 for c in text], minlength=32) for text in texts]
        return (
            np.stack([normalize_vector(row.astype(np.float32)) for row in counts])
            if counts
            else np.empty((0, 32), np.float32)
        )

    def calibrate(self, cosine: Vector) -> Vector:
        """Cosines from 0 to 1."""
        return DEFAULT_CALIBRATION(cosine)


class TestCachedEmbedder(EmbedderConformance):
    """A cached embedder is an embedder."""

    @pytest.fixture
    def embedder(self, tmp_path: Path) -> CachedEmbedder:
        """A cache in an empty folder."""
        return CachedEmbedder(Letters(), tmp_path / "vectors.db")


def test_vectors_are_for_their_owner_alone(tmp_path: Path) -> None:
    """The file and those beside it: a vector says much of its text."""
    cached = CachedEmbedder(Letters(), tmp_path / "vectors.db")
    asyncio.run(cached.embed(["one", "two"]))

    assert {0o600} == {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    cached.close()


async def test_another_process_that_closes_the_file_takes_nothing_from_it(tmp_path: Path) -> None:
    """Two embedders of a process share the file; a process that ends meanwhile leaves their log alone."""
    path = tmp_path / "vectors.db"
    both = [CachedEmbedder(Letters(name), path) for name in ("one", "two")]
    for cached in both:
        await cached.embed(["a", "b"])
    assert 4 == _count_elsewhere(path)
    for cached in both:
        await cached.embed(["c", "d"])

    assert 8 == _count_elsewhere(path)
    for cached in both:
        cached.close()


def _count_elsewhere(path: Path) -> int:
    """The vectors in a file, as another process sees it, which then closes it."""
    script = (
        "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM vectors').fetchone())"
    )
    return int(subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=True).stdout)


async def test_a_text_is_embedded_once(tmp_path: Path) -> None:
    """What the file holds is not computed again, by this object or by a later one."""
    inner, later = Letters(), Letters()
    first = CachedEmbedder(inner, tmp_path / "deep" / "vectors.db")
    before = await first.embed(["one", "two", "one"])
    first.close()
    second = CachedEmbedder(later, tmp_path / "deep" / "vectors.db")
    after = await second.embed(["one", "two", "three"])

    assert (["one", "two"], ["three"]) == (inner.asked, later.asked)
    assert np.array_equal(before[:2], after[:2])
    assert (EmbeddingCacheStats(hits=0, misses=3), EmbeddingCacheStats(hits=2, misses=1)) == (
        first.stats(),
        second.stats(),
    )


async def test_embedders_do_not_share_vectors(tmp_path: Path) -> None:
    """Vectors are kept under the embedder's name, which changes when the weights do."""
    other = Letters("letters-2")
    await CachedEmbedder(Letters(), tmp_path / "vectors.db").embed(["one", "one"])
    await CachedEmbedder(other, tmp_path / "vectors.db").embed(["one", "one"])

    assert ["one"] == other.asked


async def test_recent_queries_are_answered_from_memory(tmp_path: Path) -> None:
    """A single query asked again needs no file; the oldest of too many is forgotten."""
    inner = Letters()
    cached = CachedEmbedder(inner, tmp_path / "vectors.db", queries=2)
    for text in ("a", "b", "a", "c"):
        await cached.embed([text])
    cached.close()
    for text in ("a", "c", "b"):
        await cached.embed([text])

    assert ["a", "b", "c", "b"] == inner.asked


async def test_a_returned_row_may_be_written_to(tmp_path: Path) -> None:
    """What a caller does to its rows does not reach the next caller."""
    cached = CachedEmbedder(Letters(), tmp_path / "vectors.db")
    for _ in range(2):
        rows = await cached.embed(["one"])
        rows *= 0

    assert np.isclose(1.0, np.linalg.norm(await cached.embed(["one"])))


async def test_many_texts_need_several_lookups(tmp_path: Path) -> None:
    """More texts than one query may name are still all found."""
    inner, texts = Letters(), [f"text {n}" for n in range(1_203)]
    cached = CachedEmbedder(inner, tmp_path / "vectors.db")
    fresh = await cached.embed(texts)

    assert np.array_equal(fresh, await cached.embed(texts))
    assert texts == inner.asked


async def test_concurrent_callers_agree(tmp_path: Path) -> None:
    """Requests that overlap in time and in texts all get the right rows."""
    cached = CachedEmbedder(Letters(), tmp_path / "vectors.db")
    groups = [[f"text {n}" for n in range(start, start + 40)] for start in range(0, 100, 7)]
    rows = await asyncio.gather(*(cached.embed(group) for group in groups))

    for group, found in zip(groups, rows, strict=True):
        assert np.array_equal(found, await Letters().embed(group))
    assert "" == cached.degraded


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    """A corrupt file costs time only, is reported once, and is not overwritten."""
    path, reports = tmp_path / "vectors.db", []
    path.write_bytes(b"this is not a database" * 100)
    cached = CachedEmbedder(Letters(), path, on_degraded=reports.append)
    rows = await cached.embed(["one", "two"])
    again = await cached.embed(["one", "two"])

    assert np.array_equal(rows, again)
    assert [cached.degraded] == reports
    assert "not a database" in cached.degraded
    assert path.read_bytes().startswith(b"this is not")


async def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """A cache whose folder cannot exist works without its file."""
    (tmp_path / "file").write_text("in the way")
    cached = CachedEmbedder(Letters(), tmp_path / "file" / "vectors.db")

    assert (2, 32) == (await cached.embed(["one", "two"])).shape
    assert "vectors.db is not used" in cached.degraded


@pytest.mark.parametrize("blob", [b"short", np.zeros(32, np.float32).tobytes(), np.full(32, np.nan).tobytes()[:128]])
async def test_a_damaged_vector_is_computed_again(tmp_path: Path, blob: bytes) -> None:
    """A stored vector of the wrong size or length is replaced, not returned."""
    path = tmp_path / "vectors.db"
    first = CachedEmbedder(Letters(), path)
    good = await first.embed(["one", "two"])
    first.close()
    with sqlite3.connect(path) as file:
        file.execute("UPDATE vectors SET vector = ? WHERE hash = ?", (blob, bytes.fromhex(content_hash("one"))))
    file.close()
    inner = Letters()

    assert np.array_equal(good, await CachedEmbedder(inner, path).embed(["one", "two"]))
    assert ["one"] == inner.asked


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("DROP TABLE vectors", "no such table"),
        ("CREATE TRIGGER full BEFORE INSERT ON vectors BEGIN SELECT RAISE(ABORT, 'no room'); END", "no room"),
    ],
)
async def test_a_file_that_fails_later_loses_no_answer(tmp_path: Path, damage: str, reason: str) -> None:
    """A failing read or write after a good start degrades the cache, not the request."""
    path = tmp_path / "vectors.db"
    cached = CachedEmbedder(Letters(), path)
    await cached.embed(["zero", "one"])
    with sqlite3.connect(path) as file:
        file.execute(damage)
    file.close()

    assert np.array_equal(await Letters().embed(["two", "six"]), await cached.embed(["two", "six"]))
    assert reason in cached.degraded


async def test_a_single_query_never_touches_the_file(tmp_path: Path) -> None:
    """A query is remembered in memory, so that no search waits for a disk."""
    cached = CachedEmbedder(Letters(), tmp_path / "vectors.db")
    first = await cached.embed(["one"])

    assert np.array_equal(first, await cached.embed(["one"]))
    assert not (tmp_path / "vectors.db").exists()


async def test_queries_at_the_same_moment_are_computed_once(tmp_path: Path) -> None:
    """Searches that run side by side share the vector of their question, and one that gives up harms no other."""
    inner = Letters()
    cached = CachedEmbedder(inner, tmp_path / "vectors.db")
    hasty, patient, other = (asyncio.ensure_future(cached.embed([text])) for text in ("one", "one", "two"))
    await asyncio.sleep(0)
    hasty.cancel()

    assert np.array_equal(await patient, await Letters().embed(["one"]))
    assert np.array_equal(await other, await Letters().embed(["two"]))
    assert inner.asked == ["one", "two"]
