"""The `regions` page encoder.

Splits a page into chunks (tables, captions, blocks of text) and embeds each with the text embedders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from contexture.adapters.embedders import encoding
from contexture.documents import BoundingBox, EncodedPage, Page, Region, RegionKind
from contexture.types import Matrix, Vector

# Fitted on 120 claims and 500 abstracts, a row per sentence: 9 in 10 unrelated pairs fall below 0.3, related ones are
# about 0.8.
BEST_OF_MANY_CALIBRATION = encoding.Calibration(((0.0, 0.0), (0.45, 0.28), (0.7, 0.55), (0.87, 0.8), (1.0, 1.0)))


class TextEmbedders(Protocol):
    """Embedders by language, as used by text search."""

    @property
    def context_free_vectors(self) -> Mapping[str, int]:
        """Dimensions of every vector a text without context may have, by name."""
        ...

    async def passages(self, texts: Sequence[str], langs: Sequence[str]) -> Sequence[Mapping[str, Vector]]:
        """Vectors of each text by name; texts of one language have the same names."""
        ...

    async def question(self, text: str, lang: str, among: Container[str] | None = None) -> Mapping[str, Vector]:
        """Vectors of a question by name; with `among`, only those with these names."""
        ...

    async def forget(self, texts: Sequence[str]) -> None:
        """Remove the vectors of these texts from all caches."""
        ...

    def similarities(self, scores: Sequence[Mapping[str, float]]) -> Sequence[tuple[float, ...] | None]:
        """Calibrated similarity from 0 to 1, raw score and more, for each mapping of vector name to score."""
        ...


class RegionEncoder:
    """Page encoder without a model of its own: embeds the text of each region with the embedder of the page's language.

    The language of a page selects its embedders, as for any text; questions in other languages find it too.
    """

    def __init__(self, embedders: TextEmbedders, detect: Callable[[str], str]) -> None:
        self._embedders = embedders
        self._detect = detect

    @property
    def vectors(self) -> Mapping[str, int]:
        """Vectors of the text embedders, under the same names; the text of a region has no context."""
        return self._embedders.context_free_vectors

    async def pages(self, pages: Sequence[Page]) -> Sequence[EncodedPage]:
        """One encoded page per page, in order; the regions of all pages are embedded in one batch."""
        shown = [split_page(page) for page in pages]
        langs = [self._detect("\n".join(piece.text for piece in each)) for each in shown]
        texts = [piece.text for each in shown for piece in each]
        spoken = [lang for lang, each in zip(langs, shown, strict=True) for _ in each]
        vectors = iter(await self._embedders.passages(texts, spoken) if texts else [])
        return [_encode_chunks(each, [next(vectors) for _ in each]) for each in shown]

    async def forget(self, pages: Sequence[Page]) -> None:
        """Remove the cached vectors of the regions of these pages."""
        texts = [piece.text for page in pages for piece in split_page(page)]
        if texts:
            await self._embedders.forget(texts)

    async def question(self, text: str) -> Mapping[str, Matrix]:
        """One row per vector space that pages may have."""
        found = await self._embedders.question(text, self._detect(text), self.vectors)
        return {name: vector[None, :] for name, vector in found.items()}

    def calibrate(self, name: str, similarity: Vector) -> Vector:
        """Calibrated similarity of that vector space, lowered because a MaxSim is the best of many rows."""
        found = self._embedders.similarities([{name: value} for value in similarity.tolist()])
        return BEST_OF_MANY_CALIBRATION(np.array([each[0] if each else 0.0 for each in found], np.float32))


def _encode_chunks(shown: Sequence[PageChunk], vectors: Sequence[Mapping[str, Vector]]) -> EncodedPage:
    names = vectors[0] if vectors else ()
    rows = {name: np.stack([each[name] for each in vectors]) for name in names}
    return EncodedPage(
        rows=rows,
        boxes=tuple(piece.box for piece in shown),
        whole={name: mean_direction(matrix) for name, matrix in rows.items()},
    )


def mean_direction(rows: Matrix) -> Vector:
    """Mean of the rows, normalized to unit length."""
    mean = rows.mean(axis=0)
    return (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)


WHOLE_PAGE: BoundingBox = (0.0, 0.0, 1.0, 1.0)
TARGET_CHARACTERS = 500
"""Target length of adjacent text in one row; about what an embedder reads at once."""
MAX_ROWS = 48

_CAPTION = re.compile(
    r"\W*(?:figure|fig|table|chart|diagram|exhibit|рисунок|рис|таблица|табл|график|диаграмма|схема)\.?\s*\d",
    re.IGNORECASE,
)


class PageChunk(NamedTuple):
    """Text of one vector row of a page, and its box."""

    text: str
    box: BoundingBox


def split_page(page: Page) -> list[PageChunk]:
    """Chunks of a page: all headings together, then one per table, picture, caption and few hundred characters of text.

    A page has at most `2 * MAX_ROWS` chunks; a longer text has longer chunks.
    """
    regions = [region for region in page.regions if region.text.strip()]
    if not regions:
        return [PageChunk(text, WHOLE_PAGE) for text in _split_text(page.text, TARGET_CHARACTERS)]
    target = max(TARGET_CHARACTERS, sum(len(region.text) for region in regions) // MAX_ROWS)
    headings = [region for region in regions if region.kind is RegionKind.HEADING]
    found = [piece for run in _group_regions(regions, target) for piece in _split_group(run, target)]
    together = list(_split_group(headings, target))[:1] if len(headings) > 1 else []
    return [*together, *found][: 2 * MAX_ROWS]


def union_boxes(boxes: Iterable[BoundingBox]) -> BoundingBox:
    """Smallest box around all boxes."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def _group_regions(regions: Sequence[Region], target: int) -> Iterator[Sequence[Region]]:
    """Group regions: tables, pictures and captions alone; headings with the text below, up to the target length."""
    run: list[Region] = []
    for region in regions:
        apart = region.kind in {RegionKind.TABLE, RegionKind.PICTURE} or bool(_CAPTION.match(region.text))
        full = sum(len(each.text) for each in run) + len(region.text) > target
        if run and (apart or full or region.kind is RegionKind.HEADING):
            yield run
            run = []
        if apart:
            yield [region]
        else:
            run.append(region)
    if run:
        yield run


def _split_group(run: Sequence[Region], target: int) -> Iterator[PageChunk]:
    """Yield a group of regions as one chunk, or as several with the same box if it is too long.

    Further chunks of a table repeat its header row.
    """
    whole = _join_regions(run)
    head = whole.text.split("\n", 1)[0] if run[0].kind is RegionKind.TABLE else ""
    for number, text in enumerate(_split_text(whole.text, 2 * target)):
        yield PageChunk(f"{head}\n{text}" if head and number else text, whole.box)


def _join_regions(regions: Sequence[Region]) -> PageChunk:
    return PageChunk(
        "\n".join(region.text.strip() for region in regions), union_boxes(region.box for region in regions)
    )


def _split_text(text: str, target: int) -> Iterator[str]:
    """Split a text into parts of about `target` characters, between lines, else between words."""
    part = ""
    for line in text.split("\n"):
        for words in _split_line(line, target):
            if part and len(part) + len(words) > target:
                yield part
                part = ""
            part = f"{part}\n{words}".strip()
    if part:
        yield part


def _split_line(line: str, target: int) -> Iterator[str]:
    """Yield a line, split between words if it is longer than the target."""
    while len(line) > target:
        at = line.rfind(" ", 1, target)
        at = at if at > 0 else target
        yield line[:at].strip()
        line = line[at:].strip()
    yield line
