"""An application over the routes of a workspace: lists, changes of one block, versions, queries, changes, trash."""

from __future__ import annotations

import pytest

from contexture.testing.doubles import NOON

BORIS = {"X-Contexture-User": "boris"}
TREE = [
    {"id": "p", "type": "page", "text": "Plant", "properties": {"alias": "Works"}},
    *({"id": f"c{at}", "text": f"child {at} [[Plant]]", "parent": "p", "order": at} for at in range(5)),
    {"id": "g", "text": "grandchild", "parent": "c1"},
    {"id": "mine", "type": "page", "text": "Diary", "readers": ["user:anna"], "order": 2},
    {"id": "shared", "type": "page", "text": "Shared", "parent": "mine", "readers": ["user:anna", "user:boris"]},
]
ROWS = [
    {"id": "db", "type": "db", "text": "Orders", "properties": {"schema": {"Cost": "number", "Owner": "person"}}},
    *(
        {"id": f"r{at}", "type": "db_row", "text": f"Order {at}", "parent": "db", "order": at, "properties": told}
        for at, told in enumerate(
            (
                {"Cost": 5, "status": "Doing", "Owner": "Anna Petrova", "due": "2026-05-30", "done": False},
                {"Cost": 7.5, "status": "Done", "Owner": "boris@acme.example", "due": "2026-05-20", "done": True},
                {"status": "doing", "Owner": ["Anna Petrova", "Boris Orlov"], "due": "2026-06-20", "done": False},
                {"Cost": 100, "status": "Review"},
            )
        )
    ),
]


@pytest.fixture
async def written(client):
    """A client of a service with a tree and a database."""
    answer = await client.post("/v1/ingest/blocks", json={"blocks": [*TREE, *ROWS]})
    assert 200 == answer.status_code, answer.text
    return client


def ids(answer) -> list[str]:
    """The ids of the blocks of an answer."""
    assert 200 == answer.status_code, answer.text
    return [block["id"] for block in answer.json()["blocks"]]


async def collect(client, path: str, limit: int, headers=None) -> list[str]:
    """All blocks of a list, a page after the other."""
    found: list[str] = []
    params = {"limit": limit}
    while True:
        answer = await client.get(path, params=params, headers=headers)
        found += ids(answer)
        assert len(answer.json()["blocks"]) <= limit
        if "next" not in answer.json():
            return found
        params = {"limit": limit, "cursor": answer.json()["next"]}


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_lists_are_read_with_cursors(written, limit):
    """Children, subtrees and roots come in order, a page after the other, whatever its size."""
    assert ["c0", "c1", "c2", "c3", "c4"] == await collect(written, "/v1/blocks/p/children", limit)
    assert ["c0", "c1", "g", "c2", "c3", "c4"] == await collect(written, "/v1/blocks/p/subtree", limit)
    assert ["db", "p", "mine"] == await collect(written, "/v1/blocks", limit)
    assert ["db", "p", "shared"] == await collect(written, "/v1/blocks", limit, BORIS)


async def test_a_subtree_continues_where_it_ended(written):
    """Also when blocks were added before the place in the meantime."""
    first = await written.get("/v1/blocks/p/subtree", params={"limit": 3})
    await written.post("/v1/ingest/blocks", json={"blocks": [{"id": "new", "text": "x", "parent": "c0"}]})
    rest = await written.get("/v1/blocks/p/subtree", params={"limit": 9, "cursor": first.json()["next"]})

    assert ["c2", "c3", "c4"] == ids(rest)


@pytest.mark.parametrize("path", ["/v1/blocks", "/v1/blocks/p/children", "/v1/blocks/p/subtree", "/v1/workspace/trash"])
async def test_a_cursor_that_is_none_is_refused(written, path):
    """With a message that says what to do."""
    for cursor in ("?", "eA", "\u00e9", "bm90CmE"):
        answer = await written.get(path, params={"cursor": cursor})
        assert (422, "give the `next`") == (answer.status_code, "give the `next`"), answer.text
        assert "give the `next`" in answer.json()["error"]["user_message"]


async def test_a_patch_changes_what_it_names(written):
    """Other fields stay; `null` removes a property, inherits readers and makes a root; the answer has the version."""
    await written.patch("/v1/blocks/c0", json={"readers": ["user:anna"], "properties": {"due": "2026-06-02", "x": 1}})
    answer = await written.patch("/v1/blocks/c0", json={"properties": {"due": None, "y": [2]}, "readers": None})

    assert 200 == answer.status_code, answer.text
    block = answer.json()["block"]
    assert ("child 0 [[Plant]]", "p", {"x": 1, "y": [2]}, 3) == (
        block["text"],
        block["parent"],
        block["properties"],
        block["version"],
    )
    assert "readers" not in block
    assert '"3"' == answer.headers["ETag"]
    root = await written.patch("/v1/blocks/c0", json={"parent": None})
    assert "parent" not in root.json()["block"]
    assert 422 == (await written.patch("/v1/blocks/c0", json={"type": None})).status_code
    assert 404 == (await written.patch("/v1/blocks/none", json={"text": "x"})).status_code
    assert 404 == (await written.patch("/v1/blocks/mine", json={"text": "x"}, headers=BORIS)).status_code


async def test_a_new_status_says_whether_a_task_is_done(written):
    """A stored `done` follows the status, unless the patch names it as well."""
    answer = await written.patch("/v1/blocks/r0", json={"properties": {"status": "Done"}})
    assert answer.json()["block"]["properties"]["done"] is True
    answer = await written.patch("/v1/blocks/r0", json={"properties": {"status": "Doing", "done": True}})
    assert answer.json()["block"]["properties"]["done"] is True
    answer = await written.patch("/v1/blocks/r3", json={"properties": {"status": "Done"}})
    assert "done" not in answer.json()["block"]["properties"]


async def test_a_patch_that_locks_its_writer_out_is_answered_once(written):
    """It is written and says so; after that the block does not exist for the writer."""
    answer = await written.patch("/v1/blocks/c0", json={"readers": ["user:boris"]})

    assert (200, ["user:boris"], 2) == (
        answer.status_code,
        answer.json()["block"]["readers"],
        answer.json()["block"]["version"],
    )
    assert 404 == (await written.get("/v1/blocks/c0")).status_code
    assert 2 == (await written.get("/v1/blocks/c0", headers=BORIS)).json()["block"]["version"]


async def test_a_lost_race_is_answered_with_the_current_version(written):
    """412 for `If-Match`, 409 for a version in the body; nothing is written, and the version can be used at once."""
    shown = await written.get("/v1/blocks/c0")
    tag = shown.headers["ETag"]
    assert ('"1"', "manage") == (tag, shown.json()["right"])
    await written.patch("/v1/blocks/c0", json={"text": "first"}, headers={"If-Match": tag})

    late = await written.patch("/v1/blocks/c0", json={"text": "late"}, headers={"If-Match": tag, **BORIS})
    body = await written.patch("/v1/blocks/c0", json={"text": "late", "version": 1})
    removed = await written.request("DELETE", "/v1/blocks/c0", headers={"If-Match": tag})
    moved = await written.post("/v1/blocks/c0/move", json={}, headers={"If-Match": tag})
    told = [
        (each.status_code, each.json()["error"]["code"], each.json()["error"]["version"])
        for each in (late, body, removed, moved)
    ]
    assert [(412, "PRECONDITION_FAILED", 2), (409, "CONFLICT", 2), *[(412, "PRECONDITION_FAILED", 2)] * 2] == told
    assert "first" == (await written.get("/v1/blocks/c0")).json()["block"]["text"]
    again = await written.patch("/v1/blocks/c0", json={"text": "late"}, headers={"If-Match": 'W/"2"'})
    assert 200 == again.status_code
    assert 422 == (await written.patch("/v1/blocks/c0", json={}, headers={"If-Match": "soon"})).status_code
    assert 200 == (await written.request("DELETE", "/v1/blocks/c0", headers={"If-Match": "*"})).status_code


async def test_versions_are_listed_and_restored(written):
    """Each with who and when; a restored version is a new one."""
    await written.patch("/v1/blocks/c0", json={"text": "second"}, headers=BORIS)
    restored = await written.post("/v1/blocks/c0/revert", json={"version": 1})
    found = (await written.get("/v1/blocks/c0/history")).json()["versions"]

    assert "child 0 [[Plant]]" == restored.json()["block"]["text"]
    assert [(3, "child 0 [[Plant]]", "anna"), (2, "second", "boris"), (1, "child 0 [[Plant]]", "anna")] == [
        (each["version"], each["text"], each["user"]) for each in found
    ]
    assert {NOON.isoformat().replace("+00:00", "Z")} == {each["time"] for each in found}
    assert 404 == (await written.post("/v1/blocks/c0/revert", json={"version": 9})).status_code


async def test_blocks_are_found_by_title_and_alias(written):
    """In any case; a page of others is not found."""
    assert ["p"] == ids(await written.get("/v1/workspace/find", params={"title": "works"}))
    assert ["p"] == ids(await written.get("/v1/workspace/find", params={"title": " PLANT "}))
    assert [] == ids(await written.get("/v1/workspace/find", params={"title": "Diary"}, headers=BORIS))


async def test_backlinks_have_the_linking_blocks(written):
    """With the kind of each link."""
    found = (await written.get("/v1/blocks/p/backlinks", params={"limit": 2})).json()["links"]

    assert [("c0", "link"), ("c1", "link")] == [(each["block"]["id"], each["kind"]) for each in found]


async def test_a_database_is_filtered_sorted_grouped_and_aggregated(written):
    """Texts without case, persons by any name, numbers and days by value."""

    async def ask(**query) -> dict:
        answer = await written.post("/v1/blocks/db/query", json=query)
        assert 200 == answer.status_code, answer.text
        return answer.json()

    def rows(found: dict) -> list[str]:
        return [each["id"] for each in found["blocks"]]

    assert ["r0", "r2"] == rows(await ask(filter=[{"column": "Status", "equals": "DOING"}]))
    assert ["r0", "r2"] == rows(await ask(filter=[{"column": "owner", "equals": "me"}]))
    assert ["r1", "r2"] == rows(await ask(filter=[{"column": "Owner", "equals": "boris"}]))
    assert ["r3"] == rows(await ask(filter=[{"column": "due", "empty": True}]))
    assert ["r0"] == rows(
        await ask(filter=[{"column": "due", "before": "2026-06-01"}, {"column": "done", "equals": False}])
    )
    assert ["r1", "r3"] == rows(await ask(filter=[{"column": "cost", "start": 6}]))
    assert ["r2"] == rows(await ask(filter=[{"column": "title", "contains": "ORDER 2"}]))
    assert ["r3", "r1", "r0", "r2"] == rows(await ask(sort=[{"column": "Cost", "descending": True}]))
    table = await ask(
        sort=[{"column": "due"}],
        group_by=["status"],
        aggregate=[{"column": "Cost", "function": "sum"}, {"column": "Cost", "function": "max"}],
        limit=1,
    )
    assert (["r1"], 4, {"sum(Cost)": 112.5, "max(Cost)": 100}) == (rows(table), table["total"], table["aggregates"])
    assert [("Doing", 2), ("Done", 1), ("Review", 1)] == [
        (each["value"], each["count"]) for each in table["groups"]["status"]
    ]
    assert ["r0"] == rows(await ask(sort=[{"column": "due"}], limit=1, cursor=table["next"]))
    refused = await written.post("/v1/blocks/p/query", json={})
    assert (422, "block 'p' is a page, not a db") == (
        refused.status_code,
        refused.json()["error"]["user_message"],
    )


async def test_tasks_are_those_of_every_database(written):
    """Open ones of the caller, the earliest due first."""
    mine = [{"column": "done", "equals": False}, {"column": "owner", "equals": "me"}]
    answer = await written.post("/v1/workspace/tasks", json={"filter": mine, "sort": [{"column": "due"}]})

    assert ["r0", "r2"] == ids(answer)


async def test_changes_are_listed_newest_first(written):
    """With the user and the page; what the caller may not read is not among them."""
    await written.patch("/v1/blocks/c0", json={"text": "edited"}, headers=BORIS)
    found = (await written.get("/v1/workspace/changes", params={"user": "boris"})).json()
    hidden = (await written.get("/v1/workspace/changes", headers=BORIS)).json()

    assert [("c0", "edited", "Plant", "boris")] == [
        (each["id"], each["text"], each["page"], each["user"]) for each in found["changes"]
    ]
    assert "mine" not in {each["id"] for each in hidden["changes"]}
    listed: list[str] = []
    params: dict = {"limit": 4}
    while True:
        page = (await written.get("/v1/workspace/changes", params=params)).json()
        listed += [each["id"] for each in page["changes"]]
        if "next" not in page:
            break
        params = {"limit": 4, "cursor": page["next"]}
    assert sorted(each["id"] for each in [*TREE, *ROWS]) == sorted(listed)


async def test_the_trash_is_listed_restored_and_purged(written):
    """Only what a caller manages is purged."""
    assert 2 == (await written.request("DELETE", "/v1/blocks/c1", headers=BORIS)).json()["deleted"]
    assert 1 == (await written.request("DELETE", "/v1/blocks/c2")).json()["deleted"]

    found = (await written.get("/v1/workspace/trash")).json()["deletions"]
    assert [("c2", "anna", 1), ("c1", "boris", 2)] == [(each["id"], each["user"], each["blocks"]) for each in found]
    later = {"before": "2027-01-01T00:00:00Z"}
    assert 0 == (await written.request("DELETE", "/v1/workspace/trash", json=later, headers=BORIS)).json()["purged"]
    assert 2 == (await written.post("/v1/blocks/c1/restore")).json()["restored"]
    assert 1 == (await written.request("DELETE", "/v1/workspace/trash", json=later)).json()["purged"]
    assert [] == (await written.get("/v1/workspace/trash")).json()["deletions"]


async def test_a_template_is_copied_with_its_values(written):
    """References inside the copy lead to the copy, hidden blocks are left out, and the caller manages it."""
    template = [
        {"id": "t", "type": "page", "text": "Week {{ week }}", "readers": ["user:anna", "user:boris"]},
        {"id": "todo", "type": "todo", "text": "Report for {{week}}, see ((todo-note-1))", "parent": "t"},
        {"id": "todo-note-1", "text": "{{missing}}", "parent": "t", "order": 1},
        {"id": "secret", "text": "x", "parent": "t", "readers": ["user:anna"]},
    ]
    await written.post("/v1/ingest/blocks", json={"blocks": template})
    made = await written.post("/v1/blocks/t/copy", json={"parent": "p", "values": {"week": "23"}}, headers=BORIS)

    assert 200 == made.status_code, made.text
    copy = made.json()["block"]
    below = (await written.get(f"/v1/blocks/{copy['id']}/children", headers=BORIS)).json()["blocks"]
    assert ("Week 23", "p", None) == (copy["text"], copy["parent"], copy.get("readers"))
    assert [f"Report for 23, see (({below[1]['id']}))", "{{missing}}"] == [each["text"] for each in below]
    assert "boris" == (await written.get(f"/v1/blocks/{copy['id']}")).json()["creator"]


async def test_the_author_of_a_write_is_the_caller(written):
    """Whoever a body names; an import keeps the name, which gives no right."""
    row = {"id": "w", "type": "page", "text": "W", "author": "boris"}
    await written.post("/v1/ingest/blocks", json={"blocks": [row]})
    await written.post("/v1/ingest/blocks", json={"blocks": [row | {"id": "i"}], "importing": {}})

    shown = [(await written.get(f"/v1/blocks/{name}", headers=BORIS)).json() for name in ("w", "i")]
    assert [("anna", "anna"), ("boris", "anna")] == [(each["block"]["author"], each["creator"]) for each in shown]
    refused = await written.patch("/v1/blocks/i", json={"readers": ["user:boris"]}, headers=BORIS)
    assert 403 == refused.status_code


async def test_questions_are_answered_with_citations_of_blocks(written):
    """Counts and rows of work, from what the asker may read; a page is also named by its title."""
    task = {"id": "x", "type": "todo", "text": "Call Senn", "properties": {"assignee": "anna", "due": "2026-06-20"}}
    hidden = task | {"id": "y", "text": "Buy a ring", "readers": ["user:anna"]}
    await written.post("/v1/ingest/blocks", json={"blocks": [task, hidden]})

    async def ask(query: str, headers=None) -> dict:
        answer = await written.post("/v1/workspace/ask", json={"query": query}, headers=headers)
        assert 200 == answer.status_code, answer.text
        return answer.json()

    mine = await ask("What are my tasks?")
    assert ": 4, all shown below. [1]" in mine["answer"]
    assert {"x", "y", "r0", "r2"} == {each["id"] for each in mine["sources"] if each["number"] in mine["cited"][1:]}
    others = await ask("What are the tasks of Anna?", BORIS)
    assert "ring" not in str(others)
    assert "x" in {each["id"] for each in others["sources"]}
    focused = {"query": "Summarize this page", "focus": {"pageId": "works"}}
    built = await written.post("/v1/context/workspace", json=focused)
    assert "grandchild" in built.json()["serialized"]
    focused["focus"] = {"pageId": "Diary"}
    assert 404 == (await written.post("/v1/context/workspace", json=focused, headers=BORIS)).status_code
