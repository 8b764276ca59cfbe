"""What a file says it quotes, checked against a store of records."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from contexture.answer.citation_check import parse_claims
from contexture.cli.main import app
from contexture.config import Settings
from contexture.documents import Page
from contexture.engine import open_store
from contexture.errors import InvalidRequest, ReplayMismatch
from contexture.pages.values import Document
from contexture.pipeline.masking import EMPTY_MASK, SecretMask
from contexture.pipeline.redaction import Hashed, Masked, Placeholders
from contexture.retrieval.citations import Quote, QuoteChecker
from contexture.sync import open_sync
from contexture.testing.doubles import NOON, FailingRedactor, WordRedactor
from contexture.types import Citation, Collection, Record, Scope

TEXT = "One fish. Two swordfish, blue. Three fish swim. Four fish sleep."
RECORD = Record(id="r", text=TEXT, acl=("public",), source="swordfish [1].pdf")
FILES = ("<WORD_3> [1].pdf", "<WORD_3> 1 .pdf", "other.pdf")
SCOPE = Scope.local()


class Store:
    """One collection of one record."""

    async def collections(self, scope):
        """The one there is."""
        return [Collection(name="things")]

    async def get(self, scope, collection, ids):
        """The record."""
        return [RECORD] if "r" in ids else []


def cited(start: int = 0, end: int = len(TEXT), **told) -> Citation:
    """Characters of the record."""
    return Citation(
        **{"collection": "things", "record_id": "r", "title": "", "hash": RECORD.hash, **told}, start=start, end=end
    )


async def problems(*quotes, redactor=None, operator=None, mask=EMPTY_MASK):
    """What does not hold, in words."""
    check = QuoteChecker(
        stored=Store(),
        redactor=redactor or WordRedactor(("swordfish",)),
        operator=operator or Placeholders(),
        mask=mask,
    )
    return [problem.reason for problem in await check.find_problems(SCOPE, quotes)]


def quote(text: str | None, *citations: Citation) -> Quote:
    """A text and where it says it comes from."""
    return Quote(name="it", text=text, citations=citations or (cited(),))


@pytest.mark.parametrize(
    "shown",
    [
        "One fish. Two <WORD_1>, blue. Three fish swim. Four fish sleep.",
        "One fish. Two <WORD_7>, blue.",
        "One fish. … Four fish sleep.",
        "… Three fish swim. …",
        "One   fish.\nTwo <WORD_1>, blue.",
        "",
        None,
    ],
)
async def test_what_stands_there_holds(shown):
    """Whole, shortened, with other numbers in its placeholders, or nothing of it."""
    assert [] == await problems(quote(shown))


@pytest.mark.parametrize(
    "shown",
    ["One swordfish.", "Two swordfish, blue.", "Four fish sleep. … One fish.", "Two <EMAIL_1>, blue.", "Five fish."],
)
async def test_what_does_not_stand_there_is_found_out(shown):
    """Changed, unredacted, out of order, hidden under another label, or made up."""
    assert ["it shows"] == [reason[:8] for reason in await problems(quote(shown))]


async def test_each_run_is_compared_with_its_own_place():
    """A quote of two runs holds where they stand, and not elsewhere."""
    first, last = cited(0, 9), cited(48, len(TEXT))

    assert [] == await problems(quote("One fish. … Four fish sleep.", first, last))
    assert await problems(quote("One fish. … Three fish swim.", first, last))


@pytest.mark.parametrize(
    ("citation", "reason"),
    [
        (cited(record_id="x"), "no record 'x' can be read"),
        (cited(collection="nope"), "no record 'r' can be read in 'nope'"),
        (cited(hash="0" * 64), "has changed since it was cited"),
        (cited(5, 900), "are not in record"),
        (cited(9, 9), "are not in record"),
    ],
)
async def test_citations_that_do_not_resolve_are_named(citation, reason):
    """Gone, changed, or beyond the end."""
    assert [True] == [reason in each for each in await problems(quote(None, citation))]


@pytest.mark.parametrize(
    ("operator", "shown"), [(Masked(keep=4), "Two ****, blue."), (Hashed(salt=b"s"), "Two <WORD:")]
)
async def test_other_operators_are_done_again_too(operator, shown):
    """Masks and hashes are equal in every build, so they are compared letter for letter."""
    hidden = operator.hide("WORD", "swordfish")

    assert [] == await problems(quote(f"Two {hidden}, blue."), operator=operator)
    assert f"Two {hidden}, blue.".startswith(shown[:8])


async def test_known_secrets_are_masked_before_comparing():
    """What was shown masked still holds."""
    assert [] == await problems(
        quote("One fish. Two <WORD_1>, blue. §§secret(K)."), mask=SecretMask({"K": "Three fish swim"})
    )


async def test_a_text_that_cannot_be_redacted_cannot_be_compared():
    """That is a problem, not a pass."""
    found = await problems(quote("One fish."), redactor=FailingRedactor("fish"))

    assert ["cannot be compared" in reason for reason in found] == [True]


# --- files ---


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not JSON"),
        (b"[1]", "expected a JSON object"),
        (b"{}", "nothing to verify"),
        (b'{"citations": [{"memory_id": "m"}]}', "nothing to verify"),
        (b'{"citations": [{"hash": 3}]}', "cannot be read"),
        (b"\xff\xfe{}", "not JSON"),
    ],
)
def test_files_that_cite_nothing_are_refused(data, message):
    """What is no JSON object, and what names no characters of a record."""
    with pytest.raises(InvalidRequest, match=message):
        parse_claims(data)


def test_a_context_must_show_its_sources_and_an_answer_name_them():
    """Both can be told from the file alone."""
    row = {"filename": "a.pdf", "page": 1, "markdown_content": "Fish.", "citations": [json.loads(_packed(cited()))]}
    context = {"formatted_text": "[Document 1: a.pdf, Page 1]\nFish.", "sources": [row]}
    answer = {"answer": "Fish [1]. Birds [2].", "sources": [row]}

    assert () == parse_claims(json.dumps(context).encode()).faults
    assert parse_claims(
        json.dumps({**context, "formatted_text": "[Document 1: a.pdf, Page 1]\nBirds."}).encode()
    ).faults
    assert ("the answer cites '[2]', but there are 1 sources",) == parse_claims(json.dumps(answer).encode()).faults


def test_a_source_must_cite_the_page_that_it_says_it_is():
    """A text without a citation, and one of another page, can be told from the file alone."""
    citation = json.loads(_packed(cited(record_id="d:1", page=1)))
    row = {"doc_id": "d", "filename": "a.pdf", "page": 1, "markdown_content": "Fish.", "citations": [citation]}

    def faults(**changes):
        told = {"sources": [{**row, **changes}], "citations": [citation]}
        return parse_claims(json.dumps(told).encode()).faults

    assert () == faults() == faults(citations=[], markdown_content=" ")
    assert ("sources[1] has text but no citation",) == faults(citations=[])
    assert ("sources[1] is 'd:2' but cites page 1 and record 'd:1'",) == faults(page=2)
    assert ("sources[1] is 'e:1' but cites page 1 and record 'd:1'",) == faults(doc_id="e")


async def test_a_source_must_name_the_file_that_it_cites():
    """The name is compared as it may be shown, as it stands or as a label."""
    named = [Quote(name="it", text="One fish.", citations=(cited(),), file=name) for name in FILES]

    assert [] == await problems(*named[:2])
    assert ["it is not from the file 'other.pdf'"] == await problems(named[2])


def _packed(citation: Citation) -> bytes:
    import msgspec

    return msgspec.json.encode(citation)


# --- the command line ---


@pytest.fixture(scope="module")
def home(lasting_folder):
    """A store with one document of two pages."""
    folder = lasting_folder()
    text = "Solar power lowers bills by 30 percent. Mail anna@example.org about it. " + "Roofs are warm. " * 40
    pages = tuple(Page(number=at, text=f"Page {at}. {text}") for at in (1, 2))
    document = Document(
        doc_id="sun", filename="sun.pdf", extension="pdf", source_path="sun.pdf", timestamp=NOON, pages=pages
    )

    async def fill():
        async with open_store(Settings(home=folder)) as engine:
            await engine.pages.add(engine.scope, document, now=NOON)

    asyncio.run(fill())
    return str(folder)


def run(home, *words, stdin=None):
    """What a command line prints, and how it ends."""
    return CliRunner().invoke(app, [*words, "--home", home], input=stdin)


def test_what_is_built_on_the_command_line_can_be_verified(home, tmp_path):
    """A context that comes through a pipe, and a capsule in a file, which also replays."""
    capsule = tmp_path / "capsule.json"
    asked = ["How much does solar power lower bills?", "--json", "--now", NOON.isoformat()]
    built = run(home, "build", "research", *asked, "--max-tokens", "90", "--capsule", str(capsule))
    piped = run(home, "cite", "verify", "-", stdin=built.stdout)
    filed = run(home, "cite", "verify", str(capsule))

    assert json.loads(built.stdout)["truncated"]
    assert "30 percent. Mail" in json.loads(built.stdout)["formatted_text"]
    assert [(0, True), (0, True)] == [(each.exit_code, "all hold" in each.stdout) for each in (piped, filed)]
    assert 0 == CliRunner().invoke(app, ["replay", str(capsule)]).exit_code
    changed = capsule.read_text().replace("30 percent", "80 percent")
    with pytest.raises(ReplayMismatch):
        parse_claims(changed.encode())


@pytest.mark.parametrize(
    ("limits", "pages"),
    [
        ((), [1, 2]),
        (("--page", "2"), [2]),
        (("--document", "sun.pdf", "--page", "2", "--page", "7"), [2]),
        (("--document", "sun", "--where", '{"equals": ["page", 1]}'), [1]),
        (("--document", "moon.pdf"), []),
    ],
)
def test_a_build_is_restricted_to_named_documents_and_pages(home, limits, pages):
    """A document is named by its file or its id; a filter restricts further."""
    built = run(home, "build", "research", "How much does solar power lower bills?", "--json", *limits)

    assert pages == sorted(each["page"] for each in json.loads(built.stdout)["sources"])


def test_what_does_not_hold_is_listed_and_fails(home):
    """One line a problem, or an object, and an exit code that a script can see."""
    told = {"citations": [json.loads(_packed(cited(collection="pages", record_id="sun:1")))]}
    done = run(home, "cite", "verify", "-", stdin=json.dumps(told))
    as_json = run(home, "cite", "verify", "-", "--json", stdin=json.dumps(told))

    assert 1 == done.exit_code == as_json.exit_code
    assert "does not hold: record 'sun:1' has changed since it was cited" in done.stdout
    assert not json.loads(as_json.stdout)["holds"]


def test_people_are_shown_the_answer_and_its_sources(home):
    """A table of sources behind the answer, and how it was made."""
    answer = run(home, "ask", "--research", "How much does solar power lower bills?")

    assert "Solar power lowers bills by 30 percent. [1]" in answer.stdout
    assert "sun.pdf" in answer.stdout
    assert "extractive" in answer.stdout


def test_the_same_without_an_event_loop(home):
    """Contexts and answers for code that has none, kept for `explain`."""
    with open_sync(home) as engine:
        built = engine.build_research("solar power bills", num_results=1, now=NOON)
        answer = engine.ask_research("solar power bills", now=NOON)
        # Both pages say the same, so that which of them comes first depends on the last bits of their vectors.
        [cited_page] = [each.record_id for each in built.citations]
        entry = engine.explain(built.build_id, cited_page).entry

    assert cited_page in {"sun:1", "sun:2"}
    assert answer.context.sources
    assert "kept" == entry.state


def test_a_folder_without_a_store_says_so(tmp_path):
    """Before anything is opened."""
    for words in (["build", "research", "x"], ["ask", "--research", "x"]):
        done = run(str(tmp_path / "none"), *words)
        assert (2, "there is no store" in done.output) == (done.exit_code, True)
