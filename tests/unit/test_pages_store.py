"""The page store: whole documents in, pages and their pictures out, for those who may read them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import msgspec
import pytest
import pytest_asyncio

from contexture.adapters.pages.regions import RegionEncoder
from contexture.adapters.token_counters import counter_for
from contexture.documents import Page, Region, RegionKind
from contexture.errors import InvalidRequest, NotPermitted, SourceUnavailable, StoreUnwritable
from contexture.ledger import Trace
from contexture.pages.images import PageImages
from contexture.pages.records import PAGES, compress_text, decompress_text
from contexture.pages.store import PageStore, merge_hits
from contexture.pages.values import Document, FoundPage, document_id
from contexture.pages.visual import VISUAL_PAGES, VisualPageHit, VisualPages
from contexture.pipeline.fence import fence
from contexture.testing.doubles import NOON, WordRedactor
from contexture.text.language import detect_language
from contexture.text.simhash import simhash
from contexture.types import Equals, Scope
from support.page_conformance import pages_over
from support.research import HIDDEN, research_over
from support.workbench import Parts, Workbench, workbench

ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="acme", user="boris")
METADATA = """doc_id filename page extension timestamp source_path image_path thumb_path section_path parent_heading
num_headings num_tables num_pictures""".split()


def page(number: int, text: str, **changes: object) -> Page:
    """A page whose only region is its text."""
    region = Region(kind=RegionKind.TEXT, box=(0.1, 0.1, 0.9, 0.2), text=text, start=0, end=len(text))
    whole = Page(number=number, text=text, regions=(region,), image=b"large", thumb=b"small", section_path="One > Two")
    return replace(whole, **changes)


def document(doc_id: str, *texts: str, readers: tuple[str, ...] = ("public",)) -> Document:
    """A document with a page per text."""
    return Document(
        doc_id=doc_id,
        filename=f"{doc_id}.pdf",
        extension="pdf",
        source_path=f"in/{doc_id}.pdf",
        timestamp=NOON,
        pages=tuple(page(number, text) for number, text in enumerate(texts, start=1)),
        readers=readers,
    )


@pytest_asyncio.fixture
async def bench(new_folder) -> AsyncIterator[Workbench]:
    """A workbench in a folder of its own."""
    async with workbench(new_folder()) as opened:
        yield opened


@pytest.fixture
def store(bench, tmp_path) -> PageStore:
    """A page store whose pictures lie in the test's folder."""
    return pages_over(bench, tmp_path)


async def found(store: PageStore, scope: Scope, question: str, **how: object) -> list[tuple[str, int]]:
    """The pages that a search finds."""
    told = await store.find(scope, question, k=10, trace=Trace(), **how)
    return [(each.doc_id, each.page) for each in told]


async def test_a_page_comes_back_as_it_was_read(store, tmp_path):
    """Text, section, counts, regions and readers survive; paths lead to the pictures."""
    await store.add(ANNA, document("a1", "Pumps are oiled in May."), now=NOON)

    [back] = await store.pages(ANNA, [("a1", 1)])

    assert ("Pumps are oiled in May.", "One > Two", NOON) == (back.text, back.section_path, back.timestamp)
    assert document("a1", "Pumps are oiled in May.").pages[0].regions == back.regions
    assert ("/v1/pages/a1/1/image", "/v1/pages/a1/1/thumb") == (back.image_path, back.thumb_path)
    assert 1 == len(list(tmp_path.rglob("a1_page_001.jpg")))


async def test_metadata_has_the_names_of_the_specification(store, bench):
    """Each page's payload has every field of the list, and the whole Markdown stands packed beside the pages."""
    await store.add(ANNA, document("a1", "First.", "Second."), now=NOON)

    first, whole = await bench.index.get(ANNA, PAGES.name, ["a1:1", "a1"])

    assert set(METADATA) <= set(first.payload)
    assert "First.\n\nSecond." == decompress_text(whole.payload["full_markdown_compressed"])
    assert "First.\n\nSecond." == await store.markdown(ANNA, "a1")


async def test_pages_come_in_the_order_asked_for(store):
    """Unknown pages and documents are left out, the others keep their order."""
    await store.add(ANNA, document("a1", "One.", "Two.", "Three."), now=NOON)

    back = await store.pages(ANNA, [("a1", 3), ("a1", 9), ("zz", 1), ("a1", 1)])

    assert ["Three.", "One."] == [each.text for each in back]


async def test_others_see_nothing_of_a_private_document(store):
    """Pages, pictures, Markdown, listings and searches answer as if it were not there."""
    await store.add(ANNA, document("a1", "The vault code is blue.", readers=("user:anna",)), now=NOON)

    assert [("a1", 1)] == await found(store, ANNA, "vault code")
    assert [] == await found(store, BORIS, "vault code")
    assert () == await store.pages(BORIS, [("a1", 1)])
    assert await store.markdown(BORIS, "a1") is None
    assert await store.picture(BORIS, "a1", 1) is None
    assert () == await store.documents(BORIS, limit=10)
    assert 0 == (await store.remove(BORIS, ["a1"])).count_of("pages")
    assert b"small" == await store.picture(ANNA, "a1", 1, thumb=True)


async def test_text_or_looks_alone_search_one_collection(store, bench, monkeypatch):
    """`visual=False` asks only for words, `text=False` only for looks."""
    await store.add(ANNA, document("a1", "Pumps are oiled in May."), now=NOON)
    asked: list[str] = []
    search = bench.index.search

    async def listening(scope, query):
        asked.append(query.collection)
        return await search(scope, query)

    monkeypatch.setattr(bench.index, "search", listening)
    await found(store, ANNA, "pumps", visual=False)
    await found(store, ANNA, "pumps", text=False)

    assert {PAGES.name} == set(asked[:1])
    assert {VISUAL_PAGES.name} == set(asked[1:])


async def test_neither_text_nor_looks_is_an_error(store):
    """A search of nothing is refused, and so is one of no pages."""
    with pytest.raises(InvalidRequest, match="neither"):
        await store.find(ANNA, "pumps", k=5, text=False, visual=False, trace=Trace())
    with pytest.raises(InvalidRequest, match="between 1 and"):
        await store.find(ANNA, "pumps", k=0, trace=Trace())


async def test_a_page_found_twice_is_one_page_with_both_scores(store):
    """Passages cite the page, and the score of the best page is the higher one."""
    await store.add(ANNA, document("a1", "Pumps are oiled in May.", "Cranes are painted in June."), now=NOON)

    told = await store.find(ANNA, "pumps oiled in May", k=5, trace=Trace())
    best = told[0]

    assert ("a1", 1) == (best.doc_id, best.page)
    assert best.score == max(best.text_score, best.visual_score)
    assert {1} == {candidate.citation.page for candidate in best.candidates}
    assert len({(each.doc_id, each.page) for each in told}) == len(told)
    assert sorted(told, key=lambda each: (-each.score, each.doc_id, each.page)) == list(told)


def test_visual_hits_support_pages_and_do_not_outrank_them():
    """A page found by both is ranked by its text; one that only its look finds is near the top, but not first."""
    read = {("a", n): found_page("a", n, text) for n, text in ((1, 0.6), (2, 0.58), (3, 0.2))}
    seen = [VisualPageHit("a", 3, 0.9), VisualPageHit("a", 2, 0.7), VisualPageHit("scan", 1, 0.9)]

    told = merge_hits(read, seen, {("a", 2): "a.pdf", ("a", 3): "a.pdf", ("scan", 1): "scan.pdf"}, k=5)

    assert [("a", 2), ("a", 1), ("scan", 1), ("a", 3)] == [(each.doc_id, each.page) for each in told]
    assert pytest.approx(0.9) == told[0].score
    assert [(0.58, 0.7), (0.6, None), (None, 0.9), (0.2, 0.9)] == [
        (each.text_score, each.visual_score) for each in told
    ]


def found_page(doc_id: str, number: int, score: float) -> FoundPage:
    """A page that text search found."""
    return FoundPage(doc_id=doc_id, page=number, filename=f"{doc_id}.pdf", score=score, text_score=score)


async def test_weak_visual_hits_do_not_answer_what_the_text_does_not(bench, tmp_path):
    """Where text search finds no support, the look of a page with text counts only if it is strong; a scan has none."""

    class Looking(VisualPages):
        async def search(self, scope, question, *, k, where, trace):
            return [VisualPageHit("a1", 1, 0.4), VisualPageHit("a1", 2, 0.7), VisualPageHit("a1", 3, 0.4)]

    looking = Looking(index=bench.index, encoder=RegionEncoder(Parts().encoders, detect_language))
    store = pages_over(bench, tmp_path, looking)
    await store.add(ANNA, document("a1", "Pumps are oiled.", "Cranes are painted.", ""), now=NOON)

    assert [("a1", 2), ("a1", 3)] == await found(store, ANNA, "asdkjh qwe zxc")
    assert 3 == len(await found(store, ANNA, "asdkjh qwe zxc", text=False))


async def test_filters_narrow_a_search(store):
    """A search within one document finds nothing of the others."""
    await store.add(ANNA, document("a1", "Pumps are oiled."), now=NOON)
    await store.add(ANNA, document("b2", "Pumps are oiled too."), now=NOON)

    assert [("b2", 1)] == await found(store, ANNA, "pumps oiled", where=Equals("doc_id", "b2"))


async def test_a_failing_side_is_named_and_the_other_answers(bench, tmp_path):
    """When looks cannot be searched, words are, and the trace says what is missing."""

    class Blind(VisualPages):
        async def search(self, scope, question, *, k, where, trace):
            raise SourceUnavailable("no eyes")

    blind = Blind(index=bench.index, encoder=RegionEncoder(Parts().encoders, detect_language))
    store = pages_over(bench, tmp_path, blind)
    await store.add(ANNA, document("a1", "Pumps are oiled."), now=NOON)
    trace = Trace()

    told = await store.find(ANNA, "pumps oiled", k=5, trace=trace)

    assert ["a1"] == [each.doc_id for each in told]
    assert ["pages_visual"] == [each.source for each in trace.finish(()).degradations]


async def test_a_document_is_whole_or_not_there(store, bench, monkeypatch):
    """When the last write fails, no page is found, by words or by looks, and a second try succeeds."""
    upsert = bench.index.upsert

    async def failing(scope, collection, records):
        if collection == PAGES.name:
            raise SourceUnavailable("disk gone")
        return await upsert(scope, collection, records)

    monkeypatch.setattr(bench.index, "upsert", failing)
    with pytest.raises(SourceUnavailable):
        await store.add(ANNA, document("a1", "Pumps are oiled."), now=NOON)
    monkeypatch.setattr(bench.index, "upsert", upsert)

    assert [] == await found(store, ANNA, "pumps oiled")
    assert not (await store.add(ANNA, document("a1", "Pumps are oiled."), now=NOON)).unchanged
    assert [("a1", 1)] == await found(store, ANNA, "pumps oiled")


async def test_a_known_document_is_left_alone_unless_it_is_read_again(store):
    """Adding it twice changes nothing; `again` replaces it, and pages it no longer has are gone."""
    await store.add(ANNA, document("a1", "One.", "Two."), now=NOON)

    assert (await store.add(ANNA, document("a1", "New."), now=NOON)).unchanged
    await store.add(ANNA, document("a1", "New."), now=NOON, again=True)

    assert ["New."] == [each.text for each in await store.pages(ANNA, [("a1", 1), ("a1", 2)])]
    assert await store.picture(ANNA, "a1", 2) is None


async def test_removing_a_document_removes_its_pictures(store, tmp_path):
    """Nothing is left of it in the store, on disk or in a listing."""
    await store.add(ANNA, document("a1", "One.", "Two."), now=NOON)
    await store.add(ANNA, document("b2", "Other."), now=NOON)

    assert 1 == (await store.remove(ANNA, ["a1", "unknown", "a1"])).count_of("pages")
    assert ["b2"] == [each.doc_id for each in await store.documents(ANNA, limit=10)]
    assert {"b2_page_001.jpg", "b2_page_001_thumb.jpg"} == {path.name for path in tmp_path.rglob("*.jpg")}
    assert [("b2", 1)] == await found(store, ANNA, "one two other")


async def test_a_removal_that_broke_off_can_be_repeated(store, bench, tmp_path, monkeypatch):
    """As long as anything of a document is left it is listed, and removing it again removes the rest."""
    await store.add(ANNA, document("a1", "One."), now=NOON)
    delete, failing = bench.index.delete, [VISUAL_PAGES.name, PAGES.name]

    async def broken(scope, collection, ids):
        if collection in failing:
            failing.remove(collection)
            raise SourceUnavailable("disk gone")
        return await delete(scope, collection, ids)

    monkeypatch.setattr(bench.index, "delete", broken)
    for _ in range(2):
        with pytest.raises(SourceUnavailable):
            await store.remove(ANNA, ["a1"])
        assert ["a1"] == [each.doc_id for each in await store.documents(ANNA, limit=10)]

    assert 1 == (await store.remove(ANNA, ["a1"])).count_of("pages")
    assert [] == list(tmp_path.rglob("*.jpg"))
    assert (
        []
        == list(await bench.index.scroll(ANNA, VISUAL_PAGES.name))
        == list(await bench.index.scroll(ANNA, PAGES.name))
    )


async def test_two_tenants_keep_pictures_apart(store):
    """When one tenant removes a document, the other still has its pictures."""
    other = Scope(tenant="beta", user="anna")
    await store.add(ANNA, document("a1", "One."), now=NOON)
    await store.add(other, document("a1", "One."), now=NOON)
    await store.remove(ANNA, ["a1"])

    assert b"large" == await store.picture(other, "a1", 1)


async def test_a_refused_document_leaves_the_pictures_of_the_hidden_one(store, tmp_path):
    """Who writes to the id of a document that they may not read changes none of its pictures, and adds none."""
    await store.add(ANNA, document("a1", "The vault code is blue.", readers=("user:anna",)), now=NOON)
    theirs = replace(document("a1", "One.", "Two."), pages=(page(1, "One.", image=b"x"), page(2, "Two.")))

    with pytest.raises(NotPermitted):
        await store.add(BORIS, theirs, now=NOON)

    assert b"large" == await store.picture(ANNA, "a1", 1)
    assert {"a1_page_001.jpg", "a1_page_001_thumb.jpg"} == {path.name for path in tmp_path.rglob("*.jpg")}


async def test_pictures_that_were_not_written_are_written_when_the_document_is_added_again(store, bench, monkeypatch):
    """A document whose pictures could not be written is not complete; adding it again writes them, and nothing else."""
    with monkeypatch.context() as patch:
        patch.setattr(PageImages, "write", _fail_to_write)
        with pytest.raises(StoreUnwritable):
            await store.add(ANNA, document("a1", "One.", "Two."), now=NOON)
    version = await bench.index.version(ANNA, PAGES.name)
    assert await store.picture(ANNA, "a1", 1) is None
    assert frozenset() == await store.find_stored(ANNA, ["a1"])

    assert (await store.add(ANNA, document("a1", "One.", "Two."), now=NOON)).unchanged

    assert {"a1"} == await store.find_stored(ANNA, ["a1"])

    assert [b"large", b"large"] == [await store.picture(ANNA, "a1", number) for number in (1, 2)]
    assert version == await bench.index.version(ANNA, PAGES.name)


def _fail_to_write(*_: object) -> None:
    raise StoreUnwritable("cannot write a page's picture: disk full")


async def test_a_blank_page_is_stored_and_not_found(store):
    """A page without text has none, whatever its document is called."""
    await store.add(ANNA, replace(document("a1", "x"), pages=(page(1, ""), page(2, "Words."))), now=NOON)

    assert "" == (await store.pages(ANNA, [("a1", 1)]))[0].text
    assert ("a1", 1) not in await found(store, ANNA, "a1 pdf")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"doc_id": "../up"}, "letters, digits"),
        ({"filename": "../../etc/passwd"}, "without a folder"),
        ({"pages": ()}, "no pages"),
        ({"pages": (page(2, "b"), page(1, "a"))}, "numbered"),
        ({"readers": ("anna",)}, "user:NAME"),
        ({"readers": ()}, "nobody"),
    ],
)
async def test_a_document_that_could_not_be_kept_is_refused(store, changes, said):
    """Names that leave the folder, pages out of order and readers that are none are refused with a sentence."""
    with pytest.raises(InvalidRequest, match=said):
        await store.add(ANNA, replace(document("a1", "One."), **changes), now=NOON)


WRITERS = (("anna", ("crew",)), ("carl", ("crew",)), ("boris", ()))


def test_readers_are_part_of_a_private_documents_id():
    """Public copies share an id; those for some readers do not, and the order of readers does not matter."""
    assert document_id("ab" * 32) == document_id("ab" * 32, ("public",)) == ("ab" * 32)[:16]
    assert document_id("ab" * 32, ("user:a", "user:b")) == document_id("ab" * 32, ("user:b", "user:a"))
    assert document_id("ab" * 32, ("user:a",)) != document_id("ab" * 32, ("user:b",))


def test_writers_are_part_of_the_id_of_what_they_may_not_read():
    """Members share a copy for their group; an outsider's is another, and cannot be taken for one with more readers."""
    anna, carl, boris = (Scope(tenant="acme", user=user, groups=groups) for user, groups in WRITERS)
    ours = {document_id("ab" * 32, ("group:crew",), writer) for writer in (None, anna, carl)}
    theirs = document_id("ab" * 32, ("group:crew",), boris)

    assert 1 == len(ours)
    assert theirs not in ours
    assert theirs != document_id("ab" * 32, ("group:crew", "user:boris"), boris)
    assert ("ab" * 32)[:16] == document_id("ab" * 32, ("public",), boris)


def test_packed_markdown_is_the_same_each_time():
    """Equal texts give equal bytes, and come back whole."""
    assert compress_text("Текст") == compress_text("Текст")
    assert "Текст" == decompress_text(compress_text("Текст"))


@dataclass
class Watched:
    """Hides a word, and remembers what it was shown."""

    rules: str
    seen: list[str] = field(default_factory=list)

    def scan(self, text, lang):
        """The places of the word."""
        self.seen.append(text)
        return WordRedactor((HIDDEN,)).scan(text, lang)


@pytest.mark.parametrize(("rules", "scanned"), [(WordRedactor(()).rules, False), ("newer-2", True)])
async def test_a_page_is_scanned_again_only_by_other_rules(store, rules, scanned):
    """What was found in a page when it was written is applied as long as the same rules are in force."""
    text = f"\n Pumps are oiled by {HIDDEN} in May."
    await store.add(ANNA, document("a1", text), now=NOON)
    redactor = Watched(rules)
    built = await research_over(store, redactor=redactor).build_context("Who oiled the pumps?", scope=ANNA)

    assert scanned == (text.strip() in redactor.seen)
    assert "[Document 1: a1.pdf, Page 1]\nPumps are oiled by <WORD_1> in May." == built.formatted_text


async def test_what_is_known_of_a_page_is_computed_when_it_is_written(store):
    """Sentences, redactions, counts of the fenced text and a similarity hash come with the page."""
    text = f"# Pumps\n\nOil {HIDDEN} now. Then wait."
    await store.add(ANNA, document("a1", text), now=NOON)
    [back] = await store.pages(ANNA, [("a1", 1)])

    assert ["# Pumps", f"Oil {HIDDEN} now.", "Then wait."] == [text[a:b] for a, b in back.sentences]
    assert [HIDDEN] == [text[span.start : span.end] for span in back.redactions]
    assert {"o200k_base": counter_for("o200k_base").count(fence(text))} == back.tokens
    assert simhash(text) == back.simhash


async def test_pages_of_an_older_store_can_be_read(store, bench):
    """Regions as a list are read as they are, and a page without facts is read whole."""
    await store.add(ANNA, document("a1", "Pumps are oiled in May."), now=NOON)
    [record] = await bench.index.get(ANNA, PAGES.name, ["a1:1"])
    told = {name: value for name, value in record.payload.items() if name != "facts"}
    told["regions"] = [["text", [0.1, 0.1, 0.9, 0.2], 0, 5]]
    old = msgspec.structs.replace(record, payload=told)
    await bench.index.upsert(ANNA, PAGES.name, await bench.preparer.prepare([old]))
    [back] = await store.pages(ANNA, [("a1", 1)])
    built = await research_over(store).build_context("pumps", scope=ANNA)

    assert ["Pumps"] == [region.text for region in back.regions]
    assert ((), None, "", {}, 0) == (back.sentences, back.redactions, back.rules, back.tokens, back.simhash)
    assert built.formatted_text.endswith("Pumps are oiled in May.")
