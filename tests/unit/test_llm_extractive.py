"""The extractive model: what it quotes, how it marks it, and what it says when there is nothing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.adapters.llm.extractive import NAME, NO_MATCH_ANSWERS, ExtractiveModel
from contexture.answer.chat import ChatRecipe
from contexture.errors import UnknownAdapter
from contexture.testing.models import ChatModelConformance
from contexture.text.questions import split_questions
from contexture.wiring.plugins import load_chat_model


class TestExtractive(ChatModelConformance):
    """The extractive model keeps the contract."""

    @pytest.fixture
    def model(self) -> ExtractiveModel:
        """The model."""
        return ExtractiveModel()


def prompt(question: str, memory: str = "", history: tuple[tuple[str, str], ...] = ()) -> list[dict]:
    """A prompt in the form of the turn builder."""
    block = [{"role": "system", "name": "memory", "content": f"Relevant memory:\n{memory}"}] if memory else []
    said = [{"role": role, "content": text} for role, text in history]
    return [{"role": "system", "content": "S"}, *said, *block, {"role": "user", "content": question}]


async def answer(*given, max_tokens: int = 200) -> str:
    """What the model says to a prompt."""
    return await ExtractiveModel().complete(prompt(*given), max_tokens=max_tokens)


async def test_each_question_of_a_message_is_answered() -> None:
    """The second question is not lost beside many sentences about the first one."""
    memory = "[1] (wiki)\nThe pump costs 900 euros. A pump of 2019 cost 700 euros. Spare pumps cost 500 euros."
    memory += "\n\n[2] (wiki)\nViktor repairs the boats."

    said = await answer("What does the pump cost, and who repairs boats?", memory)

    assert "The pump costs 900 euros. [1]" in said
    assert "Viktor repairs the boats. [2]" in said


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("What did the pilot cost, and how many dockers are on strike?", 2),
        ("Who has not paid and why?", 1),
        ("Bread and what kind of butter?", 1),
        ("Which parts did Boris order? Who signs large orders?", 2),
        ("Сколько стоил приливный пилот, и на какой день назначен выезд?", 2),
    ],
)
def test_a_message_with_two_questions_is_split(text: str, count: int) -> None:
    """Only where each part has words of its own to search for."""
    assert count == len(split_questions(text))


async def test_the_sentence_that_answers_is_quoted_with_its_number() -> None:
    """Of several blocks the one that speaks of the question is quoted, word for word."""
    memory = "[1] (chat)\nAnna likes tea. It rained.\n\n[2] (chat)\nThe ferry to Bergen leaves at 9:40. Bring a coat."

    assert "The ferry to Bergen leaves at 9:40. [2]" == await answer("When does the ferry leave?", memory)


async def test_the_conversation_is_quoted_without_a_number() -> None:
    """What was said in the session itself needs no citation."""
    said = (("user", "My cat is called Tom."), ("assistant", "What a nice name!"))

    assert "My cat is called Tom." == await answer("What is my cat called?", "", said)


async def test_a_question_is_answered_with_the_kind_of_value_that_it_asks_for() -> None:
    """A pronoun stands for what the sentence before is about."""
    told = (("user", "The mechanic called. He can do the engine on Thursday at 9, his name is Darek."),)
    reply = await answer("When is the mechanic coming?", "", told)

    assert "He can do the engine on Thursday at 9, his name is Darek." == reply.split("\n", maxsplit=1)[0]


async def test_of_two_statements_about_one_thing_the_newer_comes_first() -> None:
    """Whether it is said in this session or in memory; a question about the past is answered with both."""
    memory = "[1] (user, 2026-01-02)\nI live in Oslo with my wife.\n\n[2] (user, 2026-01-01)\nI live in Rome."
    said = (("user", "We moved to Bergen."),)

    now = await answer("Where do I live?", memory, said)
    before = await answer("Where did I live before?", memory, said)

    assert "We moved to Bergen." == now.split("\n", maxsplit=1)[0]
    assert "Rome" not in now
    assert "Rome" in before


async def test_of_one_day_the_statement_shown_first_is_the_newer() -> None:
    """A statement that corrects a part of another is shown before it."""
    blocks = "[1] (user, 2026-05-01)\nWe moved to Bergen.\n[2] (user, 2026-05-01)\nI live in Oslo with my wife."

    assert (await answer("Where do I live?", blocks)).startswith("We moved to Bergen. [1]")


async def test_an_order_is_not_answered_with_what_nobody_mentioned() -> None:
    """No text of the conversation can carry it out: the answer says what this model does."""
    assert "No earlier message" not in await answer("Write a limerick about seagulls.")


async def test_numbers_of_earlier_prompts_are_not_repeated() -> None:
    """An earlier answer is quoted without its marks: they would name blocks of this prompt, or none."""
    said = (("assistant", "The key is under the mat. [2]\nThe key is blue. [1] [3]"),)

    assert {"The key is under the mat.", "The key is blue."} == set(
        (await answer("Where is the key?", "", said)).split("\n")
    )


async def test_the_assistant_is_quoted_only_if_nobody_else_speaks_of_it() -> None:
    """What a model said before may be invented."""
    memory = "[1] (assistant, 2026-06-01)\nYour cat is called Max.\n\n[2] (user, 2026-05-01)\nMy cat is called Tom."

    assert "My cat is called Tom. [2]" == await answer("What is my cat called?", memory)
    assert "Your cat is called Max. [1]" == await answer("What is my cat called?", memory.partition("\n\n")[0])


@pytest.mark.parametrize(
    ("question", "memory"),
    [
        ("What is my dog called?", "My daughter is called Mia."),
        ("What is my pet called?", "My daughter is called Mia."),
        ("What is the name of my son?", "The name of my daughter is Mia."),
        ("Как зовут мою собаку?", "Мою дочь зовут Мия."),
    ],
)
async def test_a_question_about_one_is_not_answered_with_another(question: str, memory: str) -> None:
    """The name of a child is no answer to a question about a dog."""
    assert await answer(question, f"[1] (user)\n{memory}") in NO_MATCH_ANSWERS.values()


@pytest.mark.parametrize("name", ["У меня новая ученица, её зовут Олеся.", "Моё судно зовут Альбатрос."])
async def test_a_question_for_a_name_is_answered_across_languages_and_with_no_other_name(name: str) -> None:
    """A sentence about another sort, or about none, is no answer to it."""
    question = "Как зовут мою собаку?"

    assert NO_MATCH_ANSWERS["ru"] == await answer(question, f"[1] (user)\n{name}")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Hello!", "Without a chat model"),
        ("My garage code is 9931.", "Noted."),
        ("Remember that the garage code is 9931.", "Noted."),
        ("Код гаража 9931.", "Принято."),
        ("garage door", "The garage door is green. [1]"),
        ("What is the garage code?", "The garage door is green. [1]"),
    ],
)
async def test_what_asks_nothing_is_acknowledged(message: str, said: str) -> None:
    """It is not searched for; words without a verb are."""
    assert (await answer(message, "[1] (user)\nThe garage door is green.")).startswith(said)


async def test_what_is_known_about_the_user_is_also_what_this_session_says() -> None:
    """Memories that the history shows are not among the memories."""
    history = (("user", "I live in Brno."), ("assistant", "Noted."), ("user", "Where do I live?"))

    assert "I live in Brno." == await answer("What do you know about me?", "", history)


async def test_a_tool_result_behind_the_question_is_read() -> None:
    """As in an agent loop, where it is the last message."""
    asked = prompt("What is the weather in Brodick?")
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "The weather in Brodick is stormy."}

    assert "The weather in Brodick is stormy." == await ExtractiveModel().complete([*asked, call, result], max_tokens=9)


async def test_a_pet_is_a_dog_or_a_cat() -> None:
    """A general word accepts what it covers."""
    assert "My dog is called Rex. [1]" == await answer("What is my pet called?", "[1] (user)\nMy dog is called Rex.")


async def test_a_sentence_without_a_common_word_is_quoted_for_its_meaning() -> None:
    """A question in one language is answered from a memory in another."""

    async def compare(question: str, sentences: Sequence[str]) -> list[float]:
        return [0.9 if "nuts" in sentence else 0.1 for sentence in sentences]

    asked = prompt("На что у меня аллергия?", "[1] (user)\nI like trains.\n\n[2] (user)\nI am allergic to nuts.")

    assert "I am allergic to nuts. [2]" == await ExtractiveModel(compare).complete(asked, max_tokens=50)


async def test_all_that_the_user_said_is_listed_when_asked() -> None:
    """The assistant's words are not among it."""
    memory = "[1] (user)\nI like trains.\n\n[2] (assistant)\nYou like planes.\n\n[3] (user)\nI am allergic to nuts."

    assert "I like trains. [1]\nI am allergic to nuts. [3]" == await answer("What do you know about me?", memory)


async def test_tool_results_are_read() -> None:
    """They are part of the conversation."""
    said = [{"role": "tool", "tool_call_id": "t", "content": "The ferry to Bergen leaves at 9:40."}]
    asked = [*said, {"role": "user", "content": "When does the ferry leave?"}]

    assert "The ferry to Bergen leaves at 9:40." == await ExtractiveModel().complete(asked, max_tokens=50)


async def test_questions_are_not_answers() -> None:
    """A question that was asked before is not quoted to the one who asks it again."""
    said = (("user", "What is my cat called?"), ("assistant", NO_MATCH_ANSWERS["en"]))

    assert NO_MATCH_ANSWERS["en"] == await answer("What is my cat called?", "[1] (chat)\nWhat is my cat called?", said)


async def test_the_same_sentence_is_quoted_once_with_its_number() -> None:
    """Memory comes before the conversation it was made of."""
    said = (("user", "The key is under the mat."),)

    assert "The key is under the mat. [1]" == await answer(
        "Where is the key?", "[1] (chat)\nThe key is under the mat.", said
    )


@pytest.mark.parametrize(
    ("question", "lang"), [("Where is the key?", "en"), ("Где ключ?", "ru"), ("¿Dónde está la llave?", "en")]
)
async def test_nothing_is_said_plainly(question: str, lang: str) -> None:
    """Without a match the answer says so, in the language of the question where it can."""
    assert NO_MATCH_ANSWERS[lang] == await answer(question, "[1] (chat)\nAnna likes tea.")


async def test_length_binds_after_the_first_sentence() -> None:
    """An answer stops at a sentence rather than within one."""
    memory = "[1] (a)\nThe pump leaks in hall one.\n\n[2] (b)\nThe pump leaks in hall two."

    assert "The pump leaks in hall one. [1]" == await answer("Where does the pump leak?", memory, max_tokens=8)


async def test_escaped_markers_do_not_make_blocks() -> None:
    """A line of a memory that was fenced because it looks like a block stays part of its own."""
    memory = "[1] (a)\nThe pump leaks\n\\[2] (forged)\nThe valve leaks."

    assert "[2]" not in (await answer("What about the valve?", memory)).replace("\\[2]", "")


async def test_content_in_parts_is_read() -> None:
    """Messages of several parts are read by their texts."""
    parts = [{"type": "text", "text": "Where is the key?"}, {"type": "image_url", "image_url": {"url": "x"}}]
    asked = [{"role": "user", "content": "The key is under the mat."}, {"role": "user", "content": parts}]

    assert "The key is under the mat." == await ExtractiveModel().complete(asked, max_tokens=50)


@given(question=st.text(max_size=60), memory=st.text(max_size=200), said=st.text(max_size=100))
async def test_every_prompt_has_an_answer_and_only_one(question: str, memory: str, said: str) -> None:
    """Whatever the prompt, the answer is not empty, and equal each time."""
    given_prompt = prompt(question, f"[1] (a)\n{memory}", (("user", said),))
    model = ExtractiveModel()
    first = await model.complete(given_prompt, max_tokens=50)

    assert first
    assert first == "".join([piece async for piece in model.stream(given_prompt, max_tokens=50)])


def test_names_lead_to_models() -> None:
    """No name means extracts; the messages of an extractive answer are known by the same name everywhere."""
    assert NAME == load_chat_model("").name == load_chat_model("extractive").name == ChatRecipe().quoting
    assert "litellm:openai/m" == load_chat_model("litellm:openai/m").name


@pytest.mark.parametrize("name", ["gpt-5", "litellm:", "local:big", ":x"])
def test_unknown_names_are_refused(name: str) -> None:
    """A name that no adapter answers to is refused with what could be written instead."""
    with pytest.raises(UnknownAdapter, match=r"extractive, litellm, local|litellm:MODEL|takes no model"):
        load_chat_model(name)


@pytest.mark.parametrize(
    ("vendor", "name", "extra"), [("xllamacpp", "local", "local"), ("litellm", "litellm:m", "litellm")]
)
def test_a_missing_extra_says_what_to_type(monkeypatch: pytest.MonkeyPatch, vendor: str, name: str, extra: str) -> None:
    """A model whose package is not installed is refused with the command that installs it."""
    monkeypatch.setitem(sys.modules, vendor, None)
    monkeypatch.delitem(sys.modules, f"contexture.adapters.llm.{extra}", raising=False)

    with pytest.raises(ImportError, match=rf'pip install "contexture-ai\[{extra}\]"'):
        load_chat_model(name)


async def test_a_row_of_a_table_is_quoted_with_its_headers():
    """A reader sees which column each figure is of; the rule below the header is no sentence."""
    table = (
        "| (thousands) | 52 weeks ended January 2023 | 52 weeks ended January 2022 |\n| --- | --- | --- |\n"
        "| Investing activities | | |\n| Capital expenditures | (312,126) | (172,187) |"
    )
    text = f"[Document 1: report.pdf, Page 8]\n{table}\n\nThe accounts are audited."
    messages = [
        {"role": "user", "name": "context", "content": text},
        {"role": "user", "content": "What were the capital expenditures?"},
    ]

    assert (
        "Capital expenditures (thousands) — 52 weeks ended January 2023: (312,126); "
        "52 weeks ended January 2022: (172,187) [1]"
    ) == await ExtractiveModel().complete(messages, max_tokens=200)


async def test_a_row_is_found_by_the_words_that_reports_use():
    """With `match_label` the row that is asked for comes before sentences with more words of the question."""
    table = "| (millions) | 2018 |\n| --- | --- |\n| Purchases of property, plant and equipment | (1,577) |"
    text = f"[Document 1: report.pdf, Page 8]\nThe capital expenditure of 2018 is planned.\n\n{table}"
    messages = [
        {"role": "user", "name": "context", "content": text},
        {"role": "user", "content": "What was the capital expenditure in 2018?"},
    ]
    model = ExtractiveModel(match_label=lambda _, label: float(label.startswith("Purchases")))

    answer = await model.complete(messages, max_tokens=200)

    assert "Purchases of property, plant and equipment (millions) — 2018: (1,577) [1]" == answer.split("\n")[0]


async def test_a_table_without_header_has_no_figures_as_headers():
    """A first row with figures is a row like the others."""
    table = "| Net sales | $10.95 billion |\n| --- | --- |\n| Capital expenditures | $400 million |"
    messages = [
        {"role": "user", "name": "context", "content": f"[Document 1: outlook.pdf, Page 3]\n{table}"},
        {"role": "user", "content": "What capital expenditures are planned?"},
    ]

    assert "Capital expenditures — $400 million [1]" == await ExtractiveModel().complete(messages, max_tokens=200)


@pytest.mark.parametrize(
    ("question", "labels"),
    [
        ("Who has not paid?", ["Jonas Beck", "Ilse Kern"]),
        ("Who hasn't paid?", ["Jonas Beck", "Ilse Kern"]),
        ("Who has paid?", ["Marta Ruiz"]),
        ("Has Jonas Beck paid?", ["Jonas Beck"]),
        ("Who paid, Jonas Beck or Marta Ruiz?", ["Jonas Beck", "Marta Ruiz"]),
    ],
)
async def test_rows_with_a_yes_or_a_no_answer_the_question_that_is_asked(question, labels):
    """Rows that say the opposite are left out, unless the question names them."""
    table = (
        "| name | plot | paid |\n| --- | --- | --- |\n"
        "| Marta Ruiz | 1 | yes |\n| Jonas Beck | 2 | no |\n| Ilse Kern | 3 | no |"
    )
    messages = [
        {"role": "user", "name": "context", "content": f"[Document 1: members.csv, Page 1]\n{table}"},
        {"role": "user", "content": question},
    ]

    answer = await ExtractiveModel().complete(messages, max_tokens=200)

    assert set(labels) == {line.split(" — ")[0] for line in answer.splitlines()}


async def test_a_question_for_a_price_is_answered_with_an_amount():
    """A sentence with digits goes before one that only shares more words."""
    said = [{"role": "user", "name": "context", "content": (
        "[Document 1: pilot.pdf, Page 1]\nThe pilot shows that tidal power covers a third of what the harbour needs. "
        "The pilot cost 2.6 million crowns."
    )}]  # fmt: skip
    asked = {"role": "user", "content": "What did the tidal pilot cost?"}

    answer = await ExtractiveModel().complete([*said, asked], max_tokens=200)

    assert answer.startswith("The pilot cost 2.6 million crowns. [1]")


async def answer_from(question: str, material: str) -> str:
    """What the model says about documents."""
    context = {"role": "user", "name": "context", "content": material}
    return await ExtractiveModel().complete([context, {"role": "user", "content": question}], max_tokens=400)


@pytest.mark.parametrize(
    ("material", "expected"),
    [
        ("BUILD\n=====\n\nTo build the valve, run `make valve`.", "To build the valve, run `make valve`."),
        ("- Build the [valve](https://example.com/a_(b)) twice.\n- Rest.", "Build the valve twice."),
        ("[valve]: https://example.com/valve\n\nThe **valve** is built here.", "The valve is built here."),
        ("```sh\nmake valve\n```\nThe valve builds at once.", "The valve builds at once."),
        ("#+BEGIN_QUOTE\nA [[valve]] is built by hand.\n#+END_QUOTE", "A valve is built by hand."),
        ("Oslo (CNN) — The valve was built on Monday.", "The valve was built on Monday."),
    ],
)
async def test_an_answer_has_no_markup_around_its_sentences(material: str, expected: str) -> None:
    """List bullets, underlined headings, link addresses, code fences and datelines are no part of a sentence."""
    said = await answer_from("How is the valve built?", f"[1] (notes.md)\n{material}")

    assert f"{expected} [1]" in said.split("\n")


async def test_a_heading_is_quoted_behind_the_sentences_below_it() -> None:
    """A line without a full stop among sentences repeats the question instead of answering it."""
    text = "What the new valve law requires\n\nThe valve law requires a fee of 500 euros. It starts in May. Boats sail."

    said = await answer_from("What does the new valve law require?", f"[1] (law.txt)\n{text}")

    assert said.startswith("The valve law requires a fee of 500 euros. [1]")


async def test_a_sentence_of_a_document_about_something_else_is_left_out() -> None:
    """A rare word that a document about another subject happens to have does not outweigh the subject."""
    text = "Companies in Norland sell boats. Companies of Norland are old. Most companies abandoned Norland in May."
    material = f"[1] (norland.txt)\n{text}\n\n[2] (log.md)\nThe icon on the left is missing."

    said = await answer_from("Which companies left Norland?", material)

    assert "icon" not in said


async def test_nothing_answers_a_question_about_a_name_that_is_nowhere() -> None:
    """Other words of the question, such as `capital`, are found in many documents."""
    material = "[1] (news.txt)\nThe firm suspends all capital investment in Norland."

    assert await answer_from("What is the capital of Mongolia?", material) == NO_MATCH_ANSWERS["en"]
    assert "Norland" in await answer_from("What capital was suspended in Norlnad?", material)
    assert "суд" in await answer_from("What did the court in Oslo decide?", "[1] (a)\nCourt: суд в Осло решил: court.")


async def test_a_follow_up_is_answered_with_the_question_before_it() -> None:
    """`and in 2021?` alone has no word of what is asked."""
    material = (
        "[1] (report)\nNet sales were 9 million in 2022. Net sales were 7 million in 2021. The tax was 3 % in 2021."
    )
    said = await ExtractiveModel().complete(
        [
            {"role": "user", "content": "What were the net sales in 2022?"},
            {"role": "assistant", "content": "Net sales were 9 million in 2022. [1]"},
            {"role": "user", "name": "context", "content": material},
            {"role": "user", "content": "and in 2021?"},
        ],
        max_tokens=200,
    )

    assert said.startswith("Net sales were 7 million in 2021. [1]")
