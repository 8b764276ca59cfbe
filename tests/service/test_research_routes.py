"""Research over HTTP, over the real page store: shapes, permissions, pictures, verification."""

from __future__ import annotations

import json

import httpx
import pytest

from contexture import Contexture, Settings
from contexture.documents import Page
from contexture.engine import replay
from contexture.pages.values import Document
from contexture.service.envelope import encode_json
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.service import service_client, small_engine

BUILD, ASK, VERIFY = "/v1/context/research", "/api/research/ask", "/v1/citations/verify"
JPEG = b"\xff\xd8picture\xff\xd9"
QUESTION = {"query": "How much does solar power lower bills?"}


def document(doc_id: str, *texts: str, readers: tuple[str, ...] = ("public",), filename: str = "") -> Document:
    """A document of these pages, drawn."""
    pages = tuple(
        Page(number=at, text=text, section_path="Report", image=JPEG + b"large", thumb=JPEG)
        for at, text in enumerate(texts, start=1)
    )
    return Document(
        doc_id=doc_id,
        filename=filename or f"{doc_id}.pdf",
        extension="pdf",
        source_path=f"/inbox/{doc_id}.pdf",
        timestamp=NOON,
        pages=pages,
        readers=readers,
    )


SUN = document(
    "sun",
    "# Sun\n\nSolar power lowers bills by 30 percent. Mail anna@example.org about it.",
    "Solar panels last for 25 years, says the maker.",
)
BOARD = document("board", "Solar power lowers bills by 90 percent, but do not tell.", readers=("group:board",))


@pytest.fixture(params=["store", "chroma"])
def settings(request, new_folder):
    """Settings of a tenant called acme, under which only shared words match; pages live here or there."""
    if request.param == "chroma":
        pytest.importorskip("chromadb", reason="chromadb is not installed")
    place = f"chroma:{new_folder()}" if request.param == "chroma" else ""
    return Settings(home=new_folder(), tenant="acme", user="anna", search_floor=1, pages_index=place)


@pytest.fixture
async def engine(settings):
    """An engine with one document."""
    async with small_engine(settings) as found:
        await found.pages.add(found.scope, SUN, now=NOON)
        yield found


@pytest.fixture
async def client(engine):
    """A client of a service without keys."""
    async with service_client(engine) as found:
        yield found


async def test_the_route_answers_what_the_library_gives(client: httpx.AsyncClient, engine: Contexture):
    """The same bytes, timings in a header, and a capsule that replays."""
    answer = await client.post(BUILD, json=QUESTION)
    built = await engine.build_research(QUESTION["query"])

    assert encode_json(built.to_dict()) == answer.content
    assert "collect;dur=" in answer.headers["Server-Timing"]
    told = answer.json()
    assert "[Document 1: sun.pdf, Page 1]" == told["formatted_text"].split("\n")[0]
    assert ("hybrid", 10_000, False) == (told["search_mode"], told["max_tokens"], told["truncated"])
    kept = (await client.get(f"/v1/builds/{told['build_id']}")).json()
    assert told["digest"] == replay(json.dumps(kept["capsule"]).encode())[0].digest


async def test_an_answer_has_its_sources_and_their_pictures(client: httpx.AsyncClient):
    """The answer names a source, whose thumbnail can be fetched where the source says."""
    told = (await client.post(ASK, json=QUESTION)).json()

    assert "Solar power lowers bills by 30 percent. [1]" == told["answer"].split("\n")[0]
    assert (True, [], []) == (told["extractive"], told["removed_markers"], told["unsupported"])
    thumb = await client.get(told["sources"][0]["thumbnail_url"])
    image = await client.get(told["sources"][0]["image_url"])
    assert (JPEG, "image/jpeg") == (thumb.content, thumb.headers["Content-Type"])
    assert JPEG + b"large" == image.content
    assert told["sources"][0]["thumbnail_path"] == "/v1/pages/sun/1/thumb"


@pytest.mark.parametrize(
    "path",
    ["/v1/pages/sun/9/thumb", "/v1/pages/nope/1/image", "/v1/pages/board/1/image", "/v1/pages/..%2f..%2fsun/1/thumb"],
)
async def test_pictures_that_are_not_there_or_not_yours_are_answered_alike(client, engine, path):
    """Unknown, forbidden and malformed: not found, in words that tell nothing."""
    await engine.pages.add(Scope(tenant="acme", user="eve", groups=("board",)), BOARD, now=NOON)
    answer = await client.get(path)

    assert 404 == answer.status_code
    assert "NO_DATA" == answer.json()["error"]["code"]


@pytest.mark.parametrize("route", [BUILD, ASK])
async def test_forbidden_pages_change_nothing(client: httpx.AsyncClient, engine: Contexture, route):
    """With pages that the caller may not read, present or absent, every byte is the same."""
    before = (await client.post(route, json=QUESTION)).content
    await engine.pages.add(Scope(tenant="acme", user="eve", groups=("board",)), BOARD, now=NOON)
    await engine.pages.add(Scope(tenant="other", user="anna"), document("o", "Solar power and bills."), now=NOON)

    assert before == (await client.post(route, json=QUESTION)).content


@pytest.mark.parametrize("route", [BUILD, ASK])
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": ""},
        {"query": "x", "colour": "red"},
        {"query": "x", "include_text": False, "include_visual": False},
        {"query": "x", "num_results": "ten"},
        {"query": "x", "search_mode": "deep"},
    ],
)
async def test_what_cannot_be_asked_is_refused(client: httpx.AsyncClient, route, body):
    """With the status and the code of a request that can be mended."""
    answer = await client.post(route, json=body)

    assert (422, "VALIDATION_FAILED") == (answer.status_code, answer.json()["error"]["code"])


async def test_the_search_mode_chooses_the_collections(client: httpx.AsyncClient):
    """`text` finds by words alone, and the answer says so."""
    told = (await client.post(BUILD, json={**QUESTION, "search_mode": "text"})).json()

    assert "text" == told["search_mode"]
    assert all("visual" not in entry["signals"] for entry in told["ledger"])


@pytest.mark.parametrize("route", [BUILD, ASK])
async def test_what_was_built_can_be_verified(client: httpx.AsyncClient, route):
    """Contexts and answers hold as they were given, and not after a word was changed."""
    told = (await client.post(route, json=QUESTION)).json()
    good = (await client.post(VERIFY, json=told)).json()
    told["sources"][0]["markdown_content"] = told["sources"][0]["markdown_content"].replace("30", "80")
    bad = (await client.post(VERIFY, json=told)).json()

    assert (True, []) == (good["holds"], good["problems"])
    assert not bad["holds"]
    assert "80 percent" in " ".join(problem["reason"] for problem in bad["problems"])


async def test_citations_of_other_builds_are_verified_too(client: httpx.AsyncClient, engine: Contexture):
    """A plain query, a search and a capsule carry spans, and they hold until the record changes."""
    from contexture.types import Record

    await engine.add([Record(id="r", text="The pump leaks. Mail anna@example.org.", acl=("public",))])
    query = (await client.post("/v1/context/query", json={"query": "pump leaks"})).json()
    search = (await client.post("/v1/search", json={"query": "pump leaks"})).json()
    kept = (await client.get(f"/v1/builds/{query['build_id']}")).json()
    for told in (query, search, kept, kept["capsule"]):
        assert (await client.post(VERIFY, json=told)).json()["holds"]
    await engine.add([Record(id="r", text="The pump is fine.", acl=("public",))])
    for told in (query, search, kept, kept["capsule"]):
        found = (await client.post(VERIFY, json=told)).json()
        assert "has changed since" in found["problems"][0]["reason"]


async def test_a_document_that_was_removed_is_cited_in_vain(client: httpx.AsyncClient, engine: Contexture):
    """Its citations no longer resolve."""
    told = (await client.post(ASK, json=QUESTION)).json()
    await engine.pages.remove(engine.scope, ["sun"])
    found = (await client.post(VERIFY, json=told)).json()

    assert not found["holds"]
    assert "no record 'sun:1' can be read" in found["problems"][0]["reason"]


async def test_an_answer_can_be_streamed(client: httpx.AsyncClient):
    """The sources come first, then pieces, then the checked answer, which equals the answer without a stream."""
    body = {"query": "How much does solar power lower bills?", "search_mode": "text"}
    whole = (await client.post(ASK, json=body)).json()

    events = (await client.post(ASK, json={**body, "stream": True})).text.strip().split("\n\n")
    names = [event.split("\n")[0].removeprefix("event: ") for event in events]
    last = json.loads(events[-1].split("data: ", 1)[1])

    assert ("context", "done") == (names[0], names[-1])
    assert {"delta"} == set(names[1:-1])
    assert whole["answer"] == last["answer"]
    assert whole["sources"] == last["sources"]
