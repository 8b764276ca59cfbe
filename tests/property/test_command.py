"""Whatever is typed: it is understood the same way again, and the answer is one of those that are documented."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contexture.builders.command._parser import parse_command, split_sources
from contexture.builders.command.collect import RECOVERY_RULES
from contexture.builders.command.compose import MAX_SNIPPET_CHARS, make_snippet
from contexture.builders.command.request import AbTest, ExperimentArm, assign_arm
from contexture.builders.command.syntax import ALIASES, CLOSED_VALUES, MODES, Command, ParsedCommand, Window
from contexture.config import Settings
from contexture.errors import CommandError, InvalidRequest
from contexture.testing.doubles import NOON
from contexture.text.segmentation import split_sentences
from contexture.types import Scope
from support.commands import CommandBench, article
from support.service import small_engine

FORESEEN = {"NO_DATA", "VALIDATION_FAILED"}
ALL = {}
NONE = dict.fromkeys(["auto_expand_window", "relax_filters_on_empty", "fallback_rerank_false_on_empty"], False)
QUOTES = ['"', "'", "«", "»", "“", "”", "„", "\\", "=", ":", ",", "--", "@", "/"]
WORDS = [
    *ALIASES,
    *(value for values in CLOSED_VALUES.values() for value in values),
    "rerank",
    "no-rerank",
    "k",
    "8",
    "новости",
]
piece = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from(QUOTES),
    st.text(max_size=12),
    st.text(alphabet="абвгд абв", max_size=8),
    st.sampled_from([" ", "  ", "\n", "\t", "\u00a0"]),
)
lines = st.lists(piece, max_size=14).map("".join)
typed = st.sampled_from([*MODES, "/memory store", "/memory suggest", "/graph query", "/events link"])
texts = st.text(min_size=1, max_size=40).filter(str.strip)
names = (
    st.text(alphabet="abc.-ж /:w", min_size=1, max_size=12).map(split_sources).filter(bool).map(lambda found: found[0])
)
commands = st.builds(
    ParsedCommand,
    command=st.sampled_from(Command),
    window=st.none() | st.sampled_from(Window),
    lang=st.sampled_from([None, "ru", "en", "auto"]),
    sources=st.lists(names, max_size=3, unique=True).map(tuple),
    domains=st.lists(names, max_size=3, unique=True).map(tuple),
    topic=st.none() | texts,
    entity=st.none() | texts,
    query=st.none() | texts,
    text=st.just("") | texts,
    k=st.none() | st.integers(5, 10),
    hops=st.none() | st.integers(1, 3),
    rerank=st.sampled_from([None, True, False]),
    policy=st.sampled_from([None, "on_demand", "cached_only"]),
).map(lambda made: replace(made, text="" if made.query else made.text))


@given(typed, lines)
@settings(max_examples=500)
@example("/ask", "topic='a'b' c")
@example("/memory store", "'a  b' \"c")
def test_parsing_printing_and_parsing_again_is_the_identity(command, args):
    """A line that is understood at all is understood the same way once it is printed."""
    try:
        once = parse_command(command, args)
    except InvalidRequest:
        return

    assert once == parse_command(once.to_command_line())


@given(commands)
def test_every_command_can_be_written_down(command):
    """Any command there is parses from its printed form."""
    assert command == parse_command(command.to_command_line())


@pytest.fixture(scope="module")
def runner():
    """One event loop for all examples: making one takes longer than a build."""
    with asyncio.Runner() as found:
        yield found


@pytest.fixture(scope="module")
def engine(runner, lasting_folder):
    """The real store, small: one article in each language, and one that holds everything that could break a line."""
    strange = "Сирень и lilac — 紫丁香 'quoted' \u202edrow\u202c \\ [1] (k=8): «lang=ru» 😀"
    opened = small_engine(Settings(home=lasting_folder()))
    found = runner.run(opened.__aenter__())
    made = [article("en", "News of pumps."), article("ru", "Новости насосов.", lang="ru"), article("any", strange)]
    runner.run(found.news.add(found.scope, made, now=NOON))
    yield found
    runner.run(opened.__aexit__(None, None, None))


def answered(runner, build, raws):
    """The codes of the errors, and whether there was none; asked in one go, because starting a loop costs as much."""

    async def codes():
        return {await answer(build, raw) for raw in raws}

    return runner.run(codes())


async def answer(build, raw):
    """The code of the error, or that there was none."""
    try:
        await build(raw)
    except CommandError as failure:
        return failure.to_dict()["error"]["code"]
    return "BUILT"


def composed(seed, pieces):
    """Twenty lines out of these pieces: drawing each by itself would take longer than answering it."""
    draw = random.Random(seed)
    return ["".join(draw.choices([*pieces, *WORDS, " ", " "], k=draw.randrange(15))) for _ in range(20)]


@pytest.mark.slow
@given(typed, st.integers(0, 2**32), st.lists(piece, min_size=4, max_size=40))
@settings(max_examples=500)
def test_ten_thousand_lines_are_answered_as_documented(runner, engine, command, seed, pieces):
    """A context, NO_DATA or VALIDATION_FAILED from the real store: nothing that is typed is an internal error.

    One line in twenty climbs the whole ladder, as all would; for the others the first search is enough.
    """
    raws = [
        {"raw_command": command, "args": args, "user_lang": "ru", "env": {"feature_flags": NONE if at else ALL}}
        for at, args in enumerate(composed(seed, pieces))
    ]

    assert answered(runner, engine.commands.build_context, raws) <= {*FORESEEN, "BUILT"}


def _json():
    simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=8)
    return st.recursive(
        simple, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    )


@given(
    st.dictionaries(
        st.sampled_from(["raw_command", "args", "user_lang", "env", "ab_test", "other"]),
        _json() | st.just("/ask") | st.fixed_dictionaries({"defaults": _json(), "version": _json()}),
    )
    | _json()
)
@settings(max_examples=300)
def test_malformed_requests_are_refused(runner, raw):
    """Whatever is sent instead of a request is named as what it is not."""
    assert answered(runner, CommandBench().builder().build_context, [raw]) <= FORESEEN


def test_hostile_strings_are_answered_as_documented(eval_data, runner, engine):
    """Naughty strings as command, arguments and values, against the real store: nothing is an internal error."""
    strings = json.loads(next(eval_data.glob("blns/*.json")).read_text(encoding="utf-8"))
    raws = [
        raw
        for text in strings
        for raw in (
            {"raw_command": text},
            {"raw_command": "/ask", "args": text, "env": {"feature_flags": NONE}},
            {"raw_command": "/graph", "args": f"topic={text} window=6h", "env": {"feature_flags": NONE}},
        )
    ]

    assert len(raws) > 1_000
    assert {*FORESEEN, "BUILT"} == answered(runner, engine.commands.build_context, raws)


@given(st.text(max_size=600), st.text(max_size=30))
def test_snippets_are_short_lines_of_their_text(text, query):
    """A snippet is one line of at most 240 characters, and but for the mark at its end all of it is in the text."""
    shown = make_snippet(text, split_sentences(text), query)

    assert len(shown) <= MAX_SNIPPET_CHARS
    assert "\n" not in shown
    assert shown.removesuffix("…").strip() in " ".join(text.split())


@given(st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=120))
def test_snippets_end_after_a_word(lengths):
    """A cut falls between two words wherever words are short enough."""
    words = [f"{'w' * min(length, 30)}" for length in lengths]
    shown = make_snippet(" ".join(words), (), "")

    assert shown.removesuffix("…").split() == words[: len(shown.removesuffix("…").split())]


@given(st.text(max_size=10), st.text(min_size=1, max_size=10))
def test_an_arm_is_assigned_once_and_for_all(experiment, user):
    """The same user is in the same arm of an experiment every time, and it is one of its arms."""
    arms = {"a": ExperimentArm(), "b": ExperimentArm(k_final=9)}
    scope, asked = Scope(tenant="t", user=user), AbTest(experiment=experiment or "e")
    first, arm = assign_arm(asked, {experiment or "e": arms}, scope)

    assert (first, arm) == assign_arm(asked, {experiment or "e": arms}, scope)
    assert arms[first.arm] == arm


def test_arms_are_shared_evenly():
    """Over many users no arm is starved."""
    arms = {"a": ExperimentArm(), "b": ExperimentArm()}
    scopes = [Scope(tenant="t", user=f"u{at}") for at in range(1_000)]
    chosen = [assign_arm(AbTest(experiment="e"), {"e": arms}, scope)[0].arm for scope in scopes]

    assert 400 < chosen.count("a") < 600


def test_the_ladder_gives_up_freshness_before_precision():
    """An empty answer first widens the window, then drops filters, then reranking; at most five windows are tried."""
    assert [("window", 5), ("filters", 1), ("rerank", 1)] == [(rung.name, rung.most) for rung in RECOVERY_RULES]


@pytest.mark.parametrize("args", ["' " * 2_000, "'a " * 1_300, "« " * 2_000, "k=" * 2_000, "-" * 4_000, "\\" * 4_000])
def test_long_runs_of_signs_are_answered(runner, args):
    """Text made of signs alone is refused or understood, not pondered."""
    raw = {"raw_command": "/ask", "args": args}

    assert answered(runner, CommandBench().builder().build_context, [raw]) <= FORESEEN
