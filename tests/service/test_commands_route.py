"""`POST /v1/commands` and `contexture ask`: the same answer over HTTP, in Python and in the terminal."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from contexture.cli._output import console
from contexture.cli.ask import render_command_answer
from contexture.cli.main import app
from contexture.service.envelope import encode_json
from contexture.testing.doubles import NOON
from support.news_engine import ARTICLES, news_engine
from support.service import service_client

ROUTE = "/v1/commands"
STRICT = {"feature_flags": {"relax_filters_on_empty": False, "fallback_rerank_false_on_empty": False}}
LINE = '/synthesize topic="ships waiting at the port" window=3d'


@pytest.fixture
async def engine(new_folder):
    """An engine with the news of a strike."""
    async with news_engine(new_folder()) as found:
        yield found


@pytest.fixture
async def client(engine):
    """A client of a service over it."""
    async with service_client(engine) as found:
        yield found


async def test_the_route_answers_what_python_does(engine, client):
    """Over HTTP the answer has the same bytes."""
    executed = await engine.execute.run({"raw_command": LINE}, scope=engine.scope, now=NOON)
    sent = await client.post(ROUTE, json={"raw_command": LINE}, headers={"X-Contexture-Now": NOON.isoformat()})

    assert 200 == sent.status_code
    assert encode_json(executed.to_dict()) == sent.content


async def test_an_answer_has_its_documented_fields(client):
    """Statements have numbers, and numbers have articles."""
    found = (await client.post(ROUTE, json={"raw_command": LINE})).json()

    assert ("/synthesize", "extractive", None) == (found["command"], found["mode"], found["model"])
    assert {"agreements", "conflicts", "updates", "gaps"} == found["details"].keys()
    first = found["evidence"][0]
    assert {"article_id", "date", "url", "citation", "number", "text", "title", "source", "lang"} == first.keys()
    assert {"start", "end", "hash"} <= first["citation"].keys()
    assert found["answer"].startswith("Where the sources")


@pytest.mark.parametrize(
    ("body", "status", "code", "said"),
    [
        ({"raw_command": "/aks what"}, 422, "VALIDATION_FAILED", "/ask"),
        ({"raw_command": "/ask window=5h"}, 422, "VALIDATION_FAILED", "window"),
        ({"raw_command": "/memory store"}, 422, "VALIDATION_FAILED", "nothing to store"),
        ({"raw_command": 7}, 422, "VALIDATION_FAILED", "raw_command"),
        ({}, 422, "VALIDATION_FAILED", "raw_command"),
        ({"raw_command": "/ask", "surprise": 1}, 422, "VALIDATION_FAILED", "surprise"),
        ({"raw_command": "/ask qwxzv sources=nowhere.example", "env": STRICT}, 404, "NO_DATA", "No documents"),
    ],
)
async def test_bad_input_is_answered_in_our_shape(client, body, status, code, said):
    """What is wrong is said, with a code and whether to try again."""
    answer = await client.post(ROUTE, json=body)
    told = answer.json()

    assert (status, code) == (answer.status_code, told["error"]["code"])
    assert said in told["error"]["user_message"]
    assert told["meta"]["correlation_id"]


@pytest.mark.parametrize("path", ["/v1/commands", "/v1/context/command"])
@pytest.mark.parametrize("body", [b"{bad", b"[]", b"", b'{"raw_command": 7}'])
async def test_a_malformed_body_has_the_id_of_an_error_of_commands(client, path, body):
    """The id in the body and in the header is one, and of the form that errors of commands have."""
    answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
    name = answer.json()["meta"]["correlation_id"]

    assert 422 == answer.status_code
    assert re.fullmatch(r"ctx-error-[0-9a-f]{8}", name)
    assert name == answer.headers["X-Correlation-Id"]


async def test_another_users_rights_decide(client):
    """Each caller gets the answer that their rights allow."""
    other = await client.post(ROUTE, json={"raw_command": LINE}, headers={"X-Contexture-Tenant": "other"})

    assert 404 == other.status_code


async def test_the_report_shows_statements_evidence_and_how(engine, capsys):
    """A terminal shows each statement with its numbers, the articles behind them, and who wrote it."""
    executed = await engine.execute.run({"raw_command": LINE}, scope=engine.scope, now=NOON)
    for part in render_command_answer(json.loads(encode_json(executed.to_dict()))):
        console().print(part)
    shown = capsys.readouterr().out

    assert all(text in shown for text in ("Where the sources differ", "[1]", "herald.example", "extractive"))


def test_the_command_line_executes_what_is_typed(new_folder):
    """`ask` takes a command or a bare question, and says what is wrong with neither."""
    home = new_folder()
    rows = "\n".join(
        json.dumps({"article_id": each.article_id, "title": each.title, "text": each.text, "source": each.source,
                    "url": each.url, "published": NOON.isoformat()})
        for each in ARTICLES
    )  # fmt: skip
    (home / "news.jsonl").write_text(rows)
    options = ["--home", str(home / "store")]
    loaded = CliRunner().invoke(app, ["ingest", "--as", "articles", str(home / "news.jsonl"), *options])
    asked = ["--now", NOON.isoformat(), *options]
    found = CliRunner().invoke(
        app, ["ask", "/ask who leads Norvik Lines?", "--json", *asked], env={"CONTEXTURE_GRAPH_NAMES": "phrases"}
    )
    wrong = CliRunner().invoke(app, ["ask", "/aks", "--json", *asked])

    assert 0 == loaded.exit_code, loaded.output
    assert "Jonas Berg leads Norvik Lines." in found.stdout
    assert (2, "VALIDATION_FAILED") == (wrong.exit_code, json.loads(wrong.stdout)["error"]["code"])
