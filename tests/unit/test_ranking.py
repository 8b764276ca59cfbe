"""The ranking signals, and the times that questions name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace as changed

from contexture.retrieval._time_ranges import DateRange, find_time_range
from contexture.retrieval.encoders import Similarity
from contexture.retrieval.ranking import RankedQuestion, load_ranking_model, rank_hits
from contexture.text.terms import find_lemmas, question_terms
from contexture.types import PUBLIC, Hit, Passage, Record

NOW = datetime(2026, 11, 18, 15, 30, tzinfo=UTC)
MODEL = load_ranking_model()


def make_hit(record_id: str, text: str, bm25: float = 0.0, **fields: object) -> Hit:
    """A hit of one passage with this text."""
    nothing = Passage(start=0, end=len(text), sentences=(), redactions=(), tokens={}, simhash=0, terms={}, vectors={})
    return Hit(
        record=Record(id=record_id, text="", acl=(PUBLIC,), **fields),  # pyright: ignore[reportArgumentType]
        hash="",
        ordinal=0,
        text=text,
        passage=nothing,
        title_redactions=(),
        rules="",
        scores={"bm25": bm25},
        ranks={},
    )


def ask(text: str, now: datetime | None = NOW) -> RankedQuestion:
    """A question in English."""
    return RankedQuestion.parse(text, "en", question_terms(text, "en"), find_time_range(text, now))


def similar(cosine: float) -> Similarity:
    """The similarity of a plain cosine."""
    return Similarity(cosine, cosine, cosine)


def span(first: tuple[int, int, int], last: tuple[int, int, int]) -> DateRange:
    """The days from one to before the other."""
    return DateRange(datetime(*first, tzinfo=UTC), datetime(*last, tzinfo=UTC))


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did Anna buy on 8 May 2023?", span((2023, 5, 8), (2023, 5, 9))),
        ("What did Anna buy on May 8th, 2023?", span((2023, 5, 8), (2023, 5, 9))),
        ("What happened in March 2024", span((2024, 3, 1), (2024, 4, 1))),
        ("Who came in December?", span((2025, 12, 1), (2026, 1, 1))),
        ("Log of 2026-04-08", span((2026, 4, 8), (2026, 4, 9))),
        ("Chat 20260408", span((2026, 4, 8), (2026, 4, 9))),
        ("Who won in 2021?", span((2021, 1, 1), (2022, 1, 1))),
        ("What did I eat yesterday?", span((2026, 11, 17), (2026, 11, 18))),
        ("Which film did we see last week?", span((2026, 11, 9), (2026, 11, 16))),
        ("Which show was renewed this week?", span((2026, 11, 12), (2026, 11, 19))),
        ("Where was she two days ago?", span((2026, 11, 16), (2026, 11, 17))),
        ("What changed last month?", span((2026, 10, 1), (2026, 11, 1))),
        ("Что купила Анна 8 мая 2023 года?", span((2023, 5, 8), (2023, 5, 9))),
        ("Кто приезжал в декабре?", span((2025, 12, 1), (2026, 1, 1))),
        ("О чём говорили вчера?", span((2026, 11, 17), (2026, 11, 18))),
        ("Что решили на прошлой неделе?", span((2026, 11, 9), (2026, 11, 16))),
        ("Где она была три дня назад?", span((2026, 11, 15), (2026, 11, 16))),
        ("Что изменилось в прошлом месяце?", span((2026, 10, 1), (2026, 11, 1))),
        ("You may go now", None),
        ("How does the army march?", None),
        ("31 February 2024", None),
        ("Version 2023 of the tool", None),
        ("Who is marching?", None),
        ("", None),
    ],
)
def test_times_in_questions(question: str, expected: DateRange | None) -> None:
    """Days, months, years and relative times are found in English and Russian; other words are none."""
    assert expected == find_time_range(question, NOW)


def test_relative_times_need_a_clock() -> None:
    """Without the time of the question only complete dates mean something."""
    assert find_time_range("What did I eat yesterday?") is None
    assert span((2023, 5, 8), (2023, 5, 9)) == find_time_range("8 May 2023")


def test_a_record_of_the_time_named_comes_first() -> None:
    """Among equal records the one from the day in the question has the highest score."""
    hits = [
        make_hit("a", "We had soup.", time=datetime(2026, 11, 1, tzinfo=UTC)),
        make_hit("b", "We had soup.", time=datetime(2026, 11, 17, 20, tzinfo=UTC)),
        make_hit("c", "We had soup."),
    ]
    early, named, undated = rank_hits(hits, [similar(0.5)] * 3, ask("What did I eat yesterday?"), MODEL)

    assert named.score > early.score > undated.score
    assert 1.0 == named.signals["time"]
    assert "time" not in undated.signals


def test_a_lone_word_does_not_get_the_full_lexical_share() -> None:
    """The best passage by BM25 counts less when it has only one of the question's words."""
    question = ask("Which pump leaks oil near the harbour wall?")
    one, all_ = (
        rank_hits([replace_matched(make_hit("a", "x", 3.0), matched)], [similar(0.5)], question, MODEL)[0]
        for matched in (1, len(question.terms))
    )

    assert 1.0 == all_.signals["lexical"]
    assert one.signals["lexical"] < 0.5


def replace_matched(hit: Hit, matched: int) -> Hit:
    """The hit with this number of matched terms."""
    return changed(hit, matched=matched)


def with_term_scores(hit: Hit, parts: dict[int, float]) -> Hit:
    """The hit with these parts of its BM25."""
    return changed(hit, term_scores=parts)


def test_an_answer_gains_from_the_question_before_it() -> None:
    """A message after a question that matches scores higher than one after a statement."""
    texts = ["Anna: Where is the key?", "Bob: Under the mat.", "Anna: The key is gone.", "Bob: Under the mat."]
    places = [("s", 0), ("s", 1), ("t", 0), ("t", 1)]
    hits = [
        make_hit(f"m{at}", text, session=session, position=position)
        for at, (text, (session, position)) in enumerate(zip(texts, places, strict=True))
    ]
    cosines = [similar(cosine) for cosine in (0.8, 0.4, 0.8, 0.4)]
    _, answer, _, remark = rank_hits(hits, cosines, ask("Where is the key?"), MODEL)

    assert answer.score > remark.score
    assert answer.signals["question_before"] > 0 == remark.signals["question_before"]


def test_the_speaker_asked_about_is_preferred() -> None:
    """Of two equal messages the one from the person in the question comes first; two names prefer nobody."""
    hits = [make_hit(name, f"{name}: I went hiking.", session=name, position=0) for name in ("Anna", "Bob")]
    anna, bob = rank_hits(hits, [similar(0.5)] * 2, ask("What did Anna do?"), MODEL)
    both = rank_hits(hits, [similar(0.5)] * 2, ask("What did Anna and Bob do?"), MODEL)

    assert anna.score > bob.score
    assert both[0].score == both[1].score


def test_a_greeting_does_not_win_by_a_name_alone() -> None:
    """The name of a speaker counts half of what another word of the same weight counts."""
    anna, key = (next(iter(*question_terms(word, "en"))) for word in ("Anna", "key"))
    hits = [
        with_term_scores(make_hit(text, text, 4.0, session=session, position=0, payload={"speaker": speaker}), parts)
        for text, session, speaker, parts in (
            ("Hello Anna!", "s", "Bob", {anna: 4.0}),
            ("The key is here.", "t", "Bob", {key: 4.0}),
            ("Bye.", "u", "Anna", {}),
        )
    ]
    greeting, answer, _ = rank_hits(hits, [similar(0.5)] * 3, ask("Anna's key"), MODEL)

    assert answer.score > greeting.score
    assert answer.signals["lexical"] == greeting.signals["lexical"]
    assert answer.signals["lexical_unnamed"] > greeting.signals["lexical_unnamed"] == 0


def test_a_russian_title_is_analysed_only_for_questions_with_russian_words() -> None:
    """Lemmas take longer than all the rest of a ranking, and no English word equals a Russian one."""
    hits = [make_hit("a", "The ship left.", title="Хрюндель зюкнул", lang="ru")]
    before = find_lemmas.cache_info().misses
    english = rank_hits(hits, [similar(0.5)], ask("Where is the ship?"), MODEL)
    analysed = find_lemmas.cache_info().misses
    russian = rank_hits(hits, [similar(0.5)], ask("Где Хрюндель?"), MODEL)

    assert before == analysed
    assert 0.0 == english[0].signals["title"] < russian[0].signals["title"]


def test_a_record_with_several_messages_is_a_dialogue() -> None:
    """Dialogues have a larger lexical share than prose, in which a colon means nothing."""
    dialogue = make_hit("d", "Anna: Where is the key?\nBob: Under the mat.", 1.0)
    prose = make_hit("p", "Note: the key lies under the mat.\nNothing else was found there.", 1.0)
    (talk,), (text,) = (rank_hits([hit], [similar(0.0)], ask("the key mat"), MODEL) for hit in (dialogue, prose))

    assert talk.score > text.score


def test_every_kind_has_weights() -> None:
    """Lexical weights, with names and without, and semantic ones add up to one for every kind and language."""
    weights = [*MODEL.by_kind.values(), *MODEL.by_language.values()]

    assert {"prose", "dialogue", "turn"} == set(MODEL.by_kind)
    assert all(abs(each.lexical + each.lexical_unnamed + each.semantic - 1) < 1e-9 for each in weights)
    assert MODEL.weights("prose", "en") != MODEL.weights("prose", "ru") == MODEL.weights("prose", "de")


def test_the_order_of_hits_does_not_matter() -> None:
    """Equal hits have equal scores in whatever order the index gives them."""
    hits = [make_hit(f"m{at}", f"Anna: word {at}?", at % 3, session="s", position=at, time=NOW) for at in range(12)]
    cosines = [similar(at / 12) for at in range(12)]
    forward = rank_hits(hits, cosines, ask("word 3 yesterday"), MODEL)
    backward = rank_hits(hits[::-1], cosines[::-1], ask("word 3 yesterday"), MODEL)

    assert [each.score for each in forward] == [each.score for each in backward[::-1]]
