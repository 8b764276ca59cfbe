"""What is sent to Qdrant: how collections are laid out, where passages go, and what every question says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from contexture.adapters.index.access_classes import ScopeAccess
from contexture.errors import SourceTimeout, SourceUnavailable, UnknownAdapter
from contexture.testing.index_records import EAST, NAME, make_query, make_record, prepare_record, record_ids
from contexture.types import AnyOf, Collection, Contains, Equals, FieldType, Scope

pytest.importorskip("qdrant_client", reason="qdrant-client is not installed")

from qdrant_client import models
from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

from contexture.adapters.index.qdrant.client import QdrantOptions, QdrantServer, qdrant_errors
from contexture.adapters.index.qdrant.collection import tenant_key
from contexture.adapters.index.qdrant.search import compile_server_filter

if TYPE_CHECKING:
    from contexture.adapters.index.qdrant.collection_indexes import QdrantOverSqlite
    from support.qdrant import QdrantDouble

Reopen = Callable[..., "Awaitable[QdrantOverSqlite]"]
ANNA = Scope(tenant="acme", user="anna")
BORIS = Scope(tenant="globex", user="boris")
QUERY = "POST points query batch"
UPDATE = "POST points batch"


def operations(qdrant: QdrantDouble, kind: str) -> list[dict[str, Any]]:
    """Every operation of a kind that was sent, but for the mark's."""
    sent = [each for body in qdrant.bodies(UPDATE) for each in body["operations"]]
    found = [each[kind] for each in sent if kind in each]
    return [each for each in found if [point["id"] for point in each["points"] if isinstance(point, dict)] != [0]]


def searches(qdrant: QdrantDouble) -> list[dict[str, Any]]:
    """Every search of passages that was sent, but for the one of the state."""
    return [search for body in qdrant.bodies(QUERY) for search in body["searches"] if "using" in search]


def whole_text(piece: str) -> models.Match:
    """The condition that a field contains a text, which these checks do not ask for."""
    return models.MatchText(text=piece)


async def test_a_collection_is_laid_out_as_the_settings_say(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Named vectors, words, shards, copies and how many of them must have a write."""
    index = await reopen(shards=6, replicas=3)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    (made,) = qdrant.bodies("PUT")

    assert {"dense": {"size": 4, "distance": "Dot", "datatype": "turbo8"}} == made["vectors"]
    assert ["lexical"] == list(made["sparse_vectors"])
    assert (6, 3, 2) == (made["shard_number"], made["replication_factor"], made["write_consistency_factor"])


async def test_a_server_without_turbo8_stores_half_precision(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """It has no smaller datatype that keeps similarities."""
    qdrant.version = "1.16.3"
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])

    assert "float16" == qdrant.bodies("PUT")[0]["vectors"]["dense"]["datatype"]


@pytest.mark.parametrize(
    ("version", "form"), [("1.20.0", "substring"), ("1.21.3", "substring"), ("1.19.0", "text"), ("1.16.3", "text")]
)
async def test_contains_has_the_form_that_the_server_knows(
    qdrant: QdrantDouble, reopen: Reopen, version: str, form: str
) -> None:
    """Until 1.19.0 `text` compares substrings in a field without a text index; since 1.20 that is `substring`."""
    qdrant.version = version
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a", payload={"tags": "blue"}))])
    await index.search(ANNA, make_query("zebra", where=Contains("tags", "lu")))

    assert [{form: "lu"}] == [search["filter"]["must"][1]["must"][0]["match"] for search in searches(qdrant)]


async def test_a_server_that_cannot_search_substrings_says_so(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Later versions of 1.19 compare words; a filter with `contains` is an error, others are answered."""
    qdrant.version = "1.19.2"
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a", payload={"tags": "blue"}))])
    with pytest.raises(SourceUnavailable, match=r"1\.19\.2.*upgrade it to 1\.20"):
        await index.search(ANNA, make_query("zebra", where=Contains("tags", "lu")))

    assert ["a"] == record_ids(await index.search(ANNA, make_query("zebra", where=Equals("tags", "blue"))))


async def test_confirmations_of_an_existing_collection_are_changed(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """A collection that was made when all copies had to confirm is not stopped by a dead node any more."""
    index = await reopen(replicas=3, confirmations=3)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.copies = (3, 3)
    await reopen()

    assert {"write_consistency_factor": 2} in [body.get("params") for body in qdrant.bodies("PATCH")]


@pytest.mark.parametrize(("copies", "confirmed"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3)])
def test_a_majority_confirms_but_one_of_two(copies: int, confirmed: int) -> None:
    """Any node may be lost, and a write goes on."""
    assert confirmed == QdrantOptions(place="qdrant://db").required_confirmations(copies)
    assert copies == QdrantOptions(place="qdrant://db", confirmations=9).required_confirmations(copies)


async def test_permissions_and_declared_fields_are_indexed(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Tenants lie together, access classes and every field that filters may name can be looked up."""
    index = await reopen()
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    made = {body["field_name"]: body["field_schema"] for body in qdrant.bodies("PUT index")}

    assert {"type": "keyword", "is_tenant": True} == made["tenant"]
    assert {"type": "integer", "lookup": True, "range": False} == made["access"]
    assert ("keyword", "float", "float") == (made['"f.tags:keyword"'], made['"f.rating:number"'], made['"f.time"'])


async def test_a_field_that_is_declared_late_sends_only_what_has_it(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Those that have a value of its type, whoever they belong to; the rest is there as it was, and is found."""
    index = await reopen()
    await index.upsert(
        ANNA, NAME, [prepare_record(make_record("a", payload={"grade": "high"})), prepare_record(make_record("b"))]
    )
    await index.upsert(
        BORIS, NAME, [prepare_record(make_record("c", payload={"grade": 5})), prepare_record(make_record("d"))]
    )
    qdrant.asked.clear()
    await index.create(BORIS, Collection(name=NAME, fields={"grade": FieldType.NUMBER}))
    found = record_ids(await index.search(BORIS, make_query("zebra", where=Equals("grade", 5))))
    sent = [point["id"] for each in operations(qdrant, "upsert") for point in each["points"]]

    assert (["c"], [3]) == (found, sent)
    assert ["a", "b"] == record_ids(await index.search(ANNA, make_query("zebra")))


async def test_every_question_says_who_asks(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """The classes that may be read stand beside the caller's filter in each search, and all searches go at once."""
    index = await reopen()
    await index.upsert(
        ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b", acl=("user:boris",)))]
    )
    await index.upsert(BORIS, NAME, [prepare_record(make_record("c"))])
    qdrant.asked.clear()
    await index.search(ANNA, make_query("zebra", vector=EAST, where=Equals("tags", "red")))
    conditions = [search["filter"]["must"] for search in searches(qdrant)]

    assert [QUERY] == [each.what for each in qdrant.asked]
    assert ["lexical", "dense"] == [search["using"] for search in searches(qdrant)]
    assert [{"should": [{"key": "access", "match": {"value": 1}}]}] * 2 == [must[0] for must in conditions]
    assert [{"must": [{"key": '"f.tags:keyword"', "match": {"value": "red"}}]}] * 2 == [must[1] for must in conditions]


@pytest.mark.parametrize(("limit", "exact"), [(2, True), (1, False)])
async def test_few_passages_are_compared_and_many_walked(
    qdrant: QdrantDouble, reopen: Reopen, limit: int, *, exact: bool
) -> None:
    """Who may read no more than the limit is answered exactly; what others have does not count."""
    index = await reopen(limit)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a")), prepare_record(make_record("b"))])
    await index.upsert(BORIS, NAME, [prepare_record(make_record("c"))])
    qdrant.asked.clear()
    await index.search(ANNA, make_query(vector=EAST, k=10))
    seen = [search["params"] for search in searches(qdrant)]

    assert [{"exact": exact} if exact else {"exact": False, "hnsw_ef": 76}] == seen


async def test_each_tenant_has_shards_of_its_own(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Shard keys are made once; writes and questions of a tenant go to its shards alone."""
    index = await reopen(by_tenant=True, shards=2, replicas=2)
    for name in "ab":
        await index.upsert(ANNA, NAME, [prepare_record(make_record(name))])
    await index.upsert(BORIS, NAME, [prepare_record(make_record("c"))])
    found = record_ids(await index.search(ANNA, make_query("zebra")))
    made = [
        (body["shard_key"], body["shards_number"], body["replication_factor"]) for body in qdrant.bodies("PUT shards")
    ]

    assert "custom" == qdrant.bodies("PUT")[0]["sharding_method"]
    assert [("marks", 2, 2), ("tenant.acme", 2, 2), ("tenant.globex", 2, 2)] == made
    assert ["tenant.acme", "tenant.acme", "tenant.globex"] == [
        each["shard_key"] for each in operations(qdrant, "upsert")
    ]
    assert ["tenant.acme"] == [search["shard_key"] for search in searches(qdrant)]
    assert ["a", "b"] == found


async def test_what_is_removed_is_removed_from_its_shards(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """A changed record goes from its tenant's shards; where only ids are known, every tenant's are told."""
    index = await reopen(by_tenant=True)
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    await index.upsert(BORIS, NAME, [prepare_record(make_record("c"))])
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a", "zebra again"))])
    await index.delete(BORIS, NAME, ["c"])
    sent = [(each["points"], each["shard_key"]) for each in operations(qdrant, "delete")]

    assert [([1], ["tenant.acme"]), ([2], ["tenant.acme", "tenant.globex"])] == sent
    assert [] == record_ids(await index.search(BORIS, make_query("zebra")))


async def test_the_key_is_sent_and_never_shown(qdrant: QdrantDouble, reopen: Reopen) -> None:
    """Every request carries it; no error and no description of the options does."""
    with pytest.warns(UserWarning, match="insecure"):
        index = await reopen(api_key="hunter2")
    await index.upsert(ANNA, NAME, [prepare_record(make_record("a"))])
    qdrant.failing = 403
    with pytest.raises(SourceUnavailable, match=r"Qdrant at .* 403") as caught:
        await index.search(ANNA, make_query("zebra"))
    qdrant.failing = 0

    assert {"hunter2"} == {each.api_key for each in qdrant.asked}
    assert "hunter2" not in f"{caught.value} {QdrantOptions(place='qdrant://x', api_key='hunter2')!r}"


@pytest.mark.parametrize(
    ("place", "urls"),
    [
        ("qdrant://db", "http://db:6333"),
        ("qdrant://db:7000/", "http://db:7000"),
        ("qdrant+https://db.example.org:6333", "https://db.example.org:6333"),
        ("qdrant://[::1]:7000", "http://[::1]:7000"),
        ("qdrant://h1,h2:7000,[::1]", "http://h1:6333 http://h2:7000 http://[::1]:6333"),
        ("qdrant+https://h1,h2", "https://h1:6333 https://h2:6333"),
    ],
)
def test_addresses_are_those_of_http(place: str, urls: str) -> None:
    """A store's address says hosts, ports and whether they are encrypted."""
    assert tuple(urls.split()) == QdrantOptions(place=place).urls


@pytest.mark.parametrize(
    "place",
    [
        "qdrant://", "qdrant+ftp://db", "qdrant://db/path", "qdrant://hunter2@db", "qdrant://db?api_key=hunter2",
        "qdrant://db:65536", "qdrant://a,b:65536", "qdrant://a,", "qdrant://a,,b", "qdrant://a,qdrant://b",
        "qdrant://a b", "qdrant://a%zz", "qdrant://a\0b",
    ],
)  # fmt: skip
def test_other_addresses_are_refused(place: str) -> None:
    """The error says how one is written, and repeats no key."""
    with pytest.raises(UnknownAdapter, match=r"qdrant://HOST:PORT") as caught:
        QdrantServer(QdrantOptions(place=place))

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "failure",
    [
        ResponseHandlingException(httpx.ReadTimeout("slow")),
        UnexpectedResponse(408, "Request Timeout", b"", httpx.Headers()),
        UnexpectedResponse(504, "Gateway Timeout", b"", httpx.Headers()),
    ],
    ids=["client", "server", "gateway"],
)
def test_a_server_that_hangs_is_told_apart(failure: Exception) -> None:
    """A request that took too long is a timeout, and names Qdrant."""
    with pytest.raises(SourceTimeout, match="Qdrant at"), qdrant_errors("Qdrant at 'x'"):
        raise failure


@pytest.mark.parametrize("tenant", ["", "with space", "x" * 65, "жёлтый", "half \ud800", "a/b"])
def test_any_tenant_has_a_plain_name_in_qdrant(tenant: str) -> None:
    """A name that is not plain is hashed, and never meets that of another tenant."""
    key = tenant_key(tenant)

    assert key.startswith("hashed.")
    assert key.isascii()
    assert tenant_key(key) != key


@pytest.mark.parametrize(("count", "conditions"), [(16, 16), (17, 1), (10_000, 1)])
def test_many_values_are_one_condition(count: int, conditions: int) -> None:
    """A field that may have any of many values is asked for once, and every value is named."""
    values = tuple(f"v{at}" for at in range(count))
    told = compile_server_filter(
        ScopeAccess(allowed=frozenset({1}), readable=frozenset({1}), hidden=None), AnyOf("tags", values), whole_text
    )
    (each,) = told.model_dump(exclude_none=True)["must"][1:]
    named = [value for one in each["should"] for value in one["match"].get("any", [one["match"].get("value")])]

    assert conditions == len(each["should"])
    assert list(values) == named


@pytest.mark.parametrize("count", [1, 16, 17])
def test_however_many_classes_may_be_read_they_are_named(count: int) -> None:
    """Few are said one by one, many as a list; a class that holds nothing is not said at all."""
    readable = frozenset(range(1, count + 1))
    where = compile_server_filter(
        ScopeAccess(allowed=readable | {99}, readable=readable, hidden=frozenset({50})), None, whole_text
    ).model_dump(exclude_none=True)
    (classes,) = where["must"]
    named = [number for each in classes["should"] for number in each["match"].get("any", [each["match"].get("value")])]

    assert sorted(readable) == named
    assert (count if count <= 16 else 1) == len(classes["should"])
