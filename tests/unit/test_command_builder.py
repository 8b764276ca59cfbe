"""Commands built over scripted news: priorities, limits, documents, experiments, errors."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from msgspec.structs import replace as changed

from contexture.adapters.token_counters import counter_for
from contexture.builders.command.compose import TITLE_CHARS
from contexture.builders.command.request import PACKAGE_VERSION, CommandRequest, ExperimentArm, override_routing
from contexture.capsule import pack_capsule
from contexture.config import Settings
from contexture.engine import replay
from contexture.errors import (
    CommandFailed,
    CommandRefused,
    InvalidRequest,
    NothingFound,
)
from contexture.ledger import Reason, State
from contexture.testing.doubles import FailingRedactor
from contexture.types import Scope
from contexture.wiring._builders import experiments
from support.commands import HIDDEN, SIX, CommandBench, ScriptedNews, found, surroundings
from support.replay import replayer


async def built(raw, *answers, scope=None, **parts):
    """A command built over these answers of the news."""
    bench = CommandBench(news=ScriptedNews(answers or [list(SIX)]), **parts)
    return await bench.builder().build_context({"raw_command": "/ask", **raw}, scope=scope)


@pytest.mark.parametrize(
    ("args", "user_lang", "default", "lang"),
    [
        ("lang=ru", "en", "en", "ru"),
        ("", "ru", "en", "ru"),
        ("", "ru-RU", "en", "ru"),
        ("", "auto", "en", "en"),
        ("", "de", None, "auto"),
        ("", None, None, "auto"),
        ("lang=auto", "ru", "en", "auto"),
    ],
)
async def test_an_argument_beats_the_user_who_beats_the_defaults(args, user_lang, default, lang):
    """The language is the argument's, else the user's, else the default."""
    made = await built({"args": args, "user_lang": user_lang, "env": surroundings({"lang": default})})

    assert lang == made.params.lang


@pytest.mark.parametrize(
    ("args", "defaults", "flags", "rerank"),
    [
        ("", {}, {}, True),
        ("", {"rerank_enabled": False}, {}, False),
        ("rerank", {"rerank_enabled": False}, {}, True),
        ("no-rerank", {"rerank_enabled": True}, {}, False),
        ("rerank=true", {"rerank_enabled": True}, {"enable_rerank": False}, False),
    ],
)
async def test_reranking_is_asked_for_or_switched_off(args, defaults, flags, rerank):
    """The argument beats the default, and the flag beats everything."""
    made = await built({"args": args, "env": surroundings(defaults, **flags)})

    assert [rerank, rerank] == [made.params.rerank_enabled, made.retrieval.rerank_enabled]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ("query=one topic=two entity=three", "one"),
        ("topic=two entity=three", "two"),
        ("entity=three", "three"),
        ("topic=two what now", "two what now"),
        ('topic="two" what now', "two what now"),
        ("what now", "what now"),
        ("24h", "latest news"),
    ],
)
async def test_what_is_searched_for_has_its_priorities(args, text):
    """The query, else the topic, else the entity, else any news."""
    news = ScriptedNews([SIX])
    await CommandBench(news=news).builder().build_context({"raw_command": "/ask", "args": args})

    assert text == news.asked[0][0].text


async def test_limits_have_floors():
    """Too little is raised to what a command needs; more is left alone."""
    low = await built({"env": surroundings({"max_tokens": 1, "budget_cents": 0, "timeout_s": 0.5})})
    high = await built({"env": surroundings({"max_tokens": 9_000, "budget_cents": 99, "timeout_s": 30.5})})

    assert low.to_dict()["limits"] == {"max_tokens": 2_048, "budget_cents": 25, "timeout_s": 8}
    assert high.to_dict()["limits"] == {"max_tokens": 9_000, "budget_cents": 99, "timeout_s": 30.5}


async def test_domains_are_sources_too():
    """Both names filter, and each stays under its own."""
    news = ScriptedNews([SIX])
    made = (
        await CommandBench(news=news)
        .builder()
        .build_context({"raw_command": "/ask", "args": "sources=a.com domains=b.com,a.com"})
    )

    assert news.asked[0][0].sources == ("a.com", "b.com")
    assert [("a.com",), ("b.com", "a.com"), ("a.com", "b.com")] == [
        made.params.sources,
        made.params.domains,
        made.retrieval.sources,
    ]


async def test_a_document_without_a_date_says_so():
    """It is dated by its loading, and the ledger says that."""
    undated = replace(SIX[0], dated_by_loading=True)
    made = await built({}, [undated, *SIX[1:]])
    notes = {entry.id: entry.note for entry in made.ledger.entries}

    assert "2026-06-01" == made.to_dict()["retrieval"]["docs"][0]["date"]
    assert notes["a0#00000"].startswith("dated by its loading")
    assert "" == notes["a1#00000"]


async def test_other_languages_are_told_beside_the_two():
    """A German document is `en` for those who know two languages, and `de` for the others."""
    made = await built({}, [found("de", "Die Pumpe leckt.", lang="de", score=1), *SIX[:5]])
    german, english = made.to_dict()["retrieval"]["docs"][:2]

    assert ["en", "de"] == [german["lang"], german["spoken"]]
    assert "spoken" not in english


async def test_a_document_without_a_title_is_called_by_its_text():
    """A title is never empty."""
    bare = replace(SIX[0], candidates=(changed(SIX[0].candidates[0], title="", text="Pump " * 60),))
    made = await built({}, [bare])

    assert ("Pump " * 60)[:TITLE_CHARS] == made.retrieval.docs[0].title


async def test_only_one_passage_of_an_article_is_shown():
    """The others are in the ledger, and with the document for those who want more."""
    best = SIX[0].candidates[0]
    more = changed(best, id="a0#00001", key="a0#00001", text="Another leak.", score=0.1)
    made = await built({}, [replace(SIX[0], candidates=(best, more)), *SIX[1:]])
    entry = made.ledger.find("a0#00001")

    assert (State.DROPPED, Reason.BEYOND_TOP_K, "a0#00000") == (entry.state, entry.reason, entry.of)
    assert 2 == len(made.retrieval.docs[0].passages)


async def test_everything_shown_is_redacted():
    """Query, topic, title, snippet, url, prompt, keys and capsule are without the hidden word."""
    said = f"the {HIDDEN} leaks"
    told = found("a", f"Where the {HIDDEN} is. {said}")
    secret = replace(
        told,
        article=replace(told.article, url=f"https://example.org/{HIDDEN}"),
        candidates=(changed(told.candidates[0], title=said),),
    )
    made = await built({"raw_command": "/memory recall", "args": f"query={said} topic={HIDDEN}"}, [secret])

    assert HIDDEN not in str(made.to_dict())
    assert HIDDEN not in pack_capsule(made.capsule).decode()
    assert said == made.asked.query


async def test_what_cannot_be_redacted_is_left_out():
    """A passage on which redaction fails is dropped, its address too; a query on which it fails is refused."""
    poisoned = found("bad", "This is poison.")
    told = await built({}, [poisoned, *SIX], redactor=FailingRedactor("poison"))

    assert "bad" not in [each.article_id for each in told.retrieval.docs]
    assert Reason.REDACTION_FAILED is told.ledger.find("bad#00000").reason
    with pytest.raises(CommandFailed) as failure:
        await built({"args": "poison"}, redactor=FailingRedactor("poison"))
    assert ["INTERNAL", True] == [failure.value.to_dict()["error"][name] for name in ("code", "retryable")]


async def test_what_nobody_foresaw_is_an_answer_too():
    """A bug below the builder is INTERNAL under an id of its own; it is the cause, and its words are told to nobody."""
    with pytest.raises(CommandFailed) as failure:
        await built({"env": {"version": "mine-7"}}, ValueError("the password is hunter2"))
    told = failure.value.to_dict()

    assert ["INTERNAL", True] == [told["error"][name] for name in ("code", "retryable")]
    assert "mine-7" == told["meta"]["version"]
    assert re.fullmatch(r"ctx-error-[0-9a-f]{8}", told["meta"]["correlation_id"])
    assert "hunter2" not in str(told)
    assert isinstance(failure.value.__cause__, ValueError)


async def test_a_prompt_never_exceeds_its_limit():
    """Documents that do not fit are left out, and the ledger says so."""
    dear = [found(f"d{at}", "\U0001f9ff" * 240, score=1 - at / 100) for at in range(10)]
    made = await built({"args": "k=10", "env": surroundings({"max_tokens": 2_048})}, dear)

    assert made.tokens <= 2_048
    assert 0 < made.retrieval.k_final < 10
    assert 10 - made.retrieval.k_final == sum(entry.reason is Reason.OVER_BUDGET for entry in made.ledger.entries)


async def test_a_question_longer_than_the_limit_is_refused():
    """What alone exceeds the limit cannot be shown with anything."""
    with pytest.raises(CommandRefused, match="raise the budget"):
        await built({"args": "\U0001f9ff" * 2_000, "env": surroundings({"max_tokens": 2_048})})


async def test_a_command_replays_to_the_same_bytes():
    """The capsule alone gives the same prompt and the same ledger."""
    made = await built({"args": "topic=pump"})
    capsule, ledger = replay(pack_capsule(made.capsule))

    assert made.messages == capsule.messages
    assert made.ledger == ledger


async def test_equal_requests_at_one_time_are_equal_builds():
    """Ids, bytes and errors are the same for the same request, user and clock, and differ with them."""
    one, same = await built({"args": "topic=pump"}), await built({"args": "topic=pump"})
    other = await built({"args": "topic=pump"}, scope=Scope(tenant="local", user="anna"))

    assert one.to_dict() == same.to_dict()
    assert re.fullmatch(r"ctx-[0-9a-f]{12}", one.build_id)
    assert one.build_id != other.build_id
    ids = []
    for args in ("zeppelin", "zeppelin", "airship"):
        with pytest.raises(NothingFound) as nothing:
            await built({"args": args}, [])
        ids.append(nothing.value.correlation_id)
    assert re.fullmatch(r"ctx-error-[0-9a-f]{8}", ids[0])
    assert ids[0] == ids[1] != ids[2]


async def test_an_arm_changes_k_and_reranking_but_not_what_was_asked_for():
    """The arm beats the defaults, the arguments beat the arm, and the flag beats all."""
    experiments = {"e": {"few": ExperimentArm(k_final=5, rerank=False), "same": ExperimentArm()}}
    ab_test = {"experiment": "e", "arm": "few"}
    plain = await built({"ab_test": ab_test}, experiments=experiments)
    asked = await built({"ab_test": ab_test, "args": "k=6 rerank"}, experiments=experiments)

    assert [5, False] == [plain.params.k_final, plain.params.rerank_enabled]
    assert [6, True] == [asked.params.k_final, asked.params.rerank_enabled]
    assert ab_test == plain.to_dict()["ab_test"]


async def test_an_arm_weighs_words_and_meaning_anew():
    """With all weight on words, the document with the words comes first, and more are looked at."""
    signals = [{"lexical": at / 10, "cosine": 1 - at / 10} for at in range(6)]
    told = [
        replace(each, candidates=(changed(each.candidates[0], signals=known),))
        for each, known in zip(SIX, signals, strict=True)
    ]
    ab_test, arms = (
        {"experiment": "e", "arm": "words"},
        {"words": ExperimentArm(lexical=1.0), "meaning": ExperimentArm(lexical=0.0)},
    )
    words = await built({"ab_test": ab_test}, told, experiments={"e": arms})
    meaning = await built({"ab_test": {**ab_test, "arm": "meaning"}}, told, experiments={"e": arms})

    assert ["a5", "a0"] == [each.retrieval.docs[0].article_id for each in (words, meaning)]


async def test_an_arm_that_does_not_exist_is_refused():
    """The arms there are are named; an experiment nobody configured is carried along."""
    with pytest.raises(CommandRefused, match="experiment 'e' has no arm 'x'; there are a"):
        await built({"ab_test": {"experiment": "e", "arm": "x"}}, experiments={"e": {"a": ExperimentArm()}})
    carried = await built({"ab_test": {"experiment": "other", "arm": "x"}})

    assert {"experiment": "other", "arm": "x"} == carried.to_dict()["ab_test"]


async def test_the_routing_table_can_be_changed():
    """Another model for a command; a command or a list that cannot be meant is named."""
    made = await built({}, models=override_routing({"/ask --depth=deep": ("local", "gpt-5")}))

    assert {"primary": "local", "fallback": ["gpt-5"]} == made.to_dict()["models"]
    with pytest.raises(InvalidRequest, match="'/ask' is not a command"):
        override_routing({"/ask": ("gpt-5",)})
    with pytest.raises(InvalidRequest, match="needs at least one model"):
        override_routing({"/synthesize": ()})
    with pytest.raises(InvalidRequest, match="a share from 0 to 1"):
        ExperimentArm(lexical=2)


async def test_a_request_may_be_an_object_of_its_own():
    """A typed request says what a mapping says, and an error echoes its version."""
    made = (
        await CommandBench(news=ScriptedNews([SIX]))
        .builder()
        .build_context(CommandRequest(raw_command="/ask topic=pump"))
    )
    with pytest.raises(CommandRefused) as refusal:
        await built({"raw_command": "/x", "env": {"version": "v9"}})

    assert 6 == made.retrieval.k_final
    assert "v9" == refusal.value.to_dict()["meta"]["version"]
    with pytest.raises(CommandRefused, match="length") as refusal:
        await built({"env": {"version": "v" * 201}})
    assert PACKAGE_VERSION == refusal.value.to_dict()["meta"]["version"]


async def test_an_address_that_cannot_be_redacted_is_left_out():
    """The document stays, without its address, and a degradation says why."""
    told = replace(SIX[0], article=replace(SIX[0].article, url="https://example.org/poison"))
    made = await built({}, [told, *SIX[1:]], redactor=FailingRedactor("poison"))

    assert None is made.to_dict()["retrieval"]["docs"][0]["url"]
    assert "redactor" in [each.source for each in made.degradations]


async def test_a_capsule_that_holds_no_command_is_refused():
    """A plan that is missing, or that does not know its articles, is named."""
    capsule = (await built({})).capsule
    plan = {**capsule.request["plan"], "articles": []}

    with pytest.raises(InvalidRequest, match="does not hold a command"):
        replayer(counter_for("gpt-4o")).rebuild(replace(capsule, request={}))
    with pytest.raises(InvalidRequest, match="nothing is known of article 'a0'"):
        replayer(counter_for("gpt-4o")).rebuild(replace(capsule, request={"plan": plan}))


def test_settings_name_experiments_and_models():
    """Arms and tables are read from settings, and what cannot be meant is named with its variable."""
    arms = {"e": {"few": {"k_final": 5, "rerank": False, "lexical": 0.5}}}

    assert {"e": {"few": ExperimentArm(k_final=5, rerank=False, lexical=0.5)}} == experiments(
        Settings(command_experiments=arms)
    )
    with pytest.raises(InvalidRequest, match="CONTEXTURE_COMMAND_EXPERIMENTS"):
        experiments(Settings(command_experiments={"e": {"a": {"k_final": 1.5}}}))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("/aks x", "'/aks' — не команда; возможно, имелось в виду /ask?"),
        ("/weather", "'/weather' — не команда; есть /ask, /events"),
        ("", "команды нет; начните с /ask, "),
        ("/memory stor x", "'stor' (символ 9) — не режим /memory; возможно, имелось в виду /memory store?"),
        ("/ask days=7 x", "'days=7' (символ 6) — не аргумент; возможно, имелось в виду window=1w? Текст,"),
        ("/ask --colour x", "'--colour' (символ 6) — не аргумент; есть window, "),
        ("/ask lang=de", "'de' (символ 11) — не значение lang: подходят ru, en, auto, например lang=ru"),
        ("/ask k=many", "'many' (символ 8) — не значение k: укажите целое число от 5 до 10, например k=8"),
        ("/ask k=5 k=6", "k указано ещё раз (символ 10); укажите один раз: k=8"),
        ("/ask lang= window=24h", "у lang (символ 6) нет значения; напишите lang=ru"),
        ('/ask topic="AI', "кавычка (символ 12) не закрыта: "),
    ],
)
async def test_a_refusal_is_in_the_users_language(line, told):
    """What was typed and the keys stay as they are; the rest is Russian."""
    with pytest.raises(CommandRefused) as refused:
        await built({"raw_command": line, "args": "", "user_lang": "ru"})

    message = refused.value.to_dict()["error"]["user_message"]
    assert message.startswith(f"Команду не удалось выполнить, запрос нужно исправить: {told}")


async def test_a_refusal_is_told_in_the_language_of_the_user():
    """A Russian user reads a Russian sentence around the words that were typed; the technical message stays English."""
    with pytest.raises(CommandRefused) as refusal:
        await built({"raw_command": "/ask", "args": "days=3 забастовка", "user_lang": "ru"})

    told = refusal.value.to_dict()["error"]
    assert told["user_message"].startswith("Команду не удалось выполнить, запрос нужно исправить: 'days=3'")
    assert "window=3d" in told["user_message"]
    assert told["tech_message"].startswith("the command gave no context")
