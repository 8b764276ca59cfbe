"""Who asks: keys decide alone, headers are believed only without keys or with the local token."""

from __future__ import annotations

from datetime import timedelta

import httpx
import pytest

from contexture import Settings
from contexture.adapters.keys import ApiKeys
from contexture.service.auth import is_loopback
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.service import service_client, small_engine

QUERY = {"query": "pump"}


@pytest.fixture
def keys(settings):
    """The keys of the store."""
    found = ApiKeys(settings.home / "keys.sqlite")
    yield found
    found.close()


@pytest.fixture
def anna(keys):
    """What anna presents, and her key."""
    made, token = keys.add("laptop", Scope(tenant="acme", user="anna", groups=("sales",)), now=NOON)
    return made, {"Authorization": f"Bearer {token}"}


async def status(client, headers, body=None):
    """The status of a search with these headers."""
    return (await client.post("/v1/search", json=body or QUERY, headers=headers)).status_code


async def test_a_key_acts_as_its_owner(engine, keys, anna):
    """Without naming anyone, anna finds what anna may read."""
    async with service_client(engine, keys=keys) as client:
        found = await client.post("/v1/search", json=QUERY, headers=anna[1])

    assert {"pump", "valve"} == {row["citation"]["record_id"] for row in found.json()["results"]}


@pytest.mark.parametrize(
    "claim",
    [
        {"X-Contexture-Tenant": "other"},
        {"X-Contexture-User": "boris"},
        {"X-Contexture-Groups": "finance"},
        {"X-Contexture-Groups": "sales, finance"},
        {"x-contexture-user": "%62oris"},
        {"X-Contexture-Now": "2020-01-01"},
    ],
)
async def test_a_key_cannot_claim_more_by_headers(engine, keys, anna, claim):
    """A header that names another tenant, user, group or clock is refused, not ignored."""
    async with service_client(engine, keys=keys) as client:
        answer = await client.post("/v1/context/query", json=QUERY, headers={**anna[1], **claim})

    assert (403, "FORBIDDEN") == (answer.status_code, answer.json()["error"]["code"])


async def test_a_key_may_name_its_owner(engine, keys, anna):
    """Saying what the key says anyway is no offence."""
    claim = {"X-Contexture-Tenant": "acme", "X-Contexture-User": "anna", "X-Contexture-Groups": "sales"}
    async with service_client(engine, keys=keys) as client:
        assert 200 == await status(client, {**anna[1], **claim})


async def test_revoked_expired_and_unknown_keys_are_answered_alike(engine, keys, anna):
    """Whoever presents one learns nothing but that it does not work, even while the service runs."""
    short = keys.add("old", Scope(tenant="acme", user="anna"), now=NOON - timedelta(days=2), expires=NOON)[1]
    presented = [
        anna[1]["Authorization"],
        f"Bearer {short}",
        f"Bearer {short[:-1]}",
        "Bearer x",
        "Basic eA==",
        "Bearer",
    ]
    presented.append(f"Bearer ctx_000000000000_{'a' * 43}")
    async with service_client(engine, keys=keys) as client:
        before = await status(client, anna[1])
        keys.revoke(anna[0].id, now=NOON)
        answers = [await client.post("/v1/search", json=QUERY, headers={"Authorization": each}) for each in presented]

    assert 200 == before
    assert {401} == {each.status_code for each in answers}
    assert 1 == len({each.json()["error"]["user_message"] for each in answers})
    assert {"Bearer"} == {each.headers["www-authenticate"] for each in answers}


async def test_two_authorizations_are_none(engine, keys, anna):
    """Which of two headers counts must not depend on who reads them first."""
    twice = [("Authorization", anna[1]["Authorization"]), ("Authorization", "Bearer x")]
    async with service_client(engine, keys=keys) as client:
        assert 401 == await status(client, httpx.Headers(twice))
        assert 401 == await status(client, httpx.Headers(twice[::-1]))


async def test_the_first_key_closes_the_door_of_a_demonstration(engine, keys):
    """Without keys anyone on this machine is answered there; from the first key on nobody without one is."""
    async with service_client(engine, keys=keys, members={}) as client:
        before = await status(client, {})
        made, _ = keys.add("first", Scope(tenant="acme", user="anna"), now=NOON)
        after = await status(client, {})
        keys.revoke(made.id, now=NOON)

        assert (200, 401, 401) == (before, after, await status(client, {}))


async def test_without_a_demonstration_nobody_is_answered_without_a_key(engine, keys):
    """A service that has no key yet answers the owner's command line, and nobody else."""
    async with service_client(engine, keys=keys, token="local-token") as client:  # noqa: S106 - the case
        told = [await status(client, each) for each in ({}, {"Authorization": "Bearer local-token"})]

    assert [401, 200] == told


async def test_a_name_that_only_leads_here_is_refused_without_keys(engine):
    """A web page whose name was pointed at loopback cannot use a service without keys."""
    async with service_client(engine, url="http://rebound.example") as client:
        assert 403 == await status(client, {})


async def test_a_service_on_a_network_needs_keys(settings):
    """Even with none made, nobody is let in who presents nothing."""
    async with small_engine(Settings(home=settings.home, host="0.0.0.0")) as engine, service_client(engine) as client:  # noqa: S104 - the case
        assert 401 == await status(client, {})


async def test_the_local_token_may_say_who_asks(engine, keys, anna):
    """The command line acts for whom it is told to, also where keys are needed."""
    async with service_client(engine, keys=keys, token="local-token") as client:  # noqa: S106 - the case
        headers = {"Authorization": "Bearer local-token", "X-Contexture-User": "boris"}
        found = await client.post("/v1/search", json=QUERY, headers={**headers, "X-Contexture-Groups": "finance"})
        wrong = await status(client, {"Authorization": "Bearer local-toke"})

    assert {"pump", "bill"} == {row["citation"]["record_id"] for row in found.json()["results"]}
    assert 401 == wrong


async def test_names_beyond_latin_are_written_percent_encoded(client):
    """A header holds a name of any script."""
    await client.post(
        "/v1/ingest/documents",
        json={"records": [{"id": "h", "text": "a sieve", "acl": ["user:Аня"]}]},
    )
    headers = {"X-Contexture-User": "%D0%90%D0%BD%D1%8F"}
    found = await client.post("/v1/search", json={"query": "sieve"}, headers=headers)

    assert ["h"] == [row["citation"]["record_id"] for row in found.json()["results"]]


async def test_known_members_have_their_groups(engine):
    """In the demonstration a user need not name the groups everyone knows them by."""
    async with service_client(engine, members={"boris": ("finance",)}) as client:
        found = await client.post("/v1/search", json=QUERY, headers={"X-Contexture-User": "boris"})

    assert {"pump", "bill"} == {row["citation"]["record_id"] for row in found.json()["results"]}


async def test_health_readiness_and_metrics_need_no_key(engine, keys, anna):
    """Those who watch over a service need none of its data."""
    async with service_client(engine, keys=keys) as client:
        answers = [await client.get(path) for path in ("/health", "/ready", "/metrics", "/openapi.json")]

    assert [200, 503, 200, 200] == [each.status_code for each in answers]


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LocalHost", True),
        ("0.0.0.0", False),  # noqa: S104 - compared, not bound
        ("::", False),
        ("192.168.0.1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback_is_told_apart(host, here):
    """Only addresses of this machine are loopback."""
    assert here is is_loopback(host)


@pytest.mark.parametrize("claim", [{"tenant_id": "other"}, {"user_id": "boris"}])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/context/turn", {"user_message": "pump?", "session_id": "s"}),
        ("/v1/chat", {"message": "pump?", "session_id": "s"}),
        ("/memory/remember", {"text": "the pump leaks"}),
        ("/memory/recall", {"query": "pump"}),
        ("/recall", {"query": "pump"}),
        ("/context/evaluate", {"query": "pump"}),
    ],
)
async def test_a_key_cannot_claim_more_by_a_body(engine, keys, anna, path, body, claim):
    """A body that names another tenant or user is refused on every route that has such a field."""
    async with service_client(engine, keys=keys) as client:
        own = await client.post(path, json=body, headers=anna[1])
        answer = await client.post(path, json={**body, **claim}, headers=anna[1])

    assert own.status_code < 300, own.text
    assert (403, "FORBIDDEN") == (answer.status_code, answer.json()["error"]["code"])
