"""The command line over one loaded store: answers, exit codes, and no tracebacks."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contexture.answer.grounding import UnsupportedReason
from contexture.cli.ask import render_answer
from contexture.cli.demo import corpus_folder
from contexture.cli.main import app
from contexture.types import Json

LOADER = ("--tenant", "demo", "--user", "loader", "--group", "support", "--group", "finance")
ANNA = ("--tenant", "demo", "--user", "anna", "--group", "support")
QUESTION = "reset a gauge after a power cut"
DEMO = ("--tenant", "demo", "--user", "demo")


def run(*words, stdin=None, env=None):
    """The result of a command line; an exception that is not an exit is a test failure."""
    result = CliRunner().invoke(app, [str(word) for word in words], input=stdin, env=env)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def answer(*words, stdin=None) -> dict[str, Json]:
    """The JSON a command prints when it succeeds."""
    result = run(*words, "--json", stdin=stdin)
    assert (0, "") == (result.exit_code, result.stderr)
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A store with the sample corpus."""
    folder = tmp_path_factory.mktemp("cli") / "home"
    assert run("ingest", corpus_folder(), "--home", folder, *LOADER).exit_code == 0
    return folder


@pytest.fixture
def built(home):
    """A small context for the public user, as JSON."""
    return answer("build", "query", QUESTION, "--max-tokens", 300, "--home", home, *DEMO)


def test_ingest_again_changes_nothing(home):
    """Loading the same folder twice adds nothing the second time."""
    found = answer("--home", home, "ingest", corpus_folder(), *LOADER)

    assert (33, 0, 33, 0, [], []) == tuple(found.values())


def test_ingest_prints_a_count_and_its_problems(tmp_path):
    """People read one line on standard output and the problems on standard error."""
    (tmp_path / "a.jsonl").write_text('{"id": "1", "text": "a pump"}\n{\n')
    result = run("ingest", tmp_path / "a.jsonl", tmp_path / "none", "--home", tmp_path / "home")

    assert result.exit_code == 1
    assert result.stdout == "1 read, 1 added, 0 unchanged, 0 duplicates, 2 failed\n"
    assert ["error: a.jsonl:2: not JSON", "error: none: cannot be read"] == [
        line[: len(start)]
        for line, start in zip(
            result.stderr.splitlines(), ("error: a.jsonl:2: not JSON", "error: none: cannot be read"), strict=True
        )
    ]


def test_ingest_of_nothing_readable_fails(tmp_path):
    """When no record could be loaded the exit code says so."""
    (tmp_path / "a.jsonl").write_text("{\n" * 30)
    result = run("ingest", tmp_path / "a.jsonl", "--home", tmp_path / "home")

    assert result.exit_code == 2
    assert 30 == len(result.stderr.splitlines())


def test_declared_fields_filter_a_search(tmp_path):
    """`--field` makes a payload field usable in `--where`."""
    rows = [{"id": str(stars), "text": "a pump", "title": str(stars), "stars": stars} for stars in (1, 5)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    at = ("--home", tmp_path / "home", "--collection", "parts")
    run("ingest", tmp_path / "a.jsonl", "--field", "stars=number", *at)
    found = answer("search", "pump", "--where", '{"range": ["stars", {"gte": 3}]}', *at)

    assert ["5#"] == [each["id"][:2] for each in found["results"]]


def test_search_shows_redacted_passages_of_permitted_records(home):
    """Support finds the mail without its card; the public user does not find it at all."""
    asked = ("search", "charged twice card payment", "--home", home, "--limit", 50)
    mine = {each["citation"]["record_id"]: each for each in answer(*asked, *ANNA)["results"]}
    theirs = {each["citation"]["record_id"] for each in answer(*asked, *DEMO)["results"]}

    assert "<CARD_1>" in mine["mail-101"]["text"]
    assert "4111" not in json.dumps(mine)
    assert not {record for record in theirs if record.startswith(("mail", "budget"))}


def test_search_prints_a_table_or_says_that_nothing_matches(home):
    """People see scores and passages, or one sentence; a tenant that has loaded nothing is told so."""
    nothing = ("--where", '{"equals": ["source", "nowhere"]}')
    assert "storm-watch" in run("search", "storm watch", "--home", home, *DEMO).stdout
    assert run("search", "🜁", "--home", home, *DEMO, *nothing).stdout == "nothing matches\n"
    assert "contexture ingest" in run("search", "🜁", "--home", home, "--tenant", "nobody").output


def test_a_built_context_is_whole(built):
    """The JSON of a build has the prompt, its cost, its sources and its ledger."""
    assert {"build_id", "messages", "text", "tokens", "token_counts", "citations", "ledger", "degradations"} < set(
        built
    )
    assert built["tokens"] <= built["max_tokens"] == 300
    assert sum(built["token_counts"].values()) == built["tokens"]
    assert {"kept", "dropped"} <= {entry["state"] for entry in built["ledger"]}


def test_a_request_on_standard_input_builds_the_same(home, built):
    """Without a QUERY the request is read as JSON, and equals the one typed."""
    request = {"query": QUESTION, "max_tokens": 300}
    read = answer("build", "query", "--home", home, *DEMO, "--now", "2026-01-01", stdin=json.dumps(request))

    assert built["digest"] == read["digest"]


def test_a_build_for_people_names_the_next_step(home):
    """Panels hold the messages, the last line what it cost, and standard error how to go on."""
    result = run("build", "query", "storm watch", "--max-tokens", 250, "--home", home, *DEMO)

    assert "[1] (Storm watch)" in result.stdout
    assert "of 250 tokens" in result.stdout.splitlines()[-1]
    assert f"--home {home} --tenant demo --user demo" in result.stderr


def test_a_model_without_its_tokenizer_is_marked_as_estimated(home):
    """Estimated counts are never shown as exact ones."""
    result = run("build", "query", "storm", "--model", "claude-4.5", "--max-tokens", 400, "--home", home, *DEMO)

    assert "tokens (estimated):" in result.stdout


def test_explain_prints_the_ledger(home, built):
    """Every candidate is in the table, with its state and reason."""
    found = run("explain", built["build_id"], "--home", home, *DEMO)
    data = answer("explain", built["build_id"], "--home", home, *DEMO)

    assert "over budget" in found.stdout
    assert data["ledger"] == built["ledger"]


def test_explain_says_what_would_have_admitted_a_candidate(home, built):
    """With the tokens that `explain` asks for, the candidate is in."""
    dropped = next(entry["id"] for entry in built["ledger"] if entry["reason"] == "over_budget")
    why = answer("explain", built["build_id"], dropped, "--home", home, *DEMO)
    said = run("explain", built["build_id"], dropped, "--home", home, *DEMO).stdout
    larger = 300 + why["more_tokens"]
    more = answer("build", "query", QUESTION, "--max-tokens", larger, "--home", home, *DEMO)

    assert f"{why['more_tokens']} more tokens of budget" in " ".join(said.split())
    assert {"kept", "shortened"} & {entry["state"] for entry in more["ledger"] if entry["id"] == dropped}


def test_explain_of_a_kept_candidate_says_so(home, built):
    """Nothing would have to change for what is in the prompt."""
    kept = next(entry["id"] for entry in built["ledger"] if entry["state"] == "kept")

    assert "It is in the prompt." in run("explain", built["build_id"], kept, "--home", home, *DEMO).stdout


def test_another_user_is_told_that_there_is_no_such_build(home, built):
    """A build of somebody else is answered like one that never was."""
    refused = run("explain", built["build_id"], "--home", home, *ANNA)
    unknown = run("explain", "ctx-000000000000", "--home", home, *ANNA)

    assert (2, 2) == (refused.exit_code, unknown.exit_code)
    assert refused.stderr.replace(built["build_id"], "X") == unknown.stderr.replace("ctx-000000000000", "X")


def test_a_capsule_replays_and_a_changed_one_fails(home, tmp_path):
    """Equal bytes exit with 0; one changed letter exits with 1 and says that the bytes differ."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    run("build", "query", "storm watch", "--capsule", good, "--home", home, *DEMO)
    bad.write_text(good.read_text().replace("telephone", "telegraph"))

    assert answer("replay", good)["identical"] is True
    assert run("replay", good, "--show").stdout.startswith("identical: ")
    failed = run("replay", bad)
    assert failed.exit_code == 1
    assert "changed after it was written" in failed.stderr


def test_capsules_with_a_part_missing_are_refused(home, tmp_path):
    """A capsule that lost any of its keys is a clear error, whatever the key."""
    good = tmp_path / "good.json"
    run("build", "query", "storm watch", "--capsule", good, "--home", home, *DEMO)
    whole = json.loads(good.read_text())

    for lost in whole.keys() - {"format"}:
        result = run("replay", "-", stdin=json.dumps({name: value for name, value in whole.items() if name != lost}))
        assert result.exit_code in {1, 2}
        assert result.stderr.startswith("error: this ")


def test_demo_shows_three_contexts_and_works_twice(tmp_path):
    """The first run loads, the second finds everything there; both show redaction and the ledger."""
    first = run("demo", "--no-serve", "--home", tmp_path)
    second = answer("demo", "--home", tmp_path)

    assert first.exit_code == 0
    assert "33 added, 0 unchanged" in " ".join(first.stdout.split())
    assert (0, 33) == (second["loaded"]["added"], second["loaded"]["unchanged"])
    assert "<CARD_1>" in first.stdout
    assert "over budget" in first.stdout
    assert ["demo", "anna", "demo"] == [scene["user"] for scene in second["scenes"]]
    assert all(scene["build_id"] in first.stdout for scene in second["scenes"])
    assert all(scene["tokens"] <= scene["max_tokens"] for scene in second["scenes"])


def test_a_locked_store_exits_with_three(home):
    """A source that lets us down is told apart from a bad request."""
    from contexture.adapters.index.lock import StoreLock

    held = StoreLock(home)
    try:
        result = run("search", "storm", "--home", home, "--json")
    finally:
        held.release()

    assert result.exit_code == 3
    error = json.loads(result.stdout)["error"]
    assert ("UNAVAILABLE", True) == (error["code"], error["retryable"])


def test_settings_name_their_source(tmp_path, monkeypatch):
    """Each setting says its value, its default, its variable, and who set it."""
    monkeypatch.setenv("CONTEXTURE_MAX_TOKENS", "77")
    rows = {row["name"]: row for row in answer("settings", "--home", tmp_path)["settings"]}

    assert ("environment", 77, 2000) == tuple(rows["max_tokens"][key] for key in ("source", "value", "default"))
    assert ("option", str(tmp_path)) == tuple(rows["home"][key] for key in ("source", "value"))
    assert ("default", "CONTEXTURE_PACKER") == tuple(rows["packer"][key] for key in ("source", "env"))
    assert "CONTEXTURE_MAX_TOKENS" in run("settings").stdout


def test_tokens_count_files_rows_and_standard_input(tmp_path):
    """A text has one count; a JSONL file one per row, in order."""
    (tmp_path / "a.jsonl").write_text('{"text": "hello world"}\n\n{"text": ""}\n{"text": "привет"}\n')

    assert answer("tokens", "--encoding", "o200k_base", "--jsonl", tmp_path / "a.jsonl")["counts"] == [2, 0, 2]
    assert answer("tokens", "-", "--encoding", "cl100k_base", stdin="hello world")["counts"] == [2]
    assert run("tokens", "-", stdin="hello world").stdout == "2\n"


def test_tokens_are_those_of_the_real_tokenizers(eval_data):
    """Every text of the public samples counts exactly what the reference counted."""
    file = eval_data / "token-truth" / "samples.jsonl"
    rows = [json.loads(line) for line in file.read_bytes().split(b"\n") if line]

    for encoding in ("o200k_base", "cl100k_base"):
        counts = answer("tokens", "--encoding", encoding, "--jsonl", file)["counts"]
        assert [row[encoding] for row in rows] == counts


def test_evaluations_print_their_measures(tmp_path):
    """Each kind of evaluation answers with its documented keys."""
    rows = [{"id": "a", "title": "", "text": "The pump is broken."}, {"id": "b", "title": "", "text": "Tea is ready."}]
    (tmp_path / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"id": "q", "text": "broken pump", "gold": ["a"]}))
    at = ("--home", tmp_path / "home")
    ranked = answer("eval", "retrieval", tmp_path, *at)
    packed = answer("eval", "budget", tmp_path, "--tokens", "200,400", *at)

    assert 1.0 == ranked["ndcg@10"] == ranked["recall@5"] == ranked["mrr@10"]
    assert {"recall@10", "recall@100", "queries", "p50_ms", "p95_ms"} <= set(ranked)
    assert ["200", "400"] == list(packed)
    assert 1.0 == packed["200"]["gold_hit"]
    assert "ndcg@10" in run("eval", "retrieval", tmp_path, *at).stdout
    assert "200 gold_hit" in run("eval", "budget", tmp_path, "--tokens", "200", *at).stdout


def test_span_and_redaction_evaluations_print_their_measures(tmp_path):
    """Spans are measured in characters, redaction by label."""
    (tmp_path / "corpora").mkdir()
    (tmp_path / "corpora" / "one.md").write_text("The pump is broken. Tea is ready.")
    question = {"id": "q", "text": "broken pump", "corpus": "one", "spans": [[0, 19]]}
    (tmp_path / "queries.jsonl").write_text(json.dumps(question))
    (tmp_path / "pii.jsonl").write_text(json.dumps({"text": "to a@example.com", "spans": [[3, 16, "EMAIL_ADDRESS"]]}))

    assert answer("eval", "spans", tmp_path, "--tokens", 200, "--home", tmp_path / "home")["recall"] == 1.0
    assert answer("eval", "redaction", tmp_path)["pii"]["labels"]["EMAIL"]["recall"] == 1.0


@pytest.mark.parametrize(
    "words",
    [
        ("search", "x", "--where", "{"),
        ("search", "x", "--where", '{"like": ["a", "b"]}'),
        ("search", "x", "--home", "/dev/null"),
        ("search", "x", "--home", "nowhere"),
        ("search", "x", "--limit", "0"),
        ("build", "query", "x", "--now", "tomorrow"),
        ("build", "query", "x", "--max-tokens", "0"),
        ("build", "query", "x", "--where", "["),
        ("replay", "/dev"),
        ("replay", "nowhere.json"),
        ("replay", sys.executable),
        ("tokens", "/dev"),
        ("tokens", sys.executable),
        ("tokens", "--jsonl", sys.executable),
        ("tokens", __file__, "--jsonl"),
        ("tokens", __file__, "--encoding", ""),
        ("ingest", "nowhere"),
        ("ingest", __file__, "--field", "stars"),
        ("ingest", __file__, "--field", "stars=money"),
        ("ingest", __file__, "--collection", "../up"),
        ("eval", "retrieval", "nowhere"),
        ("eval", "retrieval", __file__),
        ("eval", "budget", "/dev", "--tokens", "many"),
        ("eval", "budget", "/dev", "--tokens", "0"),
        ("eval", "spans", "/dev"),
        ("eval", "redaction", "/dev"),
        ("explain", "../../etc/passwd"),
        ("nothing",),
        ("search",),
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_input_is_one_clear_error(words, tmp_path, monkeypatch):
    """Exit code 2, a line on standard error without `--json`, an object on standard output with it."""
    monkeypatch.chdir(tmp_path)
    people, machines = run(*words), run(*words, "--json")

    assert (2, 2) == (people.exit_code, machines.exit_code)
    assert "rror: " in people.stderr
    assert "Traceback" not in people.output
    found = json.loads(machines.stdout)
    assert {"code", "user_message", "tech_message", "retryable", "message", "type"} == set(found["error"])
    assert {"version", "correlation_id"} == set(found["meta"])


@pytest.mark.parametrize(
    "stdin", ["", "{", "[]", '{"max_tokens": 5}', '{"query": 5}', '{"query": "x", "colour": "red"}', b"\xff\xfe"]
)
def test_a_bad_request_on_standard_input_is_refused(home, stdin):
    """What is no request is named as such."""
    result = run("build", "query", "--json", "--home", home, stdin=stdin)

    assert result.exit_code == 2
    assert json.loads(result.stdout)["error"]["code"] == "VALIDATION_FAILED"


def test_a_bad_variable_is_named():
    """A setting that cannot be read says which variable holds it."""
    number = run("settings", env={"CONTEXTURE_MAX_TOKENS": "many"})
    aliased = run("settings", env={"CONTEXTURE_MEMORY_MAX_RETRIES": "-1"})
    groups = run("settings", env={"CONTEXTURE_GROUPS": "sales"})

    assert (2, 2, 2) == (number.exit_code, aliased.exit_code, groups.exit_code)
    assert "CONTEXTURE_MAX_TOKENS is 'many'" in number.stderr
    assert "error: CONTEXTURE_MEMORY_MAX_RETRIES is '-1'" in aliased.stderr
    assert "lists are written as JSON" in groups.stderr


def test_a_capsule_that_cannot_be_written_is_an_error(home, tmp_path):
    """The path is named."""
    result = run("build", "query", "storm", "--capsule", tmp_path, "--home", home, *DEMO)

    assert result.exit_code == 2
    assert f"cannot write '{tmp_path}'" in result.stderr


def test_loaded_text_cannot_steer_the_terminal(tmp_path):
    """Escape sequences in a record are shown as replacement characters."""
    (tmp_path / "evil.md").write_text("storm \x1b[31mred\x1b]0;title\x07 \u202egnp")
    run("ingest", tmp_path / "evil.md", "--home", tmp_path / "home")
    shown = run("search", "storm", "--home", tmp_path / "home").stdout

    assert "red" in shown
    assert not set("\x1b\x07\u202e") & set(shown)


def test_help_is_printed_without_loading_models_or_the_index():
    """`contexture --help` imports none of the heavy parts."""
    heavy = ("numpy", "onnxruntime", "simsimd", "presidio_analyzer", "pydantic", "tiktoken")
    code = (
        "import sys, typer.testing, contexture.cli.main as main;"
        "typer.testing.CliRunner().invoke(main.app, ['--help']);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"


def test_the_version_is_printed():
    """`--version` prints the name and the version."""
    assert run("--version").stdout.startswith("contexture ")


def test_a_closed_pipe_is_no_traceback():
    """Readers like `head` may leave early."""
    contexture = shutil.which("contexture", path=str(Path(sys.executable).parent))
    for words in ("settings --json", "settings", "doctor --help"):
        found = subprocess.run(
            ["bash", "-c", f"{contexture} {words} | true"], capture_output=True, text=True, check=False
        )
        assert found.stderr == ""


def test_an_interrupt_is_one_line(tmp_path):
    """Ctrl-C ends a load with exit code 130 and no traceback; the store can be opened afterwards."""
    rows = (json.dumps({"id": str(n), "text": f"pump {n} " * 40}) for n in range(3_000))
    (tmp_path / "a.jsonl").write_text("\n".join(rows))
    # A shell that runs the tests in the background lets them, and whatever they start, ignore Ctrl-C.
    command = ["env", "--default-signal=INT", sys.executable, "-c", "from contexture.cli.main import app; app()"]
    command += ["ingest", str(tmp_path / "a.jsonl"), "--home", str(tmp_path / "home")]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "home" / "truth.sqlite").exists() and running.poll() is None:
        os.sched_yield()
    running.send_signal(signal.SIGINT)
    _, said = running.communicate()

    assert (130, "error: interrupted\n") == (running.returncode, said)
    assert run("search", "pump", "--home", tmp_path / "home").exit_code == 0


@pytest.mark.parametrize("reason", UnsupportedReason)
def test_every_reason_for_doubt_is_printed_in_words(reason):
    """A sentence of an answer without support is shown with what is wrong with it."""
    doubt = {"sentence": "It costs 9 euros.", "lack": reason.value, "missing": ["9"]}
    answer = {
        "answer": "It costs 9 euros.", "sources": [], "cited": [], "missing": [], "removed_markers": [],
        "unsupported": [doubt], "model": "m", "extractive": False, "tokens": 9, "build_id": "ctx-1", "degradations": [],
    }  # fmt: skip

    shown = "\n".join(map(str, render_answer(answer)))

    assert re.search(r'unsupported: "It costs 9 euros\." (is|has|cites) [\w ]+ \(9\)', shown)
