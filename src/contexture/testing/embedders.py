"""The contract of an embedder as a test class: subclass it, provide an `embedder` fixture, inherit the tests."""
# ruff: noqa: S101 - a conformance suite asserts

import numpy as np

from contexture.ports import Embedder

TEXTS = (
    "The ferry to the island leaves at nine.",
    "Паром на остров отходит в девять.",
    "short",
    "a longer text about tides, boats and harbours " * 12,
    "",
    "   \n\t",
    "\x00\ud800 lone surrogate",
)


class EmbedderConformance:
    """What every embedder promises."""

    async def test_every_text_has_a_unit_row(self, embedder: Embedder) -> None:
        """A row per text, in order, each of length 1, the empty text included."""
        rows = await embedder.embed(TEXTS)

        assert rows.shape == (len(TEXTS), embedder.dimensions)
        assert rows.dtype == np.float32
        assert np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)

    async def test_no_texts_give_no_rows(self, embedder: Embedder) -> None:
        """An empty request is answered with an empty matrix of the right width."""
        assert (await embedder.embed([])).shape == (0, embedder.dimensions)

    async def test_a_row_does_not_depend_on_the_batch(self, embedder: Embedder) -> None:
        """Equal texts give equal bits, alone, in a batch, and in another order."""
        together = await embedder.embed(TEXTS)
        reversed_order = (await embedder.embed(TEXTS[::-1]))[::-1]

        for row, text in enumerate(TEXTS):
            alone = (await embedder.embed([text]))[0]
            assert np.array_equal(alone, together[row])
            assert np.array_equal(alone, reversed_order[row])

    async def test_repeated_texts_give_repeated_rows(self, embedder: Embedder) -> None:
        """The same text twice in one request gives the same row twice."""
        first, _, again = await embedder.embed([TEXTS[0], TEXTS[3], TEXTS[0]])

        assert np.array_equal(first, again)

    def test_calibration_rises_within_its_bounds(self, embedder: Embedder) -> None:
        """A higher cosine never means less, and similarities stay between 0 and 1."""
        similarities = embedder.calibrate(np.linspace(-1.0, 1.0, 401, dtype=np.float32))

        assert np.all(np.diff(similarities) >= 0)
        assert similarities.min() >= 0
        assert similarities.max() <= 1
        assert similarities[0] < similarities[-1]
