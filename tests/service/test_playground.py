"""The playground's page and files, and the routes that were made for it."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import UTC, datetime

import pytest

from contexture.adapters.keys import ApiKeys
from contexture.builders.workspace.result import SectionType
from contexture.conversation import HealthState
from contexture.documents import Page, Region, RegionKind
from contexture.engine import replay
from contexture.ledger import Reason, State
from contexture.pages.values import Document
from contexture.service._error_responses import STATUS_BY_CODE
from contexture.service.routes.playground import INDEX_FILE, MEDIA_TYPES, STATIC_FOLDER
from contexture.testing.doubles import NOON
from contexture.types import Scope
from support.service import service_client

ANNA = Scope(tenant="acme", user="anna")
MEMBERS = {"anna": ("support",), "<b>boris": ()}
ASSETS = re.compile(r'(?:href|src)="([^"#]+)"')
IMPORTED = re.compile(r'^import .* from "(.+)";$', re.MULTILINE)


async def test_the_page_and_everything_it_names_is_served_with_strict_headers(client):
    """No script but the service's own may run, nothing may be framed or guessed, and every file is there."""
    page = await client.get("/")
    files = [await client.get(name) for name in ASSETS.findall(page.text)]

    assert len(files) > 5
    for answer in (page, *files):
        assert 200 == answer.status_code, answer.url
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "nosniff" == answer.headers["x-content-type-options"]
        assert "DENY" == answer.headers["x-frame-options"]


async def test_files_are_kept_by_browsers_under_a_hash_and_the_page_is_confirmed(client):
    """A file's address changes with its content, so it never has to be asked for again; the page always is."""
    page = await client.get("/")
    again = await client.get("/", headers={"If-None-Match": page.headers["etag"]})
    script = next(name for name in ASSETS.findall(page.text) if name.endswith("app.js"))
    old = await client.get(script.replace(script.split("/")[2], "0" * 16))

    assert 304 == again.status_code
    assert "no-cache" == again.headers["cache-control"]
    assert "immutable" in (await client.get(script)).headers["cache-control"]
    assert 404 == old.status_code


async def test_nothing_outside_the_folder_is_served(client):
    """Paths that climb, absolute ones and the page itself under a file's address lead nowhere."""
    mark = ASSETS.findall((await client.get("/")).text)[0].split("/")[2]
    for name in (
        "../app.py",
        "%2e%2e/app.py",
        "..%2fapp.py",
        "/etc/passwd",
        "tabs/../../app.py",
        INDEX_FILE,
        "tabs",
        "",
    ):
        answer = await client.get(f"/playground/{mark}/{name}", follow_redirects=True)
        assert 404 == answer.status_code, name
        assert "error" in answer.json()


def test_the_files_ask_nothing_of_other_hosts_and_parse_no_html():
    """No address with a host is in them, none sets HTML, runs text or styles inline, and each import is a file."""
    for path in STATIC_FOLDER.rglob("*.*"):
        text = path.read_text("utf-8")
        assert path.suffix in MEDIA_TYPES
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", text), path
        assert not re.search(r"\sstyle=|\son\w+=|<script>|javascript:", text), path
        for name in IMPORTED.findall(text):
            assert (path.parent / name).is_file(), (path, name)


def words(name):
    """The keys of one dictionary."""
    return set(
        re.findall(r'^  "?([\w.]+)"?:', (STATIC_FOLDER / "words" / f"{name}.js").read_text("utf-8"), re.MULTILINE)
    )


def test_both_languages_say_the_same_things():
    """Every key of one dictionary is in the other, and every key that the page names is in both."""
    pattern = r'(?:\bt\(|word: |label: )"([\w.]+)"'
    used = {key for path in STATIC_FOLDER.rglob("*.js") for key in re.findall(pattern, path.read_text("utf-8"))}

    assert words("en") == words("ru")
    assert used <= words("en")


def test_everything_the_service_may_answer_has_a_word():
    """States, reasons, sections, healths and error codes are shown translated, new ones too."""
    told = [f"state.{each}" for each in State]
    told += [f"reason.{each}{more}" for each in Reason for more in ("", ".long")]
    told += [f"section.{each}" for each in SectionType]
    told += [f"health.{each}" for each in HealthState]
    told += [f"error.{each}" for each in STATUS_BY_CODE]

    assert set() == set(told) - words("en")


async def test_the_page_needs_no_key_and_names_users_only_in_a_demonstration(engine, settings):
    """Where keys exist the page is still shown, everything it asks for is refused, and users' names are escaped."""
    with closing(ApiKeys(settings.home / "keys.sqlite")) as keys:
        keys.add("page", ANNA, now=NOON)
        async with service_client(engine, keys=keys) as closed:
            page = await closed.get("/")
            assert 200 == page.status_code
            assert 'content="{}"' in page.text
            assert 401 == (await closed.post("/v1/context/turn", json={"user_message": "hello"})).status_code
    async with service_client(engine, members=MEMBERS) as demo:
        shown = (await demo.get("/")).text
        assert "&lt;b&gt;boris" in shown
        assert "<b>boris" not in shown


async def test_a_demonstration_can_break_its_memory_service(engine):
    """Broken, recall fails and a turn says so; mended, it is asked again, and the first answer ends the degradation."""
    async with service_client(engine, members=MEMBERS) as demo:
        told = await demo.post("/v1/demo/memory", json={"broken": True})
        turn = (await demo.post("/v1/context/turn", json={"user_message": "pump"})).json()
        assert {"broken": True, "state": "normal"} == told.json()
        assert ["memory"] == [each["source"] for each in turn["degradations"]]
        assert "degraded" == (await demo.get("/v1/demo/memory")).json()["state"]

        await demo.post("/v1/demo/memory", json={"broken": False})
        asked = await demo.post("/v1/context/turn", json={"user_message": "pump"})
        assert "is degraded" in asked.json()["degradations"][0]["reason"]
        assert "normal" == (await demo.get("/v1/demo/memory")).json()["state"]


async def test_nobody_breaks_anything_outside_a_demonstration(client):
    """The route is not there."""
    assert 404 == (await client.post("/v1/demo/memory", json={"broken": True})).status_code
    assert 404 == (await client.get("/v1/demo/memory")).status_code


async def test_a_capsule_comes_as_the_file_that_replays(client):
    """The bytes replay, the name is the build's, and another user's capsule is not found."""
    built = (await client.post("/v1/context/turn", json={"user_message": "How is the pump?"})).json()
    answer = await client.get(f"/v1/builds/{built['build_id']}/capsule")
    other = await client.get(f"/v1/builds/{built['build_id']}/capsule", headers={"X-Contexture-User": "boris"})

    assert built["digest"] == replay(answer.content)[0].digest
    assert f'filename="{built["build_id"]}.json"' in answer.headers["content-disposition"]
    assert 404 == other.status_code


@pytest.fixture
async def paged(engine):
    """One page of two regions that anna alone may read."""
    text = "Head\n\nWrite to anna@example.org."
    boxes = ((RegionKind.HEADING, (0.1, 0.1, 0.9, 0.2), 0, 4), (RegionKind.TEXT, (0.1, 0.3, 0.9, 0.5), 6, len(text)))
    regions = tuple(Region(kind=kind, box=box, start=start, end=end) for kind, box, start, end in boxes)
    page = Page(number=1, text=text, regions=regions)
    document = Document(
        doc_id="0123456789abcdef",
        filename="a.pdf",
        extension="pdf",
        source_path="",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC),
        pages=(page,),
        readers=("user:anna",),
    )
    await engine.pages.add(ANNA, document)
    return "/v1/pages/0123456789abcdef/1/regions"


async def test_regions_say_where_characters_stand_and_not_what_they_are(client, paged):
    """All boxes, or those of the characters asked for; never the text, which nobody has redacted."""
    every = await client.get(paged)
    some = await client.get(paged, params={"start": 8, "end": 12})

    assert [[0.1, 0.1, 0.9, 0.2], [0.1, 0.3, 0.9, 0.5]] == [each["box"] for each in every.json()["regions"]]
    assert [[0.1, 0.3, 0.9, 0.5]] == [each["box"] for each in some.json()["regions"]]
    assert "anna@example.org" not in every.text


async def test_regions_of_pages_that_are_hidden_or_not_there_are_not_found(client, paged):
    """The two are answered alike; offsets that are none are refused."""
    hidden = await client.get(paged, headers={"X-Contexture-User": "boris"})
    missing = await client.get("/v1/pages/nothing/1/regions")

    assert (404, 404) == (hidden.status_code, missing.status_code)
    assert 422 == (await client.get(paged, params={"start": -1})).status_code
