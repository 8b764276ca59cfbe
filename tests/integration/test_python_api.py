"""The Python API as people first type it: texts and dicts instead of value objects, and one sentence for each slip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import contexture
from contexture import Record, Scope, SyncContexture
from contexture.errors import InvalidRequest, StoreLocked

LINA = Scope(tenant="local", user="lina")


@pytest.fixture
def ctx(new_folder: Callable[[], Path]) -> Iterator[SyncContexture]:
    """An open store with nothing in it."""
    with contexture.open_sync(new_folder()) as opened:
        yield opened


def test_a_store_with_nothing_in_it_finds_nothing(ctx: SyncContexture) -> None:
    """Only a collection that somebody named is an error."""
    assert ctx.search("pump").found == ()
    assert ctx.build("pump").context.citations == ()
    assert ctx.ask("Who repairs the pump?").sources == ()
    with pytest.raises(contexture.RequestError, match="'nowhere'"):
        ctx.search("pump", collection="nowhere")


def test_records_are_dicts_or_one_record(ctx: SyncContexture) -> None:
    """A dict without readers belongs to its writer alone; `acl` gives other readers."""
    ctx.add({"id": "one", "text": "The pump is old.", "acl": "public"}, scope={"tenant": "local", "user": "lina"})
    added = ctx.add({"id": "own", "text": "The pump code is 4711.", "floor": 2}, scope=LINA)
    ctx.add([{"id": "all", "text": "The pump is green."}], acl="public", scope=LINA)

    assert (added.ids, added.collection) == (("own",), "documents")
    assert {each.record_id for each in ctx.search("pump", scope=LINA).found} == {"one", "own", "all"}
    assert {each.record_id for each in ctx.search("pump").found} == {"one", "all"}


def test_documents_of_other_libraries_are_records(ctx: SyncContexture) -> None:
    """LangChain's documents and LlamaIndex' nodes keep id, text, title and metadata; metadata grants no rights."""
    documents = pytest.importorskip("langchain_core.documents")
    schema = pytest.importorskip("llama_index.core.schema")
    ctx.add(
        [
            documents.Document(
                id="lc", page_content="The pump leaks.", metadata={"source": "wiki", "acl": ["public"], "page": 3}
            ),
            schema.TextNode(id_="li", text="The pump is new.", metadata={"file_name": "pump.md", "path": Path("x")}),
        ],
        scope=LINA,
    )

    found = {each.record_id: each for each in ctx.search("pump", scope=LINA).found}
    assert {"lc", "li"} == set(found)
    assert ("wiki", "pump.md") == (found["lc"].source, found["li"].title)
    assert ctx.search("pump").found == ()


def test_limits_filters_and_budgets_are_plain_arguments(ctx: SyncContexture) -> None:
    """`limit` bounds a search, `where` takes JSON, and `max_tokens` bounds a prompt."""
    ctx.add([{"id": f"n{at}", "text": f"Note {at} about the pump in hall {at}.", "lang": "en"} for at in range(70)])

    assert len(ctx.search("pump hall", limit=3).found) == 3
    assert len(ctx.search("pump hall", limit=70).found) == 70
    assert len(ctx.search("pump", where={"equals": ["id", "n7"]}).found) == 1
    assert ctx.build("pump", max_tokens=150).context.tokens <= 150
    assert ctx.build({"query": "pump", "max_tokens": 150}).context.tokens <= 150


def test_files_are_loaded_and_asked_about(ctx: SyncContexture, tmp_path: Path) -> None:
    """One call loads a folder, and the next question is answered from it."""
    (tmp_path / "travel.md").write_text("# Travel\n\nFlights below 600 km are not paid.\n")
    (tmp_path / "broken.jsonl").write_text('{"id": "a"}\n')

    report = ctx.ingest(tmp_path)
    again = ctx.ingest(str(tmp_path))

    assert (report.added, again.unchanged) == (1, 1)
    assert ["broken.jsonl"] == [Path(problem.path).name for problem in report.failed]
    assert "600 km" in ctx.build("Which flights are paid?").context.messages[1]["content"]


def test_memories_are_texts(ctx: SyncContexture) -> None:
    """What is remembered is recalled by the same user, redacted, and is in the next prompt."""
    ctx.remember("Lina is allergic to peanuts; write to lina@example.com.", scope=LINA)
    ctx.remember([{"text": "Lina drinks oat milk.", "tags": ["food"]}], scope=LINA)

    (first, *_) = ctx.recall("What is Lina allergic to?", scope=LINA)
    assert "peanuts" in first.text
    assert "lina@example.com" not in first.text
    assert list(ctx.recall("What is Lina allergic to?")) == []
    turn = ctx.build_turn("What is Lina allergic to?", scope=LINA)
    assert "peanuts" in "".join(str(message["content"]) for message in turn.messages)


def test_stores_work_without_an_event_loop(ctx: SyncContexture) -> None:
    """Memory, news, pages, workspace and blocks are reachable from synchronous code."""
    for found in (ctx.news.get(ctx.scope, ["none"]), ctx.pages.documents(ctx.scope), ctx.blocks.get(ctx.scope, ["x"])):
        assert list(found) == []
    assert ctx.memory.forget(ctx.scope, ["none"]) == 0
    assert ctx.workspace.restore(ctx.scope, []) == 0


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.search("pump", scope="lina"), "scope must be a contexture.Scope"),
        (lambda ctx: ctx.search("pump", limit=0), "limit must be at least 1"),
        (lambda ctx: ctx.search("pump", limit="3"), "limit must be a whole number, not '3'"),
        (lambda ctx: ctx.recall("pump", limit=-1), "limit must be at least 1, not -1"),
        (lambda ctx: ctx.recall("pump", limit=101), "limit must be at most 100, not 101"),
        (
            lambda ctx: ctx.search("pump", scope={"tenant": "local", "usr": "lina"}),
            "a scope has tenant, user and groups",
        ),
        (lambda ctx: ctx.ask({"query": "pump", "kinds": ["memory"]}), "must be one of memories, records, pages"),
        (lambda ctx: ctx.add({"id": "a", "text": "x"}, acl="lina"), "names the reader 'lina', which is nobody"),
        (lambda ctx: ctx.add({"id": "a", "text": "x"}, acl=7), "acl must be a list of"),
        (lambda ctx: ctx.remember({"txt": "x"}), r"memories\[0\] must have a field 'text'"),
        (lambda ctx: ctx.build(7), "a query must be a text, a dict or a QueryRequest, not int"),
        (lambda ctx: ctx.ask(None), "a question must be a text, a dict or an AskRequest, not NoneType"),
        (lambda ctx: ctx.add([7]), r"records\[0\] must be a Record, a dict"),
        (lambda ctx: ctx.add({"text": "x"}), r"records\[0\]: field 'id' is missing"),
        (lambda ctx: ctx.add({"id": "a", "text": "x", "acl": ["lina"]}), "'lina', which is nobody"),
        (lambda ctx: ctx.add(Record(id="a", text="x", acl=("lina",))), "write 'user:NAME', 'group:NAME' or 'public'"),
        (lambda ctx: ctx.remember([7]), r"memories\[0\] must be a text"),
        (lambda ctx: ctx.ingest("nowhere.pdf"), "there is no file or folder 'nowhere.pdf'"),
        (lambda ctx: ctx.ingest(".", kind=cast("Any", "songs")), "kind 'songs' is not one of"),
        (lambda ctx: ctx.ingest(".", readers="public"), "readers must be a list of principals"),
    ],
)
def test_a_slip_is_one_clear_sentence(ctx: SyncContexture, call: Callable[[Any], Any], said: str) -> None:
    """Values of the wrong kind are refused by name, and nothing is written."""
    with pytest.raises(InvalidRequest, match=said):
        call(ctx)
    assert ctx.search("x").found == ()


def test_a_second_engine_on_one_store_is_refused(new_folder: Callable[[], Path]) -> None:
    """The message says that this very process has it open."""
    folder = new_folder()
    with (
        contexture.open_sync(folder),
        pytest.raises(StoreLocked, match="open in this process already"),
        contexture.open_sync(folder),
    ):
        pass


def test_a_closed_store_says_so(new_folder: Callable[[], Path]) -> None:
    """After `with`, every call is refused with the way to open the store again."""
    with contexture.open_sync(new_folder()) as ctx:
        pass

    for call in (lambda: ctx.search("pump"), lambda: ctx.memory.forget(ctx.scope, []), lambda: list(ctx.chat("Hello"))):
        with pytest.raises(InvalidRequest, match=r"closed; open it again with contexture\.open_sync"):
            call()


async def test_a_closed_asynchronous_store_says_so(new_folder: Callable[[], Path]) -> None:
    """The same for the engine with an event loop."""
    async with contexture.open(new_folder()) as ctx:
        pass

    with pytest.raises(InvalidRequest, match="closed"):
        await ctx.search("pump")
