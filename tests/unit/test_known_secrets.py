"""Known secret values never leave a search or a plain query: not in texts, titles, labels, sources or questions."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

from contexture import QueryRequest, Record, Settings, wiring
from contexture.capsule import pack_capsule
from contexture.cli.main import app
from contexture.pipeline.masking import SecretMask, SecretMaskCache, mask_candidate
from contexture.types import PUBLIC, Candidate, Span
from support.service import service_client, small_engine

VALUE = "violet-hinge-4417"
BRACED = "q<7>{z}|8-winter"
RECORDS = (
    Record(
        id="pump",
        title=f"Pump {VALUE}",
        text=f"The pump opens with {VALUE} at night. Mail anna@example.org about it.",
        source=f"notes-{VALUE}",
        acl=(PUBLIC,),
    ),
    Record(id="braced", title=f"Pump of {BRACED}", text="This pump hums.", acl=(PUBLIC,)),
    Record(id="long", title=f"Pump {'x' * 170} {VALUE}", text="This pump is long.", acl=(PUBLIC,)),
)


class Failing:
    """A source of secrets that cannot be reached."""

    def known_values(self) -> Mapping[str, str]:
        """Nothing is known about what must be hidden."""
        raise TimeoutError("the vault does not answer")


def failing(_: Settings) -> Failing:
    """What is wired where the source of secrets is out of reach."""
    return Failing()


@pytest.fixture
def settings(new_folder: Callable[[], Path]) -> Settings:
    """Settings that name a file of two secrets."""
    home = new_folder()
    file = home / "secrets.env"
    file.write_text(f"DOOR={VALUE}\nBRACED='{BRACED}'\n")
    file.chmod(0o600)
    return Settings(home=home, secrets_file=file)


def reveals(shown: object) -> bool:
    """Whether a text, or anything that can be printed, holds a value or what a label makes of it."""
    return any(part in str(shown) for part in (VALUE, BRACED, "violet", "winter"))


async def test_search_shows_placeholders(settings: Settings) -> None:
    """In the text, the title, the source, the citation and the question; personal data is still redacted."""
    async with small_engine(settings) as engine:
        await engine.add(RECORDS)
        result = await engine.search(f"pump {VALUE}")
        pump = next(each for each in result.found if each.record_id == "pump")

    assert not reveals(result)
    assert "pump §§secret(DOOR)" == result.question
    assert "The pump opens with §§secret(DOOR) at night. Mail <EMAIL_1> about it." == pump.text
    assert ("Pump §§secret(DOOR)", "notes-§§secret(DOOR)") == (pump.title, pump.source)
    assert pump.citation is not None
    assert "Pump §§secret(DOOR)" == pump.citation.title


async def test_a_context_and_its_capsule_show_placeholders(settings: Settings) -> None:
    """The system part, the material with its labels, the question, the ledger and what is kept on disk."""
    async with small_engine(settings) as engine:
        await engine.add(RECORDS)
        request = QueryRequest(query=f"Which pump has {VALUE}?", system=f"Never say {VALUE}.", max_tokens=900)
        built = await engine.build(request)
        kept = await engine.capsule(built.context.build_id)

    assert not reveals((built.context, built.ledger, pack_capsule(kept).decode()))
    assert "Which pump has §§secret(DOOR)?" == built.context.messages[2]["content"]
    assert "(Pump §§secret(DOOR))" in built.context.text
    assert "(Pump of §§secret(BRACED))" in built.context.text


async def test_the_embedder_never_reads_a_secret(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The question is masked before it is searched for, because an embedder may be somebody else's service."""
    asked: list[str] = []
    async with small_engine(settings) as engine:
        await engine.add(RECORDS)
        search = engine.searcher.search

        async def noted(scope: object, collection: str, question: str, **more: object) -> object:
            asked.append(question)
            return await search(scope, collection, question, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(engine.searcher, "search", noted)
        await engine.search(f"pump {VALUE}")
        await engine.build(f"pump {VALUE}")

    assert ["pump §§secret(DOOR)"] * 2 == asked


async def test_nothing_is_shown_while_the_secrets_are_unknown(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source of secrets that fails makes the search and the build fail, whatever they would have found."""
    monkeypatch.setattr(wiring, "secrets", failing)
    async with small_engine(settings) as engine:
        await engine.add(RECORDS)
        with pytest.raises(TimeoutError):
            await engine.search("pump")
        with pytest.raises(TimeoutError):
            await engine.build("pump")


async def test_the_service_masks(settings: Settings) -> None:
    """Both routes, and the build that is kept."""
    async with small_engine(settings) as engine, service_client(engine) as client:
        await engine.add(RECORDS)
        found = await client.post("/v1/search", json={"query": f"pump {VALUE}"})
        built = await client.post("/v1/context/query", json={"query": f"pump {VALUE}"})
        kept = await client.get(f"/v1/builds/{built.json()['build_id']}")

    assert [200, 200, 200] == [found.status_code, built.status_code, kept.status_code]
    assert not reveals((found.text, built.text, kept.text))
    assert "pump §§secret(DOOR)" == found.json()["query"]


def test_the_command_line_masks(new_folder: Callable[[], Path]) -> None:
    """Values of the environment too, in what `search` and `build query` print, for people and as JSON."""
    folder = new_folder()
    (folder / "pump.md").write_text(f"# Pump {VALUE}\n\nThe pump opens with {VALUE} at night.")
    env = {"CONTEXTURE_HOME": str(folder / "home"), "CONTEXTURE_SECRETS_PREFIX": "HIDE_", "HIDE_DOOR": VALUE}
    question = f"pump {VALUE}"
    assert 0 == CliRunner().invoke(app, ["ingest", str(folder / "pump.md")], env=env).exit_code
    for command in (["search", question], ["build", "query", question]):
        for words in (command, [*command, "--json"]):
            result = CliRunner().invoke(app, words, env=env)

            assert 0 == result.exit_code
            assert "§§secret(DOOR)" in result.output
            assert not reveals(result.output)


def test_a_value_that_a_passage_cuts_is_masked() -> None:
    """Its end in front, its beginning behind, and a passage from its middle; a few equal letters are no secret."""
    value = "".join(chr(ord("a") + at * 7 % 26) for at in range(60))
    mask = SecretMask({"KEY": value})

    assert "§§secret(KEY) is the key" == mask.mask_passage(f"{value[20:]} is the key")
    assert "the key is §§secret(KEY)" == mask.mask_passage(f"the key is {value[:40]}")
    assert "§§secret(KEY)" == mask.mask_passage(value[10:50])
    assert "a §§secret(KEY) b" == mask.mask_passage(f"a {value} b")
    assert f"{value[-4:]} and {value[:4]}" == mask.mask_passage(f"{value[-4:]} and {value[:4]}")
    assert "short" == mask.mask_passage("short")


@pytest.mark.parametrize("value", ["abababababab", "aaaaaaaaaaaa", "abcabcabcabcab"])
def test_a_value_that_repeats_itself_is_masked_whole(value: str) -> None:
    """An edge that holds all of it is not taken for a part of it."""
    mask = SecretMask({"KEY": value})

    assert "§§secret(KEY) x" == mask.mask_passage(f"{value} x")
    assert "x §§secret(KEY)" == mask.mask_passage(f"x {value}")


KEY = "Violet-hinge/4417?é"


@pytest.mark.parametrize(
    "written",
    [
        KEY.upper(),
        KEY.lower(),
        quote(KEY, safe=""),
        quote(KEY).lower(),
        "".join(f"%{byte:02X}" for byte in KEY.encode()),
        f"{KEY[:7]}\n{KEY[7:]}",
        f"{KEY[:7]}  \r\n  {KEY[7:12]}\n{KEY[12:]}",
        f"{KEY[:7]}\\n{KEY[7:]}",
    ],
    ids=ascii,
)
def test_a_value_is_masked_however_it_is_written(written: str) -> None:
    """In any case, percent-encoded and wrapped over lines; the text around it stays."""
    assert "use §§secret(KEY) now" == SecretMask({"KEY": KEY}).mask(f"use {written} now")


@pytest.mark.parametrize("before", ["", "u", "us", "user:"])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("width", [10, 200])
def test_a_value_inside_base64_is_masked(before: str, encode: Callable[[bytes], bytes], width: int) -> None:
    """At every place in a group of three bytes, in both alphabets, also wrapped: nothing of it can be decoded."""
    value = "correct?horse>battery"
    encoded = encode(f"{before}{value}~tail".encode()).decode()
    wrapped = "\n".join(encoded[at : at + width] for at in range(0, len(encoded), width))
    shown = SecretMask({"KEY": value}).mask(f"Authorization: Basic {wrapped}")

    assert "§§secret(KEY)" in shown
    assert not any(part in shown.replace("\n", "") for part in (encoded[8:14], encoded[14:20]))


def test_a_value_with_spaces_may_wrap_at_a_space() -> None:
    """The line end stands for the space."""
    assert "§§secret(KEY)!" == SecretMask({"KEY": "correct horse battery"}).mask("correct\n  horse battery!")


def test_short_values_are_masked_in_any_case_and_nothing_else() -> None:
    """Letters that meet over a line end, or in base64, are no value of a few letters."""
    mask = SecretMask({"KEY": "abcde"})

    assert "§§secret(KEY)" == mask.mask("ABCDE")
    assert "ab\ncde YWJjZGU=" == mask.mask("ab\ncde YWJjZGU=")


def test_an_edge_of_a_passage_cuts_an_encoded_value() -> None:
    """Its end in front and its beginning behind are masked in other spellings too."""
    value = "".join(chr(ord("a") + at * 7 % 26) for at in range(60))
    mask = SecretMask({"KEY": value})

    assert "§§secret(KEY) is the key" == mask.mask_passage(f"{value[20:].upper()} is the key")
    assert "the key is §§secret(KEY)" == mask.mask_passage(f"the key is {value[:20]}\n{value[20:40]}")


def test_what_was_computed_for_a_masked_text_is_dropped() -> None:
    """Spans, sentences and token counts are of the text that held the value; others stay."""
    plain = Candidate(id="a", key="a", text="clean", redactions=(Span(0, 2, "X"),), tokens={"o": 1}, simhash=7)
    secret = Candidate(id="b", key="b", text=f"so {VALUE}", sentences=((0, 3),), redactions=(), tokens={"o": 9})
    done = mask_candidate(secret, SecretMask({"DOOR": VALUE}))

    assert plain is mask_candidate(plain, SecretMask({"DOOR": VALUE}))
    assert ("so §§secret(DOOR)", (), None, {}) == (done.text, done.sentences, done.redactions, done.tokens)


def test_a_mask_is_made_once_until_the_secrets_change() -> None:
    """A source may change its mind between two builds."""

    class Changing:
        values: Mapping[str, str] = {"A": "first-value"}

        def known_values(self) -> Mapping[str, str]:
            """What is known now."""
            return self.values

    source = Changing()
    known = SecretMaskCache(source)
    before = known.current()
    again = known.current()
    source.values = {"A": "second-value"}

    assert before is again
    assert "§§secret(A)" == known.current().mask("second-value")
    assert "first-value" == SecretMaskCache().current().mask("first-value")
