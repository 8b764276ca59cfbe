"""Rows of vectors as bytes, and stores made before there were any."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters.index.embedded import EmbeddedIndex, EmbeddedOptions
from contexture.adapters.index.matrices import pack_matrix, unpack_matrix
from contexture.testing.index_records import COLLECTION, NAME, VECTORS, make_record, prepare_record, record_ids
from contexture.testing.index_searches import ROWS, prepare_with_rows
from contexture.types import Scope

SCOPE = Scope.local()


@given(height=st.integers(0, 6), width=st.integers(1, 40), scale=st.sampled_from((0.0, 1e-6, 1.0, 1e6)))
def test_packed_rows_keep_their_directions(height: int, width: int, scale: float):
    """Each number comes back to within half a step of its row's largest divided by 127."""
    rows = scale * np.random.default_rng(height * 41 + width).standard_normal((height, width)).astype(np.float32)
    back = unpack_matrix(pack_matrix(rows))

    assert back.shape == rows.shape
    assert back.dtype == np.float32
    steps = np.abs(rows).max(axis=1, initial=0.0) / 127
    assert (np.abs(back - rows) <= 0.51 * steps[:, None]).all()


async def test_a_store_made_before_matrices_still_opens(tmp_path: Path):
    """What was stored is found, and new records may have rows of vectors."""
    options = EmbeddedOptions(vectors=VECTORS, threads=1)
    index = await EmbeddedIndex.open(tmp_path, options)
    await index.create(SCOPE, COLLECTION)
    await index.upsert(SCOPE, NAME, [prepare_record(make_record("old"))])
    await index.close()
    with sqlite3.connect(tmp_path / "truth.sqlite") as db:
        db.executescript(
            "CREATE TABLE collections (name TEXT PRIMARY KEY, fields TEXT NOT NULL) WITHOUT ROWID;"
            "INSERT INTO collections SELECT name, fields FROM declared;"
            "DROP TABLE declared; DROP TABLE matrices; DROP TABLE unembedded; PRAGMA user_version = 1;"
        )
    db.close()
    index = await EmbeddedIndex.open(tmp_path, options)
    await index.upsert(SCOPE, NAME, [prepare_with_rows(make_record("new"), ROWS)])

    assert record_ids(await index.scroll(SCOPE, NAME)) == ["new", "old"]
    assert list(await index.matrices(SCOPE, NAME, "rows", ["old", "new"])) == ["new"]
    await index.close()
