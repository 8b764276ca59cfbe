"""How a page becomes rows of vectors, and how rows are compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture import Settings, wiring
from contexture.adapters.pages.regions import MAX_ROWS, TARGET_CHARACTERS, WHOLE_PAGE, RegionEncoder, split_page
from contexture.documents import Page, RegionKind
from contexture.errors import UnknownAdapter
from contexture.pages.visual import maxsim
from contexture.retrieval.encoders import Encoders
from contexture.testing.doubles import HashEmbedder
from contexture.text.language import detect_language
from support.visual_conformance import BOTTOM, MIDDLE, TOP, region

SPEAKERS = Encoders(specialists={"en": HashEmbedder(16, "hash-en")}, generalist=HashEmbedder(12, "hash-any"))
ENCODER = RegionEncoder(SPEAKERS, detect_language)
REGIONS = st.builds(
    region,
    st.sampled_from([str(kind) for kind in RegionKind]),
    st.sampled_from((TOP, MIDDLE, BOTTOM)),
    st.text(" abc\nжё", max_size=1_500),
)


@given(regions=st.lists(REGIONS, max_size=12))
def test_every_word_of_a_region_is_in_a_piece(regions):
    """Nothing that a page shows is lost, no piece is blank, and each lies on the page."""
    found = split_page(Page(number=1, text="", regions=tuple(regions)))

    letters = "".join("".join(piece.text.split()) for piece in found)
    for each in regions:
        assert all(word[:TARGET_CHARACTERS] in letters for word in each.text.split())
    assert all(piece.text.strip() and piece.box[0] < piece.box[2] for piece in found)


def test_tables_and_pictures_stand_alone():
    """Text around them is joined, headings start a piece of their own, and all headings are one more piece."""
    regions = (
        region("heading", TOP, "Tides"),
        region("text", TOP, "High water."),
        region("text", MIDDLE, "Low water."),
        region("table", MIDDLE, "| hour | metres |"),
        region("heading", BOTTOM, "Moon"),
        region("picture", BOTTOM, "Phases"),
    )
    found = split_page(Page(number=1, text="", regions=regions))

    assert [piece.text for piece in found] == [
        "Tides\nMoon",
        "Tides\nHigh water.\nLow water.",
        "| hour | metres |",
        "Moon",
        "Phases",
    ]
    assert found[1].box == (0.1, 0.1, 0.9, 0.6)


@pytest.mark.parametrize("caption", ["Figure 1: Tides of 2025", "Table 2. Ships", "**Рис. 3** Приливы", "Diagram 4"])
def test_captions_stand_alone(caption: str):
    """What a figure shows is not mixed with the text around it."""
    regions = (region("text", TOP, "Ships wait."), region("text", MIDDLE, caption), region("text", BOTTOM, "They go."))

    found = split_page(Page(number=1, text="", regions=regions))
    assert ["Ships wait.", caption, "They go."] == [piece.text for piece in found]


def test_a_long_table_repeats_its_head():
    """Each part of it says what its columns are."""
    table = "| port | tonnes |\n" + "\n".join(f"| harbour {at} | {at * 17} |" for at in range(200))
    found = split_page(Page(number=1, text="", regions=(region("table", MIDDLE, table),)))

    assert len(found) > 2
    assert all(piece.text.startswith("| port | tonnes |") and piece.box == MIDDLE for piece in found)


def test_a_page_has_a_bounded_number_of_rows():
    """A page of endless text, or of nothing but headings, does not fill the store."""
    long = Page(number=1, text="", regions=(region("text", TOP, "word " * 200_000),))
    many = Page(number=1, text="", regions=tuple(region("heading", TOP, f"Heading {at}") for at in range(1_000)))

    assert len(split_page(long)) <= 2 * MAX_ROWS
    assert len(split_page(many)) <= 2 * MAX_ROWS
    assert "Heading 0" in split_page(many)[0].text


async def test_a_page_without_regions_is_seen_by_its_text():
    """Its rows look at the whole page; a blank page has none."""
    plain, blank = await ENCODER.pages([Page(number=1, text="ships " * 300), Page(number=2, text=" \n")])

    assert set(plain.boxes) == {WHOLE_PAGE}
    assert len(plain.boxes) == len(plain.rows["hash-en"]) > 1
    assert (dict(blank.rows), blank.boxes) == ({}, ())


async def test_the_language_of_a_page_decides_who_sees_it():
    """English pages have an English space and one for other questions; Russian pages have one space."""
    english, russian = await ENCODER.pages(
        [Page(number=1, text="the ships wait for the tide"), Page(number=2, text="причал закрыт на ремонт")]
    )

    assert set(english.rows) == {"hash-en", "hash-any@en"} == set(english.whole)
    assert set(russian.rows) == {"hash-any@other"}
    assert set(await ENCODER.question("закрыт ли причал?")) == {"hash-any@en", "hash-any@other"}
    assert np.linalg.norm(russian.whole["hash-any@other"]) == pytest.approx(1, abs=1e-5)


@given(sizes=st.lists(st.integers(1, 5), max_size=6), asked=st.integers(1, 4), seed=st.integers(0, 99))
def test_maxsim_is_what_it_says(sizes: list[int], asked: int, seed: int):
    """It equals the mean of each question row's best product, page by page; the best row has the best mean."""
    draw = np.random.default_rng(seed)
    question = draw.standard_normal((asked, 7)).astype(np.float32)
    pages = [draw.standard_normal((size, 7)).astype(np.float32) for size in sizes]
    seen = maxsim(question, pages)

    expected = [np.mean([max(float(row @ each) for row in page) for each in question]) for page in pages]
    assert seen.scores.tolist() == pytest.approx(expected, abs=1e-4)
    assert [int((page @ question.T).mean(axis=1).argmax()) for page in pages] == seen.rows.tolist()


def test_an_unknown_encoder_is_named():
    """A setting that no encoder answers to is refused with the known ones."""
    assert isinstance(wiring.page_encoder(Settings(page_encoder="regions"), SPEAKERS), RegionEncoder)
    for name in ("eyes", "regions:x", "colpali:", ""):
        with pytest.raises(UnknownAdapter, match="colpali:MODEL"):
            wiring.page_encoder(Settings(page_encoder=name), SPEAKERS)
