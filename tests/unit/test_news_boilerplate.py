"""Boilerplate of articles: what the rules mark, what they leave, and what a source repeats."""

from __future__ import annotations

import json
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.news.articles import Article, article_to_record
from contexture.news.boilerplate import RepeatedLines, find_boilerplate, is_sentence
from contexture.testing.doubles import NOON
from contexture.text.segmentation import invert_ranges

ARTICLES = Path(__file__).parents[1] / "support" / "articles" / "russian_agencies.jsonl"

STORY = "The harbour council approved the new ferry timetable after two hours of debate."
RU_STORY = "Городской совет утвердил новое расписание паромов после двухчасовых споров."

PREFIXES = (
    "(CNN) ",
    "London (CNN) ",
    "New York (CNN Business) ",
    "Colombo, Sri Lanka CNN — ",
    "WASHINGTON – ",
    "GARDINER, Mont. – ",
    "ENGLEWOOD, Colo. (AP) — ",
    "NEW YORK (AP) -- ",
    "LONDON, June 3 (Reuters) - ",
    "Oslo/Bergen/Stavanger (CNN) ",
    "Oct 12 (Reuters) - ",
    "KYIV, Ukraine (AFP) — ",
    "Lviv, Ukraine — ",
    "(Bloomberg) -- ",
    "Seoul, South Korea ",
)
RU_PREFIXES = (
    "МОСКВА, 12 мая. /ТАСС/. ",
    "МОСКВА, 12 мая - РИА Новости. ",
    "САНКТ-ПЕТЕРБУРГ, 4 июн — РИА Новости, Анна Кольцова. ",
    "Москва. 5 марта. INTERFAX.RU - ",
    "Екатеринбург. 12 мая. ИНТЕРФАКС-УРАЛ - ",
    "МИНСК, 3 мая (БЕЛТА). ",
    "ВЛАДИВОСТОК, 1 сентября. /Корр. ТАСС Пётр Лунин/. ",
    "12 ноября. Interfax-Russia.ru - ",
    "МОСКВА, 3 окт — ПРАЙМ. ",
    "ТАСС, 9 августа. ",
    "НИЖНИЙ НОВГОРОД, 8 декабря. ",
    "РБК — ",
    "МУРМАНСК, 8 декабря 2025, 10:15 — REGNUM ",
)
LINES = (
    "CNN —",
    "London CNN Business —",
    "Editor’s Note: A version of this story ran in our Sunday edition.",
    "Correction: An earlier report misspelled the name of the ferry.",
    "This story has been updated with additional developments.",
    "This story and headline have been updated.",
    "By Maria Holt and Jan Berg, Staff Writers",
    "Contributing: The Associated Press",
    "— Anna Reed contributed reporting.",
    "Our colleague Jo Lane contributed to this report.",
    "Follow Anna Reed on Twitter: @annareed.",
    "Photo: Ivar Lund/Getty Images",
    "A ferry leaves the harbour at dawn. Ivar Lund/AFP/Getty Images",
    "Ivar Lund/AFP/Getty Images A ferry leaves the harbour on May 3.",
    "Photos: Ferries A ferry leaves. Hide Caption 1 of 9 Photos: Ferries A ferry returns. Hide Caption 2 of 9",
    "Ferries wait. Ivar Lund/AFP/Getty Images A crew sings. Rafiq Holm/AP Passengers cheer the crew on Monday.",
    "Guards stand at the gate of the harbour office in Bergen, Norway, August 8, 2022.",
    "Ferries wait for their crews at the pier in Bergen, Norway, Friday, May 3, 2024.",
    "A timetable is displayed at the pier in Bergen, Norway, on May 3, 2024.",
    "Captain Ivar Lund addresses a press conference in Bergen on May 3, 2024.",
    "A truck sits on the edge of the pier, Friday, May 3, 2024, in Bergen, after a storm swept it away.",
    "Crews sing. Ivar Lund for CNN A ferry leaves. Ivar Lund for CNN Ferries wait in the fog on Monday.",
    "Captain Ivar Lund greets guests at the pier in Bergen on May 3.",
    f"Crews run from a storm that closed the harbour {'and the ports ' * 15}in Bergen, on Saturday. Ivar Lund/Reuters",
    "A captain waits for his crew amid the fog in Bergen, Norway, on May 3.",
    "People celebrate at the pier in Bergen upon learning about the end of the strike on Friday.",
    "Children near the old ferry in the harbour of Bergen on May 3.",
    "More:Who is Ivar Lund? The captain refused the new timetable of the ferries.",
    "Harbour reporter Anna Reed reports on the ferries. Plus, why the fog stays so long.",
    "This story is part of Harbours, our series on ports in winter. For more, see the list of all parts.",
    "This is the weekly edition of our harbour newsletter. Look out for it every Wednesday.",
    "Update: This story was originally published on May 3. It has been updated with the new timetable.",
    "Ivar Lund is a captain and the author of two books. The views expressed in this commentary are his own.",
    "OSLO, NORWAY - MAY 03: In this aerial view, ferries wait. (Photo by Ivar Lund/Getty Images)",
    "In this photo provided by the harbour office, a ferry is towed.",
    "Read More",
    "Read more: Why the ferries are late",
    "More:Ferries, fares and fog: five things to know",
    "For subscribers: What the council did not say",
    "RELATED: The long history of the ferry line",
    "Who is Ivar Lund?:Meet the captain who refused the new ferry timetable",
    "'It was so quiet':How a ferry lost its engine in the middle of the fjord",
    "He predicted the ferry would be late. Hear what he says about the next one",
    "JUST WATCHED Ferry leaves the fjord Replay More Videos ... MUST WATCH Ferry leaves the fjord 02:16",
    "A ferry with its new name on the bow, courtesy of the harbour office",
    "Ferries matter here and that's why we're working to bring you top coverage of the fjord.",
    "Sign up for our morning newsletter and get the news in your inbox.",
    "Get our free weekly newsletter Sign up here to get it every Tuesday.",
    "Video Ad Feedback 02:24 - Source: CNN How ferries are built",
    "1. How relevant is this ad to you?",
    "Video player was slow to load content Video content never loaded",
    "We use cookies to improve your experience.",
    "By continuing to use this site you agree to our terms.",
    "© 2026 Harbour Herald. All rights reserved.",
    "Share this article",
    "Follow us on Facebook",
    "Click here to read the full report.",
    "Advertisement",
    "Recommendations are independently chosen by our editors. Purchases through our links may earn us a commission.",
)
RU_LINES = (
    "От редакции: в тексте исправлена дата заседания.",
    "Материал обновлён в 14:20.",
    "Новость дополнена комментарием пресс-службы.",
    "Автор: Мария Холодова",
    "Текст: Иван Петров",
    "Иван Петров, специальный корреспондент",
    "Автор Мария Холодова",
    "Мария Холодова | Иван Петров",
    "Купить фото",
    "Новости СМИ2",
    "Хроника 4 марта 2024",
    "Реклама. ООО «Причал». erid: 2SDnabc",
    "Самые важные новости — в Telegram-канале редакции",
    "Этот материал вышел в номере газеты «Причал» от 4 марта.",
    "Рассылка «Причала»: самое важное о портах",
    "Остановить прослушивание",
    "Использование материалов разрешено только при наличии активной ссылки.",
    "Поделиться: ВКонтакте Одноклассники Telegram",
    "Фото: Егор Снетков / ТАСС",
    "© РИА Новости / Анна Кольцова",
    "На фото: паром у причала",
    "Архивное фото: паром в доке",
    "Читайте также: Почему опаздывают паромы",
    "Материалы по теме:",
    "Подробнее — в нашем материале о паромах.",
    "Подпишитесь на нашу рассылку и получайте новости первыми.",
    "Подписывайтесь на наш канал в Telegram.",
    "Мы используем файлы cookie, чтобы сайт работал лучше.",
    "При использовании материалов сайта активная ссылка обязательна.",
    "Все права защищены.",
    "Поделиться в Telegram",
    "Нашли опечатку? Выделите её и нажмите Ctrl+Enter.",
    "Реклама",
    "Время чтения: 3 минуты",
    "Слушать новость",
)
SENTENCES = (
    "Amazon (AMZN) on Thursday said it would open a warehouse in the harbour.",
    "Tesla (TSLA) CEO Elon Musk spoke to the council.",
    "The photo shows how high the water rose, the council said in its report.",
    "Finland wants to become a member of NATO before the summit.",
    "She follows the harbour news closely and reads every newsletter the council sends.",
    "More than 1,000 people signed the petition against the timetable.",
    "Follow-up work on the pier begins in March, the mayor said.",
    "The captain said:“Nobody told us that the engine was broken.”",
    "Bergen, Norway, is where the ferries of the northern line are built.",
    "The council asked what the ferry costs. See what happens in a year, the mayor replied.",
    "None of the ferries have been delivered to customers yet, the yard said here on Monday.",
    "The strike is part of a series of walkouts in the ports of the north.",
    "The yard told the council on Friday, May 3, that it would build two ferries.",
    "Serena Williams — the greatest of her time — retired on Tuesday.",
    "Corrections officers at the island prison went on strike.",
    "Sales sank after it came out that he left the yard to attend a party on June 19, 2020, for which he apologized.",
    "A judge in Bergen decided the case of the ferry on May 3.",
    "A new timetable takes effect after the council votes on Friday.",
    "The council meets to vote on the ferry on May 3.",
    "The yard stands idle until March 3, 2025, because the crews wait for parts.",
    "The mayor looks at a ferry that, she said, was built on May 3, 2019, in Bergen.",
    "Статья вышла в журнале об арктических портах.",
    "Реклама паромной линии обошлась городу в 3 млн рублей.",
    "Главное управление МЧС сообщило о трёх спасённых рыбаках.",
    "Текст договора стороны опубликуют в пятницу.",
    "Видео с места аварии изучает полиция.",
    "Подробнее о причинах аварии комиссия расскажет через неделю.",
    "Автор законопроекта Ирина Белова попросила отложить голосование.",
)


def story(text: str) -> str:
    """What is left of a text without its boilerplate."""
    spans = [(found.start, found.end) for found in find_boilerplate(text)]
    return "".join(text[start:end] for start, end in invert_ranges(spans, len(text))).strip()


@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_english_dateline_is_marked(prefix):
    """Only the story is left of a first line that begins with a dateline."""
    assert STORY == story(prefix + STORY)


@pytest.mark.parametrize("prefix", RU_PREFIXES)
def test_a_russian_dateline_is_marked(prefix):
    """Only the story is left of a first line that begins as agencies print it."""
    assert RU_STORY == story(prefix + RU_STORY)


@pytest.mark.parametrize("line", LINES)
def test_an_english_line_of_boilerplate_is_marked(line):
    """The line is left out before, between and after the sentences of the story."""
    assert [STORY, STORY] == story(f"{line}\n\n{STORY}\n\n{line}\n\n{STORY}\n\n{line}").split("\n\n\n\n")


@pytest.mark.parametrize("line", RU_LINES)
def test_a_russian_line_of_boilerplate_is_marked(line):
    """The line is left out before, between and after the sentences of the story."""
    assert [RU_STORY, RU_STORY] == story(f"{line}\n\n{RU_STORY}\n\n{line}\n\n{RU_STORY}\n\n{line}").split("\n\n\n\n")


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_of_a_story_are_left(sentence):
    """A sentence that only resembles boilerplate stays."""
    assert sentence == story(sentence)


def test_a_long_line_without_a_full_stop_is_a_sentence():
    """A first sentence that lost its full stop is the lead; a heading and a line that introduces a list are not."""
    words = (
        "The council approved the ferry timetable on Monday after two hours of debate about fares and about the winter"
    )

    assert is_sentence(words)
    assert not is_sentence(f"{words}:")
    assert not is_sentence("How the council came to approve the new timetable")


def test_names_above_the_story_are_a_byline():
    """A line of names before the first sentence is marked; the same line after it is not."""
    assert STORY == story(f"Maurie Backman\nThe Harbour Herald\n\n{STORY}")
    assert f"{STORY}\nNew Orleans" == story(f"{STORY}\nNew Orleans")


def test_the_captions_of_a_gallery_are_found_by_one_of_them():
    """Lines of one sentence that end with a day are captions beside one that surely is; alone they are not."""
    caption = "A captain waits for his crew amid the fog in Bergen, Norway, on May 3."
    other = "Guards outside the yard where the ferries were brought in Bergen, Norway, on May 3."

    assert STORY == story(f"{caption}\n\n{STORY}\n\n{other}")
    assert other in story(f"{STORY}\n\n{other}")


def test_the_text_stays_whole_and_passages_leave_boilerplate_out():
    """The record keeps every character; the marks are offsets into it."""
    text = f"CNN —\n\n{STORY}\n\nRead More"
    record = article_to_record(Article(article_id="a", title="Ferries", text=text), NOON)

    assert text == record.text
    assert ["CNN —", "Read More"] == [text[start:end] for start, end in record.payload["boilerplate"]]


@pytest.mark.parametrize(
    "row", [json.loads(line) for line in ARTICLES.read_text("utf-8").splitlines()], ids=lambda row: row["id"]
)
def test_articles_as_russian_agencies_print_them_keep_their_story_alone(row):
    """Of a whole article with dateline, byline, captions and teasers the story is left, sentence by sentence."""
    assert row["story"] == " ".join(story(row["text"]).split())


def learned(line, titles, text=""):
    """Whether a line is repeated after articles with these titles held it."""
    lines = RepeatedLines()
    for at, title in enumerate(titles):
        lines.learn(f"a{at}", title, f"{text}\n{line}\nA sentence about matter number {at}.")
    return line in lines


UNRELATED = ("Ferries run late again", "Parliament passes budget", "Storm closes mountain road", "Singer wins award")


def test_a_line_that_four_unrelated_articles_hold_is_learned():
    """Three articles are not enough."""
    line = "Harbour Herald needs readers like you today"

    assert learned(line, UNRELATED)
    assert not learned(line, UNRELATED[:3])


def test_a_background_paragraph_is_not_learned():
    """A line that speaks of what its articles are about is part of the story, however often it is repeated."""
    titles = [f"Ferry strike {word}" for word in ("begins", "spreads", "hits islands", "talks fail", "ends", "costs")]

    assert not learned("The ferry strike began when crews refused the new timetable.", titles)


def test_copies_of_one_article_do_not_make_a_line_repeated():
    """The same story stored many times is one article."""
    assert not learned("Crews meet on the pier at noon", ["Ferries run late again"] * 9)


@given(st.text(alphabet="AaБб (CNN)—-.,:/©\n1é", max_size=400))
def test_marks_are_in_order_and_inside_the_text(text):
    """Whatever a text holds, its marks never overlap and lie inside it."""
    spans = find_boilerplate(text)
    edges = [edge for span in spans for edge in (span.start, span.end)]

    assert sorted(edges) == edges
    assert all(0 <= edge <= len(text) for edge in edges)


HOSTILE = ("A" * 90 + "!", "A" * 50_000, "A " * 50_000, "By " + "A, " * 45, "(" * 50_000, "— " + "AAA " * 28 + "!",
           "МОСКВА " * 20_000, "А" * 100 + "!", "a\n" * 50_000, "Contributing: " + "A" * 500 + "\x00")  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_are_read_in_linear_time(text):
    """No pattern backtracks without bound: the processor time per character stays small."""
    before = process_time()
    find_boilerplate(text)

    assert process_time() - before < 5
